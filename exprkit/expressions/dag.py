"""An expression as a directed acyclic graph with shared subexpressions, and its symbolic derivatives.

In: the tokens of an expression.  Out: numbered nodes, from which ``differentiate`` writes a derivative as
postfix tokens again, and ``lower`` a program of a value and its derivatives.  The rules are the
table's ``derivative`` cells, text over a, b and y (of a function of three operands over c, too), read once:

    >>> from exprkit.expressions import dag
    >>> rules = dag.derivative_rules()
    >>> int(rules.there.sum()) > 60
    True

What is computed, plainly (forward mode, by one leaf)::

    for node in nodes of the value, operands first:
        tangent[node] = 1 if it is that leaf
                        else sum of  rule(a, b, y) * tangent[operand]  over its operands

and in reverse mode, by all parameters at once::

    adjoint[root] = 1
    for node in nodes of the value, operands last:
        for operand of node:
            adjoint[operand] += rule(a, b, y) * adjoint[node]

Terms that are known to be 0 are left out and factors that are known to be 1 dropped, so that a
derivative does not explode; the value itself stays as the user wrote it.  In a derivative that is
to be computed (INEXACT) 0 times anything is 0, where a product could meet it (the table's ``strong``):
at x = 0 the derivative of x^p by p is 0, not 0 * log(0).  All functions work on a ``Graph``, which
holds one expression at a time.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.rewrite import NONE, UNIFORM_NODE, group_of, is_uniform, rewrite
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.hashes import GOLDEN
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, TokenArrays

NODES, NUMBERS, STAMP, INEXACT, NO_RULE, FULL = range(6)  # of ``Graph.counts``
FORWARD_MOST = 8  # parameters; more are differentiated in reverse only
NOTHING = -1  # where there is no operand
NO_BITS = np.uint64(0)  # of a node that is no constant


class Graph(NamedTuple):
    """The nodes of one expression; operands have smaller numbers than what uses them."""

    group: Annotated[np.ndarray, "uint8[n]"]  # CONSTANT, VARIABLE, PARAMETER or, as in ``rewrite``, a kind of operator
    code: Annotated[np.ndarray, "uint8[n]"]  # of an operator, else NONE
    a: Annotated[np.ndarray, "int32[n]"]  # operand; of a leaf its index
    b: Annotated[np.ndarray, "int32[n]"]  # operand or -1
    numbers: np.ndarray  # of the constants
    values: np.ndarray  # the same as bits
    positive: np.ndarray  # by variable: known to be neither negative nor -0
    place: Annotated[np.ndarray, "int32[n_slots]"]  # where a node is looked for: a hash table of node numbers ...
    stamp: np.ndarray  # ... that count only with the present expression's stamp
    stack: Annotated[np.ndarray, "int32[n]"]
    tangent: Annotated[np.ndarray, "int32[n_values]"]  # by node of the value, -1: is 0
    rule: Annotated[np.ndarray, "int32[n_values, 3]"]  # [node, operand] -> node of the derivative, -1: not made yet
    # NODES, NUMBERS, STAMP; INEXACT: rounding may differ; NO_RULE: a derivative is missing; FULL: there was no room
    counts: np.ndarray


class Texts(NamedTuple):
    """Texts without parameters as postfix tokens, one behind the other."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    n_params: np.ndarray


class DerivativeRules(NamedTuple):
    """The table's ``derivative`` cells as postfix tokens; variables 0, 1, 2 and 3 are a, b, y and c."""

    start: Annotated[np.ndarray, "int64[256, 3]"]  # by code and operand
    stop: Annotated[np.ndarray, "int64[256, 3]"]
    there: Annotated[np.ndarray, "bool[256, 3]"]
    packed: Annotated[np.ndarray, "bool[256]"]  # by code: operand a is two, packed
    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray  # the same 8 bytes, as a constant


