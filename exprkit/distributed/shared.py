"""An object that every worker makes for itself, and functions of it that the workers call.

In: ``Workers``, arrays, a function that makes the object of them.  Out: results, in the order of the slices.

    >>> import numpy as np
    >>> from exprkit.distributed.shared import SharedObject
    >>> from exprkit.distributed.workers import Workers
    >>> numbers = SharedObject(Workers.of(2, None), np.cumsum, (np.arange(10),), backend="cpu")
    >>> numbers.each(lambda sums, k: int(sums[k]), [(0, 3), (3, 9)], lambda begin, end: (end,))
    [((0, 3), 6), ((3, 9), 45)]

Arrays go to a client's workers once.  Populations among arguments and results travel as tokens.  An object is used by
one call at a time: a worker makes another one where several calls run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.engine import COST_OF_EXPRESSION, KeptArrays, cuts_of
from exprkit.distributed.tasks import TokenSlice, TooLarge, on_device, refuse_functions
from exprkit.distributed.threads import device_here
from exprkit.distributed.workers import Workers
from exprkit.expressions.population import Population


class SharedObject:
    """The object ``make(*data, *settings)`` on every worker.

    Attributes
    ----------
    n_places, n_devices : int
        How many slices are worked on at a time, and by how many devices: a GPU of this process works on two.
    in_process : bool
        Whether the workers are threads of this process.
    """

    def __init__(
        self, workers: Workers, make: Callable[..., Any], data: tuple[Any, ...], *settings: Any, backend: str
    ) -> None:
        self.workers, self._make, self._on_gpu = workers, (make, settings), workers.on_gpu(backend)
        self._kept, self._data = data, KeptArrays(workers, "data").take(data)
        self.in_process = bool(workers.devices)

    def keep(self, *data: Any) -> None:
        """Other data, unless these are had already."""
        if any(new is not old for new, old in zip(data, self._kept, strict=True)):
            self._kept, self._data = data, KeptArrays(self.workers, "data").take(data)

    @property
    def n_places(self) -> int:
        return len(self.workers.places(self._on_gpu))

    @property
    def n_devices(self) -> int:
        return len(self.workers.devices) or self.n_places

    def cuts(self, pop: Population, parts: tuple[int, int], least: int) -> list[Cut]:
        """Slices of a population whose fits cost about the same, of ``least`` expressions or more.

        ``parts``: how many for each place, of CPUs and of GPUs.
        """
        cost = (np.diff(pop.offsets) + COST_OF_EXPRESSION) * (1 + pop.n_params)
        n_slices = min(parts[self._on_gpu] * self.n_places, len(pop) // least)
        return cuts_of(np.concatenate([[0], np.cumsum(cost)]), n_slices)

    def each(
        self,
        function: Callable[..., Any],
        cuts: list[Cut],
        arguments: Callable[[int, int], tuple[Any, ...]],
        check: Callable[[], Any] = lambda: None,
        name: str = "",
    ) -> list[tuple[Cut, Any]]:
        """``function(object, *arguments(begin, end))`` of every slice, or of the parts that memory allows.

        ``check`` is called after every slice, and ends it by raising; ``name`` is what dask's pages call it.
        """

        def task(cut: Cut, place: str | None) -> tuple[Any, ...]:
            sent = arguments(*cut)
            for pop in sent if not self.in_process else ():
                if isinstance(pop, Population):
                    refuse_functions(pop, self.workers)
            name, data = self._data.name, self._data.at(place)
            return _call, self._make, self._on_gpu, name, data, function, sent if self.in_process else _as_tokens(sent)

        results = collect(
            self.workers, (name or function.__name__).strip("_"), cuts, task, lambda n: check(), self._on_gpu
        )
        return [(cut, _received(result)) for cut, result in results]


# The objects that no call uses now, (name of the data, object) by worker
_idle: dict[str, list[tuple[str, Any]]] = defaultdict(list)


def _call(
    make: tuple[Callable[..., Any], tuple[Any, ...]],
    on_gpu: bool,
    name: str,
    data: tuple[Any, ...],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> Any:
    """On a worker."""
    with on_device(on_gpu) as worker:
        entry = next((item for item in _idle[worker] if item[0] == name), None)
        if entry is not None:
            _idle[worker].remove(entry)
        value = make[0](*data, *make[1]) if entry is None else entry[1]
        try:
            result = function(value, *_received(arguments))
        except MemoryError as error:
            return TooLarge(str(error) or "MemoryError")
        _idle[worker] = [(name, value), *(item for item in _idle[worker] if item[0] == name)]
        return result if device_here() else _as_tokens(result)


def _as_tokens(value: Any) -> Any:
    """A value with the tokens of populations in their place."""
    if type(value) is tuple:
        return tuple(map(_as_tokens, value))
    return TokenSlice.of(value, 0, len(value)) if isinstance(value, Population) else value


def _received(value: Any) -> Any:
    """The value of ``_as_tokens``."""
    if type(value) is tuple:
        return tuple(map(_received, value))
    return value.population() if isinstance(value, TokenSlice) else value
