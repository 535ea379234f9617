r"""Operators and losses of a user's own, timed beside the same text written out and the squared loss: a table, no test.

    python tests/gpu_user_losses.py [--backends numpy,cpu,cuda,ptx] [--exprs 9880] [--points 10860] [--repeats 20] \
        [--most-tokens 9]

A line for each backend and measurement: microseconds of both (the least of rounds that take turns), their ratio,
and how far the results differ.  Backends that cannot run here are left out by name.
"""

from __future__ import annotations

import argparse
import time

import numba
import numpy as np

import exprkit as ek
from exprkit.backends import load

OPERATORS = {  # definition: an expression over operands
    "swish(a) = a / (1 + exp(-a))": "swish(x1 * p1)",
    "hill(a, b) = a^b / (1 + a^b)": "hill(abs(x1), p1)",
    "clip(a, low, high) = max(min(a, high), low)": "clip(x1 * p1, -1, x2)",
    "fma(a, b, c) = a * b + c": "fma(x1, p1, sin(x2))",
}
LOSSES = [
    "(f - y)^2 * w", "((f - y) / s)^2 / 2", "abs(f - y)", "((sqrt(abs(f)) - y) / s)^2 / 2", "huber(f - y, 0.5) * w",
    "pinball(y - f, 0.9)", "logcosh(f - y)", "lessequal(abs(f - y), 0.1)",
]  # fmt: skip