@table_of_rows
def derivative_rules() -> DerivativeRules:
    """The rules of all operators, parsed."""
    places, texts = rule_texts()
    numbers = texts.values.view(np.float64)
    rules = zeros(DerivativeRules, kinds=texts.kinds, values=texts.values, numbers=numbers)
    for i, place in enumerate(places):
        rules.start[place], rules.stop[place], rules.there[place] = texts.offsets[i], texts.offsets[i + 1], True
    rules.packed[[row.code for row in defined.functions() if row.packed]] = True
    return rules


@table_of_rows
def rule_texts() -> tuple[list[tuple[int, int]], Texts]:
    """(operator's code, operand) of every rule, and the rules' tokens over a, b, y and c."""
    from exprkit.text import formulas, reader
    from exprkit.text.names import Names

    rows = [row for row in ops.BY_CODE.values() if row.derivative]
    places = [(row.code, k) for row in rows for k in range(len(row.derivative))]
    batch = reader.from_items([text for row in rows for text in row.derivative])
    batch.names = Names(["a", "b", "y", "c"], None)
    kinds, values, offsets, faults = reader.tokens_of(batch)
    assert not faults, "the table's own texts can be read"
    written = formulas.expanded(kinds, values, offsets, formulas.user_formulas())  # functions of three operands
    return places, Texts(written.kinds, written.values, written.offsets, np.zeros(len(offsets) - 1, np.int32))


def make_graph(pop: TokenArrays, positive: np.ndarray, *, reverse: bool, inexact: bool, room: int = 1) -> Graph:
    """Room for any expression of the population.

    ``reverse``: for ``adjoints`` and all ``tangents`` of up to FORWARD_MOST parameters, else for one tangent.
    ``inexact``: derivatives are to be computed, and may be rounded otherwise than written where that is cheaper.
    ``room``: so many times what has always been enough; FULL says that it was not.
    """
    longest = int((derivative_rules().stop - derivative_rules().start).max())
    tokens = np.diff(pop.offsets)
    ways = np.minimum(pop.n_params, FORWARD_MOST) + 1 if reverse else np.ones(len(tokens), np.int64)
    most = room * (int((tokens * (4 * longest + 8 * ways + 4)).max(initial=0)) + 64)
    n_values = int(tokens.max(initial=0)) + 4
    size = 1 << (2 * most).bit_length()
    numbers = np.empty(most + 1)  # one more: where a number stands while it is looked up
    return empty(
        Graph,
        n=most,
        n_slots=size,
        n_values=n_values,
        numbers=numbers,
        values=numbers.view(np.uint64),
        positive=positive,
        stamp=np.zeros(size, np.int32),
        counts=np.array([0, 0, 0, inexact, 0, 0], np.int64),
    )


# ── nodes ────────────────────────────────────────────────────────────────────────────


@inline
def clear(graph):
    """Make room for the next expression."""
    graph.counts[NODES] = graph.counts[NUMBERS] = graph.counts[NO_RULE] = graph.counts[FULL] = 0
    graph.counts[STAMP] += 1
    if graph.counts[STAMP] == 1 << 31:
        graph.stamp[:] = 0
        graph.counts[STAMP] = 1


@compiled
def slot_of(graph, group, code, a, b, bits):
    """Where in the hash table the node of these contents is, or would be."""
    h = np.uint64(group) | np.uint64(code) << np.uint64(8)
    h ^= (np.uint64(a + 1) * GOLDEN) ^ (np.uint64(b + 1) * np.uint64(0xC2B2AE3D27D4EB4F)) ^ bits
    h *= GOLDEN
    h ^= h >> np.uint64(29)
    mask = np.uint64(len(graph.place) - 1)
    slot, stamp = h & mask, graph.counts[STAMP]
    while graph.stamp[slot] == stamp:
        n = graph.place[slot]
        alike = graph.group[n] == group and graph.code[n] == code and graph.b[n] == b
        if alike and (graph.values[graph.a[n]] == bits if group == CONSTANT else graph.a[n] == a):
            break
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def node(graph, group, code, a, b, bits):
    """The node of these contents, made where there is none yet; ``bits`` are those of a constant, else 0."""
    slot, stamp = slot_of(graph, group, code, a, b, bits), graph.counts[STAMP]
    if graph.stamp[slot] == stamp:
        return graph.place[slot]
    n = graph.counts[NODES]
    if n == len(graph.group):
        graph.counts[FULL] = 1
        return n - 1
    graph.counts[NODES] = n + 1
    if group == CONSTANT:
        a = graph.counts[NUMBERS]
        graph.counts[NUMBERS] = a + 1
        graph.values[a] = bits
    graph.group[n], graph.code[n], graph.a[n], graph.b[n] = group, code, a, b
    graph.place[slot], graph.stamp[slot] = n, stamp
    return n


