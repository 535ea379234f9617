"""What the user hands over, checked and made into arrays the backends can take.

Between the user and ``evaluate``: every shape is checked against the population before
any work starts, and an error says what fits, what came, and what to do.

Arrays that lie on a device stay there: a backend that can use them has a function ``adopt``,
which gives a view of such an array in the backend's own library, and None for anything else.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from exprkit.errors import DataError, number_of
from exprkit.population import VARIABLE, Population

Adopt = Callable[[Any], Any]


def no_device(values: Any) -> None:
    """The ``adopt`` of a backend that works in the host's memory."""


def population(pop: Any) -> Population:
    """``pop`` itself, if it is a population."""
    if not isinstance(pop, Population):
        raise DataError(f"the first argument must be a Population, not {type(pop).__name__}: use exprkit.parse(...)")
    return pop


def weights_vector(weights: Any, n_points: int, dtype: np.dtype, adopt: Callable[[Any], Any]) -> Any | None:
    """Weights of the points, finite and not negative; None for none."""
    if weights is None:
        return None
    w = point_vector("weights", weights, n_points, dtype, adopt)
    if not np.all((w >= 0) & np.isfinite(w)):
        raise DataError("weights must be finite and not negative")
    return w


def dtype_name(dtype: Any) -> str:
    """``"float32"`` for np.float32, np.dtype("float32") and "float32" alike."""
    try:
        return str(None) if dtype is None else np.dtype(dtype).name  # NumPy takes None for float64
    except TypeError:
        return str(dtype)


def data_matrix(
    X: Any, pop: Population, dtype: np.dtype, adopt: Adopt = no_device
) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """The data as C-contiguous (n_points, n_vars) of dtype, and what turns results into the kind X was."""
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        X = _frame_values(X, pop)
    array, give_back = _as_array("X", X, adopt)
    if array.ndim != 2:
        hint = "; one variable is X.reshape(-1, 1)" if array.ndim == 1 else ""
        raise DataError(f"X must have shape (n_points, n_vars), not {array.shape}{hint}")
    _check_columns(array, pop)
    return _cast(array, dtype), give_back


def parameter_sets(
    params: Any, pop: Population, dtype: np.dtype, adopt: Adopt = no_device
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Parameters as (n_sets, n_exprs, max_params), and the leading shape of the result, () or (n_sets,)."""
    n_exprs, width = len(pop), pop.max_params
    if params is None:
        if width:
            raise DataError(f"params are missing: {_first_needing(pop, 0)}")
        return np.zeros((1, n_exprs, 0), dtype), ()
    padded = _padded(params, pop, adopt)
    if padded.ndim not in (2, 3) or padded.shape[-2] != n_exprs:
        raise DataError(
            f"params must be a list of {n_exprs} vectors, or have shape ({n_exprs}, {width}) "
            f"or (n_sets, {n_exprs}, {width}), not {padded.shape}"
        )
    if padded.shape[-1] < width:
        raise DataError(f"params holds {padded.shape[-1]} an expression: {_first_needing(pop, padded.shape[-1])}")
    lead = padded.shape[:-2]
    n_sets = lead[0] if lead else 1
    return _cast(padded[..., :width].reshape(n_sets, n_exprs, width), dtype), lead


def point_vector(name: str, values: Any, n_points: int, dtype: np.dtype, adopt: Adopt = no_device) -> np.ndarray:
    """``y`` or ``weights`` as a contiguous (n_points,) array of dtype."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    array, _ = _as_array(name, values, adopt)
    if array.shape == (n_points, 1):
        array = array[:, 0]
    if array.shape != (n_points,):
        raise DataError(f"{name} must have shape ({n_points},), one value a data point, not {array.shape}")
    return _cast(array, dtype)


def result_array(
    out: Any, shape: tuple[int, ...], dtype: np.dtype, adopt: Adopt = no_device, fresh: Callable[..., Any] | None = None
) -> np.ndarray:
    """``out`` checked (of a device, a view of it), or fresh memory of that shape."""
    if out is None and fresh is not None:
        return fresh(shape, dtype)
    if out is None:
        _check_memory(shape, dtype)
        return np.empty(shape, dtype)
    array = adopt(out)
    if array is None and not isinstance(out, np.ndarray):
        raise DataError(f"out must be a NumPy array, not {type(out).__name__}")
    array = out if array is None else array
    if array.shape != shape or array.dtype != dtype:
        raise DataError(f"out must have shape {shape} and dtype {dtype.name}, not {array.shape} and {array.dtype.name}")
    if not (array.flags.c_contiguous and getattr(array.flags, "writeable", True)):
        raise DataError("out must be C-contiguous and writeable")
    return array


def _padded(params: Any, pop: Population, adopt: Adopt) -> np.ndarray:
    """Parameters as an array of 2 or 3 dimensions; vectors of different lengths are padded with 0."""
    if isinstance(params, list | tuple):
        depth = _depth(params)
        if depth == 3:
            sets = [_pad_vectors(one_set, pop) for one_set in params]
            width = min(one_set.shape[1] for one_set in sets)
            return np.stack([one_set[:, :width] for one_set in sets])
        return _pad_vectors([params] if depth == 1 and len(pop) == 1 else params, pop)
    array, _ = _as_array("params", params, adopt)
    return array[None] if array.ndim == 1 and len(pop) == 1 else array


def _depth(values: Any) -> int:
    """How deeply lists and arrays are nested, seen along the first entries."""
    depth = 0
    while isinstance(values, list | tuple):
        depth += 1
        if not values:
            return depth
        values = values[0]
    return depth + np.ndim(values)


def _pad_vectors(vectors: Any, pop: Population) -> np.ndarray:
    """The thesis's vector of vectors as (n_exprs, max_params)."""
    if not hasattr(vectors, "__len__") or len(vectors) != len(pop):
        count = len(vectors) if hasattr(vectors, "__len__") else repr(vectors)
        raise DataError(f"params holds {count} vectors for {len(pop)} expressions")
    try:
        lengths = np.fromiter(map(len, vectors), np.int64, len(vectors))
        flat = np.fromiter(chain.from_iterable(vectors), np.float64, int(lengths.sum()))
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"params must be a list of vectors of numbers, one an expression: {error}") from None
    wrong = np.flatnonzero(lengths != pop.n_params)
    too_many = isinstance(vectors, list | tuple) and lengths.max(initial=0) > pop.max_params  # an array may be wider
    if len(wrong) and (too_many or not np.all(lengths == lengths[0])):
        i = int(wrong[0])
        raise DataError(f"params[{i}] holds {lengths[i]} numbers, but {_describe(pop, i)} has {pop.n_params[i]}")
    padded = np.zeros((len(pop), int(lengths.max(initial=0))))
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = flat
    return padded


