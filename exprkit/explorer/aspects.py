"""One expression from every side: what to show of it, and the call that makes it.

Part of the explorer; each aspect is a plain function of a ``Subject``.  Its ``code`` is the
text of a script that prints, or gives, the same: a notebook shows it to be copied.

    >>> from exprkit.explorer.aspects import ASPECTS, Subject
    >>> shown = ASPECTS["Program"](Subject("(x1 + x2) / p1"))
    >>> print(shown.content)
    t0 = add c0, c1
    out = div t0, u0
    <BLANKLINE>
    c0: x1
    c1: x2
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from exprkit import data
from exprkit.errors import DataError, ExprkitError, ParseError
from exprkit.evaluate.compile_ptx import compile_ptx
from exprkit.explorer import gpu, svg
from exprkit.expressions.expression import TYPESET, Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.text.names import NUMBERED, Names
from exprkit.text.printer import word_latex
from exprkit.text.tokens import PARAMETER, VARIABLE

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
SASS_OF = "sm_90"
MOST_CHARACTERS = 100_000  # of a text on a page
MOST_DERIVATIVES = 12  # parameters and variables that are shown


class Shown(NamedTuple):
    """What an aspect shows, and the code that makes it.

    ``content`` is text, LaTeX, SVG, or a line ``name: LaTeX`` for each derivative.
    """

    form: Literal["text", "latex", "svg", "derivatives"]
    content: str
    code: str


@dataclass(frozen=True)
class Points:
    """A data set, the code that makes it, and whether its columns' names are the variables'."""

    dataset: data.Dataset
    code: str = "points = ek.data.rough_pipe()"
    named: bool = False

    @property
    def variables(self) -> tuple[str, ...] | None:
        """What ``parse`` is told; None for x1, x2, …"""
        return self.dataset.variables if self.named else None


class Subject:
    """The expression that is looked at, with all that its aspects depend on.

    Parameters
    ----------
    text : str or Expression
    points : Points, optional
        By default the rough pipe's.
    precision, dtype, backend : str
        As for ``Evaluator``.

    Raises
    ------
    ParseError
        If the text is no expression; the message has the caret.
    DataError
        If it uses more variables than the data has.
    """

    def __init__(
        self, text: str | Expression, points: Points | None = None, *, precision: str = "ieee",
        dtype: str = "float32", backend: str = "auto",
    ) -> None:  # fmt: skip
        self.points = points or Points(data.rough_pipe())
        self.pop: Population = parse([text] if isinstance(text, Expression) else text, variables=self.points.variables)
        self.expression = self.pop[0]
        if self.pop.n_vars > self.points.dataset.X.shape[1]:
            have = ", ".join(self.points.dataset.variables)
            raise DataError(f"the expression uses {self.pop.n_vars} variables, the data has {have}")
        self.text = text if isinstance(text, str) else str(text)
        self.precision, self.dtype, self.backend = precision, dtype, backend

    @property
    def setup(self) -> str:
        """The code in front of every aspect's."""
        named = f", variables={list(self.points.variables)!r}" if self.points.variables else ""
        return f"import exprkit as ek\n\npop = ek.parse({self.text!r}{named})\n"

    @property
    def options(self) -> str:
        """The evaluator's options that are not the usual ones, as the end of a call's text."""
        usual = {"backend": "auto", "precision": "ieee", "dtype": "float32"}
        return _changed({name: (value, getattr(self, name)) for name, value in usual.items()})

    def evaluator(self) -> str:
        """The code that makes ``points`` and ``ev``."""
        return f"{self.setup}{self.points.code}\nev = ek.Evaluator(pop, points.X{self.options})\n"


def usable_names(variables: tuple[str, ...]) -> bool:
    """Whether a table's columns can be an expression's variables by their own names."""
    try:
        Names(variables)
    except ParseError:
        return False
    return True


