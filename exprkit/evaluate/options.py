"""Checks of the options and settings of ``Evaluator`` and ``fit``.

>>> from exprkit.evaluate.options import check_options
>>> check_options({"n_jobs": 2}, dict.fromkeys)
Traceback (most recent call last):
exprkit.errors.ArgumentError: fromkeys has no option 'n_jobs'
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from exprkit.backends import NAMES, known, load
from exprkit.backends.contract import Backend
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import opcodes
from exprkit.backends.precision import Precision
from exprkit.errors import OTHER_KEYWORDS, ArgumentError, BackendError, did_you_mean
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops


def check_options(options: dict[str, Any], called: Callable[..., Any]) -> None:
    """An error for what is neither an argument of ``called`` nor an option of any backend; names the nearest one."""
    for name in options:
        every = [option for backend in NAMES for option in known(backend).options]
        if name not in every:
            hint = did_you_mean(name, [*inspect.signature(called).parameters, *every], OTHER_KEYWORDS)
            raise ArgumentError(f"{called.__name__} has no option {name!r}{hint}")


def compiler_of(name: str, backend: Backend, settings: Precision, options: dict[str, Any]) -> Any:
    """The settings for a backend that compiles for a GPU, their name for others.

    Raises ArgumentError for more than a name, and for an option that the backend does not have.
    """
    for option in options:
        if option not in backend.options:
            what = f"its options are {', '.join(backend.options)}" if backend.options else "it has none"
            raise ArgumentError(f"backend {name!r} has no option {option!r}: {what}")
    if backend.takes_settings:
        return settings
    if settings != Precision(settings.operators):
        raise ArgumentError(f"{name!r} takes precision by name only: 'ieee' or 'fast'")
    return settings.operators


def check_runs(pop: Population | DevicePopulation, name: str, backend: Backend, sliced: Any = None) -> None:
    """An error for a population that a backend, perhaps on several devices, does not run.

    One of a device, or of functions that it has no text of.
    """
    if isinstance(pop, DevicePopulation) and not backend.takes_device_populations:
        mended = "" if sliced else ", or backend='cuda'"
        raise BackendError(f"{name!r} takes populations of the host: pop.to_host(){mended}")
    if backend.takes_settings:
        check_has_texts(pop, name)


def check_has_texts(pop: Population | DevicePopulation, name: str, slopes: bool = False) -> None:
    """An error for operators that a backend for GPUs has no text of, or none that compiles.

    With ``slopes``, for those that stand in the derivatives of the expressions.
    """
    if not defined.functions():
        return
    codes = (pop.expanded() if isinstance(pop, Population) else pop).user_operators()
    for lacking in (defined.without_cuda_slopes if slopes else defined.without_cuda)(codes)[:1]:
        if slopes:
            lack = f"makes no derivatives of these expressions: operator {lacking!r}, which stands in one,"
        else:
            lack = f"has no operator {lacking!r}: it"
        raise BackendError(
            f"backend {name!r} {lack} is defined without CUDA text; give it by cuda=, or take backend='cpu'"
        )
    for row in (ops.BY_CODE[code] for code in (defined.in_slopes(codes) if slopes else codes)):
        if complaint := opcodes.refusal(row):
            raise BackendError(
                f"backend {name!r} has no operator {row.name!r}: of its CUDA text NVRTC says: {complaint}; define it "
                "anew, or take backend='cpu'"
            )


def check_slopes(pop: Population | DevicePopulation, name: str) -> None:
    """An error for operators whose derivatives a backend for GPUs has no text of."""
    if load(name).takes_settings:
        check_has_texts(pop, name, slopes=True)
