"""PTX text of bundles of structures, written by a compiled loop.

In: bundles.  Out: modules of PTX, which ``assembler`` takes.  The text around the structures stands in
``templates``, the operators' instructions in ``operator_ptx``; here they are cut
into pieces, which ``writer`` puts together byte by byte.

    >>> from exprkit.backends.transpiler.emit import on_one_line
    >>> print(on_one_line("two\\nlines"))
    two\\nlines

Registers of a bundle, by kind; each kind is declared once the text is written:

========  =============================================================================
``%n``    numbers of its structures, loaded once per block
``%x``    columns: column c of point k is ``%x[c V + k]``, loaded where it is first used
``%v``    results: result i of point k is ``%v[i V + k]``
``%s``    sums of its structures
``%at``   where its structures' values go
``%c``    where its structures' columns are, if they are indirect
========  =============================================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import templates, writer
from exprkit.backends.transpiler.bundles import Bundles
from exprkit.backends.transpiler.operator_ptx import TARGET, VERSION, Bodies, bodies
from exprkit.backends.transpiler.structures import Structures
from exprkit.backends.transpiler.templates import CHUNK, VALUES, Kind
from exprkit.expressions.rewrite import table_rules

_NO_COMMENTS: Mapping[int, str] = {}


class Emitter:
    """Writes the modules of a population for one kind of code."""

    def __init__(
        self, structures: Structures, bundles: Bundles, kind: Kind, settings: Precision, n_columns: int
    ) -> None:
        self.structures, self.bundles, self.kind, self.n_columns = structures, bundles, kind, n_columns
        self.bodies = bodies(settings, np.float32 if kind.itemsize == 4 else np.float64)
        self._templates, self._longest = _templates(self.bodies, kind)
        takes_low = [code in self.bodies.of and "{a_low}" in self.bodies.of[code].text for code in range(256)]
        self._sources = writer.Sources(
            structures.first,
            structures.code,
            structures.a,
            structures.b,
            structures.n_numbers,
            structures.n_columns,
            bundles.order,
            bundles.first,
            bundles.slots,
            np.array(takes_low),
            table_rules(settings.operators).width,
        )

    def module(self, chosen: range, comments: Mapping[int, str] = _NO_COMMENTS) -> bytes:
        """Consecutive bundles as a module, its entry named as its task; ``comments`` are written above structures."""
        kind, used = self.kind, np.zeros(256, np.bool_)
        used[list(kind.loss.codes if kind.loss else ())] = True
        body, state = self._write(chosen, comments, used)
        functions = self.bodies.head(self.bodies.of[code] for code in np.flatnonzero(used).tolist())
        head = templates.fill(templates.HEAD, version=VERSION, target=TARGET, functions=functions)
        most = np.maximum(state, 1).tolist()
        opening = templates.opening(
            kind,
            int(self.bundles.first[chosen.stop] - self.bundles.first[chosen.start]),
            len(chosen),
            most[writer.MOST_STRUCTURES],
            most[writer.MOST_COLUMNS] if kind.indirect else max(self.n_columns, 1),
            name=kind.task,
            n_numbers=2 * most[writer.MOST_NUMBERS],
            n_values=most[writer.MOST_RESULTS] * kind.points,
        )
        return (head + opening).encode() + body + templates.closing(kind).encode()

    def _write(self, chosen: range, comments: Mapping[int, str], used: np.ndarray) -> tuple[bytes, np.ndarray]:
        """The bundles' text, and the writer's state after it; ``used`` takes the operators that are in it."""
        kind, structures = self.kind, self.structures
        first = self.bundles.first[chosen.start : chosen.stop + 1]
        order = self.bundles.order[first[0] : first[-1]]
        sizes, n_columns = np.diff(structures.first)[order], structures.n_columns[order]
        most_instructions, most_columns = (
            int(np.add.reduceat(counts, first[:-1] - first[0]).max(initial=1)) for counts in (sizes, n_columns)
        )
        texts = [f"\t// {on_one_line(comments[s])}\n".encode() if s in comments else b"" for s in order.tolist()]
        # at most four lines of an instruction, one of a number, three of a column, five of a structure, four of bundles
        n_lines = 4 * sizes.sum() + structures.n_numbers[order].sum() + 3 * n_columns.sum() + 5 * len(order)
        room = (n_lines + 4 * len(chosen)) * max(self._longest[256:]) + sum(map(len, texts))
        room += sizes.sum() * kind.points * max(self._longest[:256])
        writing = writer.WriterState(
            *self._templates,
            points=kind.points,
            itemsize=kind.itemsize,
            block=kind.block,
            is_values=kind.task == VALUES,
            column_step=1 if kind.indirect else CHUNK * kind.itemsize,
            remarks=np.frombuffer(b"".join(texts) or b" ", np.uint8),
            remark_at=np.cumsum([0, *map(len, texts)]),
            out=np.empty(room, np.uint8),
            used=used,
            computed=np.full((1 << (2 * most_instructions + 8).bit_length(), 5), -1, np.int64),
            results=np.empty(int(sizes.max(initial=1)), np.int64),
            loaded=np.full(max(self.n_columns, most_columns) + 1, -1, np.int64),
            state=np.zeros(writer.N_STATE, np.int64),
        )
        n = writer.write_bundles(chosen.start, chosen.stop, self._sources, writing)
        return writing.out[:n].tobytes(), writing.state


def on_one_line(text: str) -> str:
    """Text that stays on its line and within ASCII, whatever is in it."""
    return text.encode("unicode_escape").decode("ascii")


def _templates(operators: Bodies, kind: Kind) -> tuple[writer.Templates, np.ndarray]:
    """The templates as arrays, and how long the text of each may become."""
    texts = {code: body.text for code, body in operators.of.items()}
    own = templates.lines(kind)
    texts |= {256 + i: own.get(name, "") for i, name in enumerate(writer.LINES)}
    separator = re.compile(r"\{(" + "|".join(map(re.escape, writer.PLACES)) + r")\}")
    pieces: list[bytes] = []
    place, first, longest = [], [0], []
    for number in range(256 + len(writer.LINES)):
        parts = separator.split(texts.get(number, ""))
        pieces += [part.encode() for part in parts[::2]]
        place += [writer.PLACES[name] for name in parts[1::2]] + [-1]
        first.append(len(pieces))
        longest.append(sum(map(len, parts[::2])) + writer.MOST_DIGITS * (len(parts) // 2))
    arrays = np.cumsum([0, *map(len, pieces)]), np.array(place, np.int64), np.array(first, np.int64)
    return writer.Templates(np.frombuffer(b"".join(pieces), np.uint8), *arrays), np.array(longest)
