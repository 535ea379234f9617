"""Inspectors: an expression at every stage of the pipeline, and the call that shows it.

In: a ``Subject``.  Out: a ``View``: text and HTML.  Its ``code`` is a script that prints the same
text: a notebook shows it to be copied.

    >>> from exprkit.explorer.inspectors import INSPECTORS, Subject
    >>> print(INSPECTORS["Program"](Subject("(x1 + x2) / p1")).content)
    t0 = add c0, c1
    out = div t0, u0
    <BLANKLINE>
    c0: x1
    c1: x2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import exprkit as ek
from exprkit.explorer import drawings
from exprkit.explorer.pages import formula_page, picture_page, text_page
from exprkit.explorer.sources import Points, arguments, operators_code
from exprkit.expressions.expression import TYPESET
from exprkit.text.names import word_of
from exprkit.text.printer import word_latex
from exprkit.text.tokens import PARAMETER, VARIABLE

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
SASS_OF = "sm_90"
MOST_DERIVATIVES = 12  # parameters and variables that are shown


class View(NamedTuple):
    """An inspector's text (LaTeX; a line ``name: LaTeX`` for a derivative), the code that prints it, its HTML."""

    content: str
    code: str
    page: str


class Subject:
    """The expression that is looked at, with all that its inspectors depend on; options as for ``Evaluator``.

    Raises
    ------
    ParseError
        If the text is no expression of the data's variables; the message has the caret.
    """

    def __init__(
        self,
        text: str | ek.Expression,
        points: Points | None = None,
        *,
        precision: str = "ieee",
        dtype: str = "float32",
        backend: str = "auto",
    ) -> None:
        self.points = points or Points(ek.data.rough_pipe())
        self.text = str(text)
        self.pop = ek.parse(self.text, variables=self.points.variables or self.points.dataset.X.shape[1])
        self.expression = self.pop[0]
        self.precision, self.dtype, self.backend = precision, dtype, backend

    @property
    def setup(self) -> str:
        """The code in front of every inspector's."""
        own = operators_code(self.pop)
        return f"import exprkit as ek\n\n{own}pop = ek.parse({self.text!r}{self.points.names_code})\n"

    def options(self, *names: str) -> str:
        """The end of a call's text: those of the evaluator's options that are not the usual ones."""
        usual = {"backend": "auto", "precision": "ieee", "dtype": "float32"}
        chosen = {name: getattr(self, name) for name in names or usual}
        return arguments({name: value for name, value in chosen.items() if value != usual[name]})

    def evaluator(self, X: np.ndarray | None = None) -> ek.Evaluator:
        """At all data points, or at others."""
        X = self.points.dataset.X if X is None else X
        return ek.Evaluator(self.pop, X, self.backend, self.precision, self.dtype)

    @property
    def evaluator_code(self) -> str:
        """The code that makes ``points`` and ``ev``."""
        return f"{self.setup}{self.points.code}\nev = ek.Evaluator(pop, points.X{self.options()})\n"

    def bytecode(self) -> ek.Compiled:
        return ek.compile_bytecode(self.pop, self.points.dataset.X, precision=self.precision, dtype=self.dtype)

    @property
    def bytecode_code(self) -> str:
        """The code that makes ``bytecode``."""
        options = self.options("precision", "dtype")
        return f"{self.setup}{self.points.code}\nbytecode = ek.compile_bytecode(pop, points.X{options})\n"

    def ptx(self, arch: str) -> ek.Compiled:
        return ek.compile_ptx(self.pop, arch, precision=self.precision, dtype=self.dtype)


# ── the inspectors ───────────────────────────────────────────────────────────────────


def _text(content: str, code: str) -> View:
    return View(content, code, text_page(content))


def formula(subject: Subject) -> View:
    """LaTeX; the text itself where it is too long to be typeset."""
    if subject.expression.n_tokens > TYPESET:
        return _text(str(subject.expression), f"{subject.setup}print(pop[0])")
    latex = subject.expression.latex()
    return View(latex, f"{subject.setup}print(pop[0].latex())", formula_page([latex]))


