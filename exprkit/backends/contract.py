"""The interface of a backend: everything that ``Evaluator``, ``fit`` and the study may ask of one.

In: nothing.  Out: ``Backend``, what is known of one before it runs, and ``Engine``, a population made ready on it.
A backend is a module with a ``BACKEND``; ``backends.MODULES`` names it.

    >>> from exprkit.backends import load
    >>> load("numpy").options, load("numpy").differentiates
    ((), True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.loss_tokens import Tokens
from exprkit.backends.objective import Fitted, Options


class Engine:
    """A population made ready for one data set on one backend.

    It is made by ``Engine(pop, X, *, precision, dtype, threads, **options)``.  Arrays come checked: C-contiguous, of
    the evaluator's dtype, ``params`` padded to (n_sets, n_exprs, max_params).  Invalid expressions give nan.  Where a
    backend works on a device, arrays may lie there, and results do if X did.
    """

    counts = False  # ``evaluate`` takes an int64 (n_sets, n_exprs, 2) as well: how many nan, how many inf
    counts_losses = False  # ``sums`` does
    stores_sums = False  # ``sums`` takes where they are to be, on its device or the host
    rounds = False  # ``evaluate`` takes an ``out`` of 16 bits as well: the numbers nearest to the results
    threads = 1  # that work on a call
    seconds: Mapping[str, float] = MappingProxyType({})  # what setting up took, by phase

    def evaluate(self, params: Any, out: Any) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        raise NotImplementedError

    def loss_sums(self, params: Any, y: Any, weights: Any, kind: str) -> Any:
        """Sum over the points of w (f - y)^2 (kind "square"), w |f - y| ("absolute") or w (f - y) ("sum").

        ``y`` and ``weights`` are (n_points,); the result is float64 (n_sets, n_exprs).
        A point of weight 0 does not count, whatever f is there.
        """
        raise NotImplementedError

    def prepare(self, y: Any, weights: Any, kind: str) -> Any:
        """An argument of ``sums`` for the sums of ``loss_sums`` at this target, again and again; it holds no engine."""
        return y, weights, kind

    def prepare_text(self, loss: Tokens, columns: np.ndarray, counted: bool) -> Any | None:
        """An argument of ``sums`` for a loss that is a text, its tokens over f and columns; None if it can't be.

        ``columns`` are (n_columns, n_points); the last says how much a point counts if it is ``counted``.
        """
        return None

    def sums(self, params: Any, prepared: Any, counts: Any = None, out: Any = None) -> Any:
        """The sums of what was prepared, float64 (n_sets, n_exprs); None of a text that it cannot add up after all.

        ``counts`` come only to an engine that ``counts_losses``, ``out`` only to one that ``stores_sums``.
        """
        return self.loss_sums(params, *prepared)

    def update(self, pop: Any) -> bool:
        """Take another population in place of the present one, which stays where there is an error.

        False: it can't, and another engine is to be made.
        """
        return False

    def held_bytes(self) -> int:
        """Bytes of the host's memory that the engine holds, without the data."""
        return 0

    def decisions(self) -> list[str]:
        """How it runs, and why so: a line each."""
        return []

    def kernels(self) -> list[dict[str, Any]]:
        """Registers, memory and shape of every kernel that was launched on a GPU."""
        return []


class Differentiable(Engine):
    """An engine that makes derivatives by the parameters, and fits."""

    fits_again = False  # it has ``fit_again``

    def jacobian(self, params: Any, out: Any) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points, max_params)."""
        raise NotImplementedError

    def normal_equations(self, params: Any, y: Any, weights: Any) -> tuple[Any, ...]:
        """J'WJ, J'Wr with r = f - y, and the sum of w r^2: float64, (n_sets, n_exprs, ...)."""
        raise NotImplementedError

    def loss_and_grad(self, params: Any, y: Any, weights: Any, kind: str) -> tuple[Any, ...]:
        """The sums of ``loss_sums``, and their derivatives, (n_sets, n_exprs, max_params): float64."""
        raise NotImplementedError

    def fit(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """Every expression's best fit from the starts, (n_starts, n_exprs, max_params)."""
        raise NotImplementedError

    def fit_there(self, starts: Any, y: Any, weights: Any, options: Options) -> Fitted:
        """``fit``, with arrays of results on the device that computes them; the host does not wait for them."""
        return self.fit(starts, y, weights, options)

    def make_ready(self, y: Any, weights: Any, options: Options, errors: bool = False, again: Any = None) -> None:
        """Compile what fits like those of its population may ask for, if anything has to be compiled.

        ``errors``: what a few of them ask for in the end, standard errors too.  ``again``: as for ``fit_again``.
        """

    def fit_again(
        self, starts: Any, y: Any, weights: Any, options: Options, again: Callable[[], tuple[Any, Any, Any]]
    ) -> Fitted:
        """``fit``; what ends ``objective.SPOILED`` is fitted again by another engine of the population, in float64.

        Of an engine that ``fits_again``: one that need not know how the first fits ended to start the others.
        ``again`` makes the other engine ready and gives it with its target and weights.
        """
        raise NotImplementedError


class Compiling(Engine):
    """An engine that makes code of its own for every expression."""

    def ptx(self, i: int) -> str:
        """The PTX of expression ``i``."""
        raise NotImplementedError

    def sass(self, i: int) -> str:
        """Its machine code, disassembled."""
        raise NotImplementedError


class Tunable(Engine):
    """An engine with variants of its kernels, of which it can time those that run here."""

    def tune(self, params: Any, y: Any, weights: Any, kind: str, seconds: float) -> Any:
        """Time them for this work, and keep the fastest; ``kind``: that of ``loss_sums``, or "values"."""
        raise NotImplementedError


def no_device(values: Any) -> None:
    """The ``adopt`` of a backend that works on the host."""


class Backend(NamedTuple):
    """A backend as data."""

    unavailable: Callable[[], str | None]  # why it cannot run here and the one command that mends it
    describe: Callable[[], str]  # what it runs on, in a few words
    engine: Callable[..., Engine]  # the class
    options: tuple[str, ...] = ()  # arguments of the engine that are its own
    takes_settings: bool = False  # ``precision`` may be a ``Precision``
    lowers: bool = False  # it runs programs of ``lower``
    takes_device_populations: bool = False  # a population may be a ``DevicePopulation``
    adopt: Callable[[Any], Any | None] = no_device  # an array on its device as a view of its own library, else None
    empty: Callable[[tuple[int, ...], np.dtype], Any] | None = None  # new memory on its device; None: it has none
    empty_on_host: Callable[[tuple[int, ...], np.dtype], np.ndarray] = np.empty  # the host's, which it fills fastest

    @property
    def differentiates(self) -> bool:
        return isinstance(self.engine, type) and issubclass(self.engine, Differentiable)
