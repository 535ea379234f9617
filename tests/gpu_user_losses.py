r"""Operators and losses of a user's own, timed beside the same text written out and the squared loss: a table, no test.

    PYTHONPATH=. python tests/gpu_user_losses.py [--backends numpy,cpu,cuda,ptx] [--exprs 9880] [--points 10860] \
        [--repeats 20] [--most-tokens 9] [--precision fast] [--out data/results]

A line for each backend and measurement: microseconds of both (the least of rounds that take turns), their ratio beside
the aim (1.1 for an operator, 1.3 for a loss), and how far results are from those of the other text, or of a loss from
the definition's.  Before that, of a GPU: whether the bits of plain losses are those of the same by name, and whether
numbers that change in place are seen; what is not ends in WRONG.  Backends that cannot run here are left out by name.
On a GPU every measurement first compiles its kernels in a process of its own, all of them side by side.  ``--out``
writes ``user_losses.csv``, or ``_cpu``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numba
import numpy as np
from timing import to_record

import exprkit as ek
from exprkit.backends import load
from exprkit.runtime import machine
from exprkit.study import records

OPERATORS = {  # definition: an expression over operands
    "swish(a) = a / (1 + exp(-a))": "swish(x1 * p1)",
    "hill(a, b) = a^b / (1 + a^b)": "hill(abs(x1), p1)",
    "clip(a, low, high) = max(min(a, high), low)": "clip(x1 * p1, -1, x2)",
    "fma(a, b, c) = a * b + c": "fma(x1, p1, sin(x2))",
}
LOSSES = [  # that hold an s read a column of that name
    "(f - y)^2 * w", "((f - y) / s)^2 / 2", "abs(f - y)", "((sqrt(abs(f)) - y) / s)^2 / 2", "huber(f - y, 0.5) * w",
    "pinball(y - f, 0.9)", "logcosh(f - y)", "log(cosh(f - y))", "abs(f - y)^1.5", "log(1 + (f - y)^2)",
    "log(1 + ((f - y) / s)^2)", "lessequal(abs(f - y), 0.1)",
]  # fmt: skip
OPERATOR_AIM, LOSS_AIM = 1.1, 1.3
GPU = ("cuda", "ptx")
FEW = slice(0, 40)  # expressions whose losses are compared with the definition's


class Size(NamedTuple):
    exprs: int
    points: int
    repeats: int
    most_tokens: int
    precision: str


class Pair(NamedTuple):
    """Two calls that are timed in turns, and what the first one's results are compared with."""

    own: Callable[[], np.ndarray]
    beside: Callable[[], np.ndarray]
    expected: Callable[[], np.ndarray]  # of FEW expressions


@numba.njit
def softplus(a):
    return np.log1p(np.exp(a))


def define() -> None:
    for definition in OPERATORS:
        ek.operator(definition)
    ek.operator("own_softplus", numpy=softplus, cuda="log1p(exp(a))", derivative="1 / (1 + exp(-a))")


# ── what is measured ─────────────────────────────────────────────────────────────────


def measurements(name: str) -> dict[str, tuple[float, Callable[[str, Size], Pair]]]:
    """What is measured on a backend: its aim, and what makes the pair."""
    found = {"operators, losses": (OPERATOR_AIM, partial(operators, slopes=False)),
             "a function, losses": (OPERATOR_AIM, partial(functions, slopes=False))}  # fmt: skip
    if load(name).differentiates:
        found |= {"operators, gradients": (OPERATOR_AIM, partial(operators, slopes=True)),
                  "a function, gradients": (OPERATOR_AIM, partial(functions, slopes=True))}  # fmt: skip
    return found | {f"loss {text}": (LOSS_AIM, partial(loss, text)) for text in LOSSES}