@compiled
def number(graph, value):
    """The node of a constant."""
    room = graph.counts[NUMBERS]  # where it goes if it is new
    graph.numbers[room] = value
    return node(graph, CONSTANT, NONE, 0, NOTHING, graph.values[room])


@inline
def leaf(graph, kind, index):
    """The node of a variable or a parameter."""
    return node(graph, kind, NONE, np.int64(index), NOTHING, NO_BITS)


@compiled
def operation(graph, rules, code, a, b):
    """The node of an operator, as the table's rules rewrite it."""
    code, a, b = rewrite(code, a, b, rules, graph)
    if code == ops.COPY:
        return a
    return node(graph, group_of(a, b, graph), code, a, b, NO_BITS)


@compiled
def read(graph, rules, tokens, begin, end):
    """The graph of the postfix tokens begin:end; gives the root."""
    kinds, values = tokens.kinds, tokens.values
    depth = 0
    for t in range(begin, end):
        if kinds[t] == OPERATOR:
            code, b = np.int64(values[t]), -1
            if rules.arity[code] == 2:
                depth -= 1
                b = graph.stack[depth]
            y = operation(graph, rules, code, graph.stack[depth - 1], b)
            graph.stack[depth - 1] = y
            continue
        if kinds[t] == CONSTANT:
            graph.stack[depth] = number(graph, tokens.numbers[t])
        else:
            graph.stack[depth] = leaf(graph, kinds[t], values[t])
        depth += 1
    return graph.stack[0]


# ── terms of a derivative, simplified ────────────────────────────────────────────────


@inline
def is_number(graph, a):
    return graph.group[a] == CONSTANT


@inline
def is_finite_number(graph, a):
    return graph.group[a] == CONSTANT and np.isfinite(graph.numbers[graph.a[a]])


@inline
def value_of(graph, a):
    return graph.numbers[graph.a[a]]


@inline
def is_exactly(graph, a, value):
    return graph.group[a] == CONSTANT and graph.numbers[graph.a[a]] == value


@inline
def without_sign(graph, a):
    """(the node without a minus in front of it, whether there was one)."""
    if graph.code[a] == ops.NEG:
        return graph.a[a], True
    if is_exactly(graph, a, -1.0):
        return number(graph, 1.0), True
    return a, False


@compiled
def strong_if_needed(graph, a, b):
    """The operator of a product: the strong one in a derivative where one factor may be 0 beside inf or nan.

    Not where the product is part of the value: where that is nan it either spoils all, or ends in something flat.
    """
    plain = a == b or is_finite_number(graph, a) or is_finite_number(graph, b)
    leaves = graph.group[a] < UNIFORM_NODE and graph.group[b] < UNIFORM_NODE
    if not graph.counts[INEXACT] or plain or leaves:
        return ops.MUL
    there = slot_of(graph, group_of(a, b, graph), ops.MUL, a, b, NO_BITS)
    return ops.MUL if graph.stamp[there] == graph.counts[STAMP] else ops.STRONG_MUL


@compiled
def negated(graph, rules, a):
    if is_number(graph, a):
        return number(graph, -value_of(graph, a))
    if graph.code[a] == ops.NEG:
        return graph.a[a]
    if graph.code[a] == ops.SUB:
        return operation(graph, rules, ops.SUB, graph.b[a], graph.a[a])
    return operation(graph, rules, ops.NEG, a, NOTHING)


