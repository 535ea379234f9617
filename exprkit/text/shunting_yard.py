"""The compiled parser: from bytes to postfix tokens, all texts of a batch in one pass.

Dijkstra's shunting-yard.  At any place the parser expects either an operand or an
operator:

* an operand (number, name) goes straight to the output;
* an operator waits on the stack until one arrives that binds no tighter, and then goes
  to the output;
* ``(`` and ``function(`` wait on the stack as walls; ``,`` and ``)`` send everything
  above the wall to the output.

=============  ======================================================================
stack entry    ``precedence << 8 | code`` of an operator or prefix; a wall has
               precedence 0 and the function's code, or 0 for a plain parenthesis;
               under that of a name for two functions the outer one waits
stack place    where in the text it stands, for messages
stack commas   how many arguments of a wall are complete
=============  ======================================================================

``parser`` calls ``parse_slice`` and words the errors, which come out as numbers.

    >>> from exprkit.operators import ops
    >>> from exprkit.text import shunting_yard
    >>> bool(shunting_yard.rules()[shunting_yard.INFIX, ord("*")] == ops.BY_NAME["mul"].code)
    True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.operators import defined
from exprkit.runtime.bags import empty
from exprkit.runtime.jit import compiled
from exprkit.text.decimals import SIGN_BIT, nearest
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE

MAX_DEPTH = 1_000_000
MAX_BYTES = 16_777_216
MAX_DIGITS = 1_000

# What is wrong with a text; ``parse_errors`` words them.
(
    FINE, EMPTY, ILLEGAL, OPERAND_EXPECTED, OPERATOR_EXPECTED, UNKNOWN_NAME, BARE_FUNCTION, NOT_OPENED, NOT_CLOSED,
    STRAY_COMMA, ARGUMENTS, RATIONAL, RATIONAL_POWER, RATIONAL_ZERO, INDEX, COMPARED,
    TOO_MANY_BYTES, TOO_MANY_TOKENS, TOO_DEEP, TOO_MANY_DIGITS,
) = range(20)  # fmt: skip

# What a byte may begin.
OTHER, END, SPACE, DIGIT, DOT, LETTER, OPEN, CLOSE, COMMA, SYMBOL, QUOTE = range(11)

NOTHING = 9  # no kind of token

TIGHTEST, COMPARES = np.int32(255), np.int32(1)  # precedences; a row's are one less, since 0 is a wall's
PLUS_SIGN, RATIONAL_SIGN = 254, 255  # no operators: the prefix ``+`` and the infix ``//``

SLOW_NEGATIVE, SLOW_SINGLE, SLOW_RATIONAL = 1, 2, 4

ZERO, PLUS, MINUS, LETTER_X, LETTER_P, LOWER_E, UPPER_E, LOWER_F, COMMENT, FEED, RETURN = np.frombuffer(
    b"0+-xpeEf#\n\r", np.uint8
)
EXACT_WHOLE = np.uint64(1 << 53)
FNV_BASIS, FNV_PRIME = np.uint32(0x811C9DC5), np.uint32(0x01000193)


# Rows of the rules, (10, 256): what a byte means, then what an operator's code means.
(
    BYTE_CLASS,  # what it may begin
    INFIX,  # code of the infix operator ``c``, 0 for none
    DOUBLED,  # code of the infix operator ``cc`` or ``c=``
    SECOND,  # the second byte of that
    PREFIX,  # code of the prefix operator ``c``
    PRECEDENCE,
    POPS,  # an infix operator sends waiting ones of at least this precedence to the output
    ARITY,
    CHAIN,
    PREFIXES,  # [PREFIXES, 0] is the precedence of prefixes
) = range(10)


def rules() -> np.ndarray:
    """The operators as an array, for the compiled functions below."""
    return _rules(defined.count())


@lru_cache(maxsize=1)
def _rules(n_defined: int) -> np.ndarray:
    table = np.zeros((10, 256), np.uint8)
    for kind, characters in ((SPACE, b" \t\n\r\v\f"), (DIGIT, b"0123456789"), (DOT, b"."), (OPEN, b"("),
                             (CLOSE, b")"), (COMMA, b","), (SYMBOL, b"/"), (END, b"\0"), (QUOTE, b"`")):  # fmt: skip
        table[BYTE_CLASS, list(characters)] = kind
    for byte in range(256):
        if byte >= 128 or chr(byte).isalpha() or byte == ord("_"):
            table[BYTE_CLASS, byte] = LETTER
    for row in defined.table():
        table[[PRECEDENCE, POPS, ARITY, CHAIN], row.code] = (
            row.precedence + 1,
            row.precedence + 1 + (row.right or not row.precedence),
            row.arity,
            row.chain,
        )
        for symbol in (row.infix, *row.aliases):
            if symbol and not symbol.isidentifier():
                kind = PREFIX if row.arity == 1 else INFIX if len(symbol) == 1 else DOUBLED
                table[kind, ord(symbol[0])] = row.code
                table[SECOND, ord(symbol[0])] = ord(symbol[1]) if kind == DOUBLED else table[SECOND, ord(symbol[0])]
                table[BYTE_CLASS, ord(symbol[0])] = SYMBOL
                table[PREFIXES, 0] = row.precedence + 1 if kind == PREFIX else table[PREFIXES, 0]
    table[PREFIX, ord("+")], table[[DOUBLED, SECOND], ord("/")] = PLUS_SIGN, (RATIONAL_SIGN, ord("/"))
    for definition in defined.definitions()[:n_defined]:
        table[[PRECEDENCE, POPS, ARITY], definition.code] = (
            definition.precedence,
            definition.precedence,
            definition.arity,
        )
    table.flags.writeable = False
    return table


class Source(NamedTuple):
    """The texts of a batch: text i is ``text[starts[i]:ends[i]]``, is followed by a 0 byte and holds none."""

    text: np.ndarray  # uint8
    starts: np.ndarray
    ends: np.ndarray


class Work(NamedTuple):
    """Room for the tokens of a slice of texts, and for the parser's stack."""

    kinds: Annotated[np.ndarray, "uint8[size]"]
    values: Annotated[np.ndarray, "uint64[size]"]
    slow: Annotated[np.ndarray, "int64[n_slow, 4]"]  # literals to be read exactly: token, begin, end, SLOW_…
    stack: np.ndarray  # int32 (n, 3): ENTRY, OPENED, COMMAS


