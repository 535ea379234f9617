"""The case discussion as a user sees it: the tree as text, restricted to a GPU, and the path of one GPU.

In: a subject (questions, what a code is as text).  Out: ``Cases`` and its leaves, each a ``Case``.

    >>> from exprkit.backends.cases.discussion import Question
    >>> from exprkit.backends.cases.inequality import Inequality, number, symbol
    >>> from exprkit.backends.cases.tree import CARDS, Cases, Discussion
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
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.discussion import Leaf, Node, Question, described, discuss, leaves_of, walk
from exprkit.backends.cases.inequality import MACHINE, SYMBOLS, Constraint
from exprkit.backends.gpu import nvrtc
from exprkit.backends.gpu.schedule import REGISTERS, DeviceLimits
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError, brief, did_you_mean, whole_number

POINTS_OF_BOX = 30_000  # at which witnesses are looked for
KIB = 1 << 10


class Card(NamedTuple):
    """A GPU architecture by one of its cards, with the limits that it puts on kernel variants."""

    name: str
    limits: DeviceLimits


# Shared memory and registers by compute capability: CUDA C++ Programming Guide; multiprocessors of the card
CARDS = {
    "sm_75": Card("Tesla T4", DeviceLimits(64 * KIB, 64 * KIB, 40)),
    "sm_80": Card("A100", DeviceLimits(163 * KIB, 164 * KIB, 108)),
    "sm_86": Card("RTX 3060 Ti", DeviceLimits(99 * KIB, 100 * KIB, 38)),
    "sm_89": Card("RTX 4090", DeviceLimits(99 * KIB, 100 * KIB, 128)),
    "sm_90": Card("H200", DeviceLimits(227 * KIB, 228 * KIB, 132)),
    "sm_100": Card("B200", DeviceLimits(227 * KIB, 228 * KIB, 148)),
    "sm_120": Card("RTX 5090", DeviceLimits(99 * KIB, 100 * KIB, 170)),
}


def limits_of(device: Any) -> DeviceLimits:
    """The limits of an architecture by its name, or of a device that is there."""
    if isinstance(device, str):
        if device not in CARDS:
            raise nvrtc.no_architecture(device, CARDS)
        return CARDS[device].limits
    return device if isinstance(device, DeviceLimits) else DeviceLimits.of(device)


class KernelText(NamedTuple):
    """The code of a variant."""

    source: str
    macros: Mapping[str, str]
    ptx: Callable[[str], str]  # for an architecture

    @classmethod
    def of(cls, text: str, settings: Precision, chosen: Mapping[str, Any]) -> KernelText:
        """CUDA C with its macros on top; ``chosen``: those that differ from their defaults."""
        macros = nvrtc.macros(settings, chosen)
        source = "".join(f"#define {name} {value}\n" for name, value in macros.items()) + "\n" + text
        return cls(source, macros, lambda architecture: nvrtc.ptx(architecture, settings, text, **chosen))


@dataclass(frozen=True, eq=False)
class Discussion:
    """The subject of a case discussion."""

    title: str
    start: Any  # the code to begin with
    questions: Sequence[Question]
    symbols: tuple[str, ...]
    words: Callable[[Any], str]  # what a code is
    text: Callable[[Any], KernelText] | None = None
    shape: Callable[[Any], Any] = lambda code: code  # what the backend launches
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """A leaf: a variant, the constraints under which it is chosen, and how it was reached.

    Attributes
    ----------
    shape
        What the backend compiles and launches.
    constraints : tuple
        Its system: all hold.  ``str`` gives the words.
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
    def macros(self) -> Mapping[str, str]:
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
        """The rest of the discussion where some symbols are known.

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
        known = self.known | (dict(zip(MACHINE, limits_of(device), strict=True)) if device is not None else {})
        symbols = {symbol.argument: name for name, symbol in SYMBOLS.items()}
        for name, value in values.items():
            if name not in symbols:
                raise ArgumentError(f"at has no argument {name!r}{did_you_mean(name, ['device', *symbols], {})}")
            known.pop(symbols[name], None)
            if not isinstance(value, str):
                if (whole := whole_number(value)) is None or whole < 0:
                    raise ArgumentError(f"{name} must be a whole number from 0 on, or a text, not {brief(value)}")
                known[symbols[name]] = whole
        return Cases(self.subject, {name: value for name, value in known.items() if name in self.subject.symbols})

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
        return [self._case(leaf.code, leaf.system, leaf.applied, leaf.witness) for leaf in leaves_of(self.tree)]

    def _case(self, code: Any, system: tuple[Constraint, ...], applied: tuple[str, ...], witness: Any) -> Case:
        subject = self.subject
        text = None if subject.text is None else functools.partial(subject.text, code)
        return Case(subject.words(code), subject.shape(code), system, applied, witness, text)

    @property
    def case(self) -> Case:
        """The one case, where all symbols are known.

        Raises
        ------
        ArgumentError
            If symbols are free, or no variant is left; names the inequality.
        """
        if self.free:
            names = ", ".join(f"{SYMBOLS[name].argument}=..." for name in SYMBOLS if name in self.free)
            raise ArgumentError(f"{', '.join(self.free)} have no value: .at({names})")
        code, steps = self._walked()
        if code is None:
            raise ArgumentError(f"no variant is left: {steps[-1].asked.with_numbers(self.known)}")
        system = tuple(step.asked if step.accepted else step.asked.refused() for step in steps)
        return self._case(code, system, tuple(step.strategy for step in steps if not step.accepted), self.known)

    def _walked(self) -> Any:
        return walk(self.subject.start, self.subject.questions, self.known)

    def why(self) -> str:
        """The path that is taken, each inequality with its numbers; where symbols are free, what stays open."""
        if self.free:
            return str(self)
        code, steps = self._walked()
        last = "nothing fits" if code is None else self.subject.words(code)
        return "\n".join([*described(steps, self.known), f"=> {last}"])

    def __str__(self) -> str:
        known = ", ".join(f"{name} = {value:,}" for name, value in self.known.items())
        meanings = (f"{name}: {SYMBOLS[name].meaning}" for name in self.free)
        head = [f"{self.subject.title}: {len(self.leaves)} cases", *([known] if known else []), *meanings]
        return "\n".join([*head, *self.subject.notes, "", *self._lines(self.tree, "")])

    def __repr__(self) -> str:
        return f"<Cases: {self.subject.title}; free: {', '.join(self.free) or 'nothing'}>"

    def _lines(self, tree: Node | Leaf | None, indent: str) -> Iterator[str]:
        """A line for a question or a leaf, indented where it is accepted; where refused it goes on below."""
        while isinstance(tree, Node):
            yield f"{indent}if {tree.asked.with_polynomial(self.known)}:"
            yield from self._lines(tree.accept, indent + "    ")
            yield f"{indent}else, {tree.strategy}:"
            tree = tree.refuse
        yield f"{indent}-> {'nothing fits' if tree is None else self.subject.words(tree.code)}"


def box(names: Sequence[str], known: Mapping[str, Any], n: int = POINTS_OF_BOX) -> dict[str, np.ndarray]:
    """Values of symbols, (n,) or (1,) of ``known`` ones: of the cards, and sizes evenly on a log scale."""
    random, values = np.random.default_rng(0), {}
    cards = np.array([card.limits for card in CARDS.values()])
    card = cards[random.integers(0, len(cards), n)]
    for name in names:
        if name in MACHINE:
            values[name] = card[:, MACHINE.index(name)]
        else:
            size = np.exp(random.uniform(0, np.log(SYMBOLS[name].most + 1), n)).astype(np.int64)
            values[name] = np.where(random.random(n) < 0.3, 0, size) if SYMBOLS[name].often_zero else size
    values |= {name: np.array([value]) for name, value in known.items() if name in names}
    if "R_M" in names and "R_M" not in known:
        values["R_M"] = np.array([REGISTERS])
    return values