def _first_needing(pop: Population, given: int) -> str:
    i = int(np.argmax(pop.n_params > given))
    return f"{_describe(pop, i)} has {pop.n_params[i]}"


def _describe(pop: Population, i: int) -> str:
    text = str(pop[i])
    return f"expression {i} ({text if len(text) <= 60 else text[:57] + '...'})"


def _check_columns(X: np.ndarray, pop: Population) -> None:
    n_columns = X.shape[1]
    there = f"X has {number_of(n_columns, 'column')}"
    if pop.variables is not None and n_columns != len(pop.variables):
        names = ", ".join(pop.variables)
        raise DataError(f"{there}, but the population's variables are {names}{_transposed(X, pop)}")
    if n_columns < pop.n_vars:
        tokens = (pop.kinds == VARIABLE) & (pop.values >= n_columns)
        i = int(np.searchsorted(pop.offsets, np.argmax(tokens), side="right")) - 1
        raise DataError(f"{there}, but {_describe(pop, i)} needs {pop.n_vars}{_transposed(X, pop)}")


def _transposed(X: np.ndarray, pop: Population) -> str:
    return "; X is (n_points, n_vars): did you mean X.T?" if X.shape[0] == pop.n_vars != X.shape[1] else ""


def _frame_values(frame: Any, pop: Population) -> np.ndarray:
    """A DataFrame's columns, by the population's names where it has some."""
    if pop.variables is None:
        return frame.to_numpy()
    missing = [name for name in pop.variables if name not in frame.columns]
    if missing:
        raise DataError(f"X has no column {missing[0]!r}; its columns are {', '.join(map(str, frame.columns))}")
    return frame[list(pop.variables)].to_numpy()


def _as_array(name: str, values: Any, adopt: Adopt) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    """A real-valued array, of NumPy or the backend's device, and the way back to the caller's kind of array."""
    array = adopt(values)
    if array is None:
        array, give_back = _as_numpy(name, values)
    else:
        give_back = _same if array is values else _library(values).from_dlpack
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, not {array.dtype}")
    return array, give_back


def _as_numpy(name: str, values: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    give_back: Callable[[np.ndarray], Any] = _same
    if not isinstance(values, np.ndarray) and hasattr(values, "__dlpack__"):
        values, give_back = _from_dlpack(name, values)
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked values: fill them with numbers, or leave those points out")
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{name} must be an array of numbers; its rows have different lengths") from None
    return array, give_back


def _from_dlpack(name: str, values: Any) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
    library = _library(values)
    values = values.detach() if hasattr(values, "detach") else values
    try:
        return np.from_dlpack(values), library.from_dlpack
    except (BufferError, RuntimeError, TypeError, AttributeError) as error:
        raise DataError(f"{name} can't be read from {type(values).__name__} on this device: {error}") from None


def _library(values: Any) -> Any:
    """The module that an array's class comes from, with its ``from_dlpack``."""
    return importlib.import_module(type(values).__module__.partition(".")[0].replace("jaxlib", "jax.numpy"))


def _same(array: np.ndarray) -> np.ndarray:
    return array


def _cast(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # a float64 too large for float32 is inf, as IEEE says
        return array.astype(dtype, order="C", copy=False)


def _check_memory(shape: tuple[int, ...], dtype: np.dtype) -> None:
    """A result that can't fit raises here, before Linux grants memory it does not have."""
    needed = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise MemoryError(
            f"the result {shape} needs {needed / 1e9:.1f} GB and this machine has {present / 1e9:.1f} GB: "
            "take fewer expressions at a time, use loss(), or pass a np.memmap as out="
        )