def renamed(pop: Population, points: Points) -> Population:
    """The population with the data's names for its variables, each in its place.

    Raises
    ------
    DataError
        If it uses more variables than the data has.
    """
    used = int((pop.values[pop.kinds == VARIABLE] + np.uint64(1)).max(initial=0))
    if used > points.dataset.X.shape[1]:
        have = ", ".join(points.dataset.variables)
        raise DataError(f"{used} variables are used, the data has {have}")
    return Population._adopt(pop.kinds, pop.values, pop.offsets, points.variables, pop.parameters)


# ── the aspects ──────────────────────────────────────────────────────────────────────


def formula(subject: Subject) -> Shown:
    """LaTeX; the text itself where it is too long to be typeset."""
    if subject.expression.n_tokens > TYPESET:
        return Shown("text", str(subject.expression), f"{subject.setup}print(pop[0])")
    return Shown("latex", subject.expression.latex(), f"{subject.setup}print(pop[0].latex())")


def tree(subject: Subject) -> Shown:
    """The tree, drawn; as text where it is too large."""
    if subject.expression.n_tokens > svg.MOST_NODES:
        return Shown("text", subject.expression.tree(), f"{subject.setup}print(pop[0].tree())")
    code = f"{subject.setup}from exprkit.explorer import svg\nprint(svg.tree(pop[0]))  # or as text: pop[0].tree()"
    return Shown("svg", svg.tree(subject.expression), code)


def postfix(subject: Subject) -> Shown:
    """The tokens as the thesis draws them: kind, text, bits or index or code."""
    return Shown("text", subject.expression.listing(), f"{subject.setup}print(pop[0].listing())")


def program(subject: Subject) -> Shown:
    """The three-address program and the columns it reads."""
    lowered, _ = gpu.program(subject.pop, subject.points.dataset.X, subject.precision, subject.dtype)
    columns = "\n".join(f"c{place}: {what}" for place, what in enumerate(lowered.columns()))
    code = (
        f"{_gpu_setup(subject)}program, _ = gpu.program({_gpu_arguments(subject)})\n"
        "print(program.listing(0) + '\\n')\n"
        "print('\\n'.join(f'c{place}: {what}' for place, what in enumerate(program.columns())))"
    )
    return Shown("text", f"{lowered.listing(0)}\n\n{columns}", code)


def words(subject: Subject) -> Shown:
    """What the GPU interpreter reads, and the CUDA C of the cases that it runs."""
    arguments = subject.points.dataset.X, subject.precision, subject.dtype
    content = gpu.words(subject.pop, 0, *arguments) + "\n\n" + gpu.cuda(subject.pop, 0, *arguments)
    call = _gpu_arguments(subject)
    return Shown("text", content, f"{_gpu_setup(subject)}print(gpu.words({call}) + '\\n')\nprint(gpu.cuda({call}))")


def ptx(subject: Subject) -> Shown:
    """The transpiler's PTX, and what its machine code takes on each architecture."""
    lines = []
    for arch in ARCHITECTURES:
        made = compile_ptx(subject.pop, arch, precision=subject.precision, dtype=subject.dtype)
        lines.append(f"{arch}: {made.registers[0]} registers, {made.spills[0]} bytes spilled")
    code = (
        f"{subject.setup}for arch in {ARCHITECTURES}:\n    made = ek.compile_ptx(pop, arch{_ptx_options(subject)})\n"
        "    print(f'{arch}: {made.registers[0]} registers, {made.spills[0]} bytes spilled')\nprint()\n"
        "print(made.ptx(0))"
    )
    return Shown("text", "\n".join([*lines, "", made.ptx(0)]), code)


def sass(subject: Subject) -> Shown:
    """The machine code, where a disassembler is installed."""
    made = compile_ptx(subject.pop, SASS_OF, precision=subject.precision, dtype=subject.dtype)
    code = f"{subject.setup}print(ek.compile_ptx(pop, {SASS_OF!r}{_ptx_options(subject)}).sass(0))"
    return Shown("text", made.sass(0), code)


def _ptx_options(subject: Subject) -> str:
    return _changed({"precision": ("ieee", subject.precision), "dtype": ("float32", subject.dtype)})


