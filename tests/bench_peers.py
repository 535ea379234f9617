"""Speed of exprkit beside its peers, on this machine.

    python tests/bench_peers.py                    # a table, about three minutes
    python tests/bench_peers.py --csv peers.csv    # and the same as a file
    python tests/bench_peers.py --gpu              # CuPy, JAX and exprkit on the GPU

Needs ``pip install 'exprkit[peers]'``; with ``--gpu`` CuPy, and JAX with CUDA (``--skip jax`` leaves it
out: it compiles for minutes there).  A peer that is not installed is named and left out.  Every result of
a peer is compared with ours before it is timed, and one that differs ends the run.  All methods
run in turns, and medians are shown; both sides use the same number of threads.  A ratio is the
time of the first peer over the method's: above 1 it is faster.  On a GPU the data and the results stay
on the device, and each call hands over its parameters from the host and waits for its end.

=========  ==================================================================================
pyoperon   its interpreter of trees, in C++
numpy      a loop over expressions and tokens with ``out=``, as a careful user would write it
numexpr    a compiled expression a structure, a call an expression
jax        one compiled function for all, equal structures as one batch (compiling not counted)
cupy       CuPy's own elementwise operators, as NumPy's
=========  ==================================================================================
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

import numpy as np
from timing import listed, seconds_of, to_record

import exprkit as ek
from exprkit.backends.cpu import engine as cpu_engine
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime import machine
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

SAMPLE_SECONDS = 0.05  # a sample repeats a short call for so long
MOST_DIFFERENT = 0.01  # share of the values that may differ: cancellation makes a few do so honestly
F32 = np.dtype(np.float32)


# ── the peers ────────────────────────────────────────────────────────────────────────


def walk(pop: Population, i: int, leaf: Callable[[int, Any], Any], apply: Callable[..., Any]) -> Any:
    """Expression ``i`` from its postfix form: ``leaf(kind, index or number)``, ``apply(row, operands)``."""
    expression = pop[i]

    def number_or_index(kind: int, value: int) -> Any:
        return leaf(kind, float(np.uint64(value).view(np.float64)) if kind == CONSTANT else value)

    return defined.folded(expression.kinds, expression.values, number_or_index, apply)


class Arrays:
    """A loop over expressions and tokens in NumPy or CuPy (``xp``), the stack's arrays used again."""

    def __init__(self, pop: Population, params: np.ndarray, X: np.ndarray, xp: Any = np) -> None:
        self.pop, self.params, self.xp = pop, params, xp
        self.columns = [xp.asarray(np.ascontiguousarray(column)) for column in X.T]
        self.free = [xp.empty(len(X), F32) for _ in range(64)]

    def evaluate(self, out: Any, threads: int = 1) -> None:
        with np.errstate(all="ignore"):
            for i in range(len(self.pop)):
                self.depth = 0
                out[i] = walk(self.pop, i, lambda kind, value, i=i: self._leaf(i, kind, value), self._apply)
        if self.xp is not np:
            self.xp.cuda.runtime.deviceSynchronize()

    def _leaf(self, i: int, kind: int, value: Any) -> Any:
        if kind == VARIABLE:
            return self.columns[value]
        return F32.type(value) if kind == CONSTANT else self.params[i, value]

    def _apply(self, row: ops.Operator, operands: list[Any]) -> Any:
        if not isinstance(row.numpy, np.ufunc) or not any(hasattr(a, "shape") and a.shape for a in operands):
            return row.numpy(*operands)
        self.depth += 1
        return row.numpy(*operands, out=self.free[self.depth % len(self.free)])


