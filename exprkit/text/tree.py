"""An expression drawn as a tree of lines.

    >>> import exprkit as ek
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

from exprkit.operators import ops
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, Tokens


def tree(expression: Tokens, max_depth: int) -> str:
    """The lines; a subtree below ``max_depth`` is one line that tells its size."""
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
    names = {VARIABLE: expression.variables, PARAMETER: expression.parameters}
    numbers = expression.values.view("float64").tolist()
    for token, (kind, value) in enumerate(zip(expression.kinds.tolist(), expression.values.tolist(), strict=True)):
        own: list[int] = []
        if kind == OPERATOR:
            row = ops.BY_CODE[value]
            own = operands[-row.arity :]
            del operands[-row.arity :]
        operands.append(token)
        children.append(own)
        sizes.append(1 + sum(sizes[child] for child in own))
        labels.append(_label(kind, value, numbers[token], names))
    return labels, children, sizes


def _label(kind: int, value: int, number: float, names: dict[int, tuple[str, ...] | None]) -> str:
    if kind == OPERATOR:
        row = ops.BY_CODE[value]
        return row.infix or row.name
    if kind == CONSTANT:
        from exprkit.text.printer import number_text

        return number_text(number)
    given = names[kind]
    return f"{NUMBERED[kind]}{value + 1}" if given is None else given[value]
