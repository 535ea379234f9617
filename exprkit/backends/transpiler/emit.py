"""PTX text of bundles of structures, written by a compiled loop.

In: bundles.  Out: modules of PTX, which ``assembler`` takes.  The text around the structures stands in
``templates``, the operators' instructions in ``operator_ptx``; here they are cut
into pieces and put together, byte by byte.

    >>> from exprkit.backends.transpiler.emit import Module
    >>> Module(b"text", ("values",), (range(2),), 16).n_structures
    16

Registers of a bundle, by kind; each kind is declared once the text is written:

========  =============================================================================
``%n``    numbers of its structures, loaded once a block
``%x``    columns: column c of point k is ``%x[c V + k]``, loaded where it is first used
``%v``    results: result i of point k is ``%v[i V + k]``
``%s``    sums of its structures
``%at``   where its structures' values go
``%c``    where its structures' columns are, if they are given
========  =============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import templates
from exprkit.backends.transpiler.bundles import Bundles
from exprkit.backends.transpiler.operator_ptx import TARGET, VERSION, Bodies, bodies
from exprkit.backends.transpiler.structures import Structures
from exprkit.backends.transpiler.templates import VALUES, Kind
from exprkit.backends.transpiler.writer import (
    LINES,
    MOST_DIGITS,
    WHAT,
    ComputedTable,
    Sources,
    Templates,
    write_bundles,
)


@dataclass(frozen=True)
class Module:
    """The text of a module, and which bundles it holds: of entry i, ``bundles[i]``."""

    text: bytes
    entries: tuple[str, ...]
    bundles: tuple[range, ...]
    n_structures: int


class Emitter:
    """Writes the modules of a population for one kind of code."""

    def __init__(self, found: Structures, grouped: Bundles, kind: Kind, settings: Precision, n_columns: int) -> None:
        self.found, self.grouped, self.kind, self.n_columns = found, grouped, kind, n_columns
        self.bodies = bodies(settings, np.float32 if kind.itemsize == 4 else np.float64)
        self._templates, self._longest = _templates(self.bodies, kind)
        self._sources = Sources(
            found.first, found.code, found.a, found.b, found.n_numbers, found.n_columns, grouped.order, grouped.first,
            grouped.slots,
            np.array([code in self.bodies.of and "{a_low}" in self.bodies.of[code].text for code in range(256)]),
        )  # fmt: skip

    def module(self, chosen: range, comments: Mapping[int, str] | None = None) -> Module:
        """Consecutive bundles as a module with one entry.

        Parameters
        ----------
        chosen : range
            Of bundles.
        comments : {structure: text}, optional
            What to write above a structure.
        """
        text, used = self._entry(self.kind.task, chosen, comments or {})
        return Module(self._head(used) + text, (self.kind.task,), (chosen,), self._count(chosen))

    def separate(self, chosen: range) -> Module:
        """Consecutive bundles as a module with one entry each."""
        names = tuple(f"{self.kind.task}_{b}" for b in chosen)
        ranges = tuple(range(b, b + 1) for b in chosen)
        made = [self._entry(name, one, {}) for name, one in zip(names, ranges, strict=True)]
        head = self._head(np.logical_or.reduce([used for _, used in made]))
        return Module(head + b"".join(text for text, _ in made), names, ranges, self._count(chosen))

    def _count(self, chosen: range) -> int:
        return int(self.grouped.first[chosen.stop] - self.grouped.first[chosen.start])

    def _head(self, used: np.ndarray) -> bytes:
        functions = self.bodies.head(self.bodies.of[code] for code in np.flatnonzero(used).tolist())
        return templates.fill(templates.HEAD, version=VERSION, target=TARGET, functions=functions).encode()

    def _entry(self, name: str, chosen: range, comments: Mapping[int, str]) -> tuple[bytes, np.ndarray]:
        body, counts, used = self._bundles(chosen, comments)
        n_values, n_numbers, most, n_given = (max(int(count), 1) for count in counts)
        opening = templates.opening(
            self.kind, self._count(chosen), len(chosen), most, n_given if self.kind.given else max(self.n_columns, 1),
            name=name, n_numbers=2 * n_numbers, n_values=n_values * self.kind.points,
        )  # fmt: skip
        return opening.encode() + body + templates.closing(self.kind).encode(), used

    def _bundles(self, chosen: range, comments: Mapping[int, str]) -> tuple[bytes, np.ndarray, np.ndarray]:
        found, first = self.found, self.grouped.first[chosen.start : chosen.stop + 1]
        order = self.grouped.order[first[0] : first[-1]]
        size = found.first[order + 1] - found.first[order]
        remarks, remark_at = _remarks(order, comments)
        given = found.n_columns[order]
        room = self._room(size, found.n_numbers[order], given, len(chosen)) + len(remarks)
        out = np.empty(room, np.uint8)
        counts, used = np.zeros(4, np.int64), np.zeros(256, np.bool_)
        most = int(np.add.reduceat(size, first[:-1] - first[0]).max(initial=1))
        table = ComputedTable(*(np.full(1 << (2 * most + 8).bit_length(), -1, np.int64) for _ in range(5)))
        shape = self.kind.points, self.kind.itemsize, self.kind.block, self.kind.task == VALUES, self.kind.given
        n_columns = max(self.n_columns, int(np.add.reduceat(given, first[:-1] - first[0]).max(initial=1)))
        n = write_bundles(
            chosen.start, chosen.stop, self._sources, self._templates, shape, n_columns, (remarks, remark_at), out,
            counts, used, table, np.empty(int(size.max(initial=1)), np.int64),
        )  # fmt: skip
        return out[:n].tobytes(), counts, used

    def _room(self, size: np.ndarray, n_numbers: np.ndarray, given: np.ndarray, n_bundles: int) -> int:
        """Bytes that are enough for bundles with structures of these sizes."""
        line = dict(zip(LINES, self._longest[256:].tolist(), strict=True))
        of_operator = self.kind.points * int(self._longest[:256].max()) + 3 * line["column"] + line["number"]
        of_structure = sum(line[name] for name in ("instance", "place", "zero_sum", "result", "own_sum"))
        of_bundle = sum(line[name] for name in ("bundle", "loop", "end", "to_sums"))
        of_numbers = n_numbers.sum() * line["number"]
        of_columns = given.sum() * (line["more"] + line["address"] + line["advance"])
        of_all = size.sum() * of_operator + of_numbers + of_columns
        return int(of_all + len(size) * of_structure + n_bundles * of_bundle)


def _remarks(order: np.ndarray, comments: Mapping[int, str]) -> tuple[np.ndarray, np.ndarray]:
    """Comments as lines of PTX, and where each structure's is."""
    texts = [f"\t// {_escaped(comments[s])}\n".encode() if s in comments else b"" for s in order.tolist()]
    return np.frombuffer(b"".join(texts) or b" ", np.uint8), np.cumsum([0, *map(len, texts)])


