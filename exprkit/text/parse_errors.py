"""Error messages of the parser: the expression, a caret, and what was expected.

``parser`` hands over the numbers that ``shunting_yard`` left for each bad text; the words are
made when somebody reads them.

    >>> import exprkit as ek
    >>> ek.parse(["x1 + sqrtt(x2)"], errors="mask").errors[0].splitlines()[0]
    "expression 0: unknown function 'sqrtt'; did you mean 'sqrt'?"
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from exprkit.errors import ParseError, nearest, shortened
from exprkit.operators import defined, ops
from exprkit.text import shunting_yard
from exprkit.text.names import CONSTANTS, MAX_INDEX, NUMBERED, PLURAL, QUOTE, Names, in_text
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

SHOWN = 5  # so many bad expressions are spelt out when a batch fails
WIDTH = 76  # of the part of a text that is shown
ALIKE = 0.8  # difflib's ratio of what may be meant in spite of another first letter
THING = re.compile(r"`[^`]*`?|[^\W\d]\w*|(?:\d|\.\d)[\d.]*|\*\*|//|.", re.DOTALL)

LOOKALIKES = {"×": "*", "·": "*", "⋅": "*", "∗": "*", "−": "-", "–": "-", "÷": "/", "∕": "/", "²": "^2", "³": "^3",
              "∞": "inf", "\u00a0": "a blank", "|": f"{ops.BY_METHOD['__abs__'].name}(…)",
              "%": f"{ops.BY_METHOD['__mod__'].name}(…, …)", "≥": ">=", "≤": "<=", "≠": "1 - (a <= b) * (a >= b)",
              "==": "(a <= b) * (a >= b)", "!=": "1 - (a <= b) * (a >= b)"}  # fmt: skip
LOOKALIKES |= {
    sign: f"{row.name}(…, …)"
    for sign, word in {"&": "And", "||": "Or"}.items()
    for row in ops.OPERATORS
    if word in row.sympy_class
}
ASSIGNED = re.compile(r"\s*([^=<>!~]*[^=<>!~\s])\s*(=|~)(?![=>])")


@dataclass(frozen=True, slots=True)
class Fault:
    """The error of one item: a reason in words, or an error's number and place in a text."""

    names: Names
    raw: bytes | None = None  # the text; None where there is none to show
    line: int | None = None  # in the file, counted from 1
    code: int = 0
    place: int = 0  # in bytes, as is extent
    extent: int = 1
    count: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        return (self.raw or b"").decode("utf-8", "replace")

    @property
    def column(self) -> int:
        """The place in characters."""
        return len((self.raw or b"")[: self.place].decode("utf-8", "replace"))

    def text_of_extent(self) -> str:
        return (self.raw or b"")[self.place : self.place + self.extent].decode("utf-8", "replace")

    def here(self) -> str:
        """The thing at the place: a name, a number, an operator or a character."""
        match = THING.match(self.text, self.column)
        return match[0] if match else ""

    def before(self) -> str:
        """The text before the place, without blanks at its end."""
        return self.text[: self.column].rstrip()


class Faults(Mapping[int, str]):
    """Messages by index of the bad expression, worded when they are looked up."""

    def __init__(self, faults: Mapping[int, Fault]) -> None:
        self._faults = faults

    def __getitem__(self, index: int) -> str:
        return message(self._faults[index], f"expression {index}")

    def __iter__(self) -> Iterator[int]:
        return iter(self._faults)

    def __len__(self) -> int:
        return len(self._faults)

    def __repr__(self) -> str:
        return f"<{len(self):,} expressions that could not be read>"

    def error(self, n: int, *, alone: bool) -> ParseError:
        """The exception for a batch of ``n``; ``alone``: the user gave a single text."""
        if alone:
            return ParseError(message(next(iter(self._faults.values())), ""), tuple(self))
        shown = list(self)[:SHOWN]
        head = f"{len(self):,} of {n:,} expression{'s' * (n != 1)} could not be read (numbered from 0)"
        parts = [head, *(self[index] for index in shown)]
        if len(self) > SHOWN:
            parts.append(f'… and {len(self) - SHOWN:,} more; errors="mask" keeps the good ones')
        return ParseError("\n\n".join(parts), tuple(self))


