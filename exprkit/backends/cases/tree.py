"""The case discussion as a user sees it: the tree as text, restricted to a GPU, and the path of one GPU.

In: a subject (questions, what a code is as text).  Out: ``Cases`` and its leaves, each a ``Case``.

    >>> from exprkit.backends.cases.discussion import Question
    >>> from exprkit.backends.cases.inequality import Inequality, number, symbol
    >>> from exprkit.backends.cases.tree import Cases, Discussion
    >>> def fits(code):
    ...     return Inequality(number(2**code, f"{2**code} bytes"), symbol("Z_B"))
    >>> memory = Question("memory", fits, lambda code: ("halve", code - 1) if code else None)
    >>> found = Cases(Discussion("a kernel", 10, [memory], ("Z_B",), lambda code: f"{2**code} threads"))
    >>> print(found.at(shared_per_block=700).why())
    no   1024 bytes = 1,024 > 700 = Z_B, so halve
    yes  512 bytes = 512 <= 700 = Z_B
    => 512 threads
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from exprkit.backends.cases.cards import CARDS, limits_of, symbols_of
from exprkit.backends.cases.discussion import Leaf, Node, Question, described, discuss, leaves_of, walk
from exprkit.backends.cases.inequality import MAY_BE_ZERO, MEANINGS, Constraint, Inequality, formula, of_symbols
from exprkit.backends.gpu import nvrtc
from exprkit.backends.gpu.schedule import REGISTERS
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError, brief, did_you_mean, whole_number

POINTS_OF_BOX = 30_000  # at which witnesses are looked for
SYMBOLS = {  # what ``at`` takes, and the symbol that it is
    "n_points": "N", "n_exprs": "E", "n_columns": "c", "n_slots": "s", "shared_per_block": "Z_B",
    "shared_per_multiprocessor": "Z_M", "multiprocessors": "S", "registers": "R_M", "n_params": "m",
    "n_instructions": "i", "n_results": "r", "exprs_per_structure": "g", "shared_code": "d",
    "uncommon_operators": "u", "powers": "p", "bulky_operators": "b",
}  # fmt: skip
# of the box
MOST = {
    "N": 10**8, "E": 10**6, "c": 1000, "s": 16, "m": 16, "i": 200, "r": 20, "g": 10**4, "d": 1, "u": 1, "p": 1, "b": 1,
}  # fmt: skip
MACHINE = ("Z_B", "Z_M", "S", "R_M")


@dataclass(frozen=True, eq=False)
class KernelText:
    """A variant as CUDA C with the macros that differ from their defaults."""

    text: str
    settings: Precision
    chosen: Mapping[str, Any]

    @property
    def macros(self) -> dict[str, str]:
        """All macros that are defined for the compiler."""
        return nvrtc.macros(self.settings, self.chosen)

    @property
    def source(self) -> str:
        """CUDA C with its macros on top."""
        return "".join(f"#define {name} {value}\n" for name, value in self.macros.items()) + "\n" + self.text

    def ptx(self, architecture: str) -> str:
        """The PTX for an architecture."""
        return nvrtc.ptx(architecture, self.settings, self.text, **self.chosen)

    def report(self, architecture: str) -> str:
        """What the assembler says of registers and spills."""
        return nvrtc.report(architecture, self.settings, self.text, **self.chosen)


@dataclass(frozen=True, eq=False)
class Discussion:
    """What is discussed."""

    title: str
    start: Any  # the code to begin with
    questions: Sequence[Question]
    symbols: tuple[str, ...]
    words: Callable[[Any], str]  # what a code is
    text: Callable[[Any], KernelText] | None = None
    shape: Callable[[Any], Any] = lambda code: code  # what the backend launches
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, eq=False)
class Case:
    """A leaf: a variant, the constraints under which it is chosen, and how it was reached.

    Attributes
    ----------
    shape
        What the backend compiles and launches.
    constraints : tuple
        Its system: all hold.  ``str`` gives the words, ``.relation()`` SymPy's relation.
    strategies : tuple of str
        Those that were applied, the first one first.
    witness : dict
        Values of the symbols that satisfy the constraints.
    """

    words: str
    shape: Any
    constraints: tuple[Constraint, ...]
    strategies: tuple[str, ...]
    witness: Mapping[str, Any]
    _text: Callable[[], KernelText] | None

    @property
    def source(self) -> str:
        """The kernel's CUDA C, with the macros that make it this variant."""
        return self._kernel().source

    @property
    def macros(self) -> dict[str, str]:
        """The macros that are defined for this variant."""
        return self._kernel().macros

    def ptx(self, architecture: str) -> str:
        """The kernel's PTX, on any machine that has NVIDIA's compiler from PyPI.

        Parameters
        ----------
        architecture : str
            As ``"sm_86"``.
        """
        return self._kernel().ptx(architecture)

    def report(self, architecture: str) -> str:
        """What NVIDIA's assembler says of the kernel: registers, spills."""
        return self._kernel().report(architecture)

    def _kernel(self) -> KernelText:
        if self._text is None:
            raise ArgumentError("this leaf's code is made of expressions: cases(pop, ...) with a population gives it")
        return self._text()

    def __repr__(self) -> str:
        return f"<Case: {self.words}; {len(self.constraints)} constraints>"


