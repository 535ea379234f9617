"""Name resolution: which identifier is a function, a constant, a variable or a parameter.

``parse`` and the SymPy bridge ask a ``Names``; printers ask ``in_text`` for the way back.
Without names of the user's, variables are ``x1, x2, …`` and parameters ``p1, p2, …``.  A name that is no identifier,
or that of a constant, stands between backquotes in a text; that of a function means it where ``(`` follows.

    >>> from exprkit.text.names import Names
    >>> Names(variables=["r_k", "log_Re"]).variables
    ('r_k', 'log_Re')
    >>> in_text("r_k"), in_text("Temp (°C)"), in_text("gamma")
    ('r_k', '`Temp (°C)`', '`gamma`')
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import ParseError, brief, listed, whole_number
from exprkit.operators import defined, ops
from exprkit.text.tokens import CONSTANT, MAX_INDEX, OPERATOR, PARAMETER, VARIABLE, Words

CONSTANTS: dict[str, float] = {
    "inf": math.inf,
    "Inf": math.inf,
    "Inf32": math.inf,
    "nan": math.nan,
    "NaN": math.nan,
    "NaN32": math.nan,
    "pi": math.pi,
    "π": math.pi,
}

Given = int | str | Iterable[str] | None
NUMBERED = {VARIABLE: "x", PARAMETER: "p"}
QUOTE = "`"
PLURAL = {VARIABLE: "variables", PARAMETER: "parameters"}


class NameTable(NamedTuple):
    """The names as arrays, for the compiled parser: an open-addressed hash table of byte strings."""

    spellings: np.ndarray  # uint8: all names, one after the other
    entries: np.ndarray  # uint64 (n, 6): a name is spellings[first:second], kind, value, both with no ( behind
    slots: np.ndarray  # int32, a power of two: index of an entry, or -1
    numbered: np.ndarray  # int64 (2,): x1 … and p1 … go so far; 0: they have names


class Names:
    """The meanings of the identifiers of a text.

    ``variables`` and ``parameters`` are None: ``x1, x2, …`` (``p1, p2, …``); a number: that many of them; or names.
    ``of_data``: the names are what they are: those of constants may be among them, and need backquotes.

    Raises ParseError for a name that cannot stand in a text, is taken, or comes twice.
    """

    def __init__(self, variables: Given = None, parameters: Given = None, *, of_data: bool = False) -> None:
        self.variables, self.max_x = _given(variables, VARIABLE)
        self.parameters, self.max_p = _given(parameters, PARAMETER)
        self._n_defined, self._by_word = -1, dict[str, tuple[int, int]]()
        self._tables: tuple[dict[str, tuple[int, int]], NameTable] | None = None
        self._check(of_data)

    @property
    def _meanings(self) -> dict[str, tuple[int, int]]:
        """Every word with its (kind, value), those of the form x1 and p1 excepted; made anew for new operators.

        The value of an operator is its code, and 256 times that of one around it.
        """
        n_defined = defined.count()
        if self._n_defined != n_defined:
            self._by_word, self._n_defined = dict(self._words()), n_defined
        return self._by_word

    def _words(self) -> Iterator[tuple[str, tuple[int, int]]]:
        own, rows = {*(self.variables or ()), *(self.parameters or ())}, defined.spellings()
        for spelling, (inner, outer) in ops.COMPOSED.items():
            yield spelling, (OPERATOR, ops.BY_NAME[inner].code | ops.BY_NAME[outer].code << 8)
        for spelling, row in rows.items():
            yield spelling, (OPERATOR, row.code)
        for spelling, number in CONSTANTS.items():
            if spelling not in own:
                yield spelling, (CONSTANT, int(np.float64(number).view(np.uint64)))
        for kind, words in ((VARIABLE, self.variables), (PARAMETER, self.parameters)):
            for index, word in enumerate(words or ()):
                yield QUOTE + word + QUOTE, (kind, index)
                if in_text(word) == word and word not in rows and word not in ops.COMPOSED:  # sec may be seconds
                    yield word, (kind, index)

    def _check(self, of_data: bool) -> None:
        taken: dict[str, str] = {}
        own = {VARIABLE: self.variables, PARAMETER: self.parameters}
        for kind, words in own.items():
            other = PARAMETER if kind == VARIABLE else VARIABLE
            what, others = PLURAL[kind], PLURAL[other]
            for word in words or ():
                if word in CONSTANTS and not of_data:
                    raise ParseError(f"{what}: {word!r} is a constant; give it another name")
                if word in taken:
                    twice = "comes twice" if taken[word] == what else f"is among the {taken[word]} too"
                    raise ParseError(f"{what}: {word!r} {twice}; names must differ")
                if own[other] is None and self.numbered(word, other):
                    raise ParseError(
                        f"{what}: {word!r} is also how one of the {others} is written; name the {others}, too: "
                        f"exprkit.parse(…, {others}=[…])"
                    )
                taken[word] = what

    @staticmethod
    def numbered(word: str, kind: int) -> int:
        """The number in ``x12`` (of a variable) or ``p12`` (of a parameter); 0 for any other word."""
        match = re.fullmatch(NUMBERED[kind] + "([1-9][0-9]{0,9})", word)
        return int(match[1]) if match else 0

    def meaning(self, word: str) -> tuple[int, int] | None:
        """(kind, value) of a word, as tokens have it; None for a word that means nothing."""
        meaning = self._meanings.get(word)
        if meaning is None:
            for kind, limit in ((VARIABLE, self.max_x), (PARAMETER, self.max_p)):
                number = self.numbered(word, kind)
                if 0 < number <= limit:
                    return kind, number - 1
        return meaning

    def named(self, name: str) -> tuple[int, int] | None:
        """(kind, value) of a variable or parameter by its name, whatever else is called so."""
        return self._meanings.get(QUOTE + name + QUOTE) or self.meaning(name)

    def words(self, *kinds: int) -> list[str]:
        """All words of these kinds, a few of the numbered ones included (for suggestions)."""
        listed = [
            in_text(word[1:-1]) if word[0] == QUOTE else word
            for word, (kind, _) in self._meanings.items()
            if kind in kinds
        ]
        listed = list(dict.fromkeys(listed))
        for kind, limit in ((VARIABLE, self.max_x), (PARAMETER, self.max_p)):
            if kind in kinds:
                listed += [f"{NUMBERED[kind]}{i}" for i in range(1, min(limit, 9) + 1)]
        return listed

    @property
    def table(self) -> NameTable:
        """The same for the compiled parser."""
        meanings, tables = self._meanings, self._tables
        if tables is None or tables[0] is not meanings:
            self._tables = tables = meanings, _table(meanings, np.array([self.max_x, self.max_p]))
        return tables[1]


def _table(meanings: dict[str, tuple[int, int]], numbered: np.ndarray) -> NameTable:
    words, called = [word.encode() for word in meanings], list(meanings.values())
    bare = [meanings.get(QUOTE + word + QUOTE, own) if own[0] == OPERATOR else own for word, own in meanings.items()]
    slots = np.full(1 << (4 * len(words) - 1).bit_length(), -1, np.int32)
    for index, word in enumerate(words):
        slot = _hash(word) & (len(slots) - 1)
        while slots[slot] >= 0:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = index
    ends = np.cumsum([0, *map(len, words)]).astype(np.uint64)
    return NameTable(
        spellings=np.frombuffer(b"".join(words), np.uint8),
        entries=np.column_stack([ends[:-1], ends[1:], *(np.array(numbers, np.uint64) for numbers in (called, bare))]),
        slots=slots,
        numbered=numbered,
    )


def _hash(word: bytes) -> int:
    """FNV-1a, as the compiled parser computes it along the way."""
    h = 0x811C9DC5
    for byte in word:
        h = ((h ^ byte) * 0x01000193) & 0xFFFFFFFF
    return h


def _given(words: Given, kind: int) -> tuple[tuple[str, ...] | None, int]:
    """(names or None, how many numbered ones) for what the user gave."""
    what, letter = PLURAL[kind], NUMBERED[kind]
    if words is None:
        return None, MAX_INDEX
    count = whole_number(words)
    if count is not None:
        if not 0 <= count <= MAX_INDEX:
            raise ParseError(f"{what}: {brief(words)} is not a count between 0 and {MAX_INDEX:,}")
        return None, count
    names = listed(words)
    if names is None:
        meant = f", [{words!r}]," if isinstance(words, str) else ""
        raise ParseError(f"{what}: give a list of names{meant} or how many {letter}1, {letter}2, … there are")
    for word in names:
        if not isinstance(word, str) or not _is_writable(word):
            raise ParseError(f"{what}: {brief(word)} is not a name: a text on one line, without backquotes")
    if usual_as_none(names, kind) is None:
        return None, len(names)  # the usual names, in the usual order
    if len(names) > MAX_INDEX:
        raise ParseError(f"{what}: {len(names):,} names; at most {MAX_INDEX:,}")
    return names, 0


def word_of(kind: int, index: int, words: Words) -> str:
    """The name of a variable or parameter."""
    return words[index] if words else f"{NUMBERED[kind]}{index + 1}"


def usual_as_none(words: tuple[str, ...] | None, kind: int) -> tuple[str, ...] | None:
    """Names; None for the usual ones in the usual order."""
    is_usual = words is not None and all(f"{NUMBERED[kind]}{i}" == word for i, word in enumerate(words, 1))
    return None if is_usual else words


def _is_writable(word: str) -> bool:
    return bool(word.strip()) and word.isprintable() and QUOTE not in word


def in_text(name: str) -> str:
    """A name as it stands in a text: between backquotes where the bare word is none, or means something else."""
    bare = name.isidentifier() and name not in ops.BY_SPELLING and name not in CONSTANTS
    return name if bare else QUOTE + name + QUOTE


def column_name(key: Any) -> str:
    """The name of a column, a text; of pandas' several levels those that are not empty."""
    return "_".join(str(part) for part in key if str(part)) if isinstance(key, tuple) else str(key)


def columns_of(data: Any) -> list[str]:
    """The names of the columns of a DataFrame, a dict of columns or a ``Dataset``, each another one.

    What no text can name, and the second of two of one name, is called by its place: ``(column 3)``.

    Raises ParseError for something else, and for columns without names.
    """
    names = data if isinstance(data, Mapping) else getattr(data, "columns", getattr(data, "variables", None))
    if names is None or not hasattr(names, "__iter__"):
        raise ParseError(f"data must be a table, whose columns have names, not {type(data).__name__}")
    columns: dict[str, None] = {}
    for place, name in enumerate(map(column_name, names), 1):
        columns.setdefault(name if _is_writable(name) and name not in columns else f"(column {place})")
    return list(columns)


USUAL = Names()  # x1, x2, … and p1, p2, …
