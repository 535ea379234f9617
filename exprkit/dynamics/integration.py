"""Right-hand sides integrated along trajectories, and their numbers fitted to the measured states.

In: formulas of the states, one for each, and trajectories.  Out: numbers of least squares.

Trajectories are cut into segments that start at states of their own (multiple shooting: H. G. Bock, 1981), so that no
small error grows along the whole; these starts are eliminated from each step of the Levenberg-Marquardt method, as in
variable projection.  All segments, and those with each number and start changed a little, whose differences are the
derivatives, are integrated at once by the classical Runge-Kutta method.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from exprkit.dynamics.trajectories import Trajectory
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.regression.formulas.parameters import as_constants, as_parameters
from exprkit.regression.formulas.trees import function_of
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

INTERVALS = 10  # between two measurements, of a segment
CHANGE = 1e-6  # share of a number or a spread, by which derivatives are differences
ACCURATE = 0.1  # share of the noise, to which a segment is integrated
MOST_SUBSTEPS = 16
STEPS = 30
DAMPING = 1e-4
ENDS = 1e-6  # share of the sum of squares, by which a step has to lessen it
LEAST = 1e-6  # share of a state's spread, to which integrated states agree: no difference below tells formulas apart


class Segments(NamedTuple):
    """Pieces of trajectories, of as many intervals each; the last ones are filled up with what is not known."""

    t: np.ndarray  # float64 (n_segments, n_intervals + 1)
    x: np.ndarray  # float64 (n_segments, n_intervals + 1, n_states)
    u: np.ndarray  # float64 (n_segments, n_intervals + 1, n_inputs)
    starts: np.ndarray  # float64 (n_segments, n_states)
    known: np.ndarray  # bool (n_segments, n_intervals + 1, n_states): what was measured
    spread: np.ndarray  # float64 (n_states,): the states' standard deviations
    noise: float  # share of these that is noise, at least ``LEAST``

    @classmethod
    def of(cls, runs: list[Trajectory], order: int = 1, intervals: int = INTERVALS) -> Segments:
        parts, d = list[tuple[np.ndarray, ...]](), runs[0].x.shape[1]
        measured = np.arange(d) < d // order
        for run in runs:
            for begin in range(0, len(run.t) - 1, intervals):
                at = np.arange(begin, begin + intervals + 1)
                known, at = (at < len(run.t))[:, None] & measured, np.minimum(at, len(run.t) - 1)
                parts.append((run.t[at], run.x[at], run.u[at], run.smooth[begin], known))
        spread = np.std(np.concatenate([run.smooth for run in runs]), axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        rests = np.concatenate([(run.x - run.smooth) / spread for run in runs])
        noise = np.sqrt(np.mean(rests[:, measured] ** 2))
        t, x, u, starts, known = (np.stack(part) for part in zip(*parts, strict=True))
        return cls(t, x, u, starts, known, spread, max(float(noise), LEAST))


class RightHandSides:
    """Formulas of the states, inputs and, perhaps, the time, whose numbers can be varied."""

    def __init__(self, formulas: Population, has_time: bool) -> None:
        self.forms, numbers = as_parameters(formulas)
        counts = np.bincount(
            np.repeat(np.arange(len(formulas)), formulas.n_tokens)[formulas.kinds == CONSTANT], minlength=len(formulas)
        )
        self.has_time, self._places = has_time, np.arange(numbers.shape[1]) < counts[:, None]
        self.numbers = numbers[self._places]  # of all formulas, one after the other
        first = (np.cumsum(counts) - counts)[np.repeat(np.arange(len(formulas)), self.forms.n_tokens)]
        self._values = self.forms.values + np.where(self.forms.kinds == PARAMETER, first, 0).astype(np.uint64)

    def with_numbers(self, numbers: np.ndarray) -> Population:
        """The formulas with these numbers as constants."""
        table = np.full(self._places.shape, np.nan)
        table[self._places] = numbers
        return as_constants(self.forms, table)

    def __call__(self, x: np.ndarray, u: np.ndarray, t: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Derivatives (n, n_states) at n states, inputs, times (n,) and numbers, a row of each array for a point."""
        columns = [*x.T, *u.T, t] if self.has_time else [*x.T, *u.T]

        def leaf(kind: int, value: int) -> np.ndarray:
            return columns[value] if kind == VARIABLE else numbers[:, value]

        values, ends = np.empty((len(x), len(self.forms))), self.forms.offsets.tolist()
        for k, (begin, end) in enumerate(itertools.pairwise(ends)):
            tokens = self.forms.kinds[begin:end], self._values[begin:end]
            values[:, k] = defined.folded(*tokens, leaf, lambda row, own: function_of(row)(*own))
        return values


def integrated(
    f: RightHandSides, segments: Segments, starts: np.ndarray, numbers: np.ndarray, substeps: int
) -> np.ndarray:
    """States (n_copies, n_segments, n_intervals + 1, n_states) from starts (n_copies, n_segments, n_states).

    ``numbers``: float64 (n_copies, n_numbers), of each copy.
    """
    copies, n, d = starts.shape
    every = np.repeat(numbers, n, axis=0)
    path, x = [starts.reshape(-1, d)], starts.reshape(-1, d)
    for i in range(segments.t.shape[1] - 1):
        (a, b), (ua, ub) = segments.t[:, i : i + 2].T, segments.u[:, i : i + 2].transpose(1, 0, 2)
        h = np.tile((b - a) / substeps, copies)[:, None]
        for j in range(substeps):
            k: list[np.ndarray] = []
            for share in (0.0, 0.5, 0.5, 1.0):
                at = (j + share) / substeps
                u, t = np.tile(ua + at * (ub - ua), (copies, 1)), np.tile(a + at * (b - a), copies)
                k.append(f(x + share * h * k[-1] if k else x, u, t, every))
            x = x + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3])
        path.append(x)
    return np.stack(path, axis=1).reshape(copies, n, -1, d)