def message(fault: Fault, which: str) -> str:
    """The whole message: which expression, what is wrong, the text and the caret."""
    if fault.line is not None:
        which = f"{which} (line {fault.line})" if which else f"line {fault.line}"
    reason, start, length = _reason(fault)
    head = f"{which}: {reason}" if which else reason
    if fault.raw is None:
        return head
    return head + _excerpt(fault.text, start, length)


def _reason(fault: Fault) -> tuple[str, int, int]:
    """(what is wrong, where and how long in characters; length 0: there is no place to point at)."""
    start = fault.column
    named = _name_around(fault)
    if named and fault.code in (shunting_yard.UNKNOWN_NAME, shunting_yard.OPERATOR_EXPECTED, shunting_yard.ILLEGAL):
        return f"such a name stands between backquotes: write {in_text(named[0])}", named[1], len(named[0])
    if fault.reason:
        return fault.reason, start, 0
    if fault.code == shunting_yard.EMPTY:
        return _in_words(fault), start, 0
    word = fault.here() if fault.extent == 1 else fault.text_of_extent()
    if fault.code in (shunting_yard.UNKNOWN_NAME, shunting_yard.OPERATOR_EXPECTED) and not word.startswith(QUOTE):
        for offset, character in enumerate(word):
            if not character.isascii() and not ("a" + character).isidentifier():  # not a name after all
                return _character(character, fault.names), start + offset, 1
    return _in_words(fault), start, max(1, len(word))


def _name_around(fault: Fault) -> tuple[str, int] | None:
    """The longest name that is no word and stands around the place, and where it begins."""
    text, column = fault.text, fault.column
    names = [
        word
        for word in (*(fault.names.variables or ()), *(fault.names.parameters or ()))
        if word in text and not word.isidentifier()
    ]
    for name in sorted(names, key=len, reverse=True):
        start = text.find(name, max(0, column - len(name) + 1), column + len(name))
        if start >= 0:
            return name, start
    return None


def _in_words(fault: Fault) -> str:
    if assigned := ASSIGNED.match(fault.text):
        return f"an expression has no {assigned[2]!r}: leave out {quoted(assigned[0].strip())}"
    reason = REASONS[fault.code]
    return reason if isinstance(reason, str) else reason(fault)


