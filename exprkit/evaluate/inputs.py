"""Checks of user input (data, parameters, targets, weights), and their conversion to arrays for the backends.

In: lists, arrays, tables, of any library and any device.  Out: arrays of the evaluator's dtype.  Every shape is checked
against the population before any work starts, and an error says what fits, what came, and what to do.

Arrays that lie on a device stay there: a backend that can use them has a function ``adopt``,
which gives a view of such an array in the backend's own library, and None for anything else.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.contract import no_device
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.device_programs.population import on_host as on_host_population
from exprkit.backends.gpu.device import fetched
from exprkit.errors import ArgumentError, DataError, ParseError, brief, number_of, one_of
from exprkit.evaluate import rounding, tables
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import is_object, parse
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers, check_quantities
from exprkit.text.tokens import PARAMETER, VARIABLE

Adopt = Callable[[Any], Any]
DTYPES = ("float32", "float64")
DROP = ' (ek.fit(..., missing="drop") leaves them out)'
MOST_NESTED = 4  # lists; sets of vectors are 3
NO_VECTORS = (str, bytes, bytearray, Mapping, Set, np.ma.MaskedArray)


def population(pop: Any, X: Any = None) -> Population | DevicePopulation:
    """``pop`` itself, or of a text, an Expression or a list of them the population; a table X names its variables."""
    if isinstance(pop, Population | DevicePopulation):
        return pop
    texts = as_list(pop)
    if not isinstance(texts, str | list | tuple) and not is_object(texts):
        raise DataError(f"the first argument must be a Population, not {type(pop).__name__}: use exprkit.parse(...)")
    return named_population(texts, tables.names_in(X), data=X) if tables.is_table(X) else parse(texts)


def as_list(pop: Any) -> Any:
    """An array or a Series of texts or Expressions as a list; anything else as it is."""
    if getattr(pop, "ndim", None) != 1 or not hasattr(pop, "tolist"):
        return pop
    items = pop.tolist()
    return items if all(isinstance(item, str | Expression) for item in items) else pop


def named_population(texts: Any, names: Sequence[str], **given: Any) -> Population:
    """Texts over the names of columns, as ``parse`` is given them; over x1, x2, … by their order, only if not so."""
    try:
        return parse(texts, **given)
    except ParseError as error:
        named = error
    try:
        pop = parse(texts, parameters=given.get("parameters"))
    except ParseError:
        raise named from None
    parameters = {f"p{index + 1}" for index in pop.values[pop.kinds == PARAMETER].tolist()}
    if not pop.n_vars or parameters & set(names):  # a column called p1 or pi may be meant
        raise named
    return pop


def written_out(pop: Population | DevicePopulation) -> Population | DevicePopulation:
    """The population as an engine takes it: without operators of the user's own, which devices do not hold."""
    return pop.expanded() if isinstance(pop, Population) else pop


def weights_vector(
    weights: Any, n_points: int, dtype: np.dtype, adopt: Adopt = no_device, own: bool = False
) -> Any | None:
    """Weights of the points, finite and not negative; None for none."""
    if weights is None:
        return None
    array = _vector("weights", weights, n_points, adopt)
    least, most = (float(array.min()), float(array.max())) if n_points else (0.0, 0.0)
    if not (least >= 0 and most < np.inf):
        raise DataError("weights must be finite and not negative")
    limits = rounding.limits_of(dtype)
    harm = f"up to {most:.6g} are too large for {dtype}" if most >= limits.overflow else None
    if least <= limits.underflow and rounding.loses_digits(array.dtype, dtype):
        lost = (array > 0) & (array <= limits.underflow)
        harm = f"down to {float(array[lost].min()):.6g} become 0 in {dtype}" if bool(lost.any()) else harm
    if harm:
        raise DataError(f'weights {harm}: scale them, or use dtype="float64"')
    return _cast(array, dtype, own)


