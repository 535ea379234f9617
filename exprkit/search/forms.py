"""Forms: the trees that are written differently but are the same function, the best of each, and their tokens.

In: which functions an operator and two operands' forms make.  Out: of each function the form that is
shortest to describe, as tokens.

What a form costs to describe is its nodes times the logarithm of how many different symbols are in it, so a longer
form of fewer symbols may be the shorter one.  A form is kept where no other of its function has as few nodes, no symbol
beside, and as few parameters: what is made of the one can be made of the other then.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime.bags import empty, larger
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE, NewTokens

LEAF = -1  # in the place of an operator's code


class Forms(NamedTuple):
    """Trees, a number each; ``n_forms[0]`` of them are there."""

    n_forms: Annotated[np.ndarray, "int64[1]"]
    size: Annotated[np.ndarray, "int8[n]"]
    symbols: Annotated[np.ndarray, "int64[n]"]  # a bit for each variable, parameters, each operator
    n_params: Annotated[np.ndarray, "int8[n]"]
    code: Annotated[np.ndarray, "int16[n]"]  # of the operator, or LEAF
    left: Annotated[np.ndarray, "int32[n]"]  # operands, as forms; of a leaf its symbol
    right: Annotated[np.ndarray, "int32[n]"]  # -1: there is none
    third: Annotated[np.ndarray, "int32[n]"]
    next: Annotated[np.ndarray, "int32[n]"]  # the next form of the same function, or -1


class Blocks(NamedTuple):
    """Blocks of combinations by number: an operator, and the sizes of its operands."""

    code: Annotated[np.ndarray, "int64[b]"]
    symbol: Annotated[np.ndarray, "int64[b]"]
    commutative: Annotated[np.ndarray, "bool[b]"]
    left_size: Annotated[np.ndarray, "int64[b]"]
    right_size: Annotated[np.ndarray, "int64[b]"]  # 0: one operand
    third_size: Annotated[np.ndarray, "int64[b]"]  # 0: one or two
    most_params: int


def no_forms(room: int) -> Forms:
    forms = empty(Forms, n=room)
    forms.n_forms[0] = 0
    return forms


def more_room(forms: Forms) -> Forms:
    """The forms with room for twice as many."""
    return larger(forms, int(forms.n_forms[0]), n=2 * len(forms.size))


@compiled
def add_leaf(forms, first, leaf, n_params):
    """Note a leaf, the function of its own number."""
    n = forms.n_forms[0]
    forms.size[n], forms.symbols[n], forms.n_params[n], forms.next[n] = 1, 1 << leaf, n_params, -1
    forms.code[n], forms.left[n], forms.right[n], forms.third[n] = LEAF, leaf, -1, -1
    first[leaf], forms.n_forms[0] = n, n + 1


@inline
def _add(forms, first, function, size, symbols, n_params):
    """Note a form of a function, whose first one is in ``first``, if none beats it; says whether it did."""
    form, last = first[function], -1
    while form >= 0:
        if forms.size[form] <= size and forms.n_params[form] <= n_params and forms.symbols[form] & ~symbols == 0:
            return False
        form, last = forms.next[form], form
    n = forms.n_forms[0]
    forms.size[n], forms.symbols[n], forms.n_params[n], forms.next[n] = size, symbols, n_params, -1
    if last >= 0:
        forms.next[last] = n
    else:
        first[function] = n
    forms.n_forms[0] = n + 1
    return True


@compiled
def add_forms(forms, first, blocks, batch, begin):
    """The forms of some trees, from the one numbered ``begin`` on: operands ``made.operands[i]`` and so on.

    Gives the number of the first tree there was no room for; to begin with it again adds nothing twice.
    """
    for i in range(begin, len(batch.functions)):
        if batch.n_rows[i] == 0:
            continue
        b = batch.blocks[i]
        a = first[batch.operands[i, 0]]
        while a >= 0:
            right = first[batch.operands[i, 1]] if blocks.right_size[b] > 0 else -1
            third = first[batch.operands[i, 2]] if blocks.third_size[b] > 0 else -1
            if forms.size[a] == blocks.left_size[b] and not _add_forms_of(
                forms, first, blocks, b, (a, right, third), batch.functions[i]
            ):
                return i
            a = forms.next[a]
    return len(batch.functions)


@inline
def _add_forms_of(forms, first, c, block, operands, function):
    """Add the forms of an operand's form with those of the other functions from these on; False without room."""
    a, b, third = operands
    two, three = c.right_size[block] > 0, c.third_size[block] > 0
    size = c.left_size[block] + c.right_size[block] + c.third_size[block] + 1
    while b >= 0 or not two:
        t = third
        while (not two or forms.size[b] == c.right_size[block]) and (t >= 0 or not three):
            n_params = np.int64(forms.n_params[a])
            symbols = forms.symbols[a] | 1 << c.symbol[block]
            if two:
                n_params += forms.n_params[b]
                symbols |= forms.symbols[b]
            if three:
                n_params += forms.n_params[t]
                symbols |= forms.symbols[t]
            if n_params <= c.most_params and (not three or forms.size[t] == c.third_size[block]):
                n = forms.n_forms[0]
                if n == len(forms.size):
                    return False
                if _add(forms, first, function, size, symbols, n_params):
                    forms.code[n], forms.left[n], forms.right[n], forms.third[n] = c.code[block], a, b, t
            if not three:
                break
            t = forms.next[t]
        if not two:
            return True
        b = forms.next[b]
    return True


@compiled
def best_forms(forms, first, best):
    """Write each function's form of fewest parameters and shortest description, the first of several, into ``best``."""
    for i in range(len(best)):
        form, best[i] = first[i], first[i]
        least_params, least = 1 << 30, np.inf
        while form >= 0:
            bits, kinds = forms.symbols[form], 0
            while bits:
                bits &= bits - 1
                kinds += 1
            length = forms.size[form] * np.log(kinds)
            fewer = forms.n_params[form] < least_params
            same = forms.n_params[form] == least_params
            if fewer or (same and length < least - 1e-9):
                best[i], least_params, least = form, forms.n_params[form], length
            form = forms.next[form]


def tokens_of(forms: Forms, chosen: np.ndarray, n_vars: int) -> tuple[NewTokens, np.ndarray]:
    """The tokens of some forms and where each begins; parameters are numbered in order of appearance."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(forms.size[chosen])])
    tokens = empty(NewTokens, n=int(offsets[-1]))
    _write(forms, chosen, n_vars, offsets, tokens)
    return tokens, offsets


@compiled
def _write(forms, chosen, n_vars, offsets, tokens):
    """Backwards: an operator is written where its tree ends, then its last operand."""
    kinds, values = tokens.kinds, tokens.values
    stack = np.empty(256, np.int64)
    for i in range(len(chosen)):
        position, depth = offsets[i + 1], 1
        stack[0], parameter = chosen[i], forms.n_params[chosen[i]]
        while depth > 0:
            depth -= 1
            form = stack[depth]
            position -= 1
            if forms.code[form] != LEAF:
                kinds[position], values[position] = OPERATOR, np.uint64(forms.code[form])
                stack[depth] = forms.left[form]
                depth += 1
                if forms.right[form] >= 0:
                    stack[depth] = forms.right[form]
                    depth += 1
                if forms.third[form] >= 0:
                    stack[depth] = forms.third[form]
                    depth += 1
            elif forms.left[form] == n_vars:
                parameter -= 1
                kinds[position], values[position] = PARAMETER, np.uint64(parameter)
            else:
                kinds[position], values[position] = VARIABLE, np.uint64(forms.left[form])
