"""Units of data and parameters in which a formula stays what it is, so that data of any size start as those near 1 do.

In: an expression and data.  Out: the data in units that make them ordinary numbers, and parameters out of those units.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 10, 40)
    >>> found = ek.fit("p1 * (1 - exp(-p2 * x1))", 1e30 * x[:, None], 1e-30 * (1 - np.exp(-0.3 * x)), dtype="float64")
    >>> found.params / [1e-30, 1e-30]
    array([[1. , 0.3]])

With x in another unit ``p1 * exp(-p2 * x1)`` is the same law, where p2 has the inverse unit and p1 that of y.  Units
are powers of two, by which the largest numbers of y and of each column are near 1.  Their exponents solve linear
equations that the operators make (dimensional analysis; P. W. Bridgman, 1922): those of the operands of a sum are
equal, that of what ``exp`` takes is 0, that of a power's base counts as often as its exponent says; how an operator's
result grows with its operands is measured (``operators/dimensions``).  Where the equations leave a column no unit, as
``sin(2 * x1)`` does, it keeps its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.fitting.starts.candidates import Sides, Skeleton, StartSample
from exprkit.operators import defined
from exprkit.operators.dimensions import POWER, SCALES, law_of
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE

MOST = 1000.0  # binary exponent of a unit
SAME = 1e-6  # binary exponents by which two that are equal may differ


class Units(NamedTuple):
    """Binary exponents of the units of one expression's data."""

    tree: Skeleton
    columns: list[int]  # of X that the expression uses
    exponents: np.ndarray  # theirs, and last that of y

    @classmethod
    def of(cls, tree: Skeleton, sample: StartSample, kind: int) -> Units:
        columns = tree.leaves(len(tree.kinds) - 1, VARIABLE)
        with np.errstate(all="ignore"):
            size = np.log2([*np.abs(sample.X[:, columns]).max(axis=0), np.abs(sample.looks).max()])
        wanted = np.where(np.isfinite(size), np.clip(np.round(size), -MOST, MOST), 0.0)
        units = cls(tree, columns, wanted)
        if kind != objective.SQUARES or not wanted.any():
            return units._replace(exponents=np.zeros(len(wanted)))
        n, draws = len(wanted), 1 + np.random.Generator(np.random.PCG64(1)).random((2, tree.n_params))
        first, second = (units.equations(p) for p in draws)  # whatever exponents that are parameters are
        none = np.zeros((len(first), tree.n_params))
        rows = np.block([[first, none], [second[:, :n], none, second[:, n:]]])
        _, s, V = np.linalg.svd(rows)
        free = V[int(np.sum(s > SAME)) :, :n].T
        return units._replace(exponents=free @ np.linalg.lstsq(free, wanted, rcond=SAME)[0])

    @property
    def key(self) -> tuple[float, ...]:
        """The same for the same units."""
        return (*self.columns, *self.exponents.tolist()) if self.exponents.any() else ()

    @property
    def of_y(self) -> float:
        return float(2.0 ** self.exponents[-1])

    def of_sample(self, sample: StartSample) -> StartSample:
        """The data in these units."""
        if not self.key:
            return sample
        X = sample.X.copy()
        X[:, self.columns] *= 2.0 ** -self.exponents[:-1]
        return sample._replace(X=X, y=sample.y / self.of_y, looks=sample.looks / self.of_y)

    def of_params(self, p: np.ndarray) -> np.ndarray:
        """The units of parameters which are ``p`` in them, (n_params,); nan where there are none."""
        if not self.key:
            return np.ones(len(p))
        n = len(self.exponents)
        rows = self.equations(p)
        known = -rows[:, :n] @ self.exponents
        own = np.linalg.lstsq(rows[:, n:], known, rcond=SAME)[0]
        with np.errstate(over="ignore"):
            return np.where(np.abs(rows[:, n:] @ own - known).max(initial=0.0) < SAME, 2.0**own, np.nan)

    def of_bounds(self, bounds: Sides) -> Sides:
        """Bounds in these units, by which candidates are drawn."""
        unit = self.of_params(np.ones(self.tree.n_params))
        return bounds if np.isnan(unit).any() else Sides(*(side / unit for side in bounds))

    def equations(self, p: np.ndarray) -> np.ndarray:
        """Rows of what is 0, (n_equations, data and parameters), where exponents of powers are as ``p`` makes them."""
        tree, n = self.tree, len(self.exponents) + self.tree.n_params
        rows, stack = list[np.ndarray](), list[tuple[int, np.ndarray]]()
        every = np.eye(n)
        for t in range(len(tree.kinds)):
            own = np.zeros(n)
            if tree.kinds[t] == VARIABLE:
                own = every[self.columns.index(int(tree.values[t]))]
            elif tree.kinds[t] == PARAMETER:
                own = every[len(self.exponents) + int(tree.values[t])]
            elif tree.kinds[t] == OPERATOR:
                law, code = law_of(int(tree.values[t])), int(tree.values[t])
                arity = defined.known(code).arity
                operands, stack = stack[-arity:], stack[:-arity]
                units = [unit for _, unit in operands]
                alike = [unit for unit, power in zip(units, law.powers, strict=False) if np.isnan(power)]
                if law.kind == POWER and not tree.leaves(operands[1][0], VARIABLE):
                    exponent = tree.value(operands[1][0], np.zeros((1, 1)), lambda j: p[j : j + 1][None])
                    own, rows = float(exponent.item()) * units[0], [*rows, units[1]]
                elif law.kind == SCALES:
                    own = np.nan_to_num(law.powers) @ np.array(units) + (law.shared * alike[0] if alike else 0.0)
                    rows += [unit - alike[0] for unit in alike[1:]]
                else:
                    rows += units
            stack.append((t, own))
        return np.array([*rows, stack[0][1] - every[len(self.exponents) - 1]])