def main() -> None:
    chosen = arguments()
    for definition in OPERATORS:
        ek.operator(definition)
    ek.operator("own_softplus", numpy=softplus, cuda="log1p(exp(a))", derivative="1 / (1 + exp(-a))")
    for name in chosen.backends.split(","):
        if not ek.backends()[name].available:
            print(f"{name}: {ek.backends()[name].detail}")
            continue
        scale = 50 if name == "numpy" else 1  # the definition is slow on purpose
        n_exprs, n_points = max(chosen.exprs // scale, 4), max(chosen.points // scale, 64)
        print(f"\n{name}: {n_exprs:,} expressions x {n_points:,} points, float32, one CPU thread, microseconds a call")
        operators(name, n_exprs, n_points, chosen.repeats)
        functions(name, n_exprs, n_points, chosen.repeats)
        losses(name, n_exprs, n_points, chosen.repeats, chosen.most_tokens)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", default="numpy,cpu,cuda,ptx")
    parser.add_argument("--exprs", type=int, default=9880)
    parser.add_argument("--points", type=int, default=10_860)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--most-tokens", type=int, default=9, help="of the expressions that losses are measured on")
    return parser.parse_args()


def operators(name: str, n_exprs: int, n_points: int, repeats: int) -> None:
    """A population of the operators beside its text written out: all results, and the squared loss."""
    X, y, _ = data(n_points)
    pop = ek.parse([text for text in OPERATORS.values() for _ in range(n_exprs // len(OPERATORS))])
    params = np.random.default_rng(1).uniform(0.5, 2, (len(pop), pop.max_params)).astype(np.float32)
    short, long = (evaluator(one, X, name) for one in (pop, ek.parse(pop.expanded().texts())))
    params, y = on_device(name, params), on_device(name, y)
    report("operators, losses", timed(repeats, *[lambda ev=ev: ev.loss(params, y) for ev in (short, long)]))
    if load(name).differentiates:
        both = [lambda ev=ev: ev.loss_and_grad(params, y)[1] for ev in (short, long)]
        report("operators, gradients", timed(max(repeats // 4, 2), *both))


def functions(name: str, n_exprs: int, n_points: int, repeats: int) -> None:
    """An operator without a formula beside its meaning as text: in machine code on a CPU, CUDA text on a GPU."""
    X, y, _ = data(n_points)
    pops = [ek.parse([f"{text} * x2"] * n_exprs) for text in ("own_softplus(x1 * p1)", "log1p(exp(x1 * p1))")]
    params = np.random.default_rng(1).uniform(0.5, 2, (n_exprs, 1)).astype(np.float32)
    own, text = (evaluator(pop, X, name) for pop in pops)
    params, y = on_device(name, params), on_device(name, y)
    report("a function, losses", timed(repeats, *[lambda ev=ev: ev.loss(params, y) for ev in (own, text)]))
    if load(name).differentiates:
        both = [lambda ev=ev: ev.loss_and_grad(params, y)[1] for ev in (own, text)]
        report("a function, gradients", timed(max(repeats // 4, 2), *both))


@numba.njit
def softplus(a):
    return np.log1p(np.exp(a))


def losses(name: str, n_exprs: int, n_points: int, repeats: int, most_tokens: int) -> None:
    """Every loss beside the squared one; how far the first ones are from the definition's."""
    X, y, s = data(n_points)
    pop = ek.generate.random(n_exprs, n_tokens=(most_tokens // 3, most_tokens), n_vars=2, n_params=2, seed=3)
    params = np.random.default_rng(1).uniform(0.5, 2, (len(pop), pop.max_params)).astype(np.float32)
    w = np.random.default_rng(2).uniform(0.5, 2, n_points).astype(np.float32)
    ev, few = evaluator(pop, X, name), slice(0, 40)
    definition, host = ek.Evaluator(pop[few], X, "numpy"), (params[few], y, w)
    params, y, w = (on_device(name, array) for array in (params, y, w))
    for text in LOSSES:
        weights = w if "w" in text else None
        columns = {"s": s} if "s" in text.replace("abs", "").replace("cosh", "").replace("less", "") else None
        own = lambda text=text, weights=weights, columns=columns: ev.loss(params, y, text, weights, columns=columns)  # noqa: E731
        squared = lambda weights=weights: ev.loss(params, y, "sse", weights)  # noqa: E731
        timed_both, results = timed(repeats, own, squared)
        report(f"loss {text}, beside sse", (timed_both, results), same=False)
        expected = definition.loss(*host[:2], text, None if weights is None else host[2], columns=columns)
        print(f"    from the definition's: {apart(results[0][few], expected):.1e}")


def data(n_points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    X = random.normal(size=(n_points, 2)).astype(np.float32)
    return X, (X[:, 0] + random.normal(size=n_points)).astype(np.float32), random.uniform(0.5, 2, n_points)


def evaluator(pop: ek.Population, X: np.ndarray, name: str) -> ek.Evaluator:
    return ek.Evaluator(pop, on_device(name, X), name, threads=1)  # of a CPU: a loaded machine shares out unevenly


def on_device(name: str, array: np.ndarray):
    if name not in ("cuda", "ptx"):
        return array
    import cupy

    return cupy.asarray(array)


def timed(repeats: int, *calls) -> tuple[list[float], list[np.ndarray]]:
    """The least times of calls that take turns, in microseconds (a loaded machine only adds to them), and results."""
    results = [finished(call()) for call in calls]
    seconds = np.zeros((repeats, len(calls)))
    for k in range(repeats):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            finished(call())
            seconds[k, i] = time.perf_counter() - begin
    return (np.min(seconds, axis=0) * 1e6).tolist(), results


def finished(result) -> np.ndarray:
    """The result on the host: a device is waited for."""
    return result.get() if hasattr(result, "get") else result


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """The largest relative difference of finite numbers."""
    with np.errstate(all="ignore"):
        return float(np.nanmax(np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b) / (np.abs(b) + 1e-30), 0)))


def report(what: str, measured: tuple[list[float], list[np.ndarray]], same: bool = True) -> None:
    (own, other), (a, b) = measured
    differs = f"  largest difference {apart(a, b):.1e}" if same else ""
    print(f"  {what:52} {own:12,.1f} {other:12,.1f}  ratio {own / other:5.2f}{differs}")


if __name__ == "__main__":
    main()
