"""Listings of an expression: tokens as a row of cells, as in the thesis, or as a tree of lines.

``Expression`` and the errors of ``Population.verify`` show them.

    >>> import exprkit as ek
    >>> print(ek.parse("x1 + 2.5")[0].listing())
    ┌──────────┬────────────────────┬──────────┐
    │ variable │ constant           │ operator │
    │ x1       │ 2.5                │ +        │
    │ 0        │ 0x4004000000000000 │ 1        │
    └──────────┴────────────────────┴──────────┘
    >>> print(ek.parse("p1 * x1 + exp(-x2)")[0].tree())
    +
    ├─ *
    │  ├─ p1
    │  └─ x1
    └─ exp
       └─ -
          └─ x2
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from exprkit.operators import defined
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, Tokens

WIDTH = 110  # columns of a row of cells
AROUND = 12  # tokens shown on either side of a marked one

KINDS = {CONSTANT: "constant", VARIABLE: "variable", PARAMETER: "parameter", OPERATOR: "operator"}


def _texts(expression: Tokens) -> Iterator[tuple[int, int, str]]:
    """(kind, value, text) of every token; "?" where it means nothing."""
    from exprkit.text.printer import number_text

    names = {VARIABLE: expression.variables, PARAMETER: expression.parameters}
    numbers = expression.values.view(np.float64).tolist()
    for kind, value, number in zip(expression.kinds.tolist(), expression.values.tolist(), numbers, strict=True):
        words = names.get(kind)
        if kind == CONSTANT:
            text = number_text(number)
        elif kind == OPERATOR and (row := defined.row(value)):
            text = row.infix or row.name
        elif kind in NUMBERED and words is None:
            text = f"{NUMBERED[kind]}{value + 1}"
        else:
            text = words[value] if words and value < len(words) else "?"
        yield kind, value, text


# ── cells ──


def listing(expression: Tokens, marked: int | None = None) -> str:
    """The cells of all tokens, and an arrow under the marked one.

    The third line of a cell is what the value array holds: a constant's float64 bits, an index from 0, or an
    operator's code.  With a marked token only its neighbours are shown.
    """
    cells = [
        (KINDS.get(kind, f"kind {kind}"), text, f"0x{value:016x}" if kind == CONSTANT else str(value))
        for kind, value, text in _texts(expression)
    ]
    first = 0 if marked is None else max(0, marked - AROUND)
    cells = cells if marked is None else cells[first : marked + AROUND + 1]
    lines: list[str] = []
    for row in _rows(cells):
        lines += _drawn(cells[row], None if marked is None else marked - first - row.start)
    return "\n".join(lines) if lines else "(no tokens)"


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


# ── tree ──


def tree(expression: Tokens, max_depth: int) -> str:
    """An operator or leaf a line; a subtree below ``max_depth`` is one line that says how large it is."""
    labels, children, sizes = nodes(expression)
    lines: list[str] = []
    waiting = [(len(labels) - 1, "", "", 0)] if labels else []
    while waiting:
        node, above, below, depth = waiting.pop()
        if depth >= max_depth and children[node]:
            lines.append(f"{above}… {sizes[node]:,} tokens")
            continue
        lines.append(above + labels[node])
        for last, child in enumerate(reversed(children[node])):
            branch, rest = ("├─ ", "│  ") if last else ("└─ ", "   ")
            waiting.append((child, below + branch, below + rest, depth + 1))
    return "\n".join(lines) or "(no tokens)"


def nodes(expression: Tokens) -> tuple[list[str], list[list[int]], list[int]]:
    """(label, children, size) of every token."""
    labels: list[str] = []
    children: list[list[int]] = []
    sizes: list[int] = []
    operands: list[int] = []
    arities = defined.arity()
    for token, (kind, value, text) in enumerate(_texts(expression)):
        arity = int(arities[value]) if kind == OPERATOR else 0
        own = operands[len(operands) - arity :]
        operands[len(operands) - arity :] = [token]
        children.append(own)
        sizes.append(1 + sum(sizes[child] for child in own))
        labels.append(text)
    return labels, children, sizes