ENTRY, OPENED, COMMAS = range(3)


def workspace(size: int, longest: int) -> Work:
    """Room for texts of ``size`` bytes, the longest of which has ``longest``."""
    deepest = min(longest, MAX_DEPTH + MAX_TOKENS) + 2
    n_slow = size // 4 + 1  # no literal that is left over is shorter than 4 bytes
    return empty(Work, size=size, n_slow=n_slow, stack=np.zeros((deepest, 3), np.int32))


# ── numbers ──────────────────────────────────────────────────────────────────────────


@compiled
def _skip(text, j, rules):
    """The place of the next byte that is no blank."""
    while rules[BYTE_CLASS, text[j]] == SPACE:
        j += 1
    return j


@compiled
def _scan_number(text, j, rules):
    """(end, digits, exponent, inexact, whole, single): ``digits * 10**exponent``; 19 digits are kept."""
    n_digits, digits, exponent, inexact, whole = 0, np.uint64(0), 0, False, True
    while rules[BYTE_CLASS, text[j]] == DIGIT or (rules[BYTE_CLASS, text[j]] == DOT and whole):
        if rules[BYTE_CLASS, text[j]] == DOT:
            whole = False
        elif n_digits < 19:
            digits = digits * np.uint64(10) + np.uint64(text[j] - ZERO)
            n_digits += 1 if digits > 0 else 0
            exponent -= not whole
        else:
            inexact |= text[j] > ZERO
            exponent += whole
        j += 1
    end, power, single = _scan_exponent(text, j, rules)
    return end, digits, exponent + power, inexact, whole and end == j, single


@compiled
def _scan_exponent(text, j, rules):
    """(end, exponent, single) of ``e-3``, or of ``f-3`` for a float32 literal."""
    if text[j] != LOWER_E and text[j] != UPPER_E and text[j] != LOWER_F:
        return j, 0, False
    signed = text[j + 1] == PLUS or text[j + 1] == MINUS
    k = j + 2 if signed else j + 1
    if rules[BYTE_CLASS, text[k]] != DIGIT:
        return j, 0, False
    power = 0
    while rules[BYTE_CLASS, text[k]] == DIGIT:
        power = power * 10 + int(text[k] - ZERO) if power < 100_000 else power
        k += 1
    return k, -power if text[j + 1] == MINUS else power, text[j] == LOWER_F


