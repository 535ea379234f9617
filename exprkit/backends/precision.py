"""``Precision``: the values of ``precision=``, "ieee", "fast" or each compiler setting by itself.

The settings are those of a GPU compiler.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from exprkit.errors import DataError, flag, one_of, whole

NAMES = ("ieee", "fast")
FLAGS = ("approximate_division", "approximate_root", "flush_subnormals")


@dataclass(frozen=True)
class Precision:
    """Compiler settings of the GPU backends; None means: as in the named precision ``operators``.

    Parameters
    ----------
    operators : {"ieee", "fast"}
        Which of the operator table's formulas are used.
    approximate_division, approximate_root : bool
        The hardware's division and square root instead of correctly rounded ones
        (float32; a divisor beyond 2^126 gives 0).
    flush_subnormals : bool
        Whether float32 numbers below 1.2e-38 count as 0.
    contract : bool
        Whether a * b + c inside an operator may be rounded once.  False in both
        precisions: the bits then depend on nothing but the operator.
    optimisation : int, 0 to 3
        Optimisation level of the assembler.
    max_registers : int, optional
        Largest number of registers per thread.
    architecture : str, optional
        GPU architecture, such as ``"sm_90"``; by default that of the device.
    line_info : bool
        Keep source lines for profilers.

    Examples
    --------
    >>> import exprkit as ek
    >>> ek.Precision("fast", flush_subnormals=False).approximate_division
    True
    """

    operators: str = "ieee"
    approximate_division: bool | None = None
    approximate_root: bool | None = None
    flush_subnormals: bool | None = None
    contract: bool = False
    optimisation: int = 3
    max_registers: int | None = None
    architecture: str | None = None
    line_info: bool = False

    def __post_init__(self) -> None:
        one_of("precision", self.operators, NAMES, DataError)
        for name in ("approximate_division", "approximate_root", "flush_subnormals"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.operators == "fast")
        for name in (*FLAGS, "contract", "line_info"):
            flag(name, getattr(self, name), DataError)
        for name, least, most in (("optimisation", 0, 3), ("max_registers", 1, 255)):
            if getattr(self, name) is not None or name != "max_registers":
                whole(name, getattr(self, name), least, most, DataError)
        if not isinstance(self.architecture, str | None):
            raise DataError(f'architecture must be as "sm_90", not {self.architecture!r}')


def precision(value: Any) -> Precision:
    """``value`` as settings: a Precision itself, or the name of one.

    Raises
    ------
    DataError
        If it is neither.
    """
    return value if isinstance(value, Precision) else _of_name(value) if isinstance(value, str) else Precision(value)


@functools.cache
def _of_name(name: str) -> Precision:
    return Precision(name)
