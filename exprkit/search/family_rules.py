"""Rules of families: what an operator makes of the families of its operands, as compiled functions.

In: two families in slots 0 and 1, and an operator's code.  Out: the operator's family, in normal form, in slot 0.

    >>> from exprkit.operators import ops
    >>> from exprkit.search.family_rules import has_rule
    >>> bool(has_rule(ops.MUL)), bool(has_rule(ops.BY_NAME["sin"].code))
    (True, False)

Slots 2 and 3 are where operands wait while forms are tried, 4 and 5 those of a power.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.operators import ops
from exprkit.runtime.jit import compiled
from exprkit.search.families import (
    CONE,
    FINE,
    FIRST_HELD,
    FREE,
    HELD,
    KIND,
    LIN,
    LOG,
    NONE,
    OPAQUE,
    POSITIVE,
    SCALE,
    SIGNS,
    K,
    M,
    as_function,
    as_lin,
    as_log,
    copy,
    divides,
    hold_all_of,
    keys_of,
    normalise,
    total,
)

ADD, SUB, MUL, DIV, NEG, INV = ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.NEG, ops.INV
POWABS, SQR, CUBE, ABS, SQRTABS, EXP, LOGABS = (
    ops.POWABS,
    ops.SQR,
    ops.CUBE,
    ops.ABS,
    ops.SQRTABS,
    ops.EXP,
    ops.LOGABS,
)
NAMES = 3  # under how many names a number is held, one after the other
FUNCTION_FORM = 2  # a form beside LIN and LOG: a LIN without U


@compiled
def has_rule(code):
    """Whether an operator has rules; others work on functions alone, every number held."""
    return code in (ADD, SUB, MUL, DIV, NEG, INV, POWABS, SQR, CUBE, ABS, SQRTABS, EXP, LOGABS)


@compiled
def apply(f, code, keys):
    """The family of an operator with rules, of slots 0 and 1, whose keys are rows 0 and 1 of ``keys``."""
    ended = _applied(f, code, keys)
    return normalise(f, 0) if ended == FINE else ended


@compiled
def _applied(f, code, keys):
    if code in (ADD, SUB):
        return _sum(f, keys, -1.0 if code == SUB else 1.0)
    if code == MUL:
        return _product(f, keys)
    if code == DIV:
        return _quotient(f, keys)
    if code == POWABS:
        return _power(f, keys)
    if code == NEG:
        return _scaled(f)
    if code == EXP:
        return _exponential(f)
    if code == LOGABS:
        return _logarithm(f, 0)
    number = 2.0 if code == SQR else 3.0 if code == CUBE else 0.5 if code == SQRTABS else -1.0 if code == INV else 1.0
    return _number_power(f, 0, number, code in (CUBE, INV), 0)


# ── operands ─────────────────────────────────────────────────────────────────────────


@compiled
def formed(f, a, form, salt):
    if form == LIN:
        return as_lin(f, a, salt)
    return as_log(f, a, salt) if form == LOG else as_function(f, a, salt)


@compiled
def _apart(f, a, b):
    """Whether two families hold nothing in common."""
    for i in range(f.heads[a, HELD]):
        for j in range(f.heads[b, HELD]):
            if f.heads[a, FIRST_HELD + i] == f.heads[b, FIRST_HELD + j]:
                return False
    return True


@compiled
def bring(f, form_a, form_b, keys):
    """Slots 0 and 1 in these forms, holding nothing in common; the names go by the keys, whatever the order."""
    first = 0 if keys[0, 0] <= keys[1, 0] else 1
    second = 1 - first
    copy(f, second, f, 2 + second)
    if formed(f, first, form_b if first else form_a, 0) != FINE:
        return False
    for salt in range(NAMES):
        copy(f, 2 + second, f, second)
        if formed(f, second, form_b if second else form_a, salt) == FINE and _apart(f, 0, 1):
            return True
    return False


@compiled
def _is_function(f, a):
    return f.heads[a, KIND] == LIN and f.heads[a, M] == 0


@compiled
def _is_zero(f, a):
    """0 everywhere; then so is a product with it."""
    if not _is_function(f, a):
        return False
    others = 0
    for k in range(K):
        others += f.rows[a, 0, k] != 0.0
    return others == 0


@compiled
def _is_multiple(f, a):
    """Whether slot a is all multiples of one function."""
    return f.heads[a, KIND] == LIN and f.heads[a, M] == 1 and f.heads[a, CONE] == 1


@compiled
def _is_simple(f):
    """Whether a product takes nothing that is held: two LIN, of which one is a function or its multiples."""
    if f.heads[0, KIND] == LOG or f.heads[1, KIND] == LOG:
        return False
    return _is_function(f, 0) or _is_multiple(f, 0) or _is_function(f, 1) or _is_multiple(f, 1)


# ── sums ─────────────────────────────────────────────────────────────────────────────


@compiled
def _sum(f, keys, sign):
    if not bring(f, LIN, LIN, keys) or not hold_all_of(f, 0, 1):
        return OPAQUE
    rows = f.rows
    for k in range(K):
        rows[0, 0, k] = total(rows[0, 0, k], sign * rows[1, 0, k])
    _join(f)
    return FINE


@compiled
def _join(f):
    """Append the U of slot 1 to those of slot 0."""
    m = f.heads[0, M]
    for r in range(1, f.heads[1, M] + 1):
        for k in range(K):
            f.rows[0, m + r, k] = f.rows[1, r, k]
    f.heads[0, M] = m + f.heads[1, M]


@compiled
def _scaled(f):
    """Negated."""
    if f.heads[0, KIND] == LOG:
        for k in range(K):
            if np.isfinite(f.rows[0, 0, k]):
                f.heads[0, SIGNS] ^= 1 << k
        return FINE
    for k in range(K):
        f.rows[0, 0, k] = -f.rows[0, 0, k] if f.rows[0, 0, k] != 0 else 0.0
    return FINE


# ── products ─────────────────────────────────────────────────────────────────────────


@compiled
def _product(f, keys):
    if _is_zero(f, 0) or _is_zero(f, 1):
        copy(f, 0 if _is_zero(f, 0) else 1, f, 0)
        return FINE
    if f.heads[0, KIND] == LOG or f.heads[1, KIND] == LOG:
        if not bring(f, LOG, LOG, keys) or not hold_all_of(f, 0, 1):
            return OPAQUE
        return _sum_of_logs(f)
    if not _is_simple(f) and not _hold_one(f, keys):
        return OPAQUE
    if not _apart(f, 0, 1):
        return OPAQUE
    second_is_factor = not _is_function(f, 0) and (_is_function(f, 1) or not _is_multiple(f, 0))
    if not second_is_factor:
        copy(f, 1, f, 2)
        copy(f, 0, f, 1)
        copy(f, 2, f, 0)
    return OPAQUE if not hold_all_of(f, 0, 1) else _times(f)


@compiled
def _hold_one(f, keys):
    """Hold the numbers of one of two LIN, but for a factor: of that of fewer, else that of the smaller key."""
    fewer = f.heads[0, M] < f.heads[1, M] or (f.heads[0, M] == f.heads[1, M] and keys[0, 0] <= keys[1, 0])
    one, other = (0, 1) if fewer else (1, 0)
    copy(f, one, f, 2)
    for salt in range(NAMES):
        copy(f, 2, f, one)
        form = LOG if f.heads[one, CONE] == 1 else FUNCTION_FORM
        if formed(f, one, form, salt) == FINE and normalise(f, one) == FINE and _apart(f, one, other):
            return True
    return False


@compiled
def _times(f):
    """Slot 0, a LIN, times slot 1, a function or the multiples of one."""
    heads, rows = f.heads, f.rows
    multiple = _is_multiple(f, 1)
    by = 1 if multiple else 0
    m = heads[0, M]
    for r in range(m + 1):
        for k in range(K):
            rows[0, r, k] *= rows[1, by, k]
    if multiple and heads[0, CONE] == 0:
        for k in range(K):
            rows[0, m + 1, k] = rows[0, 0, k]
            rows[0, 0, k] *= 0.0
        heads[0, M] = m + 1
    return FINE


@compiled
def _sum_of_logs(f):
    heads, rows = f.heads, f.rows
    for k in range(K):
        rows[0, 0, k] = total(rows[0, 0, k], rows[1, 0, k])
    _join(f)
    heads[0, SIGNS] ^= heads[1, SIGNS]
    heads[0, SCALE] = max(heads[0, SCALE], heads[1, SCALE])
    return FINE


@compiled
def _quotient(f, keys):
    copy(f, 1, f, 4)
    own = f.own
    own[0, 0] = keys[0, 0]
    for salt in range(NAMES):
        copy(f, 4, f, 1)
        ended = _number_power(f, 1, -1.0, True, salt)
        ended = normalise(f, 1) if ended == FINE else ended
        if ended != FINE:
            return ended
        if _apart(f, 0, 1):
            if not _is_simple(f):
                keys_of(f, 1, own, 1)
            return _product(f, own)
    return OPAQUE


# ── powers ───────────────────────────────────────────────────────────────────────────


@divides
def _number_power(f, a, number, keeps_sign, salt):
    """|slot a| to the power of a number, with its sign or without."""
    heads, rows = f.heads, f.rows
    if heads[a, KIND] == LIN and heads[a, CONE] == 0:
        if as_function(f, a, salt) != FINE:
            return OPAQUE
        for k in range(K):
            x = rows[a, 0, k]
            y = 1.0 / abs(x) if number == -1.0 else abs(x) if number == 1.0 else abs(x) ** number
            rows[a, 0, k] = -y if x < 0 and keeps_sign else y
        return FINE
    if as_log(f, a, salt) != FINE:
        return OPAQUE
    for r in range(heads[a, M] + 1):
        for k in range(K):
            rows[a, r, k] *= number
    if not keeps_sign:
        heads[a, SIGNS] = 0
        if heads[a, SCALE] == FREE:
            heads[a, SCALE] = POSITIVE
    return FINE


@divides
def _power(f, keys):
    """|slot 0| to the power of slot 1: exp(slot 1 * log|slot 0|)."""
    if _is_function(f, 0) and _is_function(f, 1):
        if not hold_all_of(f, 0, 1):
            return OPAQUE
        for k in range(K):
            f.rows[0, 0, k] = abs(f.rows[0, 0, k]) ** f.rows[1, 0, k]
        return FINE
    copy(f, 0, f, 4)
    copy(f, 1, f, 5)
    for salt in range(NAMES):
        copy(f, 4, f, 0)
        copy(f, 5, f, 1)
        if _logarithm(f, salt) != FINE or as_lin(f, 1, 0) != FINE:
            return OPAQUE
        if _apart(f, 0, 1):
            return _exponential_of_product(f)
    return OPAQUE


@compiled
def _exponential_of_product(f):
    own = f.own
    if normalise(f, 0) != FINE or normalise(f, 1) != FINE:
        return OPAQUE
    if not _is_simple(f):
        keys_of(f, 0, own, 0)
        keys_of(f, 1, own, 1)
    if _product(f, own) != FINE or normalise(f, 0) != FINE:
        return OPAQUE
    return _exponential(f)


@compiled
def _logarithm(f, salt):
    """log|slot 0| as a LIN."""
    heads, rows = f.heads, f.rows
    if as_log(f, 0, salt) != FINE:
        return OPAQUE
    if heads[0, SCALE] != NONE:
        heads[0, M] += 1
        for k in range(K):
            rows[0, heads[0, M], k] = 1.0
    heads[0, KIND], heads[0, SCALE], heads[0, SIGNS], heads[0, CONE] = LIN, NONE, 0, 0
    return FINE


@compiled
def _exponential(f):
    if as_lin(f, 0, 0) != FINE:
        return OPAQUE
    f.heads[0, KIND], f.heads[0, SCALE], f.heads[0, SIGNS], f.heads[0, CONE] = LOG, NONE, 0, 0
    return FINE
