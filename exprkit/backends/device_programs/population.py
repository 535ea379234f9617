"""``DevicePopulation``: a population whose tokens lie on a GPU, for searches that breed there.

In: arrays on the device, of CuPy or anything with DLPack.  Out: a ``DevicePopulation``, checked there by the lines that
check a ``Population``; the tokens never come to the host.  What works on the device is imported when it is used:
every evaluator imports this module, and most never see a GPU.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np

from exprkit.backends.device_memory import Allocation, ArraySpec, Recent
from exprkit.errors import BackendError, PopulationError
from exprkit.expressions.expression import checked_names
from exprkit.expressions.population import Population, known_arity, names_of
from exprkit.operators import defined
from exprkit.operators.defined import table_of_rows
from exprkit.text.tokens import MAX_INDEX, MAX_TOKENS, OPERATOR

PARTS = {
    "kinds": ArraySpec(np.uint8),
    "values": ArraySpec(np.uint64),
    "offsets": ArraySpec(np.int64),
    "n_params": ArraySpec(np.int32),
}
THREADS = 128  # of a block


class DevicePopulation:
    """An ordered batch of expressions on a GPU: the arrays of a ``Population``, there.

    Parameters
    ----------
    kinds, values, offsets : arrays on the device
        uint8 (n_tokens,), uint64 (n_tokens,) and int64 (n_exprs + 1,), as ``Population`` has them; copied.  An
        expression without tokens is one that could not be made: it gives nan.
    variables, parameters : tuple of str, optional
        names; None for ``x1, x2, …`` and ``p1, p2, …``.

    Attributes
    ----------
    kinds, values, offsets : CuPy arrays
    n_params : int32 CuPy array, shape (n_exprs,)
        parameters of each expression: its largest index + 1
    device
        the GPU that they lie on
    max_params, n_vars, longest : int
        the largest of ``n_params``; columns that the data must have; the most tokens of an expression
    has_wide_constants : bool
        whether a constant is no float32

    Raises
    ------
    PopulationError
        for arrays that are no population; the message is ``Population``'s and names the first bad expression.
    BackendError
        if there is no GPU to use.

    Examples
    --------
    >>> import exprkit as ek
    >>> from exprkit.backends.gpu import device
    >>> pop = None if device.missing() else ek.DevicePopulation.of(ek.parse(["x1 + 2.5", "p1 * x2"]))
    >>> pop and (len(pop), pop.n_vars, pop.max_params) or (2, 2, 1)
    (2, 2, 1)
    """

    def __init__(
        self,
        kinds: Any,
        values: Any,
        offsets: Any,
        *,
        variables: Iterable[str] | None = None,
        parameters: Iterable[str] | None = None,
        device: Any = None,
    ) -> None:
        self.device = device or _device()
        self.variables, self.parameters = names_of("variables", variables), names_of("parameters", parameters)
        checked_names(self.variables, self.parameters)
        given = {"kinds": kinds, "values": values, "offsets": offsets}
        self._check(*(self._adopted(name, PARTS[name].dtype, array) for name, array in given.items()))

    @classmethod
    def of(cls, pop: Population, device: Any = None) -> DevicePopulation:
        """A copy of the host population ``pop`` on ``device``, with user-defined formulas expanded."""
        pop = pop.expanded()
        xp = (device or _device()).xp
        arrays = map(xp.asarray, (pop.kinds, pop.values, pop.offsets))
        return cls(*arrays, variables=pop.variables, parameters=pop.parameters, device=device)

    def to_host(self) -> Population:
        """An equal ``Population`` in the host's memory."""
        from exprkit.backends.gpu import device as gpu

        kinds, values, offsets = gpu.fetched_together((self.kinds, self.values, self.offsets))
        return Population._adopt(kinds, values, offsets, self.variables, self.parameters)

    def user_operators(self) -> list[int]:
        """The codes of operators of the user's own, which have no formula, ascending."""
        return defined.codes_in(self.kinds, self.values, OPERATOR)

    parameter_names = Population.parameter_names

    def __len__(self) -> int:
        return self._n_exprs

    @functools.cached_property
    def kinds(self) -> Any:
        """uint8 (n_tokens,)"""
        return self._block.array("kinds", self._n_tokens)

    @functools.cached_property
    def values(self) -> Any:
        """uint64 (n_tokens,)"""
        return self._block.array("values", self._n_tokens)

    @functools.cached_property
    def offsets(self) -> Any:
        """int64 (n_exprs + 1,)"""
        return self._block.array("offsets", self._n_exprs + 1)

    @functools.cached_property
    def n_params(self) -> Any:
        """int32 (n_exprs,)"""
        return self._block.array("n_params", self._n_exprs)

    @property
    def addresses(self) -> dict[str, int]:
        """Where these arrays are."""
        return self._block.addresses

    @property
    def n_tokens(self) -> int:
        """Tokens of all expressions."""
        return self._n_tokens

    @property
    def valid(self) -> Any:
        """bool (n_exprs,), on the device: False for expressions without tokens, which give nan."""
        return self.offsets[1:] > self.offsets[:-1]

    def __repr__(self) -> str:
        return f"<DevicePopulation: {len(self):,} expressions, {self.n_tokens:,} tokens, {self.n_vars} variables>"

    def _adopted(self, name: str, dtype: np.dtype, array: Any) -> Any:
        """An array on the device, which must be of this kind, as one of ours."""
        adopted = self.device.adopt(array)
        if adopted is None:
            raise PopulationError(f"{name} must lie on the device, and is {type(array).__name__}: see Population")
        if self.device.xp is not np and (index := adopted.device.id) != self.device.index:
            raise PopulationError(f"{name} lies on GPU {index}, and the current one is {self.device.index}")
        if adopted.dtype != dtype or adopted.ndim != 1:
            raise PopulationError(
                f"{name} must be {dtype} of one dimension, not {adopted.dtype} of shape {adopted.shape}"
            )
        return adopted if adopted.flags.c_contiguous else self.device.xp.ascontiguousarray(adopted)

    def _check(self, kinds: Any, values: Any, offsets: Any) -> None:
        """Copy and check every token; gets all attributes."""
        if len(kinds) != len(values) or not len(offsets):
            self._complain(kinds, values, offsets)
        device, self._n_tokens, self._n_exprs = self.device, len(kinds), len(offsets) - 1
        lengths = self._n_tokens, self._n_tokens, self._n_exprs + 1, self._n_exprs
        self._block = Allocation(device, PARTS, lengths)
        own, pointer = self._block.addresses, device.pointer
        most = [MAX_INDEX if names is None else len(names) for names in (self.variables, self.parameters)]
        bad, n_vars, self.max_params, self.longest, n_unreadable, n_wide = _checked(
            device,
            most,
            n_exprs=self._n_exprs,
            n_tokens=self._n_tokens,
            kinds=pointer(kinds),
            values=pointer(values),
            offsets=pointer(offsets),
            own_kinds=own["kinds"],
            own_values=own["values"],
            own_offsets=own["offsets"],
            n_params=own["n_params"],
        )
        if bad:
            self._complain(kinds, values, offsets)
        self.n_vars = n_vars if self.variables is None else len(self.variables)
        self.all_valid, self.has_wide_constants = not n_unreadable, bool(n_wide)

    def _complain(self, *arrays: Any) -> None:
        """The host's error, which names the first bad expression."""
        from exprkit.backends.gpu import device as gpu

        Population(*map(gpu.fetched, arrays), variables=self.variables, parameters=self.parameters)
        raise PopulationError("there is an operator defined by a formula: DevicePopulation.of(pop) expands it")


