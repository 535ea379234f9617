"""A backend of one's own, written by what ``exprkit.backends.contract`` says alone."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import exprkit as ek
from exprkit import backends as _  # noqa: F401  the function; the package is in sys.modules
from exprkit.backends import contract
from exprkit.errors import BackendError
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

REGISTRY = sys.modules["exprkit.backends"]


class Engine(contract.Engine):
    """Point by point, in plain Python; it makes no derivatives."""

    def __init__(self, pop, X, *, precision, dtype, threads):
        self.pop, self.X = pop, np.asarray(X, np.float64)

    def value(self, i, x, params):
        stack = []
        for t in range(self.pop.offsets[i], self.pop.offsets[i + 1]):
            kind, token = self.pop.kinds[t], int(self.pop.values[t])
            if kind == OPERATOR:
                row = ops.BY_CODE[token]
                operands = stack[-row.arity :]
                del stack[-row.arity :]
                stack.append(float(row.numpy(*operands)))
            else:
                number = {CONSTANT: self.pop.values[t : t + 1].view(np.float64), VARIABLE: x[token : token + 1]}
                stack.append(float(number.get(kind, params[token : token + 1])[0]))
        return stack[0] if stack else np.nan

    def evaluate(self, params, out):
        for index in np.ndindex(out.shape):
            out[index] = self.value(index[1], self.X[index[2]], params[index[0], index[1]])

    def loss_sums(self, params, y, weights, kind):
        values = np.empty((len(params), len(self.pop), len(self.X)))
        self.evaluate(params, values)
        errors = np.square(values - y) if kind == "square" else np.abs(values - y)
        return (errors if weights is None else np.where(weights == 0, 0, errors * weights)).sum(axis=-1)


@pytest.fixture
def toy(monkeypatch):
    module = types.ModuleType("exprkit.backends.toy")
    module.BACKEND = contract.Backend(lambda: None, lambda: "plain Python", Engine)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(REGISTRY.MODULES, "toy", "toy")
    monkeypatch.setattr(REGISTRY, "NAMES", (*REGISTRY.NAMES, "toy"))


def test_a_backend_is_one_module(toy):
    pop, X, y = ek.parse(["p1 * x1 + 2", "max(x1, x2) - p2"]), np.array([[1.0, 3.0], [2.0, -1.0]]), [1.0, 2.0]
    params = [[2.0], [0.0, 1.5]]
    own, definition = (ek.Evaluator(pop, X, name) for name in ("toy", "numpy"))
    assert ek.backends()["toy"] == (True, "plain Python")
    assert np.array_equal(own.evaluate(params), definition.evaluate(params))
    for kind in ("sse", "mae", "rmse"):
        assert np.allclose(own.loss(params, y, kind, weights=[1, 2]), definition.loss(params, y, kind, weights=[1, 2]))
    with pytest.raises(BackendError, match="'toy' makes no derivatives"):
        own.jacobian(params)
    with pytest.raises(BackendError, match="'toy' makes no PTX"):
        own.ptx(0)


def test_a_backend_is_loaded_without_being_described(monkeypatch):
    """To ask a GPU's driver what its devices are takes longer than a small fit."""
    package = sys.modules["exprkit.backends"]
    plain = package.known("cpu")._replace(describe=lambda: pytest.fail("it was described"))
    monkeypatch.setattr(package, "known", lambda name: plain)
    assert package.load("cpu") is plain
