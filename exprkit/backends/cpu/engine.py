"""The engine of the CPU backend: evaluates all expressions one tile of points at a time, on all cores.

In: a population and data.  Out: values, losses, derivatives, fits.  ``lower`` makes the programs,
``kernels`` the machine code of the operators, ``loop`` runs them (and says what is computed).

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["p1 * x1"]), [[1.0], [2.0]], backend="cpu").evaluate([[3.0]])
    array([[3., 6.]], dtype=float32)
    >>> ek.Evaluator(ek.parse(["p1 ^ 2 * x1"]), [[3.0]], backend="cpu").jacobian([[2.0]])
    array([[[12.]]], dtype=float32)

==========  ============================================================================
tiles       [tile][column][512]: the data; a point past the end repeats the last one;
            columns as the lowered programs want them (a variable or a unary operator of
            it); a tile's last 64 bytes are the next one's first
programs    as ``programs`` makes them: of values in the tokens' order (``in_order``)
uniforms    one line of numbers for each row of a block
slots       temporaries: 512 points each
==========  ============================================================================

Rows are shared out in chunks that threads take one after the other (``threads``); what a row gets
does not depend on its chunk, so neither do the bits of the result.  Sums are float64,
added up in the same order for any number of threads.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import contract, objective
from exprkit.backends.cpu import callbacks, kernels, loss_kernels, reductions, tiles
from exprkit.backends.cpu.levenberg_marquardt import FIT, Fits, best_of, drive_fits, fits_of
from exprkit.backends.cpu.levenberg_marquardt import PIECE as FIT_PIECE
from exprkit.backends.cpu.loop import ARGUMENTS, SPAN, Call, drive_derivatives, drive_values, programs_of, scratches_of
from exprkit.backends.cpu.loss_kernels import Tokens
from exprkit.backends.cpu.threads import MOST_THREADS, WorkQueue
from exprkit.backends.cpu.tiles import FORMS, LINE, aligned, never_negative, shares, tiles_of
from exprkit.backends.objective import Fitted, Options
from exprkit.errors import number_of
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.programs.in_order import lower_in_order
from exprkit.programs.lower import lower, lower_gradients
from exprkit.programs.program import Program
from exprkit.runtime import machine

PAST_BYTES = 24 << 20  # results larger than this, in rows of several tiles, are written past the caches
CHUNKS = 8  # a thread's share of the rows is cut into so many chunks, against unequal work
WAKE = 1 << 19  # work (instructions x points) for which a sleeping thread is woken, which takes as long: 40 us (Xeon)
LEAST = 1 << 15  # work that is worth a thread that polls: 3 us, in which 15 of them follow (Xeon, 16 cores)
STEPS = 8  # of a fit, about
PIECE = 1 << 28  # work between two looks for Ctrl-C: about a tenth of a second
MOST_COLUMNS = 64  # that are made for a next population, too, whether it uses them or not
ROW_COST = 4  # instructions that the sums of a row with derivatives are worth
SMALLEST = 1e-300  # floor of abs r in the gradient of its sum: none
KINDS = {"square": objective.SQUARES, "absolute": objective.ABSOLUTE, "sum": objective.SUM}


def unavailable() -> str | None:
    """None: compiled for whatever processor this is."""
    return None


def describe() -> str:
    """What this backend runs on."""
    return f"{machine.cpu_model()}, {machine.cores()} threads"


class Engine(contract.Differentiable):
    """A population made ready for one data set."""

    def __init__(
        self, pop: Population, X: np.ndarray, *, precision: str, dtype: np.dtype, threads: int | None = None
    ) -> None:
        self.pop, self.X, self.n_points = pop, X, len(X)
        self.dtype, self.precision = np.dtype(dtype), precision
        self.threads = threads or machine.cores()
        self._invalid = np.flatnonzero(~pop.valid)
        self._kernels, self._positive = kernels.kernels(self.dtype.name, precision), never_negative(X)
        self.values = self._runner_of_values(pop)
        self._can_write_past = False  # the kernels for it are made when first needed
        self._gradients: Runner | None = None
        self._fits: Fits | None = None

    def update(self, pop: Population) -> bool:
        """Take another population; the columns stay."""
        values = self._runner_of_values(pop, self.values)
        self.pop, self._invalid, self.values = pop, np.flatnonzero(~pop.valid), values
        self._can_write_past, self._gradients, self._fits = False, None, None
        return True

    def held_bytes(self) -> int:
        """The data as programs read it, with all functions of one variable."""
        return sum(runner.tiles.nbytes for runner in (self.values, self._gradients) if runner is not None)

    def decisions(self) -> list[str]:
        """Threads of a step of values, and vectors."""
        threads = f"{number_of(self.values.plan(1).threads, 'thread')} of {self.threads}"
        return [f"{threads}, vectors of {number_of(self._kernels.lanes, 'number')}"]

    def evaluate(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        values = self.values
        past = out.nbytes > PAST_BYTES and values.programs.n_tiles > 1 and out.ctypes.data % out.itemsize == 0
        if past and not self._can_write_past:
            self._kernels.table(_last_requests(values.program))
            self._can_write_past = True
        plan = values.plan(len(params))
        values.run(drive_values, params, plan, out, out=out.ctypes.data, past=kernels.PAST * past)

    def loss_sums(self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str) -> np.ndarray:
        """Sum of weighted squared, absolute or plain errors, float64 (n_sets, n_exprs)."""
        return self.sums(params, self.prepare(y, weights, kind))

    def prepare(self, y: np.ndarray, weights: np.ndarray | None, kind: str) -> PreparedSum:
        """The compiled sum of a kind, and what it reads."""
        return PreparedSum.of(reductions.plain_sum(self._kernels, KINDS[kind]), y, weights)

    def prepare_text(self, loss: Tokens, columns: np.ndarray, counted: bool) -> PreparedSum | None:
        """The compiled sum of a loss that is a text; None if it names a function of the user's without a formula."""
        if not loss_kernels.can_sum(loss):
            return None
        width = -(-self.n_points // LINE) * LINE  # each begins at a cache line
        own = aligned((len(columns), width), self.dtype)
        own[:, : self.n_points] = columns
        following = own[1] if len(own) > 1 else None
        return PreparedSum.of(loss_kernels.sum_of(self._kernels, loss, counted), own[0], following)

    def sums(self, params: np.ndarray, prepared: PreparedSum, counts: Any = None, out: Any = None) -> np.ndarray:
        """The prepared sums, float64 (n_sets, n_exprs)."""
        return self._sums(self.values, drive_values, params, prepared.vectors, 1, **prepared.arguments)[..., 0]

    def jacobian(self, params: np.ndarray, out: np.ndarray) -> None:
        """Write the derivatives by the parameters into ``out``, (n_sets, n_exprs, n_points, max_params)."""
        out[...] = 0
        if out.size:
            params, plan = params[..., : out.shape[-1]], self.gradients.plan(len(params))
            self.gradients.run(drive_derivatives, params, plan, out, out=out.ctypes.data, **self._loss(None))
        out[:, self._invalid] = np.nan

    def normal_equations(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """J'WJ, J'Wr and the sum of w r^2 with r = f - y, float64."""
        width = params.shape[2]
        n_sums = 1 + width + width * (width + 1) // 2
        arguments = self._loss(weights) | _target(y, weights)
        sums = self._sums(self.gradients, drive_derivatives, params, (y, weights), n_sums, pairs=1, **arguments)
        jtj = np.zeros((*params.shape, width))
        jtj[(..., *np.triu_indices(width))] = sums[..., 1 + width :]
        jtj[(..., *np.triu_indices(width)[::-1])] = sums[..., 1 + width :]
        return jtj, sums[..., 1 : 1 + width].copy(), sums[..., 0].copy()

    def loss_and_grad(
        self, params: np.ndarray, y: np.ndarray, weights: np.ndarray | None, kind: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """The sums of ``loss_sums`` and their gradients, (n_sets, n_exprs, max_params)."""
        arguments = self._loss(weights, KINDS[kind], SMALLEST) | _target(y, weights)
        n_sums = 1 + params.shape[2]
        sums = self._sums(self.gradients, drive_derivatives, params, (y, weights), n_sums, **arguments)
        return sums[..., 0].copy(), 2 * sums[..., 1:]

    def fit(self, starts: np.ndarray, y: np.ndarray, weights: np.ndarray | None, options: Options) -> Fitted:
        """Levenberg-Marquardt for every expression, the best of its starts (``levenberg_marquardt``)."""
        n_rows, width = starts.shape[0] * len(self.pop), starts.shape[2]
        params, fits = starts.copy(), np.zeros(n_rows, FIT)
        fits["loss"], fits["status"] = np.nan, objective.INVALID
        if self.n_points == 0 or (weights is not None and not np.any(weights > 0)):
            fits["loss"], fits["status"] = 0.0, objective.NO_WEIGHT
            return best_of(self.pop, params, fits, options.nothing)
        lower, upper = (
            np.full((1, width), side) if bound is None else np.ascontiguousarray(bound, np.float64)
            for bound, side in ((options.lower, -np.inf), (options.upper, np.inf))
        )
        n_bounds = max(len(lower), len(upper))
        limits = np.full(1, np.inf) if options.limits is None else np.ascontiguousarray(options.limits, np.float64)
        lower, upper = (np.repeat(bound, n_bounds // len(bound), axis=0) for bound in (lower, upper))
        if self._fits is None:
            self._fits = fits_of(self.pop, self.gradients.programs, self.threads)
        self.gradients.run(
            drive_fits,
            params,
            self.gradients.plan_of_fits(n_rows),
            (y, weights, fits, lower, upper, limits),
            self._fits,
            **self._loss(weights, options.kind, options.delta),
            **_target(y, weights),
            pairs=1,
            fits=fits.ctypes.data,
            lower=lower.ctypes.data,
            upper=upper.ctypes.data,
            n_bounds=n_bounds,
            linear=options.linear,
            max_iter=options.max_iter,
            limits=limits.ctypes.data,
            n_limits=len(limits),
            patience=options.patience,
            tol=options.tol,
            gtol=options.gtol,
        )
        return best_of(self.pop, params, fits, options.nothing)

    @property
    def gradients(self) -> Runner:
        """The runner of derivatives; made when first used."""
        if self._gradients is None:  # no cached_property: in Python 3.11 it has a lock, and forks would meet it held
            self._gradients = self._runner(lower_gradients(self.pop, **self._how()), ROW_COST)
        return self._gradients

    def _runner_of_values(self, pop: Population, last: Runner | None = None) -> Runner:
        """The runner of values; it has the ``last`` one's columns too, unless they have become many."""
        if pop.shares or defined.has_packed(pop.expanded().user_operators()):
            return self._runner(lower(pop, **self._how()), 1)
        known = last.columns if last is not None and len(last.columns[0]) <= MOST_COLUMNS else None
        program = lower_in_order(pop, **self._how(), columns=known)
        return self._runner(program, 1, last)

    def _how(self) -> dict[str, Any]:
        """The settings of lowering."""
        return {"precision": self.precision, "positive": self._positive, "dtype": self.dtype, "threads": self.threads}

    def _runner(self, program: Program, row_cost: int, last: Runner | None = None) -> Runner:
        return Runner(program, self.X, self._kernels, self.threads, row_cost, last)

    def _loss(self, weights: np.ndarray | None, kind: int = objective.SQUARES, delta: float = 1.0) -> dict[str, Any]:
        """The arguments of a call with derivatives that say what is minimised."""
        loss = reductions.functions(self._kernels)[f"loss_{kind}"]
        return {"loss": loss, "weighted": weights is not None or kind not in reductions.UNWEIGHTED, "delta": delta}

    def _sums(
        self, runner: Runner, loop: Any, params: np.ndarray, owners: Any, n_sums: int, **arguments: Any
    ) -> np.ndarray:
        """The sums of a call over the points, float64 (n_sets, n_exprs, n_sums)."""
        plan, n_rows = runner.plan(len(params)), params.shape[0] * params.shape[1]
        sums = np.zeros((len(plan.ranges) - 1, n_rows, n_sums))
        runner.run(loop, params, plan, (owners, sums), sums=sums.ctypes.data, n_sums=n_sums, **arguments)
        total = sums[0]
        for more in sums[1:]:
            total = total + more
        total = total.reshape(*params.shape[:2], n_sums)
        total[:, self._invalid] = np.nan
        return total


def _target(y: np.ndarray, weights: np.ndarray | None) -> dict[str, int]:
    return {"y": y.ctypes.data, "w": 0 if weights is None else weights.ctypes.data}


def _last_requests(program: Program) -> list[kernels.Request]:
    """The kernels that write results past the caches."""
    last = program.offsets[1:][np.diff(program.offsets) > 0] - 1
    code, a, b = program.code[last].astype(np.int64), program.a[last], program.b[last]
    used = np.bincount(code * FORMS + tiles.form_of.py_func(a, b), minlength=ops.COPY * FORMS + kernels.SV + 1)
    used[ops.COPY * FORMS + kernels.SV] = 1  # of invalid expressions
    return [divmod(k + kernels.PAST, FORMS) for k in np.flatnonzero(used).tolist()]


class PreparedSum(NamedTuple):
    """A sum over the points: the arguments of a call, and the vectors that it has addresses of."""

    vectors: tuple[np.ndarray, np.ndarray | None]
    arguments: dict[str, int]

    @classmethod
    def of(cls, function: int, first: np.ndarray, following: np.ndarray | None) -> PreparedSum:
        """``following``: weights, or the second column of several that lie one behind the other."""
        return cls((first, following), {"loss": function, **_target(first, following)})


class Sharing(NamedTuple):
    """The division of a call into tasks; a task is a chunk of rows on a range of tiles."""

    threads: int
    wakes: int  # of threads that sleep
    piece: int  # tasks that make a PIECE of work; of fits, instructions
    n_tasks: int
    chunks: np.ndarray  # first row of each chunk, and the end
    ranges: np.ndarray  # first tile of each range of tiles, and the end
    addresses: tuple[int, ...]  # of chunks and ranges, with their lengths

    @classmethod
    def make(cls, threads: int, work: int, piece: int, n_tasks: int, chunks: np.ndarray, ranges: np.ndarray) -> Sharing:
        chunks, ranges = chunks.astype(np.int64), ranges.astype(np.int64)
        addresses = (chunks.ctypes.data, len(chunks), ranges.ctypes.data, len(ranges))
        return cls(threads, work // WAKE, max(1, piece), n_tasks, chunks, ranges, addresses)


class Runner:
    """The programs of a population on one data set, and the threads that run them."""

    def __init__(
        self,
        program: Program,
        X: np.ndarray,
        library: kernels.Kernels,
        threads: int,
        row_cost: int,
        last: Runner | None = None,
    ) -> None:
        self.program, self.n_points, self.threads, self.row_cost = program, len(X), threads, row_cost
        self.dtype = X.dtype
        self.columns = program.column_code, program.column_var
        is_same = last is not None and all(map(np.array_equal, self.columns, last.columns))
        self.tiles: np.ndarray = last.tiles if last is not None and is_same else tiles_of(X, program, library)
        callbacks.raise_first()
        self.programs = programs_of(program, self.tiles, len(X), library, threads)
        self._plans: dict[int, Sharing] = {}  # by the number of parameter sets
        self._queues: dict[Any, collections.deque[WorkQueue]] = collections.defaultdict(collections.deque)

    def run(
        self, loop: Any, params: np.ndarray, plan: Sharing, owners: Any, programs: Any = None, **arguments: Any
    ) -> None:
        """Do the work of one call: this thread, and as many more as it is worth.

        ``owners`` hold the memory that ``arguments`` have addresses of, for as long as a thread may use it.
        """
        n_rows = params.shape[0] * params.shape[1]
        if n_rows == 0 or self.n_points == 0:
            return
        params = np.ascontiguousarray(params)
        call = Call(params.ctypes.data, n_rows, params.shape[2], *plan.addresses, **arguments)
        queue = self._queue(loop, programs or self.programs, plan.threads)
        queue.run(call, plan.n_tasks, plan.threads, plan.wakes, plan.piece, (self, params, plan, owners))
        self._queues[loop].append(queue)
        callbacks.raise_first()

    def _queue(self, loop: Any, programs: Any, threads: int) -> WorkQueue:
        """Concurrent calls have a queue each."""
        with contextlib.suppress(IndexError):
            if (queue := self._queues[loop].pop()).threads >= threads:
                return queue
        return WorkQueue(loop, programs, scratches_of(self.program, self.dtype, threads), ARGUMENTS)

    def plan(self, n_sets: int) -> Sharing:
        """The division of a call with so many parameter sets."""
        if n_sets not in self._plans:
            n_exprs, n_tiles = len(self.program.n_params), len(self.tiles)
            work = n_sets * (len(self.program.code) + self.row_cost * n_exprs) * self.n_points
            threads = min(self.threads, 1 + work // LEAST, MOST_THREADS)
            few = n_sets * n_exprs < CHUNKS * self.threads  # share out ranges of tiles as well
            ranges = np.append(np.arange(0, max(n_tiles, 1), SPAN if few else max(n_tiles, 1)), n_tiles)
            chunks = shares(self.program.offsets, n_sets, max(1 if threads == 1 else CHUNKS * threads, work // PIECE))
            n_tasks = (len(chunks) - 1) * (len(ranges) - 1)
            piece = n_tasks * PIECE // max(work, 1)
            self._plans[n_sets] = Sharing.make(threads, work, piece, n_tasks, chunks, ranges)
        return self._plans[n_sets]

    def plan_of_fits(self, n_rows: int) -> Sharing:
        """The division of fits of so many rows: a task is a row from its start to its end."""
        n_exprs, n_code = max(len(self.program.n_params), 1), len(self.program.code)
        work = n_rows * (n_code // n_exprs + self.row_cost) * self.n_points
        threads = min(self.threads, n_rows, MOST_THREADS) if work > LEAST else 1
        none = np.zeros(2, np.int64)
        return Sharing.make(threads, work * STEPS, FIT_PIECE, n_rows, none, none)


BACKEND = contract.Backend(unavailable, describe, Engine, lowers=True)