def on_host(pop: Population | DevicePopulation) -> Population:
    """A population in the host's memory."""
    return pop.to_host() if isinstance(pop, DevicePopulation) else pop


def _device() -> Any:
    from exprkit.backends.gpu import device as gpu

    missing = gpu.missing()
    if missing:
        raise BackendError(f"a DevicePopulation needs a GPU: {missing}")
    return gpu.current()


@functools.cache
def checks_source() -> str:
    """The CUDA C of the check of tokens."""
    from exprkit.backends.device_programs.translate import text_of
    from exprkit.expressions.checks import problem_of

    return text_of("checks.cu", [problem_of])


class _Checking:
    """A check of tokens on a device; it is for one population at a time."""

    def __init__(self, device: Any, most_variables: int, most_parameters: int) -> None:
        from exprkit.backends.gpu import layout
        from exprkit.backends.gpu.launch import field_address, fill
        from exprkit.backends.precision import precision
        from exprkit.expressions.checks import unchecked

        nothing, arity = np.empty(0, np.uint8), known_arity(formulas=False)
        host = unchecked(nothing, nothing, nothing, nothing, arity, most_variables, most_parameters)
        operands, limits = map(device.xp.asarray, (host.operands, host.limits))
        length = layout.CHECKED + 1
        summary, self._told = device.xp.zeros(length, np.int64), device.locked((length,), np.int64)
        self._keep = operands, limits, summary
        self._arguments, self._calls = layout.CheckArguments(), Recent()
        self._told[-1] = 0
        known = {"operands": operands, "limits": limits, "summary": summary, "told": self._told}
        fill(self._arguments, {**known, "max_tokens": MAX_TOKENS}, device)
        self._kernel = device.kernel("check_tokens", precision("ieee"), checks_source(), LANES=device.lanes)
        self._threads = 1 if device.lanes == 1 else THREADS
        self._wait = device.arriving(device.pointer(self._told[-1:]), field_address(self._arguments, "ticket"))

    def __call__(self, **fields: int) -> list[int]:
        """The summary, of the kernel's arguments."""
        for name, number in fields.items():
            setattr(self._arguments, name, number)
        self._arguments.ticket += 1
        blocks, prepare = fields["n_exprs"] // self._threads + 1, self._kernel.prepare
        call = self._calls.made(
            blocks, lambda: prepare((blocks, 1), self._threads, 0, self._arguments).then(self._wait)
        )
        call()
        return self._told[:-1].tolist()


@table_of_rows
def _idle(device: Any, most_variables: int, most_parameters: int) -> list[_Checking]:
    """Checks of tokens with these limits that no thread uses now."""
    return []


def _checked(device: Any, most: list[int], **fields: int) -> list[int]:
    """The summary of a population, by a check that no other thread uses."""
    idle = _idle(device, *most)
    try:
        check = idle.pop()
    except IndexError:
        check = _Checking(device, *most)
    found = check(**fields)
    idle.append(check)
    return found
