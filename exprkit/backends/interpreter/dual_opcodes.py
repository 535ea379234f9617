"""The text of the CUDA kernels that differentiate: that of ``PARTS``, with the operators' derivatives from the table.

In: the operator table and ``opcodes``'s numbers of cases.  Out: CUDA C.  A case computes a value and
what its tangents are multiplied with: dy/da and dy/db, the table's ``derivative`` cells written in
CUDA C by the table's own formulas.

    >>> from exprkit.operators import ops
    >>> from exprkit.backends.interpreter import dual_opcodes
    >>> dual_opcodes.derivatives(ops.BY_NAME["div"], "ieee")
    ('T(1.0) / b', 'strong_quotient((-y), b)')
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from exprkit.backends import decisions
from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.opcodes import ALONE, BOTH, MEMORY, MEMORY_FIRST, NUMBER, NUMBER_FIRST, formula
from exprkit.expressions.parser import parse
from exprkit.operators import ops
from exprkit.programs.linearity import no_slope
from exprkit.text.tokens import CONSTANT, OPERATOR

LETTERS = ["a", "b", "y"]  # what a derivative is written over
PARTS = *opcodes.HEAD, "interpreter/tangents.cu", "interpreter/equations.cu", "interpreter/fit.cu"
_NUMBER = r"T\([\d.e-]+\)"  # in CUDA C; the table's derivatives hold none that is 0, inf or nan


@functools.cache
def source(operators: str) -> str:
    """The CUDA C of the kernels that differentiate.

    Parameters
    ----------
    operators : {"ieee", "fast"}
        Which of the table's formulas to use, in the derivatives too.
    """
    text = opcodes.joined(PARTS).replace("//{decisions}", decisions.cuda_text())
    rows = opcodes.all_rows()
    usual = [row for row in rows if not is_rare(row)]
    for mark, some, usual_number in (
        ("common", usual, True), ("few", usual, False), ("rare", [row for row in rows if is_rare(row)], False),
    ):  # fmt: skip
        lines = [line for row in some if (row in opcodes.rows(True)) == usual_number for line in _cases(row, operators)]
        text = text.replace(f"            //{{{mark} cases}}", "\n".join(lines))
    for mark, rare in (("common", False), ("rare", True)):
        scalars = "\n".join(_scalar_case(row, operators) for row in rows if is_rare(row) == rare)
        text = text.replace(f"    //{{{mark} scalar cases}}", scalars)
    n_common = sum(len(opcodes.forms(row)) for row in opcodes.rows(common=True))
    return text.replace("COMMON_CASES", str(n_common))


def derivatives(row: ops.Operator, operators: str) -> tuple[str, ...]:
    """dy/da (and dy/db) in CUDA C over ``a``, ``b`` and ``y``; nan where the table has none."""
    return tuple(_in_c(text, row, operators) for text in row.derivative) or ('T(nan(""))',) * row.arity


def is_rare(row: ops.Operator) -> bool:
    """Whether the operator is left out of kernels that need not have it."""
    return not (row in opcodes.rows(common=True) or row.code == ops.COPY or row.width > 1)


def _in_c(text: str, of: ops.Operator, operators: str) -> str:
    """exprkit's own text as CUDA C, with strong zeros.

    In the derivative of a power with whole exponents all powers are such.
    """
    pop, stack = parse(text, variables=LETTERS), []
    numbers = pop.values.view("float64")
    for kind, value, number in zip(pop.kinds, pop.values, numbers, strict=True):
        if kind == CONSTANT:
            stack.append(f"T({float(number)!r})")
        elif kind != OPERATOR:
            stack.append(LETTERS[int(value)])
        else:
            row = ops.BY_CODE[int(value)]
            row = of if row.rewrite.whole_b == of.name else row
            if row.rewrite.in_derivative and not any(re.fullmatch(_NUMBER, text) for text in stack[-row.arity :]):
                row = ops.BY_NAME[row.rewrite.in_derivative]
            operands = dict(zip("ab", map(_enclosed, stack[-row.arity :]), strict=False))
            del stack[-row.arity :]
            parts = re.split(r"\b([ab])\b", formula(row, operators))
            stack.append("".join(operands.get(part, part) for part in parts))
    return stack[0]


def _enclosed(text: str) -> str:
    return text if re.fullmatch(rf"\w+|{_NUMBER}", text) else f"({text})"


def _scalar_case(row: ops.Operator, operators: str) -> str:
    slopes = "".join(f" d{x} = {text};" for x, text in zip("ab", derivatives(row, operators), strict=False))
    flat = "".join(f" {x} = 0;" for k, x in enumerate(("from_a", "from_b")) if (row.code, k) in no_slope())
    return f"    case {row.code}: y = {formula(row, operators)};{slopes}{flat} break;  // {row.name}"


def _cases(row: ops.Operator, operators: str) -> Iterator[str]:
    """An operator's cases; the order of the function's arguments puts the operands in order."""
    forms, numbers = opcodes.forms(row), opcodes.numbers()
    if opcodes.is_long(row, operators) and forms:
        labels = " ".join(f"case {numbers[row.code, form]}:" for form in forms)
        template = _LONG_CALLS[row.arity, opcodes.takes_pair(row)]
        first, guarded = str(numbers[row.code, forms[0]]), row.arity == 2 and not opcodes.takes_pair(row)
        call = template.replace("{first}", first).replace("{}", _body(row, operators, guarded))
        yield f"            {labels} {call}; break;  // {row.name}"
        return
    for form in forms:
        call = _CALLS[row.arity, opcodes.takes_pair(row), form].replace("{}", _body(row, operators))
        yield f"            case {numbers[row.code, form]}: {_with_slopes_only(row, form, call)}; break;  // {row.name}"


def _with_slopes_only(row: ops.Operator, form: int, call: str) -> str:
    """The call, and what forgets the tangents of an operand that makes no slope."""
    flat = [(row.code, k) in no_slope() for k in range(row.arity)]
    accumulator = 1 if form in (MEMORY_FIRST, NUMBER_FIRST) else 0  # which operand it is
    if all(flat):
        return f"{call}; only(acc, 0u)"
    if not any(flat):
        return call
    if flat[accumulator]:
        return f"only(acc, 0u); {call}"
    return f"{{ const unsigned kept = acc.active; {call}; only(acc, kept); }}"


def _body(row: ops.Operator, operators: str, guarded: bool = False) -> str:
    """The function's body; ``guarded``: a derivative is made only where it is wanted."""
    slopes = [f"d{x} = {text};" for x, text in zip("ab", derivatives(row, operators), strict=False)]
    if guarded:
        slopes = [f"if (wants_{slope[1]}) {slope}" for slope in slopes]
    return f"-> T {{ const T y = {formula(row, operators)}; {' '.join(slopes)} return y; }}"