def tree(subject: Subject) -> View:
    """The tree, drawn; as text where it is too large."""
    expression = subject.expression
    view = _text(expression.tree(), f"{subject.setup}print(pop[0].tree())")
    if expression.n_tokens > drawings.MOST_NODES:
        return view
    return View(view.content, view.code, picture_page(drawings.tree(expression), alt=view.content))


def postfix(subject: Subject) -> View:
    """The tokens as the thesis draws them: kind, text, bits or index or code."""
    return _text(subject.expression.listing(), f"{subject.setup}print(pop[0].listing())")


def program(subject: Subject) -> View:
    """The three-address program and the columns it reads."""
    return _text(subject.bytecode().program(0), f"{subject.bytecode_code}print(bytecode.program(0))")


def bytecode(subject: Subject) -> View:
    """The GPU interpreter's bytecode, and the CUDA C of the cases that it runs."""
    compiled = subject.bytecode()
    code = f"{subject.bytecode_code}print(bytecode.listing(0) + '\\n')\nprint(bytecode.cuda(0))"
    return _text(f"{compiled.listing(0)}\n\n{compiled.cuda(0)}", code)


def ptx(subject: Subject) -> View:
    """The transpiler's PTX, and what its machine code takes on each architecture."""
    code_for = {arch: subject.ptx(arch) for arch in ARCHITECTURES}
    lines = [f"{arch}: {of.registers[0]} registers, {of.spills[0]} bytes spilled" for arch, of in code_for.items()]
    options = subject.options("precision", "dtype")
    code = (
        f"{subject.setup}for arch in {ARCHITECTURES}:\n    compiled = ek.compile_ptx(pop, arch{options})\n"
        "    print(f'{arch}: {compiled.registers[0]} registers, {compiled.spills[0]} bytes spilled')\nprint()\n"
        "print(compiled.ptx(0))"
    )
    return _text("\n".join([*lines, "", code_for[ARCHITECTURES[-1]].ptx(0)]), code)


def sass(subject: Subject) -> View:
    """The machine code, where a disassembler is installed."""
    call = f"ek.compile_ptx(pop, {SASS_OF!r}{subject.options('precision', 'dtype')})"
    return _text(subject.ptx(SASS_OF).sass(0), f"{subject.setup}print({call}.sass(0))")


def derivatives(subject: Subject) -> View:
    """The derivative by each parameter, then by each variable that is used."""
    names = _leaves(subject.expression)[:MOST_DERIVATIVES]
    formulas = [_derivative(subject.pop, name) for name in names]
    code = (
        f"{subject.setup}import sympy\n\nfor name in {names}:\n"
        "    print(f'{name}: {sympy.latex(pop.diff(name)[0].sympy().doit())}')"
    )
    lines = [f"{name}: {latex}" for name, latex in zip(names, formulas, strict=True)]
    heads = [rf"\frac{{\partial f}}{{\partial {word_latex(name)}}} = " for name in names]
    page = formula_page(map("".join, zip(heads, formulas, strict=True)))
    return View("\n".join(lines), code, page if names else text_page("no parameters, no variables"))


def _leaves(expression: ek.Expression) -> list[str]:
    """Names of the parameters and variables that the expression uses."""
    words = []
    for kind, names in ((PARAMETER, expression.parameters), (VARIABLE, expression.variables)):
        used = sorted(set(expression.values[expression.kinds == kind].tolist()))
        words += [word_of(kind, index, names) for index in used]
    return words


def _derivative(pop: ek.Population, name: str) -> str:
    derivative = pop.diff(name, errors="mask")
    if not derivative.valid[0]:
        return rf"\text{{{derivative.errors[0].partition(': ')[2].splitlines()[0]}}}"
    n_tokens = derivative[0].n_tokens
    if n_tokens > TYPESET:
        return rf"\text{{{n_tokens:,} tokens}}"
    import sympy

    return sympy.latex(derivative[0].sympy().doit())  # which cancels and collects, as one writes it


INSPECTORS: dict[str, Callable[[Subject], View]] = {
    "Tree": tree,
    "Postfix": postfix,
    "Program": program,
    "Bytecode": bytecode,
    "PTX": ptx,
    "SASS": sass,
    "Derivatives": derivatives,
}