def _excerpt(text: str, start: int, length: int) -> str:
    """The text around the place, on one line, and a caret line under it."""
    if not text.strip():
        return ""
    first = max(0, min(start - WIDTH // 2, len(text) - WIDTH))
    last = first + WIDTH
    left, right = "… " * (first > 0), " …" * (last < len(text))
    shown = [_harmless(character) for character in text[first:last]]
    line = left + "".join(shown).rstrip() + right
    if length == 0:
        return f"\n    {line}"
    indent = len(left) + sum(map(_columns, shown[: start - first]))
    carets = max(1, sum(map(_columns, shown[start - first : start - first + length])))
    return f"\n    {line}\n    {' ' * indent}{'^' * carets}"


def _harmless(character: str) -> str:
    """The character itself, a blank for tabs and newlines, or the sign for what cannot be shown."""
    if character.isprintable():
        return character
    return " " if character.isspace() else "\ufffd"


def _columns(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def quoted(thing: str) -> str:
    return "'" + "".join(map(_harmless, shortened(thing, 38))) + "'"


def _character(character: str, names: Names) -> str:
    hint = f"; write {LOOKALIKES[character]}" if character in LOOKALIKES else ""
    if character == "[":
        hint = "; p1[site], a parameter for each category, is for exprkit.fit, with a name or `a name` between"
    elif any(character in name for name in names.variables or ()):
        hint = "; a name with such characters stands between backquotes"
    return f"unexpected character {quoted(character)}{hint}"


def _illegal(fault: Fault) -> str:
    doubled = fault.text[fault.column : fault.column + 2]
    return _character(doubled if doubled in LOOKALIKES else fault.here(), fault.names)


def closest(word: str, candidates: Sequence[str]) -> str:
    """``; did you mean 'sqrt'?``, or nothing: what begins with another letter has to be much alike."""
    if len(word) > 40:
        return ""
    by_lower, word = {candidate.lower(): candidate for candidate in reversed(candidates)}, word.lower()
    close = ops.OTHER_NAMES.get(word) or nearest(word, [name for name in by_lower if name[:1] == word[:1]])
    if not close and (close := nearest(word, by_lower)) and SequenceMatcher(None, close, word).ratio() < ALIKE:
        close = None
    return f"; did you mean '{by_lower[close]}'?" if close in by_lower else ""


def instead(word: str) -> tuple[str, str] | None:
    """``word(a, b)`` and what is written for it; None for what is not known from elsewhere."""
    inner, outer = ops.COMPOSED.get(word, ("", ""))
    formula = f"{outer}({inner}(a))" if inner else ops.INSTEAD.get(word, "")
    operands = [operand for operand in "abc" if re.search(rf"\b{operand}\b", formula)]
    return (f"{word}({', '.join(operands)})", formula) if formula else None


# ── what each error says ─────────────────────────────────────────────────────────────


def _operand_expected(fault: Fault) -> str:
    here, before = fault.here(), fault.before()
    if here == ")" and before.endswith("("):
        name = re.search(r"([^\W\d]\w*)\s*\($", before)
        if name and (defined.spelled(name[1]) or name[1] in ops.COMPOSED):
            return _takes(name[1], 0)
        return "nothing between the parentheses"
    what = quoted(here) if here else "the end of the text"
    if here == "/" and not before and re.search(r"/[^/]+\.\w+$", fault.text):
        return "expected a number, a name or '('; a file's path must be a pathlib.Path"
    return f"expected a number, a name or '(', found {what}"


def _operator_expected(fault: Fault) -> str:
    here, before = fault.here(), fault.before()
    last = re.search(r"((?:\d|\.\d)[\d.]*|[^\W\d]\w*|\))$", before)
    left = last[1] if last else ""
    if here == "." and not left.endswith("."):
        return "unexpected '.'; elementwise operators need no dot here"
    if re.fullmatch(r"[eEf]", here) and left[-1:].isdigit() and fault.text[: fault.column] == before:
        return f"the exponent of {quoted(left + here)} has no digits"
    if written := instead(here):
        return f"{quoted(here)} is no operator: {written[0]} is written {written[1]}"
    product = f"; to multiply, write {_factor(left)} * {_factor(here)}"
    if here == "(" and left.isidentifier():
        return f"{quoted(left)} is not a function{product}"
    if left and re.match(r"\w|\(", here):
        return f"expected an operator, found {quoted(here)}{product}"
    return f"expected an operator, found {quoted(here)}"


def _factor(word: str) -> str:
    return "(…)" if word in ("(", ")") else quoted(word)[1:-1]


def _unknown_name(fault: Fault) -> str:
    word = fault.here()
    if re.match(r"\s*\(", fault.text[fault.column + len(word) :]):
        if written := instead(word):
            return f"unknown function {quoted(word)}: {written[0]} is written {written[1]}"
        hint = closest(word, fault.names.words(OPERATOR))
        return f"unknown function {quoted(word)}{hint or '; exprkit.operator defines functions of your own'}"
    for kind, own in ((VARIABLE, fault.names.variables), (PARAMETER, fault.names.parameters)):
        if word == NUMBERED[kind] + "0" and own is None:
            return f"{quoted(word)}: {PLURAL[kind]} are counted from 1"
    if word.startswith(QUOTE) and (len(word) == 1 or not word.endswith(QUOTE)):
        return "this ` is never closed"
    words = fault.names.words(VARIABLE, PARAMETER, CONSTANT)
    if word in CONSTANTS:
        return f"{quoted(word)} is a number; what is called so as well is written {in_text(word)}"
    sign = fault.text[fault.column + len(word) :][:1]
    if called := re.match(r"(?:\.\w+)*\.(\w+)\s*\(", fault.text[fault.column + len(word) :]):
        return f"unknown name {quoted(word)}; functions stand without a module: write {called[1]}(…)"
    if sign in LOOKALIKES and f"a{sign}".isidentifier():
        return f"unknown name: {quoted(sign)} may be part of one; write {LOOKALIKES[sign]} instead of it"
    if twin := next((candidate for candidate in words if _folded(candidate) == _folded(word)), None):
        return f"unknown name {quoted(word)}; {quoted(twin)} is there, of other characters: {_points(word, twin)}"
    if word not in ops.COMPOSED and (written := instead(word)):
        return f"unknown name {quoted(word)}: {written[0]} is written {written[1]}"
    hint = closest(word, words)
    return f"unknown name {quoted(word)}{hint or '; ' + _known(fault.names)}"


def _folded(word: str) -> str:
    """The same for words that look alike: with a micro sign and a mu, say."""
    return unicodedata.normalize("NFKC", word)


def _points(a: str, b: str) -> str:
    """Where two words differ first, as code points."""
    left, right = next(((x, y) for x, y in zip(a, b, strict=False) if x != y), (a[-1], b[-1]))
    return f"U+{ord(left):04X} is not U+{ord(right):04X}"


def _known(names: Names) -> str:
    """``variables are x1, x2, …; parameters are p1, p2, …``."""
    parts = []
    for kind, own, limit in ((VARIABLE, names.variables, names.max_x), (PARAMETER, names.parameters, names.max_p)):
        letter, what = NUMBERED[kind], PLURAL[kind]
        if own is not None:
            listed = ", ".join(map(in_text, own[:8])) + ", …" * (len(own) > 8)
        else:
            listed = {0: "", 1: f"{letter}1", 2: f"{letter}1, {letter}2"}.get(limit, f"{letter}1, {letter}2, …")
        parts.append(f"{what} are {listed}" if listed else f"there are no {what}")
    numbered = names.variables is None and names.max_x == MAX_INDEX
    return "; ".join(parts) + ("; for other names say variables=[...] or data=table" if numbered else "")


def _bare_function(fault: Fault) -> str:
    word = fault.here()
    return f"{quoted(word)} is a function: write {word}({', '.join('…' * _row(word).arity)})"


def _not_closed(fault: Fault) -> str:
    word = fault.here()
    return "this '(' is never closed" if word == "(" else f"the '(' of {quoted(word)} is never closed"


def _row(name: str) -> defined.Written:
    """The operator that takes what stands in the parentheses."""
    return defined.spelled(name) or ops.BY_NAME[ops.COMPOSED[name][0]]


def _takes(name: str, count: int) -> str:
    row = _row(name)
    more = " or more" if row.chain else ""
    return f"{quoted(name)} takes {row.arity}{more} argument{'s' * (row.arity > 1)}, {count or 'none'} given"


def _index(fault: Fault) -> str:
    word = fault.here()
    what = PLURAL[VARIABLE if word[0] == NUMBERED[VARIABLE] else PARAMETER]
    if fault.count == MAX_INDEX:
        return f"{quoted(word)}: {what} go up to {word[0]}{MAX_INDEX}"
    return f"{quoted(word)}: there {'is' if fault.count == 1 else 'are'} only {fault.count:,} {what}"


REASONS: dict[int, str | Callable[[Fault], str]] = {
    shunting_yard.EMPTY: "the text is empty",
    shunting_yard.ILLEGAL: _illegal,
    shunting_yard.OPERAND_EXPECTED: _operand_expected,
    shunting_yard.OPERATOR_EXPECTED: _operator_expected,
    shunting_yard.UNKNOWN_NAME: _unknown_name,
    shunting_yard.BARE_FUNCTION: _bare_function,
    shunting_yard.NOT_OPENED: "this ')' closes nothing",
    shunting_yard.NOT_CLOSED: _not_closed,
    shunting_yard.STRAY_COMMA: "a comma outside of a function's arguments (decimals are written with a point: 1.5)",
    shunting_yard.ARGUMENTS: lambda fault: _takes(fault.here(), fault.count),
    shunting_yard.RATIONAL: "'//' makes a fraction of two whole numbers, like 1//3; to divide, write /",
    shunting_yard.RATIONAL_POWER: "a fraction next to a power can be read in two ways; put parentheses around the one"
    " that is meant first",
    shunting_yard.RATIONAL_ZERO: "0//0 has no value; write nan if that is meant",
    shunting_yard.INDEX: _index,
    shunting_yard.COMPARED: "a comparison of a comparison, which is 0 or 1: write (a < b) * (b < c) for a < b < c",
    shunting_yard.TOO_MANY_BYTES: f"the text has too many bytes; the limit is {shunting_yard.MAX_BYTES:,}",
    shunting_yard.TOO_MANY_TOKENS: f"the expression has too many tokens; the limit is {shunting_yard.MAX_TOKENS:,}",
    shunting_yard.TOO_DEEP: f"parentheses are nested too deep; the limit is {shunting_yard.MAX_DEPTH:,}",
    shunting_yard.TOO_MANY_DIGITS: f"the number has too many digits; the limit is {shunting_yard.MAX_DIGITS:,}",
}
