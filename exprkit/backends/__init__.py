"""The list of backends, and which of them can run on this machine.

A backend is a module that ``MODULES`` names, with a ``BACKEND``: ``contract`` says what that is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, NamedTuple

from exprkit.errors import BackendError, brief, did_you_mean

if TYPE_CHECKING:  # imports NumPy, which ``import exprkit`` does without
    from exprkit.backends.contract import Backend

MODULES = {  # what "auto" takes of them: ``cost_model``
    "cpu": "cpu.engine",
    "cuda": "interpreter.engine",
    "ptx": "transpiler.engine",
    "numpy": "reference.engine",
}
NAMES = tuple(MODULES)
OTHER_WORDS = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu"}


class Status(NamedTuple):
    """Whether a backend can run here; ``detail`` is what it runs on, or why not and what mends it."""

    available: bool
    detail: str


def load(name: str) -> Backend:
    """A backend that can run here; BackendError if there is none of that name, or it cannot run here."""
    if isinstance(name, str) and name == "auto":
        name = next(name for name in NAMES if status(name).available)
    backend = known(name)
    if (reason := backend.unavailable()) is not None:
        raise BackendError(f"backend {name!r} can't run here: {reason}")
    return backend


def known(name: str) -> Backend:
    """A backend, whether it can run here or not; BackendError if there is none of that name."""
    if not isinstance(name, str):
        raise BackendError(f"there is no backend {brief(name)} (there are: auto, {', '.join(NAMES)})")
    if name not in NAMES:
        hint = did_you_mean(name.lower(), NAMES, OTHER_WORDS)
        raise BackendError(f"there is no backend {name!r}{hint} (there are: auto, {', '.join(NAMES)})")
    backend: Backend = importlib.import_module(f"{__name__}.{MODULES[name]}").BACKEND
    return backend


def backends() -> dict[str, Status]:
    """Every backend with whether it can run here and, if not, why and what mends it.

    Examples
    --------
    >>> import exprkit as ek
    >>> ek.backends()["numpy"].available
    True
    """
    return {name: status(name) for name in NAMES}


def status(name: str) -> Status:
    """Whether the backend of that name can run here."""
    backend = known(name)
    reason = backend.unavailable()
    return Status(True, backend.describe()) if reason is None else Status(False, reason)
