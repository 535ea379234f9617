"""Source text of the CUDA kernels that differentiate: the .cu files, with derivatives generated from the operator
table.

In: the operator table and the generator of ``opcodes``.  Out: CUDA C.  A case computes a value and what its tangents
are multiplied with: dy/da and dy/db, the table's ``derivative`` cells written in CUDA C by the table's own formulas.

    >>> from exprkit.operators import defined, ops
    >>> from exprkit.backends.interpreter import dual_opcodes
    >>> dual_opcodes.derivatives(ops.BY_NAME["div"], "ieee")
    ('T(1.0) / b', 'strong_quotient((-y), b)')
"""

from __future__ import annotations

import functools
import re

from exprkit.backends import levenberg_marquardt
from exprkit.backends.device_programs.translate import arrays_text, cuda_text
from exprkit.backends.gpu import opcodes
from exprkit.backends.gpu.layout import IMMEDIATE_FIRST, MEMORY_FIRST
from exprkit.backends.gpu.opcodes import formula
from exprkit.expressions.parser import parse
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.linearity import no_slope
from exprkit.text.tokens import CONSTANT, OPERATOR

LETTERS = ["a", "b", "c", "y"]  # what a derivative is written over
CHOICE = *opcodes.HEAD, "interpreter/choose.cu"
PARTS = *opcodes.HEAD, "interpreter/tangents.cu", "interpreter/equations.cu", "interpreter/fit.cu"
# what fit.cu, tangents.cu and CUDA C have themselves
IN_KERNELS = dict.fromkeys(("as_evaluated", "keep_equations", "is_finite", "inverse", "fma"), "")
_NUMBER = r"T\([\d.e-]+\)"  # in CUDA C; the table's derivatives hold none that is 0, inf or nan


@table_of_rows
def source(operators: str) -> str:
    """The CUDA C of the kernels that differentiate, by the table's formulas of a precision, in derivatives too."""
    rows = opcodes.all_rows()
    usual, rare = ([row for row in rows if is_rare(row) == rarely] for rarely in (False, True))
    common = [row for row in usual if row in opcodes.rows(common=True)]
    few = [row for row in usual if row not in common]
    of_three = [row for row in rare if row.packed]
    called = [row for row in rare if is_called(row) and not row.packed]
    inside = [row for row in rare if row not in called and not row.packed]
    return opcodes.joined(
        PARTS,
        {
            "arrays": arrays_text(),
            "steps": cuda_text([levenberg_marquardt.begin, levenberg_marquardt.advance], IN_KERNELS, unrolled=True),
            **{
                f"{mark} cases": opcodes.cases(some, operators, DUALS)
                for mark, some in (("common", common), ("few", few), ("rare", inside))
            },
            "of three": _of_three(of_three),
            "made of three": "\n".join(_made_of_three(row, operators) for row in of_three),
            "calls of three": "\n".join(_call_of_three(row) for row in of_three),
            "called cases": "\n".join(_called_case(row, operators) for row in called),
            "called opcodes": "\n".join(_opcodes(row) for row in called),
            **{
                f"{mark} scalar cases": "\n".join(_scalar_case(row, operators) for row in some)
                for mark, some in (("common", usual), ("rare", inside))
            },
        },
    )


@functools.cache
def choice() -> str:
    return opcodes.joined(CHOICE, {"user functions": ""})


def derivatives(row: ops.Operator, operators: str) -> tuple[str, ...]:
    """dy/da (and dy/db, dy/dc) in CUDA C over ``a``, ``b``, ``c`` and ``y``; nan where the table has none."""
    texts = row.derivative if not defined.without_cuda_slopes([row.code]) else ()
    return tuple(_in_c(text, row, operators) for text in texts) or ('T(nan(""))',) * len(row.letters)


def is_rare(row: ops.Operator) -> bool:
    """Whether the operator is left out of kernels that need not have it."""
    return not (row in opcodes.rows(common=True) or row.code == ops.COPY or row.width > 1)


def is_called(row: ops.Operator) -> bool:
    """Whether an uncommon operator's code is a function that kernels call: all but short ones of one operand.

    With the code of all operators inside a compiler needs ten times as long for a kernel; exp, log, sin, cos and the
    like stay inside in ieee, too, where calls of them made fits take up to half as long again (H200).
    """
    return row.arity > 1 or opcodes.is_long(row, "fast")


def _called_case(row: ops.Operator, operators: str) -> str:
    has_slope = [k < row.arity and (row.code, k) not in no_slope() for k in range(2)]
    slopes = [text if has else "T(0)" for text, has in zip((*derivatives(row, operators), ""), has_slope, strict=False)]
    functions = [f"[](T a, T b) {{ return {formula(row, operators)}; }}"]
    functions += [f"[this](T a, T b, T y) {{ return {text}; }}" for text in slopes]
    by = "made_in_turn" if row.cuda.branches else "made_by"
    call = f"{by}({has_slope[0] + 2 * has_slope[1]}, {', '.join(functions)})"
    return f"        case {row.code}: return {call};  // {row.name}"