_CALLS = {  # (arity, takes a pair, form): the call, {} for the function's body
    (1, False, ALONE): "alone(acc, [](T a, T &da) {})",
    (1, False, NUMBER): "from_number(acc, now)",
    (2, False, MEMORY): "with_memory(acc, frame, now, [](T a, T b, T &da, T &db) {})",
    (2, False, MEMORY_FIRST): "with_memory(acc, frame, now, [](T b, T a, T &db, T &da) {})",
    (2, False, NUMBER): "with_number(acc, now, [](T a, T b, T &da, T &db) {})",
    (2, False, NUMBER_FIRST): "with_number(acc, now, [](T b, T a, T &db, T &da) {})",
    (2, True, MEMORY_FIRST): "with_pair(acc, frame, now, [](T b, T a, T a_low, T &db, T &da) {})",
    (2, True, NUMBER_FIRST): "with_number(acc, now, [a_low = now.low](T b, T a, T &db, T &da) {})",
    (2, True, BOTH): "from_number(acc, now); with_pair(acc, frame, now, [](T b, T a, T a_low, T &db, T &da) {})",
}
_LONG_CALLS = {  # (arity, takes a pair): the call for all forms, {first} for the number of the first one
    (1, False): "go_round(acc, [](T a, T &da) {})",
    (2, False): "go_round(acc, form - {first}, frame, now, [](T a, T b, bool wants_a, bool wants_b, T &da, T &db) {})",
    (2, True): "go_round_pair(acc, form - {first}, frame, now, [](T b, T a, T a_low, T &db, T &da) {})",
}
