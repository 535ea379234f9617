"""``Population``: many expressions in postfix form, as flat immutable arrays.

``parse`` and ``generate`` make one, ``lower`` makes programs of it.

=============  ========  ==========  ==================================================
array          dtype     shape       what it holds
=============  ========  ==========  ==================================================
``kinds``      uint8     n_tokens    CONSTANT, VARIABLE, PARAMETER or OPERATOR
``values``     uint64    n_tokens    a constant's float64 bits, an index from 0, or an
                                     operator's code
``offsets``    int64     n_exprs+1   expression i is tokens ``offsets[i]:offsets[i+1]``
``n_params``   int32     n_exprs     parameters of each expression: its largest index + 1
``valid``      bool      n_exprs     False: could not be read; has no tokens, gives nan
=============  ========  ==========  ==================================================
"""

from __future__ import annotations

import functools
import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from exprkit.errors import (
    PopulationError,
    SelectionError,
    brief,
    checks_methods,
    listed,
    number_of,
    one_of,
    shortened,
    whole_number,
)
from exprkit.operators import defined, ops
from exprkit.runtime import files
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import CONSTANT, MAX_INDEX, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, Words

if TYPE_CHECKING:
    import os

    from exprkit.expressions.expression import Expression
    from exprkit.text.formulas import Expanded
    from exprkit.text.parse_errors import Fault, Faults

SHOWN = 8  # rows of the picture in a notebook
LONGEST = 120  # characters of an expression there
SELECTS = "a population takes a number, a slice, a list of numbers or a mask"


def known_arity(formulas: bool = True) -> np.ndarray:
    """Operands of every operator that a population may have, by code, as ``checks.unchecked`` takes it.

    The user's own are among them, those that are formulas only where ``formulas`` may stand.
    """
    from exprkit.expressions import checks

    arity = (defined.arity() if formulas else ops.ARITY).astype(np.int32)
    arity[[row.code for row in ops.INTERNAL]] = 0
    if packed := [row.code for row in defined.functions() if row.packed]:
        arity[packed] |= checks.TAKES_PACKED
        arity[ops.PAIR_OF] = checks.PACKS | int(ops.ARITY[ops.PAIR_OF])
    return arity