class Numexpr:
    """A compiled expression for each structure, parameters as its arguments."""

    def __init__(self, pop: Population, params: np.ndarray, X: np.ndarray) -> None:
        import numexpr

        self.numexpr, self.params = numexpr, params
        self.columns = [np.ascontiguousarray(column) for column in X.T]
        made: dict[str, Any] = {}
        self.calls = []
        for i in range(len(pop)):
            self.used: dict[str, tuple[int, Any]] = {}
            text = walk(pop, i, self._leaf, self._apply)  # made of the table's names and of indices only
            if text not in made:
                signature = [(name, float) for name in self.used]  # which means float32 there
                made[text] = numexpr.NumExpr(text, signature=signature), list(self.used.values())
            self.calls.append(made[text])

    def evaluate(self, out: np.ndarray, threads: int) -> None:
        self.numexpr.set_num_threads(threads)
        for (call, used), p, y in zip(self.calls, self.params, out, strict=True):
            arguments = [self._argument(kind, value, p) for kind, value in used]
            call(*arguments, out=y, ex_uses_vml=False)

    def _argument(self, kind: int, value: Any, p: np.ndarray) -> Any:
        return self.columns[value] if kind == VARIABLE else F32.type(value) if kind == CONSTANT else p[value]

    def _leaf(self, kind: int, value: Any) -> str:
        name = f"c{len(self.used)}" if kind == CONSTANT else f"{'x' if kind == VARIABLE else 'p'}{value + 1}"
        self.used[name] = kind, value  # a constant in the text would make everything float64
        return name

    def _apply(self, row: ops.Operator, operands: list[str]) -> str:
        if row.infix and row.arity == 2:
            return f"({operands[0]} {row.infix.replace('^', '**')} {operands[1]})"
        if row.infix:
            return f"({row.infix}{operands[0]})"
        others = {"inv": "(1 / {0})", "sqr": "({0} * {0})"}
        return others.get(row.name, row.name + "({0})").format(*operands)


class Jax:
    """One compiled function for all: each structure once, over all its parameter sets."""

    def __init__(self, pop: Population, params: np.ndarray, X: np.ndarray, device: str = "cpu") -> None:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes most of a GPU's memory
        import jax
        import jax.numpy as jnp

        self.jax, self.jnp = jax, jnp
        alike: dict[str, list[int]] = {}
        for i, text in enumerate(pop.texts()):
            alike.setdefault(text, []).append(i)
        self.order = np.concatenate(list(alike.values()))
        place = jax.devices(device)[0]
        columns = [jax.device_put(np.ascontiguousarray(column), place) for column in X.T]
        sets = [jax.device_put(params[indices], place) for indices in alike.values()]

        def all_of_them(columns: list[Any], sets: list[Any]) -> list[Any]:
            made = []
            for indices, some in zip(alike.values(), sets, strict=True):
                leaf = functools.partial(self._leaf, columns, some)
                y = walk(pop, indices[0], leaf, self._apply)
                made.append(jnp.broadcast_to(y, (len(indices), len(X))))
            return made

        begin = time.perf_counter()
        self.function = jax.jit(all_of_them).lower(columns, sets).compile()
        self.compile_seconds = time.perf_counter() - begin
        self.arguments = columns, sets

    def evaluate(self, out: np.ndarray | None = None, threads: int = 0) -> None:
        found = self.jax.block_until_ready(self.function(*self.arguments))
        if out is not None:
            out[self.order] = np.concatenate([np.asarray(one) for one in found])

    def _leaf(self, columns: list[Any], some: Any, kind: int, value: Any) -> Any:
        if kind == VARIABLE:
            return columns[value]
        return self.jnp.float32(value) if kind == CONSTANT else some[:, value, None]

    def _apply(self, row: ops.Operator, operands: list[Any]) -> Any:
        name = getattr(row.numpy, "__name__", "")
        function = getattr(self.jnp, name) if isinstance(row.numpy, np.ufunc) else row.numpy
        return function(*operands)


