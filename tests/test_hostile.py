"""Arguments nobody should give: each gives the right answer or an error of exprkit's own, never a foreign one."""

from __future__ import annotations

import datetime
import tempfile
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ExprkitError

POP = ek.parse(["p1 * x1 + x2", "p1 + p2 * x1"])
X = np.arange(1.0, 11.0).reshape(5, 2)
Y = np.array([1.0, 2.0, 1.0, 3.0, 2.0])
P = np.array([[1.0, 0.0], [1.0, 2.0]])


class Odd:
    """Nothing that a number could be made of."""

    def __len__(self):
        return 5


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    memory[...] = array
    return memory


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def endless():
    found: list[Any] = []
    found.append(found)
    return found


def of_shape(array):
    """The same numbers in every way they can be handed over, and some that are none."""
    array = np.asarray(array, np.float64)
    return {
        "list": array.tolist, "tuples": lambda: tuple(map(tuple, array)) if array.ndim > 1 else tuple(array),
        "float32": lambda: array.astype(np.float32), "float16": lambda: array.astype(np.float16),
        "longdouble": lambda: array.astype(np.longdouble), "int8": lambda: array.astype(np.int8),
        "uint64": lambda: array.astype(np.uint64), "bool": lambda: array > 2, "big-endian": lambda: array.astype(">f8"),
        "fortran": lambda: np.asfortranarray(array), "backwards": lambda: array[::-1].copy()[::-1],
        "strided": lambda: np.repeat(array, 2, axis=-1)[..., ::2], "read-only": lambda: read_only(array),
        "unaligned": lambda: unaligned(array), "broadcast": lambda: np.broadcast_to(array[:1], array.shape),
        "matrix": lambda: array.view(np.matrix) if array.ndim == 2 else array, "object": lambda: array.astype(object),
        "unmasked": lambda: np.ma.masked_array(array), "masked": lambda: np.ma.masked_array(array, array > 2),
        "frame": lambda: pd.DataFrame(array), "nullable": lambda: pd.DataFrame(array).convert_dtypes(),
        "named": lambda: {"x2": array[:, 1], "x1": array[:, 0]} if array.shape == X.shape else array,
        "nan": lambda: array * np.nan, "inf": lambda: array * np.inf, "huge": lambda: array * 1e300,
        "tiny": lambda: array * 1e-300, "negative": lambda: -array, "zero": lambda: array * 0.0,
        "complex": lambda: array * 1j, "texts": lambda: array.astype(str), "bytes": lambda: array.astype("S"),
        "dates": lambda: array.astype("M8[s]"),
        "void": lambda: np.zeros(array.shape, "V4"), "with None": lambda: np.where(array > 2, array, None),
        "transposed": lambda: array.T, "deeper": lambda: array[None], "flat": array.ravel, "empty": lambda: array[:0],
    }  # fmt: skip


ODD = {
    repr(value)[:40]: (lambda value=value: value) for value in (
        None, float("nan"), float("inf"), -float("inf"), -0.0, 0, 1, -1, 2, 1.5, True, 1e308, 5e-324, 10**400,
        -(10**400), 2**63, 2**64, 1j, "abc", "", "a\0b", "\ud800", b"abc", bytearray(b"ab"), datetime.date(2020, 1, 1),
        np.datetime64("2020"), np.timedelta64(1, "s"), Decimal("1.5"), Fraction(1, 3), np.float32(1.5), np.int8(3),
        np.uint64(2**64 - 1), np.bool_(True), np.complex64(1j), np.str_("abc"), np.longdouble(2), pd.NA, pd.NaT, ...,
        slice(3), Path("nowhere"), range(3), ValueError("x"), [], (), {}, {1, 2}, [None], ["a"], [b"a"],
        [[1], [1, 2]], [[[[1.0]]]], (1, 0), (0, 1), (float("nan"), 1), (None, None), ("a", "b"), {"p1": (1, 0)},
        {"p1": (None, float("nan"))}, {"q": (0, 1)}, {"p1": (0, 1)}, np.array(1.0), np.array(None), np.empty(0),
        np.empty((0, 2)), np.ones((2, 3, 4)), np.zeros(3, "f8,f8"), pd.Series([1.0, 2.0]),
        pd.DataFrame({"x1": ["a"], "x2": [1]}), pd.DataFrame(X, columns=["x1", "x1"]),
        {"x1": [1.0], "x2": [1.0, 2.0]}, {"x1": 1.0, "x2": 2.0},
    )
} | {
    "odd": Odd, "generator": lambda: (i for i in [1, 2]), "endless list": endless, "memory": lambda: memoryview(b"abc"),
}  # fmt: skip

