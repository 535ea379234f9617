"""The postfix tokens drawn as a row of cells, type above value, as the thesis draws them.

``Expression.listing`` and the errors of ``Population.verify`` show it.

    >>> import exprkit as ek
    >>> print(ek.parse("x1 + 2.5")[0].listing())
    ┌──────────┬────────────────────┬──────────┐
    │ variable │ constant           │ operator │
    │ x1       │ 2.5                │ +        │
    │ 0        │ 0x4004000000000000 │ 1        │
    └──────────┴────────────────────┴──────────┘
"""

from __future__ import annotations

import numpy as np

from exprkit.operators import ops
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

WIDTH = 110  # columns of a row of cells
AROUND = 12  # tokens shown on either side of a marked one

KINDS = {CONSTANT: "constant", VARIABLE: "variable", PARAMETER: "parameter", OPERATOR: "operator"}


def listing(
    kinds: np.ndarray,
    values: np.ndarray,
    variables: tuple[str, ...] | None = None,
    parameters: tuple[str, ...] | None = None,
    marked: int | None = None,
) -> str:
    """The cells of one expression's tokens, and an arrow under the marked one.

    The third line of a cell is what the value array holds: a constant's float64 bits, an index from 0, or an
    operator's code.  With a marked token only its neighbours are shown.
    """
    first, last = 0, len(kinds)
    if marked is not None:
        first, last = max(0, marked - AROUND), min(len(kinds), marked + AROUND + 1)
    names = {VARIABLE: variables, PARAMETER: parameters}
    cells = [_cell(int(kinds[t]), int(values[t]), names) for t in range(first, last)]
    lines: list[str] = []
    for row in _rows(cells):
        lines += _drawn(cells[row], None if marked is None else marked - first - row.start)
    return "\n".join(lines) if lines else "(no tokens)"


def _cell(kind: int, value: int, names: dict[int, tuple[str, ...] | None]) -> tuple[str, str, str]:
    """The three lines of a token; whatever is wrong with it."""
    if kind == CONSTANT:
        from exprkit.text.printer import number_text

        return KINDS[kind], number_text(float(np.uint64(value).view(np.float64))), f"0x{value:016x}"
    if kind == OPERATOR:
        row = ops.BY_CODE.get(value)
        return KINDS[kind], "?" if row is None else row.infix or row.name, str(value)
    if kind not in KINDS:
        return f"kind {kind}", "?", str(value)
    given = names[kind]
    if given is None:
        return KINDS[kind], f"{NUMBERED[kind]}{value + 1}", str(value)
    return KINDS[kind], given[value] if value < len(given) else "?", str(value)


def _rows(cells: list[tuple[str, str, str]]) -> list[slice]:
    """Which cells go into one row."""
    rows, first, width = [], 0, 1
    for index, cell in enumerate(cells):
        wide = max(map(len, cell)) + 3
        if width + wide > WIDTH and index > first:
            rows.append(slice(first, index))
            first, width = index, 1
        width += wide
    return [*rows, slice(first, len(cells))] if cells else []


def _drawn(cells: list[tuple[str, str, str]], marked: int | None) -> list[str]:
    widths = [max(map(len, cell)) for cell in cells]
    rules = ["─" * (width + 2) for width in widths]
    lines = [f"┌{'┬'.join(rules)}┐"]
    for texts in zip(*cells, strict=True):
        lines.append("│ " + " │ ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True)) + " │")
    lines.append(f"└{'┴'.join(rules)}┘")
    if marked is not None and 0 <= marked < len(cells):
        lines.append(" " * (2 + sum(width + 3 for width in widths[:marked])) + "^" * widths[marked])
    return lines