def derivatives(subject: Subject) -> Shown:
    """The derivative by each parameter, then by each variable that is used."""
    names = _leaves(subject)[:MOST_DERIVATIVES]
    lines = [f"{name}: {_derivative(subject.pop, name)}" for name in names]
    code = f"{subject.setup}for name in {names}:\n    print(f'{{name}}: {{pop.diff(name)[0].latex()}}')"
    return Shown("derivatives", "\n".join(lines), code)


def _leaves(subject: Subject) -> list[str]:
    """Names of the parameters and variables that the expression uses."""
    expression = subject.expression
    found = []
    for kind, own in ((PARAMETER, expression.parameters), (VARIABLE, expression.variables)):
        used = sorted(set(expression.values[expression.kinds == kind].tolist()))
        found += [own[index] if own else f"{NUMBERED[kind]}{index + 1}" for index in used]
    return found


def _derivative(pop: Population, name: str) -> str:
    found = pop.diff(name, errors="mask")
    if not found.valid[0]:
        return rf"\text{{{found.errors[0].partition(': ')[2].splitlines()[0]}}}"
    return found[0].latex() if found[0].n_tokens <= TYPESET else rf"\text{{{found[0].n_tokens:,} tokens}}"


def _gpu_setup(subject: Subject) -> str:
    return f"{subject.setup}{subject.points.code}\nfrom exprkit.explorer import gpu\n"


def _gpu_arguments(subject: Subject) -> str:
    return f"pop, X=points.X{_ptx_options(subject)}"


def _changed(options: dict[str, tuple[str, str]]) -> str:
    """The end of a call's text: those of ``name: (usual, chosen)`` that are not the usual ones."""
    return "".join(f", {name}={chosen!r}" for name, (usual, chosen) in options.items() if chosen != usual)


ASPECTS: dict[str, Callable[[Subject], Shown]] = {
    "Tree": tree,
    "Postfix": postfix,
    "Program": program,
    "GPU words": words,
    "PTX": ptx,
    "SASS": sass,
    "Derivatives": derivatives,
}


def page(shown: Shown) -> str:
    """HTML of an aspect; texts are shown as they are, whatever they hold."""
    if shown.form == "text":
        left = len(shown.content) - MOST_CHARACTERS
        more = f"\n… {left:,} more characters, which the code below prints" if left > 0 else ""
        text = html.escape(shown.content[:MOST_CHARACTERS] + more)
        return f'<pre style="line-height:1.25;overflow-x:auto;margin:4px 0">{text}</pre>'
    if shown.form == "latex":
        return f'<div style="font-size:130%;overflow-x:auto;padding:6px 0">${html.escape(shown.content)}$</div>'
    if shown.form == "derivatives":
        lines = [line.split(": ", 1) for line in shown.content.splitlines()]
        rows = [f"<div style='padding:6px 0'>{_derivative_page(name, value)}</div>" for name, value in lines]
        return f'<div style="font-size:115%;overflow-x:auto">{"".join(rows) or "no parameters, no variables"}</div>'
    return f'<div style="overflow-x:auto">{shown.content}</div>'


def _derivative_page(name: str, value: str) -> str:
    by = rf"\frac{{\partial f}}{{\partial {word_latex(name)}}}"
    return f"${html.escape(by)} = {html.escape(value)}$"


def code_page(code: str) -> str:
    """HTML of code; one click selects all of it."""
    return (
        '<details><summary style="cursor:pointer;opacity:0.7">as code</summary>'
        f'<pre style="user-select:all;line-height:1.3;padding:6px;border:1px solid #8888;overflow-x:auto">'
        f"{html.escape(code)}</pre></details>"
    )


def complaint(error: Exception) -> str:
    """HTML of an error: exprkit's own in its words with the caret, others with their type."""
    text = str(error) if isinstance(error, ExprkitError) else f"{type(error).__name__}: {error}"
    return f'<pre style="color:#D55E00;line-height:1.25;margin:4px 0">{html.escape(text)}</pre>'
