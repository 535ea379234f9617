"""The backends and which of them can run here.

A backend is a module (``MODULES``), which holds

- ``unavailable() -> str | None``: why it cannot run here and the one command that mends it;
- ``describe() -> str``: what it runs on, in a few words;
- ``Engine(pop, X, *, precision, dtype, threads)`` with ``evaluate`` and ``loss_sums``
  (see ``Engine`` below).

Adding a backend is adding such a module to ``MODULES``.

    >>> import exprkit as ek
    >>> ek.backends()["numpy"].available
    True
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple, Protocol

import numpy as np

from exprkit.errors import BackendError, brief, did_you_mean
from exprkit.expressions.population import Population

MODULES = {  # what "auto" takes of them: ``cost_model``
    "cpu": "cpu.engine", "cuda": "interpreter.engine", "ptx": "transpiler.engine", "numpy": "reference.engine",
}  # fmt: skip
NAMES = tuple(MODULES)
OTHER_WORDS = {"gpu": "cuda", "nvidia": "cuda", "host": "cpu"}


class Engine(Protocol):
    """A population made ready for one data set on one backend.

    Arrays come checked: C-contiguous, of the evaluator's dtype, ``params`` padded to
    (n_sets, n_exprs, max_params).  Invalid expressions give nan.
    """

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int | None
    ) -> None: ...

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sum over the points of w (f - y)^2 (kind "square") or w |f - y| ("absolute").

        ``y`` and ``weights`` are (n_points,); the result is float64 (n_sets, n_exprs).
        A point of weight 0 does not count, whatever f is there.
        """


class Status(NamedTuple):
    """Whether a backend can run here; ``detail`` is what it runs on, or why not and what mends it."""

    available: bool
    detail: str


def load(name: str) -> Any:
    """The module of a backend.

    Raises
    ------
    BackendError
        If there is no backend of that name, or it cannot run here.
    """
    if not isinstance(name, str):
        raise BackendError(f"there is no backend {brief(name)} (there are: auto, {', '.join(NAMES)})")
    if name == "auto":
        name = next(name for name in NAMES if status(name).available)
    if name not in NAMES:
        hint = did_you_mean(name.lower(), NAMES, OTHER_WORDS)
        raise BackendError(f"there is no backend {name!r}{hint} (there are: auto, {', '.join(NAMES)})")
    found = status(name)
    if not found.available:
        raise BackendError(f"backend {name!r} can't run here: {found.detail}")
    return _module(name)


def backends() -> dict[str, Status]:
    """Every backend with whether it can run here and, if not, why and what mends it."""
    return {name: status(name) for name in NAMES}


def status(name: str) -> Status:
    """Whether the backend of that name can run here."""
    module = _module(name)
    reason = module.unavailable()
    return Status(True, module.describe()) if reason is None else Status(False, reason)


def offered(name: str) -> tuple[str, ...]:
    """The options of a backend."""
    return tuple(getattr(_module(name), "OPTIONS", ()))


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{MODULES[name]}")