class LossPoints(NamedTuple):
    """The target, weights and further columns of a loss, float64 (n_points,) each, in the host's memory."""

    y: np.ndarray
    w: np.ndarray | None
    columns: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, y: Any, weights: Any, columns: Any, n_points: int, adopt: Adopt = no_device) -> LossPoints:
        """The data of a loss of the user's own, copied.

        Raises DataError if anything does not fit, or a number is missing at a point that counts.
        """
        double = np.dtype(np.float64)
        w = weights_vector(weights, n_points, double, adopt)
        w = None if w is None else on_host(w).copy()
        named = {} if columns is None else columns
        if not hasattr(named, "keys"):
            raise DataError(f"columns must be a dict of arrays by their names, not {brief(columns)}")
        vectors = {"y": y, **{f"columns[{name!r}]": named[name] for name in named}}
        own = {what: on_host(point_vector(what, v, n_points, double, adopt)).copy() for what, v in vectors.items()}
        refuse_gaps({what: np.isnan(vector) for what, vector in own.items()}, w)
        return cls(own.pop("y"), w, dict(zip(named, own.values(), strict=True)))

    @property
    def weights(self) -> np.ndarray:
        """``w``, of points without weights 1."""
        return np.ones(len(self.y)) if self.w is None else self.w


def beside_data(vector: np.ndarray, X: Any) -> Any:
    """A number a data point where the data lies; on a device in X's type."""
    return vector if isinstance(X, np.ndarray) else library_of(X).asarray(vector.astype(X.dtype))


def with_columns(X: Any, columns: Sequence[np.ndarray], dtype: np.dtype) -> Any:
    """X with more columns behind its own, where it lies."""
    if not columns:
        return X
    library = library_of(X)
    return library.column_stack([X, *(library.asarray(column.astype(dtype)) for column in columns)])


def dtype_of(dtype: Any) -> np.dtype:
    """float32 or float64, by a name, np.float32 or np.dtype("float32") alike; an error for anything else."""
    name = brief(dtype)
    if isinstance(dtype, str | type | np.dtype):  # NumPy takes many things, None for float64 among them
        try:
            name = np.dtype(dtype).name
        except (TypeError, ValueError, DeprecationWarning):
            name = str(dtype)
    return np.dtype(one_of("dtype", name, DTYPES, DataError))


class Data(NamedTuple):
    """The data in memory of its own, what turns results into the kind of array it was, and its columns' names."""

    values: Any  # C-contiguous (n_points, n_vars) of the evaluator's dtype
    give_back: Callable[[Any], Any]
    names: Callable[[int], str]
    unusable: dict[int, str]  # columns that no expression uses yet and none may: why


def data_matrix(X: Any, pop: Population | DevicePopulation, dtype: np.dtype, adopt: Adopt = no_device) -> Data:
    """The user's ``X``, checked and converted to an array of dtype."""
    if tables.is_table(X):
        return _table(X, on_host_population(pop), dtype)
    array, give_back = _as_array("X", X, adopt)
    if X is None:
        raise DataError("X is missing: give an array (n_points, n_vars), a table or a Dataset")
    if array.ndim != 2:
        hint = "; one variable is X.reshape(-1, 1)" if array.ndim == 1 else ""
        raise DataError(f"X must have shape (n_points, n_vars), not {array.shape}{hint}")
    _check_columns(array.shape, pop)
    names = functools.partial(column_name, pop)
    unusable: dict[int, str] = {}
    if rounding.loses_digits(array.dtype, dtype):
        for i in range(array.shape[1]):
            unusable |= _harm(contiguous(array[:, i]), i, dtype, names(i))
    check_columns(pop, unusable)
    return Data(_cast(array, dtype, own=not isinstance(X, list | tuple)), give_back, names, unusable)


def _table(X: Any, pop: Population, dtype: np.dtype) -> Data:
    columns = tables.columns(X, pop)
    n_points = next((len(column) for column in columns.values() if not isinstance(column, str)), tables.length(X))
    values = np.full((n_points, len(columns)), np.nan, dtype)
    _check_columns(values.shape, pop)
    unusable: dict[int, str] = {}
    for i, (name, column) in enumerate(columns.items()):
        if isinstance(column, str):
            unusable[i] = column
        else:
            unusable |= _harm(column, i, dtype, name)
            values[:, i] = _cast(column, dtype)
    check_columns(pop, unusable)
    return Data(values, _same, list(columns).__getitem__, unusable)