AS_BEFORE = (  # what of ``of_shape`` says the same numbers as the array itself
    "list", "tuples", "float32", "float16", "longdouble", "int8", "uint64", "big-endian", "fortran", "backwards",
    "strided", "read-only", "unaligned", "matrix", "object", "unmasked", "frame", "nullable", "named",
)  # fmt: skip


class Call(NamedTuple):
    """A function, arguments that are good, other values for some, and whether a result is right."""

    function: Callable[..., Any]
    good: dict[str, Any]
    more: dict[str, dict[str, Callable[[], Any]]] = {}  # noqa: RUF012
    right: Callable[[Any, dict[str, Any]], bool] = lambda result, labels: True


def values(params=P):
    return np.array([params[0, 0] * X[:, 0] + X[:, 1], params[1, 0] + params[1, 1] * X[:, 0]])


def same(wanted):
    """Right if all that was changed says the same as before."""

    def check(result, labels):
        if not set(labels.values()) <= {*AS_BEFORE, "good"}:
            return True
        found = result if isinstance(result, tuple) else (result,)
        return all(np.allclose(a, b, rtol=1e-5) for a, b in zip(found, wanted, strict=False))

    return check


def data_calls(backend):
    ev, w = ek.Evaluator(POP, X, backend), np.array([1.0, 2.0, 0.0, 1.0, 3.0])
    r = values() - Y
    J = np.array([[X[:, 0], 0 * X[:, 0]], [np.ones(5), X[:, 0]]])
    sse, jtr, jtj = r**2 @ w, (J * r[:, None]) @ w, np.einsum("eip,ejp,p->eij", J, J, w)
    forms = {"params": of_shape(P), "y": of_shape(Y), "weights": of_shape(w), "X": of_shape(X)}
    against, where = {"params": P, "y": Y, "weights": w}, {"backend": backend}
    return {
        "Evaluator": Call(
            lambda **arguments: ek.Evaluator(**arguments).evaluate(P),
            {"pop": POP, "X": X, "threads": 1, "n_steps": 1, "precision": "ieee", "dtype": "float32"} | where,
            forms, same([values()]),
        ),
        "evaluate": Call(ev.evaluate, {"params": P, "out": None, "count_nonfinite": False}, forms, same([values()])),
        "jacobian": Call(ev.jacobian, {"params": P, "out": None}, forms, same([J.transpose(0, 2, 1)])),
        "loss": Call(ev.loss, against | {"kind": "sse", "count_nonfinite": False}, forms, same([sse])),
        "loss_and_grad": Call(ev.loss_and_grad, against | {"kind": "sse"}, forms, same([sse, 2 * jtr])),
        "normal_equations": Call(ev.normal_equations, against, forms, same([jtj, 0 - jtr, sse])),
        "ptx": Call(ev.ptx, {"i": 0}), "sass": Call(ev.sass, {"i": 0}),
    }  # fmt: skip


def is_sound(result, labels):
    """Nothing is nan that does not have to be."""
    used = np.arange(POP.max_params) < result.pop.n_params[:, None]
    tame = not {"nan", "inf", "huge", "tiny", *ODD} & set(labels.values()) and labels.get("weights") != "zero"
    tame &= result.kind != "poisson"  # whose deviance is nan where a value is 0
    return not tame or bool(np.all(np.isfinite(result.loss)) and np.all(np.isfinite(result.params[used])))


def fitted(**arguments):
    result = ek.fit(**arguments)
    assert len(result.reason) == len(result.loss) == len(result.standard_errors)
    return result


def fit_calls(backend):
    forms = {"y": of_shape(Y), "weights": of_shape(np.ones(5)), "X": of_shape(X), "init": of_shape(P)}
    good = {
        "pop": POP, "X": X, "y": Y, "weights": None, "init": None, "delta": 1.0, "max_iter": 5, "tol": 1e-8,
        "restarts": 0, "bounds": None, "seed": 0, "precision": "ieee", "dtype": "float32", "threads": 1,
        "backend": backend,
    }  # fmt: skip
    ways = [("lm", loss) for loss in ("squares", "huber", "poisson", "mae")] + [("lbfgs", "gaussian"), ("adam", "mae")]
    return {
        f"fit by {method}, {loss}": Call(fitted, {**good, "method": method, "loss": loss}, forms, is_sound)
        for method, loss in ways
    }