class Pyoperon:
    """A population as pyoperon's trees, node by node (its parser can't read all of it)."""

    def __init__(self, pop: Population, params: np.ndarray, X: np.ndarray) -> None:
        import pyoperon

        self.po = pyoperon
        self.X = np.asfortranarray(X)  # kept: the data set holds no reference
        self.dataset = pyoperon.Dataset(self.X)
        self.hashes = [variable.Hash for variable in self.dataset.Variables]
        self.range = pyoperon.Range(0, len(X))
        self.types = {row.code: self._type(row) for row in ops.OPERATORS}
        self.trees = [self._tree(pop, i, params[i]) for i in range(len(pop))]

    def evaluate(self, out: np.ndarray, threads: int) -> None:
        self.po.EvaluateTrees(self.trees, self.dataset, self.range, out, threads)

    def _type(self, row: ops.Operator) -> object:
        """The node type that means the operator: by one of its names, or unary - and / ."""
        for name in (row.name, *row.aliases, "sub" if row.infix == "-" else "", "div" if row.name == "inv" else ""):
            if hasattr(self.po.NodeType, name.capitalize() or "-"):
                return getattr(self.po.NodeType, name.capitalize())
        return None

    def _tree(self, pop: Population, i: int, params: np.ndarray) -> object:
        def leaf(kind: int, value: Any) -> list[Any]:
            is_variable = kind == VARIABLE
            node = (
                self.po.Node(self.po.NodeType.Variable, self.hashes[value])
                if is_variable
                else self.po.Node(self.po.NodeType.Constant)
            )
            node.Value = 1.0 if is_variable else float(value if kind == CONSTANT else params[value])
            node.Optimize = kind == PARAMETER  # a variable's own weight stays, too
            return [node]

        def operation(row: ops.Operator, operands: list[list[Any]]) -> list[Any]:
            node = self.po.Node(self.types[row.code])
            node.Arity = row.arity
            return [*(n for operand in reversed(operands) for n in operand), node]

        return self.po.Tree(walk(pop, i, leaf, operation)).UpdateNodes()


# ── measuring ────────────────────────────────────────────────────────────────────────