def operators(name: str, size: Size, slopes: bool) -> Pair:
    """A population of the operators beside its text written out."""
    pop = ek.parse([text for text in OPERATORS.values() for _ in range(size.exprs // len(OPERATORS))])
    return _beside(name, size, pop, ek.parse(pop.expanded().texts()), slopes)


def functions(name: str, size: Size, slopes: bool) -> Pair:
    """An operator without a formula beside its meaning as text: in machine code on a CPU, CUDA text on a GPU."""
    own, text = (ek.parse([f"{text} * x2"] * size.exprs) for text in ("own_softplus(x1 * p1)", "log1p(exp(x1 * p1))"))
    return _beside(name, size, own, text, slopes)


def _beside(name: str, size: Size, own: ek.Population, text: ek.Population, slopes: bool) -> Pair:
    X, y, _ = data(size.points)
    params = random_params(own)
    params, y = on_device(name, params), on_device(name, y)
    first, second = (evaluator(pop, X, name, size) for pop in (own, text))

    def call(ev: ek.Evaluator) -> np.ndarray:
        return finished(ev.loss_and_grad(params, y)[1] if slopes else ev.loss(params, y))

    return Pair(partial(call, first), partial(call, second), lambda: call(second)[FEW])


def loss(text: str, name: str, size: Size) -> Pair:
    """A loss beside the squared one of the same expressions."""
    X, y, s = data(size.points)
    lengths = size.most_tokens // 3, size.most_tokens
    pop = ek.generate.random(size.exprs, n_tokens=lengths, n_vars=2, n_params=2, seed=3)
    w = np.random.default_rng(2).uniform(0.5, 2, size.points).astype(np.float32) if "w" in text else None
    columns = {"s": s} if "/ s" in text else None
    host, ev = (random_params(pop), y, w), evaluator(pop, X, name, size)
    params, y, w = (None if array is None else on_device(name, array) for array in host)

    own, squares = ev.loss_of(y, text, w, columns=columns), ev.loss_of(y, "sse", w)

    def expected() -> np.ndarray:
        definition = ek.Evaluator(pop[FEW], X, "numpy", dtype="float64")
        return definition.loss(host[0][FEW], host[1], text, host[2], columns=columns)

    return Pair(
        lambda: finished(own(params)), lambda: finished(squares(params)),
        expected,
    )  # fmt: skip


def data(n_points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.normal(size=(n_points, 2)).astype(np.float32)
    return X, (X[:, 0] + random.normal(size=n_points)).astype(np.float32), random.uniform(0.5, 2, n_points)


def random_params(pop: ek.Population) -> np.ndarray:
    return np.random.default_rng(1).uniform(0.5, 2, (len(pop), pop.max_params)).astype(np.float32)


def evaluator(pop: ek.Population, X: np.ndarray, name: str, size: Size) -> ek.Evaluator:
    precision = size.precision if name != "numpy" else "ieee"
    return ek.Evaluator(pop, on_device(name, X), name, threads=1, precision=precision)  # of a CPU: it may be shared


def on_device(name: str, array: np.ndarray):
    if name not in GPU:
        return array
    import cupy

    return cupy.asarray(array)


def finished(result) -> np.ndarray:
    """The result on the host: a device is waited for."""
    return result.get() if hasattr(result, "get") else result


# ── what is checked ──


def not_the_same(name: str, size: Size) -> list[str]:
    """Losses as texts whose bits are not those of the same by name, also of arrays that were written to anew."""
    X, y, _ = data(size.points)
    pop = ek.generate.random(size.exprs, n_tokens=(3, size.most_tokens), n_vars=2, n_params=2, seed=3)
    w = np.random.default_rng(2).uniform(0.5, 2, size.points).astype(np.float32)
    params, y, w = (on_device(name, array) for array in (random_params(pop), y, w))
    ev, found = evaluator(pop, X, name, size), []
    for when in ("first", "again", "changed"):
        if when == "changed":
            y += 1
            w *= 2
        for text, kind, weights in (
            ("(f - y)^2", "sse", None), ("abs(f - y)", "sae", None), ("(f - y)^2 * w", "sse", w),
        ):  # fmt: skip
            own, named = (finished(ev.loss(params, y, one, weights)) for one in (text, kind))
            if not np.array_equal(own, named, equal_nan=True):
                found.append(f"{name}, {when}: {text} differs from {kind} by {apart(own, named):.1e}  WRONG")
        for text in ("logcosh(f - y)", "huber(f - y, 0.5) * w", "log(1 + (f - y)^2)"):
            given = params, y, text, w if "w" in text else None
            out = on_device(name, np.zeros(len(pop)))
            own = finished(ev.loss(*given, out=out))
            fresh = finished(evaluator(pop, X, name, size).loss(*given))
            if not np.array_equal(own, fresh, equal_nan=True):
                found.append(f"{name}, {when}: {text} is off a new evaluator's by {apart(own, fresh):.1e}  WRONG")
    return found


# ── measuring ────────────────────────────────────────────────────────────────────────


def compile_first(name: str, what: str, size: Size) -> None:
    """Run a measurement's calls once: its kernels are in the cache on disk then."""
    pair = measurements(name)[what][1](name, size)
    pair.own(), pair.beside()


def compile_all(names: list[str], size: Size) -> None:
    """The kernels of all measurements on GPUs, compiled side by side."""
    begin, spawn = time.perf_counter(), multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(machine.cores(), 2), spawn, define) as pool:
        waiting = [pool.submit(compile_first, name, what, size) for name in names for what in measurements(name)]
        for one in waiting:
            one.result()
    print(f"compiled in {time.perf_counter() - begin:.0f} s", flush=True)


def timed(pair: Pair, repeats: int) -> tuple[float, float, float]:
    """The least times of both calls, in turns, in microseconds (a loaded machine only adds), and how results differ."""
    differs = apart(pair.own()[FEW], pair.expected())
    pair.beside()
    seconds = np.zeros((repeats, 2))
    for k in range(repeats):
        for i, call in enumerate((pair.own, pair.beside)):
            begin = time.perf_counter()
            call()
            seconds[k, i] = time.perf_counter() - begin
    own, beside = (np.min(seconds, axis=0) * 1e6).tolist()
    return own, beside, differs


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """The largest relative difference of finite numbers."""
    with np.errstate(all="ignore"):
        return float(np.nanmax(np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b) / (np.abs(b) + 1e-30), 0)))


def measure(name: str, size: Size) -> list[dict[str, str]]:
    rows = []
    for what, (aim, make) in measurements(name).items():
        own, beside, differs = timed(make(name, size), size.repeats)
        ratio = own / beside
        rows.append({
            "backend": name, "device": device_of(name), "precision": size.precision, "what": what, "us": f"{own:.5g}",
            "beside_us": f"{beside:.5g}", "ratio": f"{ratio:.3g}", "aim": str(aim), "differs": f"{differs:.1e}",
        })  # fmt: skip
        missed = "" if ratio <= aim else "  MISSED"
        print(f"  {what:42} {own:12,.1f} {beside:12,.1f}  {ratio:5.2f}  aim {aim}{missed:8}  differs {differs:.1e}",
              flush=True)  # fmt: skip
    return rows


def device_of(name: str) -> str:
    return ek.backends()[name].detail if name in GPU else machine.cpu_model()


def main() -> None:
    chosen, begin = arguments(), time.perf_counter()
    define()
    names = [name for name in chosen.backends.split(",") if ek.backends()[name].available]
    for name in set(chosen.backends.split(",")) - set(names):
        print(f"{name}: {ek.backends()[name].detail}")
    size = Size(chosen.exprs, chosen.points, chosen.repeats, chosen.most_tokens, chosen.precision)
    on_gpus = [name for name in names if name in GPU]
    if on_gpus:
        few = size._replace(exprs=4, points=64)
        compile_first("cpu", "operators, gradients", few)  # the loops, before many need them
        compile_all(on_gpus, size)
    rows, wrong = [], [line for name in on_gpus for line in not_the_same(name, size)]
    print("\n".join(wrong) or "the same bits as losses that have names, and after numbers changed in place", flush=True)
    for name in names:
        scale = 50 if name == "numpy" else 1  # the definition is slow on purpose
        own = size._replace(exprs=max(size.exprs // scale, 40), points=max(size.points // scale, 64))
        print(f"\n{name}: {own.exprs:,} expressions x {own.points:,} points, float32, {own.precision}, "
              "microseconds a call: own, beside, ratio", flush=True)  # fmt: skip
        rows += measure(name, own)
    met = sum(float(row["ratio"]) <= float(row["aim"]) for row in rows)
    print(f"\n{met} of {len(rows)} within the aims; {time.perf_counter() - begin:.0f} s")
    if chosen.out:
        records.write_rows(chosen.out / f"user_losses{'' if on_gpus else '_cpu'}.csv", rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="numpy,cpu,cuda,ptx")
    parser.add_argument("--exprs", type=int, default=9880)
    parser.add_argument("--points", type=int, default=10_860)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--most-tokens", type=int, default=9, help="of the expressions that losses are measured on")
    parser.add_argument("--precision", default="fast", choices=["ieee", "fast"])
    parser.add_argument("--out", type=to_record, help="folder for the results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