@checks_methods
class Population:
    """An ordered batch of expressions (see the module's table for the arrays).

    Parameters
    ----------
    kinds, values, offsets : array_like
        as in the table; copied, for compiled loops trust what has been checked here.
    variables, parameters : tuple of str, optional
        names; None for ``x1, x2, …`` and ``p1, p2, …``.
    valid : array_like of bool, optional
        default: every expression that has tokens.

    Attributes
    ----------
    n_tokens : int64 array, shape (n_exprs,)
    max_params : int
        the largest of ``n_params``
    n_vars : int
        columns that the data must have: the number of names, or else the largest index used
    errors : mapping of int to str
        why the expressions that are not valid could not be read

    Raises
    ------
    PopulationError
        for arrays that are no population; the message shows the listing with the bad token marked.

    Examples
    --------
    >>> import exprkit as ek
    >>> pop = ek.parse(["x1 + 2.5", "p1 * x2"])
    >>> len(pop), pop.n_vars, pop.n_params.tolist()
    (2, 2, [0, 1])
    """

    shares = False  # equal parts of an expression are to be computed once: of what ``expanded`` has written out

    def __init__(
        self,
        kinds: Any,
        values: Any,
        offsets: Any,
        *,
        variables: Iterable[str] | None = None,
        parameters: Iterable[str] | None = None,
        valid: Any = None,
    ) -> None:
        arrays = _own(kinds, np.uint8, "kinds"), _own(values, np.uint64, "values"), _own(offsets, np.int64, "offsets")
        self._fill(*arrays, variables, parameters, None if valid is None else _own(valid, np.bool_, "valid"))

    def _fill(
        self,
        kinds: np.ndarray,
        values: np.ndarray,
        offsets: np.ndarray,
        variables: Iterable[str] | None,
        parameters: Iterable[str] | None,
        valid: np.ndarray | None = None,
    ) -> None:
        self.kinds, self.values, self.offsets = map(_read_only, (kinds, values, offsets))
        self.valid = _read_only(offsets[1:] > offsets[:-1] if valid is None else valid)
        self.variables, self.parameters = names_of("variables", variables), names_of("parameters", parameters)
        self._faults: dict[int, Fault] = {}  # the parser's, by index
        self.verify()

    @classmethod
    def _adopt(
        cls,
        kinds: np.ndarray,
        values: np.ndarray,
        offsets: np.ndarray,
        variables: Words = None,
        parameters: Words = None,
        faults: dict[int, Fault] | None = None,
    ) -> Population:
        """Arrays of the right kind that nobody else has, taken over without a copy."""
        population = cls.__new__(cls)
        population._fill(kinds, values, offsets, variables, parameters)
        population._faults = faults or {}
        return population

    @classmethod
    def of(cls, expressions: Sequence[Expression]) -> Population:
        """A population of expressions over x1, x2, … and p1, p2, …, whatever names theirs have.

        Parameters
        ----------
        expressions : sequence of Expression
            In the order of the population.

        Examples
        --------
        >>> import exprkit as ek
        >>> ek.Population.of([ek.parse("x1 + p1")[0], ek.parse("exp(x2)")[0]]).texts()
        ['x1 + p1', 'exp(x2)']
        """
        if not expressions:
            return cls([], [], [0])
        offsets = np.zeros(len(expressions) + 1, np.int64)
        np.cumsum([len(expression.kinds) for expression in expressions], out=offsets[1:])
        kinds = np.concatenate([expression.kinds for expression in expressions])
        return cls._adopt(kinds, np.concatenate([expression.values for expression in expressions]), offsets)

    @classmethod
    def concatenate(cls, populations: Iterable[Population]) -> Population:
        """All expressions of the populations, one population after the other.

        Raises
        ------
        PopulationError
            where their variables or parameters have different names.

        Examples
        --------
        >>> ek.Population.concatenate([ek.parse("x1 + 1"), ek.parse("x2")]).texts()
        ['x1 + 1', 'x2']
        """
        from exprkit.expressions.expression import common_names

        parts = listed(populations)
        for part in [populations] if parts is None else parts:
            if not isinstance(part, Population):
                raise PopulationError(f"concatenate takes a list of populations, and there is a {type(part).__name__}")
        if not parts:
            return cls([], [], [0])
        variables = common_names(((part.variables, part._uses(VARIABLE)) for part in parts), VARIABLE)
        parameters = common_names(((part.parameters, part._uses(PARAMETER)) for part in parts), PARAMETER)
        starts = np.cumsum([0, *(len(part.kinds) for part in parts)])
        offsets = [part.offsets[:-1] + start for part, start in zip(parts, starts, strict=False)]
        population = cls._adopt(
            np.concatenate([part.kinds for part in parts]),
            np.concatenate([part.values for part in parts]),
            np.concatenate([*offsets, starts[-1:]]),
            variables,
            parameters,
        )
        done = 0
        for part in parts:
            population._faults.update({done + index: fault for index, fault in part._faults.items()})
            done += len(part)
        return population

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Population:
        """Read the file at ``path`` that ``save`` wrote; errors are those of ``exprkit.load``.

        >>> ek.parse(["x1 + 1", "x2"]).save("population.npz")
        >>> ek.Population.load("population.npz").texts()
        ['x1 + 1', 'x2']
        """
        from exprkit.expressions import population_file

        with files.opened(path, "saved population", population_file.OF_POPULATION) as arrays:
            return cls.from_arrays(arrays)

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> Population:
        """The population among the arrays of a file."""
        from exprkit.expressions import population_file

        return cls(**population_file.fields_of(arrays))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the population to ``path`` as npz: whole or not at all, and without pickle.

        The texts of expressions that could not be read are not kept.

        >>> ek.parse(["x1 + 1", "x2"]).save("population.npz")
        """
        files.write_arrays(path, self.to_arrays())

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the population in a file."""
        from exprkit.expressions import population_file

        return population_file.arrays_of(self)

    def verify(self) -> None:
        """Check every token; called for every population that is made.

        Raises
        ------
        PopulationError
        """
        from exprkit.expressions import checks
        from exprkit.expressions.expression import checked_names

        checked_names(self.variables, self.parameters)
        if self.valid.shape != (max(len(self.offsets) - 1, 0),) or self.kinds.shape != self.values.shape:
            raise PopulationError(
                f"kinds {self.kinds.shape} and values {self.values.shape} must be equally long, "
                f"offsets {self.offsets.shape} one longer than valid {self.valid.shape}"
            )
        limits = [MAX_INDEX if names is None else len(names) for names in (self.variables, self.parameters)]
        arrays = checks.unchecked(self.kinds, self.values, self.offsets, self.valid, known_arity(), *limits)
        problem, index, token, n_vars = checks.check(arrays)
        if problem != checks.FINE:
            raise PopulationError(self._complaint(problem, index, token, limits))
        self.n_params = _read_only(arrays.n_params)
        self.n_vars = int(n_vars) if self.variables is None else len(self.variables)

    def _complaint(self, problem: int, index: int, token: int, limits: list[int]) -> str:
        from exprkit.expressions import checks

        words = checks.WORDS[problem].format(len(self.kinds), *limits)
        if problem == checks.OFFSETS:
            return words
        from exprkit.expressions.expression import Expression
        from exprkit.text.listing import listing

        span = slice(self.offsets[index], self.offsets[index + 1])
        return f"expression {index}: {words}\n{listing(Expression(self.kinds[span], self.values[span]), token)}"

    def _uses(self, kind: int) -> bool:
        return bool((self.kinds == kind).any())

    # ── as a sequence ──

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int | np.integer[Any]) -> Expression: ...
    @overload
    def __getitem__(self, index: slice | np.ndarray | list[int] | list[bool]) -> Population: ...
    def __getitem__(self, index: Any) -> Expression | Population:
        """An Expression for a number; a Population for a slice, an array of numbers or a mask."""
        number = whole_number(index)
        return self._take(self.order_of(index)) if number is None else self._expression(number)

    def _expression(self, index: int) -> Expression:
        from exprkit.expressions.expression import Expression

        if not -len(self) <= index < len(self):
            raise SelectionError(f"there is no expression {index} in a population of {len(self):,}")
        index %= len(self)
        span = slice(self.offsets[index], self.offsets[index + 1])
        return Expression(self.kinds[span], self.values[span], self.variables, self.parameters)

    @property
    def parameter_names(self) -> list[str]:
        """The names of the parameters; where they have none, p1, p2, … of those that there are."""
        return list(self.parameters or (f"{NUMBERED[PARAMETER]}{i + 1}" for i in range(self.max_params)))

    def order_of(self, index: Any) -> np.ndarray:
        """The numbers of the expressions that ``index`` (a slice, an array or a mask) selects: int64 (n,)."""
        if isinstance(index, slice):
            return np.arange(*_steps(index).indices(len(self)))
        try:
            chosen = np.asarray(index)
        except ValueError:
            raise SelectionError(SELECTS) from None
        if chosen.dtype == bool:
            if chosen.shape != (len(self),):
                raise SelectionError(f"the mask has shape {chosen.shape}, but there are {len(self):,} expressions")
            return np.flatnonzero(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise SelectionError(SELECTS)
        outside = chosen[(chosen < -len(self)) | (chosen >= len(self))] if chosen.size else chosen
        if len(outside):
            raise SelectionError(f"there is no expression {outside[0]} in a population of {len(self):,}")
        order = chosen.astype(np.int64)
        return np.where(order < 0, order + len(self), order)

    def _take(self, order: np.ndarray) -> Population:
        from exprkit.expressions import checks

        population = Population._adopt(
            checks.gather(self.kinds, self.offsets, order),
            checks.gather(self.values, self.offsets, order),
            np.concatenate([[0], np.cumsum(self.n_tokens[order])]).astype(np.int64),
            self.variables,
            self.parameters,
        )
        if self._faults:
            population._faults = {
                new: self._faults[old] for new, old in enumerate(order.tolist()) if old in self._faults
            }
        return population

    def part(self, begin: int, end: int) -> Population:
        """Expressions ``begin`` to ``end``, neither copied nor checked again; ``n_vars`` stays that of all."""
        if (begin, end) == (0, len(self)):
            return self
        first, last = self.offsets[begin], self.offsets[end]
        part = Population.__new__(Population)
        part.kinds, part.values = self.kinds[first:last], self.values[first:last]
        part.offsets = _read_only(self.offsets[begin : end + 1] - first)
        part.valid, part.n_params = self.valid[begin:end], self.n_params[begin:end]
        part.variables, part.parameters, part.n_vars = self.variables, self.parameters, self.n_vars
        part.shares, part._faults = self.shares, {i - begin: f for i, f in self._faults.items() if begin <= i < end}
        return part

    def __iter__(self) -> Iterator[Expression]:
        return map(self._expression, range(len(self)))

    def __add__(self, other: Population) -> Population:
        return Population.concatenate([self, other]) if isinstance(other, Population) else NotImplemented

    # ── as a value ──

    def _state(self) -> tuple[Any, ...]:
        return self.variables, self.parameters, self.kinds, self.values, self.offsets

    def __eq__(self, other: object) -> bool:
        """True if all tokens (constants bit by bit) and names are the same."""
        if not isinstance(other, Population):
            return NotImplemented
        return all(
            np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
            for a, b in zip(self._state(), other._state(), strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in self._state()))

    def __getstate__(self) -> dict[str, Any]:
        """For pickle: the definitions of the user's operators go along."""
        return self.__dict__ | {"analyses": {}, "definitions": self.definitions()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickle or copy; its arrays may lie in a buffer or a file that others can write to."""
        definitions = state.pop("definitions", ())
        if definitions:
            from exprkit.text.define import restored

            state["values"] = restored(state["kinds"], state["values"], definitions)
        self.__dict__.update(state)
        for name in ("kinds", "values", "offsets", "valid", "n_params"):
            setattr(self, name, _read_only(np.array(state[name])))

    # ── looking at it ──

    @property
    def n_tokens(self) -> np.ndarray:
        return np.diff(self.offsets)

    @functools.cached_property
    def longest(self) -> int:
        """The most tokens of an expression."""
        return int(self.n_tokens.max(initial=0))

    @functools.cached_property
    def all_valid(self) -> bool:
        return bool(self.valid.all())

    @functools.cached_property
    def has_wide_constants(self) -> bool:
        """True if a constant is no float32."""
        numbers = self.values[self.kinds == CONSTANT].view(np.float64)
        with np.errstate(over="ignore"):
            return bool((numbers.astype(np.float32) != numbers).any())

    @functools.cached_property
    def max_params(self) -> int:
        return int(self.n_params.max(initial=0))

    @functools.cached_property
    def analyses(self) -> dict[str, Any]:
        """Results of passes over its tokens, by name: these never change, so that each is made once."""
        return {}

    @property
    def errors(self) -> Faults:
        from exprkit.text.parse_errors import Faults

        return Faults(self._faults)

    def structures(self) -> tuple[np.ndarray, np.ndarray]:
        """Which expressions are the same but for the values of their constants.

        Returns
        -------
        representatives : int64 array, shape (n_structures,)
            the first expression of each structure, in ascending order
        inverse : int64 array, shape (n_exprs,)
            ``representatives[inverse[i]]`` has the structure of expression i

        Examples
        --------
        >>> ek.parse(["x1 + 1", "x1 + 2", "x1"]).structures()
        (array([0, 2]), array([0, 0, 1]))
        """
        from exprkit.expressions import duplicates

        return duplicates.unique(self, alike=[CONSTANT])

    def unique(self) -> tuple[np.ndarray, np.ndarray]:
        """Which expressions are equal up to the order of operands, as ``x1 + x2`` and ``x2 + x1`` are.

        Operands of commutative operators may be swapped, and nothing else: ``x1 + (x2 + x3)`` is not
        ``(x1 + x2) + x3``.  Constants are compared bit by bit, variables and parameters by index;
        expressions that are not valid are all equal.

        Returns
        -------
        representatives : int64 array, shape (n_unique,)
            the first of each that are equal, in ascending order
        inverse : int64 array, shape (n_exprs,)
            ``representatives[inverse[i]]`` equals expression i

        Examples
        --------
        >>> ek.parse(["x1 + x2", "x2 + x1", "x1"]).unique()
        (array([0, 2]), array([0, 0, 1]))
        """
        from exprkit.expressions import duplicates

        return duplicates.unique(self)

    def duplicates(self) -> np.ndarray:
        """Which expressions equal an earlier one, as ``unique`` compares them.

        Returns
        -------
        bool array, shape (n_exprs,)
            ``pop[~pop.duplicates()]`` has each expression once

        Examples
        --------
        >>> ek.parse(["x1 + x2", "x2 + x1", "x1"]).duplicates()
        array([False,  True, False])
        """
        from exprkit.expressions import duplicates

        return duplicates.first_equals(self) != np.arange(len(self))

    def diff(self, name: str, errors: str = "raise") -> Population:
        """The derivative of every expression by a variable or a parameter, as a population.

        Parameters
        ----------
        name : str
            ``"x1"``, ``"p2"``, or one of the population's own names.
        errors : "raise" or "mask"
            "raise": an expression without a derivative (``digamma``, or one that becomes too long) is an
            error.  "mask": such expressions are not ``valid``, and ``errors`` says why.

        Returns
        -------
        Population
            Of the same length and names.  Where ``abs``, ``min``, ``floor`` and the like have no
            derivative it is what their row in ``ops`` says; terms that are 0 are left out even where
            their other factor is inf or nan.

        Raises
        ------
        ArgumentError
            If there is no such variable or parameter.
        PopulationError
            With ``errors="raise"``, where there is no derivative.

        Examples
        --------
        >>> ek.parse(["p1 * x1^2", "exp(x1)"]).diff("x1").texts()
        ['p1 * (2 * x1)', 'exp(x1)']
        """
        from exprkit.expressions.differentiate import differentiate, first_problem

        one_of("errors", errors, ("raise", "mask"))
        kinds, values, offsets, missing = differentiate(self.expanded(), name)
        kinds, values, offsets = defined.unpacked(kinds, values, offsets)
        if errors == "raise" and missing:
            raise PopulationError(first_problem(missing, str(self[min(missing)])))
        faults = dict(sorted({**self._faults, **missing}.items()))
        return Population._adopt(kinds, values, offsets, self.variables, self.parameters, faults)

    def definitions(self) -> tuple[defined.Saved, ...]:
        """The operators of the user's own that it uses, as files keep them: code, text, LaTeX and domain of each."""
        return defined.saved(self.user_operators())

    def depths(self) -> np.ndarray:
        """The depth of each expression, int64: operators above its deepest leaf, 0 of ``x1``, 2 of ``exp(-x1)``.

        >>> ek.parse(["x1", "exp(-x1)"]).depths()
        array([0, 2])
        """
        from exprkit.expressions import checks

        return checks.depths(self.kinds, self.values, self.offsets, defined.arity())

    def user_operators(self) -> list[int]:
        """The codes of user-defined operators among its tokens, a list of int."""
        return defined.codes_in(self.kinds, self.values, OPERATOR)

    def expanded(self) -> Population:
        """The same population with every user-defined operator replaced by its formula; this is what backends lower.

        Raises
        ------
        PopulationError
            where an expression becomes too long.
        """
        if not defined.has_formulas(self.user_operators()):
            return self
        from exprkit.text import formulas

        expansion = formulas.expanded(self.kinds, self.values, self.offsets, formulas.user_formulas())
        return self._written_out(
            expansion, "its operators written out by their formulas", self.variables, self.parameters
        )

    def put_into(self, kinds: np.ndarray, values: np.ndarray) -> Population:
        """Every expression as the operand of a formula with tokens ``kinds`` and ``values`` (``text.formulas``).

        Raises
        ------
        PopulationError
            where an expression becomes too long.
        """
        from exprkit.text import formulas

        expansion = formulas.applied(self.kinds, self.values, self.offsets, (kinds, values))
        return self._written_out(expansion, "what is computed of it", None, None)

    def _written_out(self, expansion: Expanded, what: str, variables: Words, parameters: Words) -> Population:
        """The population of these tokens; its lowering computes once what they hold more than once."""
        if expansion.too_long >= 0:
            text = shortened(str(self[expansion.too_long]), LONGEST)
            raise PopulationError(
                f"expression {expansion.too_long} ({text}): with {what} it has more than {MAX_TOKENS:,} tokens"
            )
        population = Population._adopt(
            expansion.kinds, expansion.values, expansion.offsets, variables, parameters, self._faults
        )
        population.shares = expansion.shares
        return population

    def texts(self) -> list[str]:
        """All expressions as text that ``parse`` reads back; empty for those that are not valid.

        >>> ek.parse(["x1+2*x2", "exp( x1 )"]).texts()
        ['x1 + 2 * x2', 'exp(x1)']
        """
        from exprkit.text.printer import texts

        return texts(self)

    def __repr__(self) -> str:
        bad = len(self) - int(self.valid.sum())
        counts = {"expression": len(self), "token": len(self.kinds), "variable": self.n_vars}
        words = ", ".join(number_of(n, what) for what, n in counts.items())
        more = f", {bad:,} not valid" if bad else ""
        return f"<Population: {words}, up to {number_of(self.max_params, 'parameter')}{more}>"

    def _repr_html_(self) -> str:
        first = self[:SHOWN]
        rows: list[tuple[Any, ...]] = []
        for index, text in enumerate(first.texts()):
            shown = f"<code>{html.escape(shortened(text, LONGEST))}</code>" if text else self._reason_html(index)
            rows.append((index, shown, first.n_tokens[index], first.n_params[index]))
        if len(self) > SHOWN:
            rows.append(("…", f"{len(self) - SHOWN:,} more", "", ""))
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        head = "<tr><th></th><th>expression</th><th>tokens</th><th>parameters</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table><thead>{head}</thead><tbody>{body}</tbody></table>"

    def _reason_html(self, index: int) -> str:
        reason = self.errors[index].splitlines()[0] if index in self.errors else "not valid"
        return f"<em>{html.escape(reason)}</em>"


def names_of(what: str, words: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names as they are kept."""
    if words is None:
        return None
    names = listed(words)
    if names is None or not all(isinstance(name, str) for name in names):
        raise PopulationError(f"{what} must be a list of names, not {brief(words)}")
    return names


def _steps(chosen: slice) -> slice:
    if any(number is not None and whole_number(number) is None for number in (chosen.start, chosen.stop, chosen.step)):
        raise SelectionError(SELECTS)
    if chosen.step == 0:
        raise SelectionError("a slice's step can't be 0")
    return chosen


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _own(data: Any, dtype: type, name: str) -> np.ndarray:
    """A copy of the data as an array of this kind."""
    array = _exact(data)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise PopulationError(f"{name} must be a list of whole numbers, not {array.dtype} of shape {array.shape}")
    converted: np.ndarray = array.astype(dtype, order="C")
    if array.dtype != dtype and not np.array_equal(converted, array):
        raise PopulationError(f"{name} holds numbers that do not fit into {np.dtype(dtype)}")
    return converted


def _exact(data: Any) -> np.ndarray:
    """As an array, without the rounding of NumPy, which makes float64 of 2**63 beside 0."""
    try:
        array = np.asarray(data)
    except ValueError:
        return np.empty((0, 0), object)
    rounded = array.dtype.kind == "f" and isinstance(data, (list, tuple))
    if rounded and all(isinstance(number, (int, np.integer)) for number in data) and min(data, default=-1) >= 0:
        return np.array(data, np.uint64)
    return array
