"""Linearity analysis on the device: which parameters enter linearly, and which cannot be fitted.

In: a population.  Out: arrays on the device.  The kernel (dependence.cu) runs the host's own walk, translated.

    >>> from exprkit.backends.device_programs import dependence
    >>> "INLINE Several<2> walk" in dependence.source()
    True
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.decisions import RUNNING
from exprkit.backends.device_programs.lowering import MOST_TOKENS, SCRATCH_BYTES, THREADS, DeviceTokens
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.device_programs.translate import text_of
from exprkit.backends.gpu import layout
from exprkit.backends.gpu.launch import fill
from exprkit.backends.precision import precision
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.linearity import dependence, uses_of_operators, walk

WORDS_BESIDE = 64  # of a thread's scratch memory, beside one for each token: dependence.cu


class Foreknown(NamedTuple):
    """By expression, on the device."""

    linear: Any  # uint64: bits of the parameters that it is jointly linear in
    verdicts: Any  # uint8: RUNNING for what is to be fitted, else the status that it ends with
    n_params: Any  # int32


def foreknown(
    pop: Population | DevicePopulation, device: Any, tokens_of: Callable[[Any], DeviceTokens]
) -> Foreknown:
    """What is known of a population's fits; found on the host if an expression is longer than MOST_TOKENS."""
    xp, n_exprs, longest = device.xp, len(pop), pop.longest
    if longest > MOST_TOKENS:
        return _from_host(on_host(pop), device)
    tokens = tokens_of(pop)
    found = Foreknown(xp.empty(n_exprs, np.uint64), xp.empty(n_exprs, np.uint8), tokens.n_params)
    threads = 1 if device.lanes == 1 else THREADS
    n_chunks, bytes_of_a_block = -(-n_exprs // threads), 8 * threads * (longest + WORDS_BESIDE)
    blocks = max(1, min(n_chunks, SCRATCH_BYTES // bytes_of_a_block))
    arity, uses = _tables(device)
    arguments, scratch = layout.DependenceArguments(), xp.empty(blocks * bytes_of_a_block, np.uint8)
    fields = {
        **tokens.addresses, "linear": found.linear, "verdicts": found.verdicts, "arity": arity,
        "uses": uses, "scratch": scratch, "n_exprs": n_exprs, "n_chunks": n_chunks, "longest": longest,
        "threads": blocks * threads,
    }  # fmt: skip
    fill(arguments, fields, device)
    kernel = device.kernel("find_dependence", precision("ieee"), source(), LANES=device.lanes)
    kernel.prepare((blocks, 1), threads, 0, arguments)()
    return found


@functools.cache
def source() -> str:
    """The CUDA C of the kernel."""
    return text_of("dependence.cu", [walk])


def _from_host(pop: Population, device: Any) -> Foreknown:
    linear, differentiable = dependence(pop)
    verdicts = np.full(len(pop), RUNNING, np.uint8)
    verdicts[~differentiable] = objective.NO_DERIVATIVE
    verdicts[pop.n_params == 0] = objective.NO_PARAMETERS
    verdicts[~pop.valid] = objective.INVALID
    return Foreknown(*device.sent((linear, verdicts, pop.n_params)))


@table_of_rows
def _tables(device: Any) -> tuple[Any, Any]:
    """What the walk reads of the operator table, on the device."""
    return device.xp.asarray(ops.ARITY), device.xp.asarray(uses_of_operators())