@compiled
def _decimal(digits, exponent, inexact, single):
    """(bits, slow): the literal's value, or that these digits do not decide it."""
    bits = np.uint64(nearest(digits, exponent))
    slow = inexact and bits != nearest(digits + np.uint64(1), exponent)
    if single and bits:  # rounding twice is wrong near the middle of two float32
        number = np.uint64(bits).view(np.float64)
        slow |= inexact or bits & np.uint64(0x1FFFFFFF) == np.uint64(0x10000000) or number < 1.2e-38
        return np.float64(np.float32(number)).view(np.uint64), slow
    return bits, slow


@compiled
def _symbol(text, j, rules):
    """The infix operator at a place: its code, ``RATIONAL_SIGN``, or 0."""
    c = text[j]
    doubled = rules[DOUBLED, c]  # 0 for the last byte, which has no next one
    return doubled if doubled and text[j + 1] == rules[SECOND, c] else rules[INFIX, c]


@compiled
def _power_follows(text, j, rules):
    """True if the next thing is an operator that binds tighter than a prefix."""
    code = _symbol(text, _skip(text, j, rules), rules)
    return rules[PRECEDENCE, code] > rules[PREFIXES, 0]


@compiled
def _rational(text, j, digits, exact, rules):
    """(end, bits, slow, error) of ``digits // …``, where ``j`` is behind the ``//``."""
    nothing = np.uint64(0)
    j = _skip(text, j, rules)
    if rules[BYTE_CLASS, text[j]] != DIGIT:
        return j, nothing, False, RATIONAL
    j, below, exponent, inexact, whole, _ = _scan_number(text, j, rules)
    if not whole or _symbol(text, _skip(text, j, rules), rules) == RATIONAL_SIGN:
        return j, nothing, False, RATIONAL
    if digits == 0 and below == 0:
        return j, nothing, False, RATIONAL_ZERO
    if _power_follows(text, j, rules):
        return j, nothing, False, RATIONAL_POWER
    slow = not exact or inexact or exponent != 0 or digits > EXACT_WHOLE or below > EXACT_WHOLE
    quotient = np.inf if below == 0 else np.float64(digits) / np.float64(below)
    return j, np.float64(quotient).view(np.uint64), slow, FINE


@compiled
def _number(text, start, rules):
    """(end, bits, undecided, flags, error) of the decimal number or fraction at a place."""
    j, digits, exponent, inexact, whole, single = _scan_number(text, start, rules)
    k = _skip(text, j, rules)
    if whole and _symbol(text, k, rules) == RATIONAL_SIGN:
        exact = exponent == 0 and not inexact
        j, bits, undecided, error = _rational(text, k + 2, digits, exact, rules)
        flags = SLOW_RATIONAL
    else:
        bits, undecided = _decimal(digits, exponent, inexact, single)
        flags, error = SLOW_SINGLE if single else 0, FINE
    if error == FINE and j - start > MAX_DIGITS:
        error = TOO_MANY_DIGITS
    return j, bits, undecided, flags, error


# ── names ────────────────────────────────────────────────────────────────────────────


@compiled
def _numbered(text, start, rules):
    """(end, number) of ``x12`` or ``p12``; the number is 0 for another word."""
    j, number = start + 1, 0
    if text[j] == ZERO:
        return start, 0
    while rules[BYTE_CLASS, text[j]] == DIGIT:
        number = number * 10 + int(text[j] - ZERO) if number < 100_000_000 else number
        j += 1
    return (start, 0) if number == 0 or rules[BYTE_CLASS, text[j]] == LETTER else (j, number)


@compiled
def _entry(text, start, end, h, names):
    """The index of the word that stands there and has this hash; -1 for an unknown one."""
    mask = np.uint32(len(names.slots) - 1)
    slot = h & mask
    while names.slots[slot] >= 0:
        index = np.int64(names.slots[slot])
        first = np.int64(names.entries[index, 0])
        length = np.int64(names.entries[index, 1]) - first
        k = 0
        while k < length and k < end - start and names.spellings[first + k] == text[start + k]:
            k += 1
        if k == length and k == end - start:
            return index
        slot = (slot + np.uint32(1)) & mask
    return -1


@compiled
def _word(text, start, names, rules):
    """(end, index) of the name at a place; the index is -1 for an unknown one."""
    j, h = start, FNV_BASIS
    while rules[BYTE_CLASS, text[j]] == LETTER or rules[BYTE_CLASS, text[j]] == DIGIT:
        h = np.uint32((h ^ np.uint32(text[j])) * FNV_PRIME)
        j += 1
    return j, _entry(text, start, j, h, names)