@compiled
def product(graph, rules, a, b):
    a, minus_a = without_sign(graph, a)
    b, minus_b = without_sign(graph, b)
    if is_exactly(graph, a, 0.0) or is_exactly(graph, b, 0.0):
        return number(graph, 0.0)
    if is_exactly(graph, a, 1.0):
        y = b
    elif is_exactly(graph, b, 1.0):
        y = a
    elif is_number(graph, a) and is_number(graph, b):
        y = number(graph, value_of(graph, a) * value_of(graph, b))
    else:
        if graph.counts[INEXACT] and is_uniform(b, graph) and not is_uniform(a, graph):
            a, b = b, a
        inner_product = graph.code[b] == ops.MUL or graph.code[b] == ops.STRONG_MUL
        if graph.counts[INEXACT] and is_uniform(a, graph) and inner_product:  # what is uniform comes first
            inner, other = graph.a[b], graph.b[b]
            if is_uniform(inner, graph) and not is_uniform(other, graph):
                a, b = operation(graph, rules, strong_if_needed(graph, a, inner), a, inner), other
        y = operation(graph, rules, strong_if_needed(graph, a, b), a, b)
    return negated(graph, rules, y) if minus_a != minus_b else y


@compiled
def quotient(graph, rules, a, b):
    if is_exactly(graph, a, 0.0):
        return number(graph, 0.0)
    a, minus_a = without_sign(graph, a)
    b, minus_b = without_sign(graph, b)
    if is_exactly(graph, b, 1.0):
        y = a
    elif is_number(graph, a) and is_number(graph, b) and value_of(graph, b) != 0.0:
        y = number(graph, value_of(graph, a) / value_of(graph, b))
    elif graph.counts[INEXACT] and is_exactly(graph, a, 1.0):
        y = operation(graph, rules, ops.INV, b, NOTHING)
    elif graph.counts[INEXACT] and (is_uniform(b, graph) or graph.group[b] == VARIABLE):  # 1 / b is made once
        y = product(graph, rules, a, operation(graph, rules, ops.INV, b, NOTHING))
    else:
        strong = graph.counts[INEXACT] and not is_number(graph, a)
        y = operation(graph, rules, ops.STRONG_DIV if strong else ops.DIV, a, b)
    return negated(graph, rules, y) if minus_a != minus_b else y


@compiled
def difference(graph, rules, a, b):
    if is_exactly(graph, b, 0.0):
        return a
    if is_number(graph, a) and is_number(graph, b):
        return number(graph, value_of(graph, a) - value_of(graph, b))
    if is_exactly(graph, a, 0.0):
        return negated(graph, rules, b)
    b, minus = without_sign(graph, b)
    return operation(graph, rules, ops.ADD if minus else ops.SUB, a, b)


@compiled
def total(graph, rules, a, b):
    if is_exactly(graph, a, 0.0):
        return b
    if is_exactly(graph, b, 0.0):
        return a
    if is_number(graph, a) and is_number(graph, b):
        return number(graph, value_of(graph, a) + value_of(graph, b))
    inner, minus = without_sign(graph, b)
    if minus:
        return operation(graph, rules, ops.SUB, a, inner)
    inner, minus = without_sign(graph, a)
    if minus:
        return operation(graph, rules, ops.SUB, b, inner)
    return operation(graph, rules, ops.ADD, a, b)


@compiled
def term(graph, rules, code, a, b):
    """``code(a, b)`` in a derivative: simplified."""
    if code == ops.MUL:
        return product(graph, rules, a, b)
    if code == ops.DIV:
        return quotient(graph, rules, a, b)
    if code == ops.ADD:
        return total(graph, rules, a, b)
    if code == ops.SUB:
        return difference(graph, rules, a, b)
    if code == ops.NEG:
        return negated(graph, rules, a)
    if code == ops.POW and is_exactly(graph, b, 1.0):
        return a
    return operation(graph, rules, code, a, b)


# ── derivatives ──────────────────────────────────────────────────────────────────────


