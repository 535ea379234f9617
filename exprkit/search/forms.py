"""Forms: the trees by which a function can be written, the best of each function, and their tokens.

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

from exprkit.runtime.bags import empty
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE, NewTokens

LEAF = -1  # in the place of an operator's code


class Forms(NamedTuple):
    """Trees, a number each; ``n_forms[0]`` of them are there."""

    n_forms: Annotated[np.ndarray, "int64[1]"]
    size: Annotated[np.ndarray, "int64[n]"]
    symbols: Annotated[np.ndarray, "int64[n]"]  # a bit for each variable, parameters, each operator
    n_params: Annotated[np.ndarray, "int64[n]"]
    code: Annotated[np.ndarray, "int64[n]"]  # of the operator, or LEAF
    left: Annotated[np.ndarray, "int64[n]"]  # operands, as forms; of a leaf its symbol
    right: Annotated[np.ndarray, "int64[n]"]  # -1: there is none
    next: Annotated[np.ndarray, "int64[n]"]  # the next form of the same function, or -1


class Combination(NamedTuple):
    """What makes some trees: an operator over the functions of two sizes."""

    code: int
    symbol: int
    left_size: int
    right_size: int  # 0: one operand
    most_params: int


def no_forms(room: int) -> Forms:
    forms = empty(Forms, n=room)
    forms.n_forms[0] = 0
    return forms


def more_room(forms: Forms) -> Forms:
    """The same forms with room for twice as many."""
    n = int(forms.n_forms[0])
    larger = empty(Forms, n=2 * len(forms.size))
    larger.n_forms[0] = n
    for old, new in zip(forms[1:], larger[1:], strict=True):
        new[:n] = old[:n]
    return larger


@inline
def _is_beaten(forms, first, size, symbols, n_params):
    form = first
    while form >= 0:
        if forms.size[form] <= size and forms.n_params[form] <= n_params and forms.symbols[form] & ~symbols == 0:
            return True
        form = forms.next[form]
    return False


@compiled
def add_form(forms, first, function, row, symbols, n_params):
    """Note a form (size, code, left, right) of a function, whose first one is in ``first``, if none beats it."""
    if _is_beaten(forms, first[function], row[0], symbols, n_params):
        return
    n = forms.n_forms[0]
    forms.size[n], forms.symbols[n], forms.n_params[n] = row[0], symbols, n_params
    forms.code[n], forms.left[n], forms.right[n] = row[1], row[2], row[3]
    forms.next[n], last = -1, first[function]
    while last >= 0 and forms.next[last] >= 0:
        last = forms.next[last]
    if last >= 0:
        forms.next[last] = n
    else:
        first[function] = n
    forms.n_forms[0] = n + 1


@compiled
def add_forms(forms, first, combination, made, functions, begin):
    """The forms of some trees, from the one numbered ``begin`` on: operands ``made[i]``, function ``functions[i]``.

    Gives the number of the first tree there was no room for; to begin with it again adds nothing twice.
    """
    c = combination
    for i in range(begin, len(functions)):
        if functions[i] < 0:
            continue
        a = first[made[i, 0]]
        while a >= 0:
            fitted = forms.size[a] != c.left_size or (
                _add_unary(forms, first, c, a, functions[i])
                if c.right_size == 0
                else _add_binary(forms, first, c, a, first[made[i, 1]], functions[i])
            )
            if not fitted:
                return i
            a = forms.next[a]
    return len(functions)


@compiled
def _add_unary(forms, first, c, a, function):
    if forms.n_forms[0] == len(forms.size):
        return False
    row = np.empty(4, np.int64)
    row[0], row[1], row[2], row[3] = c.left_size + 1, c.code, a, -1
    add_form(forms, first, function, row, forms.symbols[a] | 1 << c.symbol, forms.n_params[a])
    return True


@compiled
def _add_binary(forms, first, c, a, b, function):
    """Of an operand's form and all those of the other's function, from form ``b`` on; False where there is no room."""
    row = np.empty(4, np.int64)
    row[0], row[1], row[2] = c.left_size + c.right_size + 1, c.code, a
    while b >= 0:
        n_params = forms.n_params[a] + forms.n_params[b]
        if forms.size[b] == c.right_size and n_params <= c.most_params:
            if forms.n_forms[0] == len(forms.size):
                return False
            row[3] = b
            add_form(forms, first, function, row, forms.symbols[a] | forms.symbols[b] | 1 << c.symbol, n_params)
        b = forms.next[b]
    return True


@compiled
def best_forms(forms, first, best):
    """Of each function the form of the fewest parameters that is shortest to describe, of such the first found."""
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
    """Backwards: an operator is written where its tree ends, then its right operand."""
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
            elif forms.left[form] == n_vars:
                parameter -= 1
                kinds[position], values[position] = PARAMETER, np.uint64(parameter)
            else:
                kinds[position], values[position] = VARIABLE, np.uint64(forms.left[form])