def medians(methods: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Seconds a call of each method takes, the methods in turns."""
    repeats = {name: _repeats(method) for name, method in methods.items()}
    times: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, method in methods.items():
            times[name].append(seconds_of(method, repeats[name]))
    return {name: statistics.median(samples) for name, samples in times.items()}


def _repeats(method: Callable[[], object]) -> int:
    method()
    return max(1, round(SAMPLE_SECONDS / seconds_of(method)))


def agree(name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """End the run if more than 1 in 100 values differ by more than 1 in 1,000."""
    with np.errstate(all="ignore"):
        wrong = 1.0 - np.isclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True).mean()
    if wrong > MOST_DIFFERENT:
        raise SystemExit(f"{name}: {wrong:.1%} of the values differ; nothing was timed")
    print(f"# compared: {name}; {1 - wrong:.4%} of {ours.size:,} values agree to 0.001", file=sys.stderr)


def there(peers: dict[str, Callable[[], Any]], skipped: Iterable[str]) -> dict[str, Any]:
    """Those peers that are wanted and installed, made ready."""
    found = {}
    for name, make in peers.items():
        if name in skipped:
            continue
        if importlib.util.find_spec(name) is None:
            print(f"# {name} is not installed, and left out", file=sys.stderr)
            continue
        found[name] = make()
    return found


# ── what is measured ─────────────────────────────────────────────────────────────────


def thesis(n_exprs: int, n_points: int) -> tuple[Population, np.ndarray, np.ndarray]:
    """The thesis's expressions over and over, every one with its own parameters."""
    texts = ek.data.esr_sample()
    pop = ek.parse([texts[i % len(texts)] for i in range(n_exprs)])
    return pop, *_numbers(pop, ek.data.rough_pipe().repeat_to(n_points).X)


def arithmetic(n_exprs: int, n_points: int) -> tuple[Population, np.ndarray, np.ndarray]:
    """Trees of 20 to 50 tokens with + - * only."""
    names = [row.name for row in ops.OPERATORS if row.infix and row.arity == 2 and row.precedence <= 2][:3]
    pop = ek.generate.random(n_exprs, n_tokens=(20, 50), operators=names, n_vars=2, seed=1)
    return pop, *_numbers(pop, ek.data.uniform(n_points, 2).X)


def _numbers(pop: Population, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parameters and data as float32."""
    rng = np.random.default_rng(0)
    params = rng.uniform(-2, 2, (len(pop), max(pop.max_params, 1)))
    return params.astype(F32), np.ascontiguousarray(X, F32)


def against_cpu_peers(
    name: str, workload: tuple[Population, np.ndarray, np.ndarray], threads: int, rounds: int, skipped: list[str]
) -> Iterator[dict[str, object]]:
    pop, params, X = workload
    wanted: dict[str, Callable[[], Any]] = {"pyoperon": lambda: Pyoperon(pop, params, X)}
    if name == "thesis":
        wanted["numexpr"] = lambda: Numexpr(pop, params, X)
        wanted |= {"numpy": lambda: Arrays(pop, params, X)} if threads == 1 else {}
        wanted |= {"jax": lambda: Jax(pop, params, X)} if threads == machine.cores() else {}  # it takes all there are
    peers = there(wanted, skipped)
    theirs, y = np.zeros((len(pop), len(X)), F32), np.ones(len(X), F32)
    out, sets = np.zeros((1, len(pop), len(X)), F32), params[None]
    methods: dict[str, Callable[[], object]] = {}
    for precision in ("fast", "ieee"):
        engine = cpu_engine.Engine(pop, X, precision=precision, dtype=F32, threads=threads)
        methods[f"{precision} matrix"] = lambda engine=engine: engine.evaluate(sets, out)
        methods[f"{precision} sse"] = lambda engine=engine: engine.loss_sums(sets, y, None, "square")
        methods[f"{precision} matrix"]()
        for peer, one in peers.items():
            one.evaluate(theirs, threads)
            agree(f"{name}, {len(X)} points: {peer} and precision={precision!r}", out[0], theirs)
    for peer, one in peers.items():
        methods[peer] = lambda one=one: one.evaluate(*([] if isinstance(one, Jax) else [theirs, threads]))
    seconds = medians(methods, rounds)
    if "jax" in peers:
        seconds["jax compile"] = peers["jax"].compile_seconds
    device = f"{machine.cpu_model()}, {threads} thread{'s' if threads > 1 else ''}"
    yield from rows_of(name, pop, X, threads, seconds, next(iter(peers), "ieee matrix"), device)


def rows_of(
    name: str, pop: Population, X: np.ndarray, threads: int, seconds: dict[str, float], reference: str, device: str
) -> Iterator[dict[str, object]]:
    for method, time_taken in seconds.items():
        yield {
            "workload": name, "n_exprs": len(pop), "n_points": len(X), "threads": threads, "method": method,
            "program": program_of(method), "seconds": time_taken, "ratio": seconds[reference] / time_taken,
            "gnodes": len(pop.kinds) * len(X) / time_taken / 1e9, "device": device,
        }  # fmt: skip


def program_of(method: str) -> str:
    """What a method runs, with its version."""
    peer = method.split()[0]  # as in "jax compile"
    if peer == "cupy":
        import cupy

        return f"CuPy {cupy.__version__}"  # its package is named by the CUDA version
    names = {"pyoperon": "pyoperon", "numpy": "NumPy", "numexpr": "numexpr", "jax": "JAX"}
    return f"{names[peer]} {metadata.version(peer)}" if peer in names else f"exprkit {ek.__version__}"


def against_gpu_peers(
    name: str, workload: tuple[Population, np.ndarray, np.ndarray], rounds: int, skipped: list[str]
) -> Iterator[dict[str, object]]:
    """Everything stays on the device; each call waits for its end."""
    import cupy

    pop, params, X = workload
    on_device, y = cupy.asarray(X), cupy.ones(len(X), F32)
    out, theirs = (cupy.zeros((len(pop), len(X)), F32) for _ in range(2))
    wait = cupy.cuda.runtime.deviceSynchronize
    methods: dict[str, Callable[[], object]] = {}
    for backend, status in ek.backends().items():
        if backend in ("cuda", "ptx") and status.available:
            ev = ek.Evaluator(pop, on_device, backend, "fast")
            methods[f"{backend} matrix"] = lambda ev=ev: (ev.evaluate(params, out=out), wait())
            step = ev.loss_of(y)
            methods[f"{backend} sse"] = lambda step=step: (step(params), wait())
    peer = Arrays(pop, cupy.asarray(params), X, cupy)
    peer.evaluate(theirs)
    found, peers = {"cupy": theirs.get()}, {"cupy": lambda: peer.evaluate(theirs)}
    compiling = {}
    if others := there({"jax": lambda: Jax(pop, params, X, "gpu")}, skipped):
        jax = others["jax"]
        found["jax"], peers["jax"] = np.zeros(theirs.shape, F32), jax.evaluate
        jax.evaluate(found["jax"])
        compiling = {"jax compile": jax.compile_seconds}
    for method in [method for method in methods if method.endswith("matrix")]:
        methods[method]()
        for other, values in found.items():
            agree(f"{name}, {len(X)} points: {other} and {method}", out.get(), values)
    seconds = medians(methods | peers, rounds) | compiling
    device = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["name"].decode()
    yield from rows_of(name, pop, X, machine.cores(), seconds, "cupy", device)


COPIES = 64


def against_numpy(n_points: int, rounds: int) -> Iterator[dict[str, object]]:
    """Every operator on one thread: op(x1 + p1) or op(x1 + p1, x2) for 64 values of p1.

    NumPy (SciPy where NumPy has no such function) works a row at a time with ``out=``,
    as a careful user would write it.
    """
    rng = np.random.default_rng(0)
    for row in ops.OPERATORS:
        domain = [row.domain[k % len(row.domain)] for k in (0, 1)]
        X = np.stack([rng.uniform(*interval, n_points) for interval in domain], axis=1).astype(F32)
        params = np.linspace(0, 1e-3, COPIES).astype(F32).reshape(1, COPIES, 1)
        out, theirs = np.zeros((1, COPIES, n_points), F32), np.zeros((COPIES, n_points), F32)
        between = np.zeros(n_points, F32)
        pop = ek.parse([f"{row.name}(x1 + p1{', x2' if row.arity == 2 else ''})"] * COPIES)
        methods = {"numpy": _numpy_loop(row, X, params, between, theirs)}
        for precision in ("fast", "ieee"):
            engine = cpu_engine.Engine(pop, X[:, : row.arity].copy(), precision=precision, dtype=F32, threads=1)
            methods[precision] = lambda engine=engine, p=params, y=out: engine.evaluate(p, y)
            methods[precision]()
            methods["numpy"]()
            agree(f"{row.name}: NumPy and precision={precision!r}", out[0], theirs)
        yield from rows_of(row.name, pop, X, 1, medians(methods, rounds), "numpy", f"{machine.cpu_model()}, 1 thread")


def _numpy_loop(
    row: ops.Operator, X: np.ndarray, params: np.ndarray, between: np.ndarray, out: np.ndarray
) -> Callable[[], object]:
    from scipy import special

    columns, function = np.ascontiguousarray(X.T), row.numpy
    if not isinstance(function, np.ufunc):
        names = [name for name in (row.name, *row.aliases) if hasattr(special, name)]
        function = getattr(special, names[0]) if names else function
    rest = [columns[1]] if row.arity == 2 else []

    def loop() -> None:
        with np.errstate(all="ignore"):
            for p, y in zip(params[0, :, 0], out, strict=True):
                np.add(columns[0], p, out=between)
                if isinstance(function, np.ufunc):
                    function(between, *rest, out=y)
                else:
                    y[:] = function(between, *rest)

    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="samples of each method")
    parser.add_argument("--n-exprs", type=int, default=9880)
    parser.add_argument("--gpu", action="store_true", help="CuPy, JAX and exprkit on the GPU")
    parser.add_argument("--skip", nargs="*", default=[], help="peers to leave out (on a GPU jax compiles long)")
    parser.add_argument("--csv", type=to_record, help="write the table to this file")
    parser.add_argument("--only", choices=["thesis", "arithmetic", "operators"])
    arguments = parser.parse_args()
    listed(_all(arguments), arguments.csv)


def _all(arguments: argparse.Namespace) -> Iterator[dict[str, object]]:
    for name, workload, sizes in (("thesis", thesis, (362, 10_860)), ("arithmetic", arithmetic, (362, 10_860))):
        if arguments.only not in (None, name) or (arguments.gpu and workload is arithmetic):
            continue
        long = arguments.gpu and "jax" not in arguments.skip  # JAX compiles for minutes there
        for n_points in sizes[1:] if long else sizes:
            made = workload(arguments.n_exprs if workload is thesis else arguments.n_exprs // 10, n_points)
            if arguments.gpu:
                yield from against_gpu_peers(name, made, arguments.rounds, arguments.skip)
                continue
            for threads in (1, 2):
                yield from against_cpu_peers(name, made, threads, arguments.rounds, arguments.skip)
    if arguments.only in (None, "operators") and not arguments.gpu:
        yield from against_numpy(10_860, arguments.rounds)


if __name__ == "__main__":
    main()