def infinite_columns(X: Any, w: Any, pop: Population) -> dict[int, str]:
    """A message for each column of X, (n_points, n_columns), that is infinite at points of weight above 0."""
    messages = {}
    for i in range(X.shape[1] if bool(np.isinf(X).any()) else 0):
        there = on_host(np.isinf(X[:, i]))
        if n := int(np.sum(there if w is None else there & (on_host(w) > 0))):
            messages[i] = f"column {column_name(pop, i)} of X is infinite in {n:,} of {number_of(len(there), 'value')}"
    return messages


def column_name(pop: Population | DevicePopulation, i: int) -> str:
    return f"x{i + 1}" if pop.variables is None else repr(pop.variables[i])


def _harm(column: Any, i: int, dtype: np.dtype, name: str) -> dict[int, str]:
    """A message for column i if rounding to ``dtype`` spoils it."""
    harm = rounding.harm(column, dtype)
    return {i: f"column {name} of X: {harm}"} if harm else {}


def check_columns(pop: Population | DevicePopulation, unusable: dict[int, str]) -> None:
    """An error if an expression uses a column that rounding spoils, or that is not there."""
    for i in tables.used_columns(on_host_population(pop)) if unusable else ():
        if i in unusable:
            raise DataError(unusable[i])


def successor(
    new: Any, old: Population | DevicePopulation, shape: tuple[int, int], unusable: dict[int, str]
) -> Population | DevicePopulation:
    """The population that takes another one's place on data of that shape, checked."""
    pop = population(new)
    if pop.variables != old.variables:
        was, now = ("x1, x2, …" if one.variables is None else ", ".join(one.variables) for one in (old, pop))
        raise DataError(f"the population's variables are {now}, and those of the data {was}: make a new Evaluator")
    _check_columns(shape, pop)
    check_columns(pop, unusable)
    return pop