def fitted(
    formulas: Population, segments: Segments, has_time: bool, are_known: bool = False
) -> tuple[Population, np.ndarray, np.ndarray]:
    """The formulas with numbers for which they lead along the measured states; each state's sum of squares; the starts.

    ``are_known``: the numbers are, and starts alone are fitted.  Sums are in units of the states' spreads; inf where
    the states cannot be integrated.
    """
    f = RightHandSides(formulas, has_time)
    p, starts = f.numbers.copy(), segments.starts.copy()
    w = segments.known / segments.spread
    with np.errstate(all="ignore"):
        substeps = _substeps(f, segments, starts, p)
        r = w * (segments.x - integrated(f, segments, starts[None], p[None], substeps)[0])
        loss, damping, least = float(np.sum(r * r)), DAMPING, 1e-2 * LEAST**2 * float(np.sum(w > 0))
        for _ in range(STEPS if np.isfinite(loss) else 0):
            A, B = _derivatives(f, segments, starts, p, substeps, w, CHANGE * np.where(p == 0, 1.0, np.abs(p)))
            accepted, A = False, A * (not are_known)
            while damping < 1e8 and not accepted:
                dp, ds = _step(r, A, B, damping)
                new = w * (segments.x - integrated(f, segments, (starts + ds)[None], (p + dp)[None], substeps)[0])
                lower = float(np.sum(new * new))
                accepted, damping = lower < loss, damping * (0.1 if lower < loss else 10)
            if not accepted:
                break
            gain, p, starts, r, loss = (loss - lower) / loss, p + dp, starts + ds, new, lower
            if gain < ENDS or loss < least:
                break
    sums = np.sum(r * r, axis=(0, 1))
    return f.with_numbers(p), np.where(np.isfinite(sums), sums, np.inf), starts


def _substeps(f: RightHandSides, segments: Segments, starts: np.ndarray, p: np.ndarray) -> int:
    """Steps between two measurements, of which twice as many change nothing."""
    n, before = 1, integrated(f, segments, starts[None], p[None], 1)
    while n < MOST_SUBSTEPS:
        after = integrated(f, segments, starts[None], p[None], 2 * n)
        change = np.abs(after - before) / segments.spread
        n, before = 2 * n, after
        if not np.max(np.where(segments.known, change, 0.0)) > 15 * ACCURATE * segments.noise:  # of order 4
            break
    return n


def _derivatives(
    f: RightHandSides,
    segments: Segments,
    starts: np.ndarray,
    p: np.ndarray,
    substeps: int,
    w: np.ndarray,
    by_number: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Of weighted states by the numbers, (n_segments, rows, n_numbers), and by the starts, (…, n_states).

    Numbers change by ``by_number``, (n_numbers,).
    """
    d, by_start = starts.shape[1], CHANGE * segments.spread
    numbers = np.concatenate([p[None], p + np.diag(by_number), np.tile(p, (d, 1))])
    moved = np.concatenate([np.tile(starts, (1 + len(p), 1, 1)), starts + np.diag(by_start)[:, None]])
    paths = integrated(f, segments, moved, numbers, substeps)
    slopes = w * (paths[1:] - paths[0]) / np.concatenate([by_number, by_start])[:, None, None, None]
    rows = slopes.reshape(len(slopes), len(starts), -1).transpose(1, 2, 0)
    return rows[..., : len(p)], rows[..., len(p) :]


def _step(r: np.ndarray, A: np.ndarray, B: np.ndarray, damping: float) -> tuple[np.ndarray, np.ndarray]:
    """The damped step of numbers (n_numbers,) and starts (n_segments, n_states)."""
    left, M, of_starts, of_numbers, R = _without_starts(r, A, B)
    size = np.sqrt(np.sum(M * M, axis=0))
    size[~(size > 0)] = 1.0
    damped = np.concatenate([M / size, np.sqrt(damping) * np.eye(len(size))])
    target = np.concatenate([left, np.zeros(len(size))])
    if not (np.isfinite(damped).all() and np.isfinite(target).all()):
        return np.zeros(len(size)), np.zeros((len(r), B.shape[2]))
    dp = np.linalg.lstsq(damped, target, rcond=None)[0] / size
    return dp, np.linalg.solve(R, (of_starts - of_numbers @ dp)[..., None])[..., 0]


def _without_starts(r: np.ndarray, A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, ...]:
    """Residuals (rows,) and derivatives (rows, n_numbers) that no starts explain; by what these do, and their R."""
    rows = r.reshape(len(r), -1)
    Q, R = np.linalg.qr(B)
    of_starts, of_numbers = np.einsum("sri,sr->si", Q, rows), np.einsum("sri,srp->sip", Q, A)
    left, within = rows - np.einsum("sri,si->sr", Q, of_starts), A - np.einsum("sri,sip->srp", Q, of_numbers)
    return left.ravel(), within.reshape(rows.size, A.shape[2]), of_starts, of_numbers, R