def _of_three(rows: list[ops.Operator]) -> str:
    """CUDA C that kernels with functions of three operands need besides their cases."""
    if not rows:
        return ""
    test = " || ".join(f"code == {row.code}" for row in rows)
    names = f"#define OF_THREE\nenum {{ PAIR_OF = {ops.PAIR_OF} }};"
    return f"{names}\nINLINE bool is_of_three(int code) {{ return {test}; }}"


def _made_of_three(row: ops.Operator, operators: str) -> str:
    has_slope = sum(1 << k for k in range(3) if (row.code, k) not in no_slope())
    parameters = ", ".join(f"T {x}" for x in row.letters)
    functions = [f"[]({parameters}) {{ return {formula(row, operators)}; }}"]
    functions += [f"[](T a, T b, T c, T y) {{ return {text}; }}" for text in derivatives(row, operators)]
    call = f"made_of_three({has_slope}, a, b, c, wants, {', '.join(functions)})"
    return f"    case {row.code}: return {call};  // {row.name}"


def _call_of_three(row: ops.Operator) -> str:
    first, both = (opcodes.numbers()[row.code, mode] for mode in opcodes.modes(row))
    call = f"call_of_three(acc, {row.code}, opcode == {both}, frame, now)"
    return f"            case {first}: case {both}: {call}; break;  // {row.name}"


def _opcodes(row: ops.Operator) -> str:
    """The cases that give an operator and an addressing mode for each of its opcodes."""
    pairs = ((opcodes.numbers()[row.code, mode], mode) for mode in opcodes.modes(row))
    return "    " + " ".join(f"case {one}: return {row.code} | {mode} << CODE_BITS;" for one, mode in pairs)


def _in_c(text: str, of: ops.Operator, operators: str) -> str:
    """exprkit's own text as CUDA C, with strong zeros.

    In the derivative of a power with whole exponents all powers are such.
    """
    pop, stack = parse(text, variables=LETTERS).expanded(), []
    numbers = pop.values.view("float64")
    for kind, value, number in zip(pop.kinds, pop.values, numbers, strict=True):
        if kind == CONSTANT:
            stack.append(f"T({float(number)!r})")
        elif kind != OPERATOR:
            stack.append(LETTERS[int(value)])
        elif value != ops.PAIR_OF:  # what is packed stays two
            row = ops.BY_CODE[int(value)]
            row = of if row.rewrite.whole_b == of.name else row
            if row.rewrite.in_derivative and not any(re.fullmatch(_NUMBER, text) for text in stack[-row.arity :]):
                row = ops.BY_NAME[row.rewrite.in_derivative]
            operands = dict(zip(row.letters, map(_enclosed, stack[-len(row.letters) :]), strict=True))
            del stack[-len(row.letters) :]
            parts = re.split(r"\b(a_low|[ab])\b", formula(row, operators))
            stack.append("".join(operands.get(part, part) for part in parts))
    return stack[0]


def _enclosed(text: str) -> str:
    return text if re.fullmatch(rf"\w+|{_NUMBER}", text) else f"({text})"


def _scalar_case(row: ops.Operator, operators: str) -> str:
    slopes = "".join(f" d{x} = {text};" for x, text in zip("ab", derivatives(row, operators), strict=False))
    flat = "".join(f" {x} = 0;" for k, x in enumerate(("from_a", "from_b")) if (row.code, k) in no_slope())
    return f"    case {row.code}: y = {formula(row, operators)};{slopes}{flat} break;  // {row.name}"


def _with_slopes_only(row: ops.Operator, mode: int, call: str) -> str:
    """The call, and what forgets the tangents of an operand that makes no slope."""
    flat = [(row.code, k) in no_slope() for k in range(row.arity)]
    accumulator = 1 if mode in (MEMORY_FIRST, IMMEDIATE_FIRST) else 0  # which operand it is
    if all(flat):
        return f"{call}; only(acc, 0u)"
    if not any(flat):
        return call
    if flat[accumulator]:
        return f"only(acc, 0u); {call}"
    return f"{{ const unsigned kept = acc.active; {call}; only(acc, kept); }}"


def _dual(row: ops.Operator, operators: str, operands: list[str], long: bool) -> str:
    """The function of values and their derivatives; in long code a derivative is made only where it is wanted."""
    guarded = long and row.arity == 2 and not opcodes.takes_pair(row)
    slopes = [f"d{x} = {text};" for x, text in zip("ab", derivatives(row, operators), strict=False)]
    if guarded:
        slopes = [f"if (wants_{slope[1]}) {slope}" for slope in slopes]
    names = [name for name in operands if name in LETTERS]
    wants = [f"bool wants_{name}" for name in names if guarded]
    parameters = ", ".join([*(f"T {name}" for name in operands), *wants, *(f"T &d{name}" for name in names)])
    return f"({parameters}) -> T {{ const T y = {formula(row, operators)}; {' '.join(slopes)} return y; }}"


DUALS = opcodes.Dialect("frame, now", "now", "frame, now", "frame, now", "a_low = now.low", _dual, _with_slopes_only)