TABLE = {"a": [1.0, 2.0], "b": [2.0, 3.0]}
ALPHABET = {"operators": "esr", "n_vars": 1, "n_params": 1, "constants": ()}
OTHERS = {
    "diff": Call(POP.diff, {"name": "x1"}),
    "Precision": Call(ek.Precision, {
        "operators": "ieee", "approximate_division": None, "approximate_root": None, "flush_subnormals": None,
        "contract": False, "optimisation": 3, "max_registers": None, "architecture": None, "line_info": False,
    }),
    "description_length": Call(ek.description_length, {"result": ek.fit(POP, X, Y, loss="gaussian", backend="numpy")}),
    "rough_pipe": Call(ek.data.rough_pipe, {"n_points": 5, "seed": 0}),
    "uniform": Call(ek.data.uniform, {"n_points": 5, "n_vars": 2, "seed": 0}),
    "from_table": Call(ek.data.from_table, {"table": TABLE, "target": "b"}, {"table": of_shape(X)}),
    "exhaustive": Call(ek.generate.exhaustive, {"max_nodes": 3, **ALPHABET, "spelled_out": False, "limit": 5}),
    "count_exhaustive": Call(ek.generate.count_exhaustive, {"max_nodes": 3, **ALPHABET}),
    "random": Call(ek.generate.random, {
        "n": 3, "n_tokens": (3, 5), "operators": "gp", "n_vars": 2, "n_params": 1, "constant_range": (-1.0, 1.0),
        "constant_share": 0.2, "seed": 0,
    }),
}  # fmt: skip
TOKENS = {"kinds": [1, 0, 3], "values": [0, 4611686018427387904, 1], "offsets": [0, 3]}
WORDS = {"variables": None, "parameters": None}


def saved(path):
    POP.save(path)
    return ek.Population.load(path)


OTHERS |= {
    "parse": Call(ek.parse, {"source": ["x1 + p1"], "errors": "raise", **WORDS}),
    "Population": Call(ek.Population, {**TOKENS, **WORDS, "valid": None}),
    "a part": Call(lambda index: POP[index], {"index": [0, 1]}),
    "concatenate": Call(ek.Population.concatenate, {"populations": [POP, POP]}),
    "save and load": Call(saved, {"path": Path(tempfile.mkdtemp()) / "population.npz"}),
    "variables": Call(lambda names: ek.variables(names), {"names": 2}),
    "parameters": Call(lambda names: ek.parameters(names), {"names": 2}),
    "best": Call(ek.fit(POP, X, Y, backend="numpy").best, {"n": 1}),
    "an operator": Call(lambda a, b: ek.max(a, b), {"a": POP[0], "b": 1.0}),
}  # fmt: skip
FAMILIES = {"data, numpy": data_calls("numpy"), "data, cpu": data_calls("cpu"), "fits, numpy": fit_calls("numpy"),
            "fits, cpu": fit_calls("cpu"), "others": OTHERS}  # fmt: skip


@st.composite
def hostile_calls(draw, calls):
    """A call with one or two of its arguments replaced: (name of the call, label of the value by argument)."""
    name = draw(st.sampled_from(sorted(calls)))
    call = calls[name]
    places = draw(st.lists(st.sampled_from(sorted(call.good)), min_size=1, max_size=2, unique=True))
    return name, {place: draw(st.sampled_from([*call.more.get(place, ()), *ODD])) for place in places}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_arguments_give_the_right_answer_or_an_error_of_exprkits_own(family, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some of them are names of files
    calls = FAMILIES[family]

    @settings(max_examples=400)
    @given(hostile_calls(calls))
    def check(drawn):
        name, labels = drawn
        call = calls[name]
        given = {place: (call.more.get(place, {}) | ODD)[label]() for place, label in labels.items()}
        try:
            result = call.function(**call.good | given)
        except ExprkitError:
            assert not set(labels.values()) <= set(AS_BEFORE) or name == "from_table" or "init" in labels
        except MemoryError as error:
            assert " GB" in str(error)
        else:
            assert call.right(result, labels), (name, labels, result)

    check()


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize("form", AS_BEFORE)
def test_the_same_numbers_in_any_form_give_the_same_results(backend, form):
    for name, call in data_calls(backend).items():
        for place in set(call.good) & set(call.more):
            result = call.function(**call.good | {place: call.more[place][form]()})
            assert call.right(result, {place: form}), (name, place)


@pytest.mark.parametrize(
    "place", ["arch", "precision", "dtype", "task", "points_per_thread", "block_size", "workers", "cache", "progress"]
)
def test_hostile_arguments_of_compile_ptx(place):
    harmless = {"None", "True", "np.True_", "1", "2", "np.int8(3)"}
    for label in ODD.keys() - harmless:
        with pytest.raises(ExprkitError):
            ek.compile_ptx(**{"pop": POP, place: ODD[label]()})