class Cases:
    """A case discussion: which variant is chosen where.  Made by ``exprkit.cases``.

    Parameters
    ----------
    subject : Discussion
    known : mapping, optional
        Symbols whose values are given.
    """

    def __init__(self, subject: Discussion, known: Mapping[str, Any] | None = None) -> None:
        self.subject, self.known = subject, dict(known or {})

    @property
    def free(self) -> tuple[str, ...]:
        """Symbols that have no value yet."""
        return tuple(name for name in self.subject.symbols if name not in self.known)

    def at(self, device: Any = None, **values: Any) -> Cases:
        """What remains of the discussion where some symbols are known.

        Parameters
        ----------
        device : str or device, optional
            An architecture, as ``"sm_86"``: its limits.
        **values : int or str
            ``n_points``, ``n_exprs``, ``n_columns``, ``n_slots``, ``shared_per_block``, ``shared_per_multiprocessor``,
            ``multiprocessors``, ``registers`` (of fits also ``n_params``, ``n_instructions``, ``n_results``, of
            ``"ptx"`` ``exprs_per_structure``); a text leaves that symbol free.

        Raises
        ------
        ArgumentError
            If there is no such symbol or card, or a value is no whole number from 0 on.
        """
        known = self.known | (symbols_of(limits_of(device)) if device is not None else {})
        for name, value in values.items():
            if name not in SYMBOLS:
                raise ArgumentError(f"at has no argument {name!r}{did_you_mean(name, ['device', *SYMBOLS], {})}")
            known.pop(SYMBOLS[name], None)
            if not isinstance(value, str):
                if (whole := whole_number(value)) is None or whole < 0:
                    raise ArgumentError(f"{name} must be a whole number from 0 on, or a text, not {brief(value)}")
                known[SYMBOLS[name]] = whole
        return Cases(self.subject, {name: value for name, value in known.items() if name in self.subject.symbols})

    # ── the tree ─────────────────────────────────────────────────────────────────────

    @functools.cached_property
    def tree(self) -> Node | Leaf | None:
        """The tree: questions, and leaves with witnesses."""
        return self.over(box(self.subject.symbols, self.known))

    def over(self, values: Mapping[str, Any]) -> Node | Leaf | None:
        """The tree with witnesses among these values, arrays of one element for each point."""
        return discuss(self.subject.start, self.subject.questions, values)

    @property
    def leaves(self) -> list[Case]:
        """All cases that can occur, the first one first: those for which a witness is known."""
        return [self._case(leaf) for leaf in leaves_of(self.tree)]

    def _case(self, leaf: Leaf) -> Case:
        subject = self.subject
        text = None if subject.text is None else functools.partial(subject.text, leaf.code)
        words, shape = subject.words(leaf.code), subject.shape(leaf.code)
        return Case(words, shape, leaf.system, leaf.applied, leaf.witness, text)

    @property
    def case(self) -> Case:
        """The one case, where all symbols are known.

        Raises
        ------
        ArgumentError
            If symbols are free, or no variant is left; names the inequality.
        """
        self._check_known()
        code, steps = self._walked()
        if code is None:
            raise ArgumentError(f"no variant is left: {steps[-1].asked.with_numbers(self.known)}")
        system = tuple(step.asked if step.accepted else step.asked.refused() for step in steps)
        applied = tuple(step.strategy for step in steps if not step.accepted)
        return self._case(Leaf(code, system, applied, self.known, np.zeros(1, np.int64)))

    def _walked(self) -> Any:
        return walk(self.subject.start, self.subject.questions, self.known)

    def _check_known(self) -> None:
        if self.free:
            names = [name for name, symbol in SYMBOLS.items() if symbol in self.free]
            raise ArgumentError(
                f"{', '.join(self.free)} have no value: .at({', '.join(f'{one}=...' for one in names)})"
            )

    def why(self) -> str:
        """The path that is taken, each inequality with its numbers; where symbols are free, what stays open."""
        if self.free:
            return str(self)
        code, steps = self._walked()
        last = "nothing fits" if code is None else self.subject.words(code)
        return "\n".join([*described(steps, self.known), f"=> {last}"])

    # ── as text ──────────────────────────────────────────────────────────────────────

    def __str__(self) -> str:
        known = ", ".join(f"{name} = {value:,}" for name, value in self.known.items())
        meanings = (f"{name}: {MEANINGS[name]}" for name in self.free)
        head = [f"{self.subject.title}: {len(self.leaves)} cases", *([known] if known else []), *meanings]
        return "\n".join([*head, *self.subject.notes, "", *self.lines()])

    def __repr__(self) -> str:
        return f"<Cases: {self.subject.title}; free: {', '.join(self.free) or 'nothing'}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def lines(self) -> list[str]:
        """The tree, a line for a question or a leaf, indented where it is accepted; where refused it goes on below."""
        return list(self._lines(self.tree, ""))

    def _lines(self, tree: Node | Leaf | None, indent: str) -> Iterator[str]:
        while isinstance(tree, Node):
            yield f"{indent}if {_written(tree.asked, self.known)}:"
            yield from self._lines(tree.accept, indent + "    ")
            yield f"{indent}else, {tree.strategy}:"
            tree = tree.refuse
        yield f"{indent}-> {'nothing fits' if tree is None else self.subject.words(tree.code)}"


