"""Linearity analysis on the device: which parameters enter linearly, and which cannot be fitted.

In: a population.  Out: arrays on the device.  The kernel (dependence.cu) runs the host's own walk, translated.

    >>> from exprkit.backends.device_programs import dependence
    >>> "INLINE Several<2> walk" in dependence.source()
    True
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends import decisions
from exprkit.backends.device_memory import Allocation, ArraySpec, Recent
from exprkit.backends.device_programs.lowering import KEPT_BYTES, MOST_TOKENS, SCRATCH_BYTES, THREADS, DeviceTokens
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.device_programs.translate import text_of
from exprkit.backends.gpu import layout
from exprkit.backends.gpu.launch import fill, put
from exprkit.backends.precision import precision
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.linearity import dependence as dependence_of
from exprkit.programs.linearity import uses_of_operators, walk
from exprkit.runtime.calls import Sequence

WORDS_BESIDE = 64  # of a thread's scratch memory, beside one for each token: dependence.cu
FOUND = {"linear": ArraySpec(np.uint64), "verdicts": ArraySpec(np.uint8)}


class FitFacts:
    """Facts about a population's fits, by expression, on the device.

    ``addresses`` of ``linear`` (uint64: bits of the parameters that it is jointly linear in), ``verdicts`` (uint8:
    RUNNING for what is to be fitted, else the status that it ends with) and ``n_params`` (int32), each of which
    ``array`` gives as an array; ``keep`` is memory in use until then.
    """

    def __init__(self, addresses: dict[str, int], array: Callable[[str], Any], keep: Any = None) -> None:
        self.addresses, self.array, self._keep = addresses, array, keep


class DependenceAnalysis:
    """The kernel that computes linearity, for one population after another, with memory that grows as needed."""

    def __init__(self, device: Any) -> None:
        self.device, self._threads = device, 1 if device.lanes == 1 else THREADS
        arity, uses = self._tables = _tables(device)
        self._arguments, self._scratch = layout.DependenceArguments(), device.xp.empty(0, np.uint8)
        fill(self._arguments, {"arity": arity, "uses": uses}, device)
        self._kernel = device.kernel("find_dependence", precision("ieee"), source(), LANES=device.lanes)
        self._starts = Recent()

    def of(self, tokens: DeviceTokens) -> tuple[FitFacts, Sequence]:
        """Facts of a population, and the calls that find them; for expressions of MOST_TOKENS at the most."""
        device, threads, n_exprs, longest = self.device, self._threads, tokens.n_exprs, tokens.longest
        n_chunks, bytes_of_a_block = -(-n_exprs // threads), 8 * threads * (longest + WORDS_BESIDE)
        blocks = max(1, min(n_chunks, SCRATCH_BYTES // bytes_of_a_block))
        scratch, n_bytes = self._scratch, blocks * bytes_of_a_block
        if scratch.size < n_bytes:
            scratch = device.xp.empty(n_bytes, np.uint8)
            self._scratch = scratch if n_bytes <= KEPT_BYTES else self._scratch
        block = Allocation(device, FOUND, (n_exprs, n_exprs))
        put(
            self._arguments,
            {
                **tokens.addresses,
                **block.addresses,
                "scratch": device.pointer(scratch),
                "n_exprs": n_exprs,
                "n_chunks": n_chunks,
                "longest": longest,
                "threads": blocks * threads,
            },
        )
        start = self._starts.made(blocks, lambda: self._kernel.prepare((blocks, 1), threads, 0, self._arguments))
        addresses = {**block.addresses, "n_params": tokens.addresses["n_params"]}

        def array(name: str) -> Any:
            return tokens.n_params if name == "n_params" else block.array(name, n_exprs)

        return FitFacts(addresses, array, scratch), start

    def known(self, pop: Population | DevicePopulation, tokens_of: Callable[[Any], DeviceTokens]) -> FitFacts:
        """Facts of a population's fits; found by the host if an expression is longer than MOST_TOKENS."""
        if pop.longest > MOST_TOKENS:
            return _from_host(on_host(pop), self.device)
        foreknown, start = self.of(tokens_of(pop))
        start()
        return foreknown


@functools.cache
def source() -> str:
    return text_of("dependence.cu", [walk])


def _from_host(pop: Population, device: Any) -> FitFacts:
    linear, differentiable = dependence_of(pop)
    verdicts = decisions.verdicts(pop, differentiable)
    names = "linear", "verdicts", "n_params"
    arrays = dict(zip(names, device.sent((linear, verdicts, pop.n_params)), strict=True))
    return FitFacts({name: device.pointer(array) for name, array in arrays.items()}, arrays.__getitem__)


@table_of_rows
def _tables(device: Any) -> tuple[Any, Any]:
    return device.xp.asarray(ops.ARITY), device.xp.asarray(uses_of_operators())