@compiled
def _quoted(text, start, names, rules):
    """The same of a name between backquotes; where the second one is missing, all the rest of the text."""
    j, h, open_ = start, FNV_BASIS, 2
    while open_ > 0 and rules[BYTE_CLASS, text[j]] != END:
        open_ -= rules[BYTE_CLASS, text[j]] == QUOTE
        h = np.uint32((h ^ np.uint32(text[j])) * FNV_PRIME)
        j += 1
    return j, _entry(text, start, j, h, names)


# ── expressions ──────────────────────────────────────────────────────────────────────


@compiled
def _behind_power(stack, top, rules):
    """True if the next operand is an exponent, perhaps with signs before it."""
    while stack[top, ENTRY] >> 8 == rules[PREFIXES, 0]:
        top -= 1
    return stack[top, ENTRY] >> 8 > rules[PREFIXES, 0]


@compiled
def parse_slice(source, begin_text, end_text, names, rules, work, offsets, errors):
    """Parse texts ``begin_text`` to ``end_text``.

    It is one loop, and the parser's state a few local numbers, because that is five times as fast as steps that
    share the state through an array.

    Into ``offsets`` goes the end of each expression among the tokens of ``work``, into ``errors``, int32 (4, n_texts),
    for each bad text its error, its place and length in bytes, and a count.  Gives how many tokens and slow literals
    were written.
    """
    text, starts, ends = source.text, source.starts, source.ends
    kinds, values, slow, stack = work.kinds, work.values, work.slow, work.stack
    entries, numbered = names.entries, names.numbered
    n, n_slow = 0, 0
    for i in range(begin_text, end_text):
        j, end = _skip(text, starts[i], rules), ends[i]
        error = TOO_MANY_BYTES if end - starts[i] > MAX_BYTES else EMPTY if j == end else FINE
        extent, count = 1, 0  # of an error
        begin, begin_slow = n, n_slow
        top, waiting, depth = 0, 0, 0  # entry 0 of the stack is a wall around everything
        operand_next = True  # not an operator
        after_sign = False
        while error == FINE:
            start = j  # of the thing that is read in this round
            c = text[j]
            kind = rules[BYTE_CLASS, c]
            if kind == SPACE:
                j += 1
                continue
            if operand_next:
                sign, after_sign = after_sign, False
                opens, function = kind == OPEN, np.int64(0)
                token, value, undecided, flags = NOTHING, np.uint64(0), False, 0
                if kind == LETTER:
                    limit = numbered[0] if c == LETTER_X else numbered[1] if c == LETTER_P else 0
                    if limit:
                        j, count = _numbered(text, start, rules)
                    if j > start:
                        token, value = VARIABLE if c == LETTER_X else PARAMETER, np.uint64(count - 1)
                        error = INDEX if count > limit else FINE
                        count = limit
                    else:
                        j, index = _word(text, start, names, rules)
                        if index < 0:
                            error = UNKNOWN_NAME
                        elif rules[BYTE_CLASS, text[_skip(text, j, rules)]] == OPEN and entries[index, 2] == OPERATOR:
                            opens, function, j = True, np.int64(entries[index, 3]), _skip(text, j, rules)
                        elif entries[index, 4] == OPERATOR:
                            error = BARE_FUNCTION
                        else:
                            token, value = entries[index, 4], entries[index, 5]
                elif kind == DIGIT or (kind == DOT and rules[BYTE_CLASS, text[j + 1]] == DIGIT):
                    token = CONSTANT
                    j, value, undecided, flags, error = _number(text, start, rules)
                    if flags == SLOW_RATIONAL and error == FINE and _behind_power(stack, top, rules):
                        error = RATIONAL_POWER
                elif kind == SYMBOL and rules[PREFIX, c]:
                    j += 1
                    after_sign = rules[PREFIX, c] != PLUS_SIGN
                    if after_sign:
                        top, waiting = top + 1, waiting + 1
                        stack[top, ENTRY] = np.int32(rules[PREFIXES, 0]) << 8 | np.int32(rules[PREFIX, c])
                elif kind == QUOTE:
                    j, index = _quoted(text, start, names, rules)
                    if index < 0:
                        error = UNKNOWN_NAME
                    else:
                        token, value = entries[index, 2], entries[index, 3]
                elif not opens:
                    error = ILLEGAL if kind == OTHER else OPERAND_EXPECTED
                if error != FINE:
                    extent = max(j - start, 1)
                    j = start
                    break
                if opens:
                    j += 1
                    depth += 1
                    if depth > MAX_DEPTH:
                        error, j = TOO_DEEP, start
                        break
                    if function >> 8:  # around it stands an operator, which goes to the output next
                        top, waiting = top + 1, waiting + 1
                        stack[top, ENTRY] = TIGHTEST << 8 | np.int32(function >> 8)
                    top, waiting = top + 1, waiting + (function != 0)
                    stack[top, ENTRY], stack[top, OPENED], stack[top, COMMAS] = function & 255, start - starts[i], 0
                if token == CONSTANT and sign and not _power_follows(text, j, rules):
                    top, waiting = top - 1, waiting - 1  # the sign belongs to the number
                    flags |= SLOW_NEGATIVE
                    if not np.isnan(np.uint64(value).view(np.float64)):  # a nan has no sign
                        value ^= SIGN_BIT
                if undecided:
                    slow[n_slow, 0], slow[n_slow, 1], slow[n_slow, 2], slow[n_slow, 3] = n, start, j, flags
                    n_slow += 1
                if token != NOTHING:
                    kinds[n], values[n] = token, value
                    n += 1
                    operand_next = False
            elif kind in (SYMBOL, COMMA, CLOSE, END):
                code = _symbol(text, j, rules) if kind == SYMBOL else 0
                if kind == SYMBOL and (code == 0 or code == RATIONAL_SIGN):
                    error, extent = (RATIONAL, 2) if code else (OPERATOR_EXPECTED, 1)
                    break
                least = rules[POPS, code] if kind == SYMBOL else 1
                while stack[top, ENTRY] >> 8 >= least:
                    kinds[n], values[n] = OPERATOR, stack[top, ENTRY] & 255
                    n, top, waiting = n + 1, top - 1, waiting - 1
                wall = stack[top, ENTRY]
                if kind == SYMBOL and wall >> 8 == COMPARES and rules[PRECEDENCE, code] == COMPARES:
                    error, extent = COMPARED, 2 if code == rules[DOUBLED, c] else 1
                    break
                if kind == SYMBOL:
                    top, waiting = top + 1, waiting + 1
                    stack[top, ENTRY] = np.int32(rules[PRECEDENCE, code]) << 8 | np.int32(code)
                    j += 2 if code == rules[DOUBLED, c] else 1
                    operand_next = True
                elif kind == COMMA:
                    if wall == 0:
                        error = STRAY_COMMA
                        break
                    stack[top, COMMAS] += 1
                    if stack[top, COMMAS] > 1 and rules[CHAIN, wall]:
                        kinds[n], values[n] = OPERATOR, wall
                        n += 1
                    j += 1
                    operand_next = True
                elif kind == CLOSE:
                    if top == 0:
                        error = NOT_OPENED
                        break
                    if wall:
                        count = stack[top, COMMAS] + 1
                        if count < rules[ARITY, wall] or (count > rules[ARITY, wall] and not rules[CHAIN, wall]):
                            error, j = ARGUMENTS, starts[i] + stack[top, OPENED]
                            break
                        kinds[n], values[n] = OPERATOR, wall
                        n, waiting = n + 1, waiting - 1
                    top, depth = top - 1, depth - 1
                    j += 1
                else:
                    if top > 0:
                        error, j = NOT_CLOSED, starts[i] + stack[top, OPENED]
                    break
            else:
                error = ILLEGAL if kind == OTHER else OPERATOR_EXPECTED
            if n - begin + waiting > MAX_TOKENS:
                error, j = TOO_MANY_TOKENS, start
        if error != FINE:
            for k, number in enumerate((error, j - starts[i], extent, count)):
                errors[k, i] = number
            n, n_slow = begin, begin_slow
        offsets[i + 1] = n
    return n, n_slow


@compiled
def find_lines(text, first, last, rules, lines):
    """Put starts, ends and numbers of the lines that are neither blank nor a comment into ``lines``.

    Those from ``first`` to ``last``; returns how many, and how many lines there are.  A line ends with a line feed, a
    carriage return, or both, in place of which stands a 0 then.  A 0 in the text becomes a 1, which is as wrong there.
    """
    n, line, start = 0, 1, first
    for i in range(first, last):
        if text[i] > RETURN:
            continue
        if text[i] == 0:
            text[i] = 1
        elif text[i] == FEED or (text[i] == RETURN and text[i + 1] != FEED):
            end = i - 1 if text[i] == FEED and i > start and text[i - 1] == RETURN else i
            text[end] = 0
            begin = text[_skip(text, start, rules)]
            if begin != 0 and begin != COMMENT:
                lines[0, n], lines[1, n], lines[2, n] = start, end, line
                n += 1
            start, line = i + 1, line + 1
    return n, line - 1