@inline
def operand_of(graph, derivatives, n, k):
    """Operand k of node n, -1 where there is none: of a function of three operands those that ``pair_of`` packs.

    What packs them has none of its own here, so that derivatives go past it.
    """
    code = graph.code[n]
    if code == ops.PAIR_OF:
        return NOTHING
    if not derivatives.packed[code]:
        return graph.a[n] if k == 0 else graph.b[n] if k == 1 else NOTHING
    pair = graph.a[n]
    return graph.a[pair] if k == 0 else graph.b[pair] if k == 1 else graph.b[n]


@compiled
def derivative(graph, rules, derivatives, y, k):
    """The derivative of node ``y`` by its operand k (0: a, 1: b, 2: c), as a node; nan where there is no rule."""
    if graph.rule[y, k] >= 0:
        return graph.rule[y, k]
    code = graph.code[y]
    if not derivatives.there[code, k]:
        graph.counts[NO_RULE] = 1
        return number(graph, np.nan)
    depth = 0
    for t in range(derivatives.start[code, k], derivatives.stop[code, k]):
        kind = derivatives.kinds[t]
        if kind == CONSTANT:
            graph.stack[depth] = number(graph, derivatives.numbers[t])
        elif kind == VARIABLE:
            of = derivatives.values[t]
            graph.stack[depth] = y if of == 2 else operand_of(graph, derivatives, y, of if of < 2 else 2)
        else:
            inner, b = np.int64(derivatives.values[t]), -1
            if rules.arity[inner] == 2:
                depth -= 1
                b = graph.stack[depth]
            node = term(graph, rules, inner, graph.stack[depth - 1], b)
            graph.stack[depth - 1] = node
            continue
        depth += 1
    graph.rule[y, k] = graph.stack[0]
    return graph.stack[0]


@compiled
def tangent(graph, rules, derivatives, root, leaf):
    """The derivative of ``root`` by the node ``leaf``, forwards; -1 where it is 0."""
    for n in range(root + 1):
        graph.tangent[n] = -1
        if n == leaf:
            graph.tangent[n] = number(graph, 1.0)
            continue
        if graph.group[n] < UNIFORM_NODE:
            continue
        node = -1
        for k in range(3):
            operand = operand_of(graph, derivatives, n, k)
            if operand < 0 or graph.tangent[operand] < 0:
                continue
            factor = derivative(graph, rules, derivatives, n, k)
            part = product(graph, rules, factor, graph.tangent[operand])
            node = part if node < 0 else total(graph, rules, node, part)
        if node >= 0 and is_exactly(graph, node, 0.0):
            node = -1
        graph.tangent[n] = node
    return graph.tangent[root]


@compiled
def adjoints(graph, rules, derivatives, root):
    """The derivatives of ``root`` by all its parameters, backwards: left in ``graph.tangent`` of their nodes."""
    for n in range(root + 1):  # 0: has parameters below, -1: has none
        active = graph.group[n] == PARAMETER
        if graph.group[n] >= UNIFORM_NODE:
            active = graph.tangent[graph.a[n]] >= -1 or (graph.b[n] >= 0 and graph.tangent[graph.b[n]] >= -1)
        graph.tangent[n] = -1 if active else -2
    if graph.tangent[root] >= -1:
        graph.tangent[root] = number(graph, 1.0)
    for n in range(root, -1, -1):
        if graph.tangent[n] < 0 or graph.group[n] < UNIFORM_NODE:
            continue
        for k in range(3):
            operand = operand_of(graph, derivatives, n, k)
            if operand < 0 or graph.tangent[operand] < -1:
                continue
            factor = derivative(graph, rules, derivatives, n, k)
            part = product(graph, rules, factor, graph.tangent[n])
            if is_exactly(graph, part, 0.0):
                continue
            before = graph.tangent[operand]
            graph.tangent[operand] = part if before < 0 else total(graph, rules, before, part)


@inline
def start_derivatives(graph, root):
    """To be called once between ``read`` and the first derivative."""
    graph.rule[: root + 1] = -1
