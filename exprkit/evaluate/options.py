"""Checks of the options and settings of ``Evaluator`` and ``fit``.

>>> from exprkit.evaluate.options import check_options
>>> check_options({"n_jobs": 2}, dict.fromkeys)
Traceback (most recent call last):
exprkit.errors.ArgumentError: fromkeys has no option 'n_jobs'
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from exprkit.backends import NAMES, known, load
from exprkit.backends.contract import Backend
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import opcodes
from exprkit.backends.precision import Precision
from exprkit.errors import OTHER_KEYWORDS, ArgumentError, BackendError, DataError, did_you_mean, flag, whole
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops


def check_options(options: dict[str, Any], called: Callable[..., Any]) -> None:
    """An error for what is neither an argument of ``called`` nor an option of any backend; names the nearest one."""
    for name in options:
        every = [option for backend in NAMES for option in known(backend).options]
        if name not in every:
            hint = did_you_mean(name, [*inspect.signature(called).parameters, *every], OTHER_KEYWORDS)
            raise ArgumentError(f"{called.__name__} has no option {name!r}{hint}")


def check_offered(backend: str, options: dict[str, Any], has: tuple[str, ...]) -> None:
    """An error for an option that the backend does not have."""
    for name in options:
        if name not in has:
            what = f"its options are {', '.join(has)}" if has else "it has none"
            raise ArgumentError(f"backend {backend!r} has no option {name!r}: {what}")


def for_backend(settings: Precision, name: str, takes_settings: bool) -> Any:
    """The settings for a backend that compiles for a GPU, the name for others."""
    if takes_settings:
        return settings
    if settings != Precision(settings.operators):
        raise ArgumentError(f"{name!r} takes precision by name only: 'ieee' or 'fast'")
    return settings.operators


def check_number(name: str, value: Any, most: int | None = None) -> int:
    """A whole number from 1 to ``most``."""
    return whole(name, value, 1, most, DataError)


def check_flag(name: str, value: Any) -> bool:
    """True or False."""
    return flag(name, value, DataError)


def check_runs(pop: Population | DevicePopulation, name: str, backend: Backend, sliced: Any = None) -> None:
    """An error for a population that a backend, perhaps on several devices, does not run.

    One of a device, or of functions that it has no text of.
    """
    if isinstance(pop, DevicePopulation) and not backend.takes_device_populations:
        mended = "" if sliced else ", or backend='cuda'"
        raise BackendError(f"{name!r} takes populations of the host: pop.to_host(){mended}")
    if backend.takes_settings:
        check_has_texts(pop, name)


def check_has_texts(pop: Population | DevicePopulation, name: str) -> None:
    """An error for a population of functions that a backend for GPUs has no text of, or none that compiles."""
    if not defined.functions():
        return
    codes = _codes(pop)
    for lacking in defined.without_cuda(codes)[:1]:
        raise BackendError(
            f"backend {name!r} has no operator {lacking!r}: it is defined without CUDA text; give it by cuda=, or "
            "take backend='cpu'"
        )
    _check_texts(name, codes)


def _check_texts(name: str, codes: Iterable[int]) -> None:
    """An error for CUDA text of operators that the compiler does not take."""
    for code in codes:
        row = ops.BY_CODE[code]
        if complaint := opcodes.refusal(row):
            raise BackendError(
                f"backend {name!r} has no operator {row.name!r}: of its CUDA text NVRTC says: {complaint}; define it "
                "anew, or take backend='cpu'"
            )


def check_slopes(pop: Population | DevicePopulation, name: str) -> None:
    """An error where a backend lacks the text of an operator that stands in a derivative."""
    if defined.functions() and load(name).takes_settings:
        for lacking in defined.without_cuda_slopes(_codes(pop))[:1]:
            raise BackendError(
                f"backend {name!r} makes no derivatives of these expressions: operator {lacking!r}, which stands in "
                "one, is defined without CUDA text; give it by cuda=, or take backend='cpu'"
            )
        _check_texts(name, defined.in_slopes(_codes(pop)))


def _codes(pop: Population | DevicePopulation) -> list[int]:
    """The user's operators that are left where formulas are written out."""
    return (pop.expanded() if isinstance(pop, Population) else pop).user_operators()