def _escaped(text: str) -> str:
    """Text that stays on its line and within ASCII, whatever is in it."""
    return text.encode("unicode_escape").decode("ascii")


# ── templates as arrays ──────────────────────────────────────────────────────────────


def _templates(operators: Bodies, kind: Kind) -> tuple[Templates, np.ndarray]:
    """The templates, and how long the text of each may become."""
    texts = {code: body.text for code, body in operators.of.items()}
    own = templates.lines(kind)
    texts |= {256 + i: own.get(name, "") for i, name in enumerate(LINES)}
    pieces: list[bytes] = []
    what, first = [], [0]
    for number in range(256 + len(LINES)):
        parts = re.split(r"\{(" + "|".join(WHAT) + r")\}", texts.get(number, ""))
        pieces += [part.encode() for part in parts[::2]]
        what += [WHAT[name] for name in parts[1::2]] + [-1]
        first.append(len(pieces))
    text = np.frombuffer(b"".join(pieces), np.uint8)
    start = np.cumsum([0, *map(len, pieces)])
    filled = np.array(what, np.int64) >= 0
    n_filled = np.diff(np.concatenate([[0], np.cumsum(filled)])[first])
    longest = np.diff(start[first]) + MOST_DIGITS * n_filled
    return Templates(text, start, np.array(what, np.int64), np.array(first, np.int64)), longest
