"""``DevicePopulation``: a population whose tokens lie on a GPU, for searches that breed there.

In: arrays on the device, of CuPy or anything with DLPack.  Out: a ``DevicePopulation``, checked there by the lines that
check a ``Population``; the tokens never come to the host.  What works on the device is imported when it is used:
every evaluator imports this module, and most never see a GPU.

    >>> import exprkit as ek
    >>> from exprkit.backends.gpu import device
    >>> pop = None if device.missing() else ek.DevicePopulation.of(ek.parse(["x1 + 2.5", "p1 * x2"]))
    >>> pop and (len(pop), pop.n_vars, pop.max_params) or (2, 2, 1)
    (2, 2, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from exprkit.errors import BackendError, PopulationError
from exprkit.expressions.expression import checked_names
from exprkit.expressions.population import Population, names_of
from exprkit.operators import defined, ops
from exprkit.operators.defined import table_of_rows
from exprkit.text.tokens import MAX_INDEX, MAX_TOKENS, OPERATOR


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
        given = self._adopted("kinds", np.uint8, kinds), self._adopted("values", np.uint64, values)
        self._check(*given, self._adopted("offsets", np.int64, offsets))

    @classmethod
    def of(cls, pop: Population, device: Any = None) -> DevicePopulation:
        """A copy of the host population ``pop`` on ``device``, with user-defined formulas expanded."""
        pop = pop.expanded()
        if defined.has_packed(pop.user_operators()):
            raise PopulationError("a function of three operands does not run on a GPU: take a Population and the CPU")
        xp = (device or _device()).xp
        arrays = map(xp.asarray, (pop.kinds, pop.values, pop.offsets))
        return cls(*arrays, variables=pop.variables, parameters=pop.parameters, device=device)

    def to_host(self) -> Population:
        """The same as a ``Population``."""
        from exprkit.backends.gpu import device as gpu

        kinds, values, offsets = gpu.fetched_together((self.kinds, self.values, self.offsets))
        return Population._adopt(kinds, values, offsets, self.variables, self.parameters)

    def user_operators(self) -> list[int]:
        """The codes of operators of the user's own, which have no formula, ascending."""
        return defined.codes_in(self.kinds, self.values, OPERATOR)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def valid(self) -> Any:
        """bool (n_exprs,), on the device: False for expressions without tokens, which give nan."""
        return self.offsets[1:] > self.offsets[:-1]

    def __repr__(self) -> str:
        return f"<DevicePopulation: {len(self):,} expressions, {len(self.kinds):,} tokens, {self.n_vars} variables>"

    def _adopted(self, name: str, dtype: type, array: Any) -> Any:
        """An array on the device, which must be of this kind, as one of ours."""
        adopted = self.device.adopt(array)
        if adopted is None:
            raise PopulationError(f"{name} must lie on the device, and is {type(array).__name__}: see Population")
        if self.device.xp is not np and (index := adopted.device.id) != self.device.index:
            raise PopulationError(f"{name} lies on GPU {index}, and the current one is {self.device.index}")
        if adopted.dtype != dtype or adopted.ndim != 1:
            raise PopulationError(
                f"{name} must be {np.dtype(dtype)} of one dimension, not {adopted.dtype} of shape {adopted.shape}"
            )
        return adopted if adopted.flags.c_contiguous else self.device.xp.ascontiguousarray(adopted)

    def _check(self, kinds: Any, values: Any, offsets: Any) -> None:
        """Copy and check every token; gets all attributes."""
        if len(kinds) != len(values) or not len(offsets):
            self._complain(kinds, values, offsets)
        device, empty, n_exprs = self.device, self.device.xp.empty, len(offsets) - 1
        self.kinds, self.values = empty(len(kinds), np.uint8), empty(len(kinds), np.uint64)
        self.offsets, self.n_params = empty(n_exprs + 1, np.int64), empty(n_exprs, np.int32)
        most = [MAX_INDEX if names is None else len(names) for names in (self.variables, self.parameters)]
        bad, n_vars, self.max_params, self.longest, n_unreadable, n_wide = _check(device, *most)(
            n_exprs, kinds=kinds, values=values, offsets=offsets, n_tokens=len(kinds), own_kinds=self.kinds,
            own_values=self.values, own_offsets=self.offsets, n_params=self.n_params,
        )  # fmt: skip
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
    """The current device."""
    from exprkit.backends.gpu import device as gpu

    missing = gpu.missing()
    if missing:
        raise BackendError(f"a DevicePopulation needs a GPU: {missing}")
    return gpu.current()


@table_of_rows
def _check(device: Any, most_variables: int, most_parameters: int) -> Callable[..., list[int]]:
    """What checks tokens on a device: of the number of expressions and the kernel's arguments the summary."""
    from exprkit.backends.device_programs.translate import text_of
    from exprkit.backends.gpu import layout
    from exprkit.backends.gpu.launch import THREADS, fill
    from exprkit.backends.precision import precision
    from exprkit.expressions.checks import problem_of, unchecked

    nothing, arity = np.empty(0, np.uint8), ops.ARITY.copy()
    arity[[row.code for row in (*ops.INTERNAL, *(one for one in defined.functions() if one.packed))]] = 0
    host = unchecked(nothing, nothing, nothing, nothing, arity, most_variables, most_parameters)
    operands, limits = map(device.xp.asarray, (host.operands, host.limits))
    threads = 1 if device.lanes == 1 else THREADS
    text = text_of("checks.cu", [problem_of])
    kernel = device.kernel("check_tokens", precision("ieee"), text, LANES=device.lanes)

    def check(n_exprs: int, **fields: Any) -> list[int]:
        arguments, summary = layout.CheckArguments(), device.xp.zeros(layout.CHECKED, np.int64)
        known = {"operands": operands, "limits": limits, "summary": summary, "max_tokens": MAX_TOKENS}
        fill(arguments, {**known, **fields, "n_exprs": n_exprs}, device)
        kernel.prepare((n_exprs // threads + 1, 1), threads, 0, arguments)()
        return device.numbers(summary)

    return check