def _written(one: Constraint, known: Mapping[str, Any]) -> str:
    """A question in words, with the polynomial where it has one."""
    if not isinstance(one, Inequality):
        return one.joined(functools.partial(_written, known=known))
    value = one.left.words if one.left.name else str(formula(one.left).subs(of_symbols(known)))
    if value == one.left.words:
        return str(one)
    return f"{one.left.words} = {value} {'<' if one.strict else '<='} {one.right.words}"


def box(names: Sequence[str], known: Mapping[str, Any], n: int = POINTS_OF_BOX, seed: int = 0) -> dict[str, np.ndarray]:
    """Values of symbols: cards of the seven architectures, and sizes evenly on a log scale; ``known`` ones as they are.

    Parameters
    ----------
    names : symbols
    known : mapping
    n, seed : int
        How many points.

    Returns
    -------
    dict of arrays (n,), or (1,) of what is known
    """
    random, values = np.random.default_rng(seed), {}
    cards = np.array([[symbols_of(card.limits)[name] for name in MACHINE] for card in CARDS.values()])
    card = cards[random.integers(0, len(cards), n)]
    for name in names:
        if name in MACHINE:
            values[name] = card[:, MACHINE.index(name)]
        else:
            size = np.exp(random.uniform(0, np.log(MOST[name] + 1), n)).astype(np.int64)
            values[name] = np.where(random.random(n) < 0.3, 0, size) if name in MAY_BE_ZERO - {"c", "m"} else size
    values |= {name: np.array([value]) for name, value in known.items() if name in names}
    if "R_M" in names and "R_M" not in known:
        values["R_M"] = np.array([REGISTERS])
    return values
