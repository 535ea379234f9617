"""``Compute``: on what and how expressions are computed, as one object inside; users give its settings one by one.

In: ``backend, precision, dtype, threads``, workers and a backend's options.  Out: the arguments of what takes them:
``Evaluator``, ``FitProblem``, ``fit``.

    >>> from dataclasses import replace
    >>> from exprkit.evaluate.compute import Compute
    >>> replace(Compute("cpu", threads=2), dtype="float64")
    Compute(backend='cpu', precision='ieee', dtype='float64', threads=2, workers=None, options={})
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from exprkit.distributed.workers import Workers


@dataclass(frozen=True)
class Compute:
    """The settings of a backend."""

    backend: str = "auto"
    precision: Any = "ieee"
    dtype: Any = "float32"
    threads: int | None = None
    workers: Workers | None = None
    options: dict[str, Any] = field(default_factory=dict)  # the backend's own

    @property
    def arguments(self) -> dict[str, Any]:
        """The settings as keyword arguments."""
        own = {"backend": self.backend, "precision": self.precision, "dtype": self.dtype, "threads": self.threads}
        return own | {"client": self.workers, **self.options}