def parameter_sets(
    params: Any, pop: Population | DevicePopulation, dtype: np.dtype, adopt: Adopt = no_device
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Parameters as (n_sets, n_exprs, max_params), and the leading shape of the result, () or (n_sets,)."""
    n_exprs, width = len(pop), pop.max_params
    if params is None:
        if width:
            raise DataError(f"params are missing: {_first_needing(pop, 0)}")
        return np.zeros((1, n_exprs, 0), dtype), ()
    if _is_ready(params, (n_exprs, width), dtype, adopt):
        return params.reshape(1, n_exprs, width), ()
    padded = _padded(params, on_host_population(pop) if isinstance(params, list | tuple) else pop, adopt)
    if padded.ndim not in (2, 3) or padded.shape[-2] != n_exprs:
        raise DataError(
            f"params must be a list of {n_exprs} vectors, or have shape ({n_exprs}, {width}) "
            f"or (n_sets, {n_exprs}, {width}), not {padded.shape}"
        )
    if padded.shape[-1] < width:
        values = number_of(padded.shape[-1], "value")
        raise DataError(f"params has {values} per expression, but {_first_needing(pop, padded.shape[-1])}")
    lead = padded.shape[:-2]
    if padded.shape[-1] > width:
        padded = padded[..., :width]
    return _cast(padded if lead else padded.reshape(1, n_exprs, width), dtype), lead


def _is_ready(params: Any, shape: tuple[int, int], dtype: np.dtype, adopt: Adopt) -> bool:
    """Whether they are an array as engines take one, of NumPy's or of the backend's library."""
    if type(params) is np.ndarray:
        return params.dtype == dtype and params.shape == shape and params.flags.carray
    if not hasattr(params, "shape") or adopt(params) is not params:
        return False
    return bool(params.dtype == dtype and params.shape == shape and params.flags.c_contiguous)


def point_vector(
    name: str, values: Any, n_points: int, dtype: np.dtype, adopt: Adopt = no_device, own: bool = False
) -> Any:
    """``y`` as a contiguous (n_points,) array of dtype; with ``own``, in memory that the user has not."""
    array = _vector(name, values, n_points, adopt)
    if harm := rounding.harm(array, dtype):
        raise DataError(f"{name}: {harm}")
    return _cast(array, dtype, own)


def _vector(name: str, values: Any, n_points: int, adopt: Adopt) -> Any:
    """One number a data point, (n_points,)."""
    array, _ = _as_array(name, values, adopt)
    if array.shape == (n_points, 1):
        array = array[:, 0]
    if array.shape != (n_points,):
        raise DataError(f"{name} must have shape ({n_points},), one value per data point, not {array.shape}")
    return array


def result_array(
    out: Any, shape: tuple[int, ...], dtype: np.dtype, adopt: Adopt = no_device, fresh: Callable[..., Any] | None = None
) -> np.ndarray:
    """``out`` checked (of a device, a view of it), or fresh memory of that shape."""
    if out is None and fresh is not None:
        return fresh(shape, dtype)
    if out is None:
        remedy = "take fewer expressions at a time, use loss(), or pass a np.memmap as out="
        check_memory("the result", shape, dtype, remedy)
        return np.empty(shape, dtype)
    array = adopt(out)
    if array is None:
        if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
            raise DataError(f"out must be a NumPy array, not {type(out).__name__}")
        array = out.view(np.ndarray)
    if array.shape != shape or array.dtype != dtype:
        raise DataError(f"out must have shape {shape} and dtype {dtype.name}, not {array.shape} and {array.dtype.name}")
    if not (array.flags.c_contiguous and getattr(array.flags, "writeable", True)):
        raise DataError("out must be C-contiguous and writeable")
    return array


def written(out: Any, place: Any, values: Any) -> Any:
    """``out``, whose memory is ``place``, with values of the host or of a device, which may be the other side."""
    if isinstance(place, np.ndarray):
        if isinstance(values, np.ndarray):
            place[...] = values
        else:
            fetched(values, place)
    elif isinstance(values, np.ndarray):
        place.set(values)
    else:
        place[...] = values
    return out


def unaliased(params: Any, out: Any) -> Any:
    """The parameters, copied where writing ``out`` may change them."""
    return params.copy() if type(params) is type(out) and np.may_share_memory(params, out) else params


def on_host(array: Any) -> Any:
    """The array in the host's memory."""
    return array.get() if hasattr(array, "get") and hasattr(array, "device") else array


def length(X: Any) -> int:
    """The number of data points, before X is checked; 0 if it has no length."""
    try:
        return tables.length(X) if tables.is_table(X) else len(X)
    except TypeError:
        return 0


def _padded(params: Any, pop: Population | DevicePopulation, adopt: Adopt) -> np.ndarray:
    """Parameters as an array of 2 or 3 dimensions; vectors of different lengths are padded with 0."""
    if isinstance(params, list | tuple):
        depth = _depth(params)
        if depth == 3:
            sets = [_pad_vectors(one_set, pop) for one_set in params]
            width = min(one_set.shape[1] for one_set in sets)
            return np.stack([one_set[:, :width] for one_set in sets])
        return _pad_vectors([params] if depth == 1 and len(pop) == 1 else params, pop)
    array, _ = _as_array("params", params, adopt, gaps=False)
    return array[None] if array.ndim == 1 and len(pop) == 1 else array


def _depth(values: Any) -> int:
    """The depth of nested lists and arrays, along the first entries."""
    depth = 0
    while isinstance(values, list | tuple) and depth < MOST_NESTED:
        depth += 1
        if not values:
            return depth
        values = values[0]
    return depth if depth == MOST_NESTED else depth + np.ndim(values)


def _pad_vectors(vectors: Any, pop: Any) -> np.ndarray:
    """The thesis's vector of vectors as (n_exprs, max_params)."""
    count = len(vectors) if hasattr(vectors, "__len__") and getattr(vectors, "ndim", True) else brief(vectors)
    if count != len(pop):
        raise DataError(f"params must be a list of {len(pop)} vectors, one per expression; its length is {count}")
    try:
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        for kind in {*map(type, vectors)}:
            if issubclass(kind, NO_VECTORS):
                raise TypeError(f"there is a {kind.__name__} among them")
    except TypeError as error:
        raise DataError(f"params must be a list of vectors of numbers, one per expression: {error}") from None
    flat = as_numbers("params", list(chain.from_iterable(vectors)), gaps=False)
    wrong = np.flatnonzero(lengths != pop.n_params)
    too_many = isinstance(vectors, list | tuple) and lengths.max(initial=0) > pop.max_params  # an array may be wider
    if len(wrong) and (too_many or not np.all(lengths == lengths[0])):
        i = int(wrong[0])
        wanted = number_of(int(pop.n_params[i]), "parameter")
        raise DataError(f"params[{i}] has length {lengths[i]}, but {_describe(pop, i)} has {wanted}")
    padded = np.zeros((len(pop), int(lengths.max(initial=0))))
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = flat
    return padded


def _first_needing(some: Population | DevicePopulation, more_than: int) -> str:
    pop = on_host_population(some)
    i = int(np.argmax(pop.n_params > more_than))
    return f"{_describe(pop, i)} has {number_of(int(pop.n_params[i]), 'parameter')}"


def _describe(pop: Population, i: int) -> str:
    text = str(pop[i])
    return f"expression {i} ({text if len(text) <= 60 else text[:57] + '...'})"


def _check_columns(shape: tuple[int, ...], pop: Population | DevicePopulation) -> None:
    n_points, n_columns = shape
    if n_columns >= pop.n_vars and (pop.variables is None or n_columns == len(pop.variables)):
        return
    there = f"X has {number_of(n_columns, 'column')}"
    transposed = "; X is (n_points, n_vars): did you mean X.T?" if n_points == pop.n_vars != n_columns else ""
    if pop.variables is not None and n_columns != len(pop.variables):
        raise DataError(f"{there}, but the population's variables are {', '.join(pop.variables)}{transposed}")
    host = on_host_population(pop)
    tokens = (host.kinds == VARIABLE) & (host.values >= n_columns)
    i = int(np.searchsorted(host.offsets, np.argmax(tokens), side="right")) - 1
    raise DataError(f"{there}, but {_describe(host, i)} needs {host.n_vars}{transposed}")


def _as_array(name: str, values: Any, adopt: Adopt, gaps: bool = True) -> tuple[Any, Callable[[np.ndarray], Any]]:
    """A real-valued array, of NumPy or the backend's device, and the way back to the caller's kind of array."""
    if type(values) is np.ndarray and values.dtype.kind in "fiub":
        return values, _same
    check_quantities(name, values)
    array = adopt(values)
    if array is not None:
        if array.dtype.kind not in "fiub":
            raise DataError(f"{name} must hold real numbers, not {array.dtype}")
        return array, _same if array is values else library_of(values).from_dlpack
    give_back: Callable[[np.ndarray], Any] = _same
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        library, values = library_of(values), values.detach() if hasattr(values, "detach") else values
        try:
            values, give_back = np.from_dlpack(values), library.from_dlpack
        except (BufferError, RuntimeError, TypeError, AttributeError) as error:
            kind = type(values).__name__
            raise DataError(f"{name} can't be read from {kind} on this device: {error}") from None
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise DataError(f"{name} has masked values: fill them with numbers, or leave those points out{DROP}")
    return as_numbers(name, values, gaps), give_back


def library_of(values: Any) -> Any:
    """The module that an array's class comes from, with its ``from_dlpack``."""
    return importlib.import_module(type(values).__module__.partition(".")[0].replace("jaxlib", "jax.numpy"))


def _same(array: np.ndarray) -> np.ndarray:
    return array


def contiguous(column: Any) -> Any:
    return column if column.flags.c_contiguous else column.copy()


def _cast(array: Any, dtype: np.dtype, own: bool = False) -> Any:
    """C-contiguous and of dtype; ``own``: a copy in any case.  What compiled loops take is aligned and writeable."""
    flags = array.flags
    if array.dtype == dtype and not own and (flags.carray if isinstance(array, np.ndarray) else flags.c_contiguous):
        return array
    with np.errstate(over="ignore"):  # a float64 too large for float32 is inf, as IEEE says
        cast = array.astype(dtype, order="C", copy=own)
    return cast if not isinstance(cast, np.ndarray) or cast.flags.carray else cast.copy()


def check_memory(what: str, shape: tuple[int, ...], dtype: np.dtype, remedy: str) -> None:
    """Raise MemoryError for an array larger than physical memory, which Linux would grant all the same."""
    needed = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise MemoryError(
            f"{what} {shape} needs {needed / 1e9:.1f} GB and this machine has {present / 1e9:.1f} GB: {remedy}"
        )


def refuse_gaps(missing: dict[str, Any], w: Any, remedy: str = "") -> None:
    """An error for the first of these columns that is missing, by a mask, at a point whose weight is not 0."""
    for what, gap in missing.items():
        if bool(gap.any()) and (n := int(np.sum(on_host(gap) if w is None else on_host(gap) & on_host(w > 0)))):
            share = f"{n:,} of {number_of(len(gap), 'value')}"
            raise DataError(f"{what} lacks {share}: drop or fill those rows, or give them weight 0{remedy}")


@dataclass(frozen=True, eq=False)
class CheckedData:
    """The data of a search; X and y in float64."""

    X: np.ndarray  # (n_points, n_vars)
    y: np.ndarray
    weights: np.ndarray | None
    variables: tuple[str, ...] | None

    @classmethod
    def of(cls, X: Any, y: Any, weights: Any = None, sigma: Any = None, drops: bool = False) -> CheckedData:
        """Data of fits with all columns; ``drops``: without the points at which y or a column is missing.

        Raises
        ------
        ArgumentError, DataError
        """
        X, y = tables.target_of(X, y)
        names = tuple(tables.names_in(X)) if tables.is_table(X) else None
        if drops:
            n = len(names) if names is not None else np.asarray(X).shape[-1]
            codes = np.arange(n, dtype=np.uint64)
            variables = Population(np.full(n, VARIABLE, np.uint8), codes, np.arange(n + 1), variables=names)
            one = sigma is None or np.isscalar(sigma)
            sigma = sigma if one else tables.complete(X, y, sigma, variables)[2]
            X, y, weights = tables.complete(X, y, weights, variables)
        tables.check_order(tables.labels_of(X), weights=weights, sigma=sigma)
        empty = Population([], [], [0], variables=names)
        data = data_matrix(X, empty, np.dtype(np.float64))
        for reason in data.unusable.values():  # a search uses all columns
            raise DataError(reason)
        columns = np.asarray(on_host(data.values), np.float64)
        if 0 in columns.shape:
            raise DataError(f"X has no {'points' if len(columns) == 0 else 'columns'}: its shape is {columns.shape}")
        target = _double_vector("y", y, len(columns))
        if sigma is not None:
            if weights is not None:
                raise ArgumentError("weights are 1 / sigma^2: give only one of them")
            deviations = _double_vector(
                "sigma", np.full(len(columns), sigma) if np.isscalar(sigma) else sigma, len(columns)
            )
            if not (np.isfinite(deviations) & (deviations > 0)).all():
                raise ArgumentError("sigma must be > 0 at every point")
            weights = 1 / deviations**2
        weights = on_host(weights_vector(weights, len(columns), np.dtype(np.float64)))
        if weights is not None and not (weights > 0).any():
            raise DataError("all weights are 0: there are no points to fit")
        for reason in infinite_columns(columns, weights, empty).values():
            raise DataError(f"{reason}: drop those rows, or give them weight 0")
        tables.refuse_sizes(target if weights is None else target[weights > 0])
        return cls(columns, target, weights, names)


def _double_vector(name: str, values: Any, n_points: int) -> np.ndarray:
    return np.asarray(on_host(point_vector(name, values, n_points, np.dtype(np.float64))))
