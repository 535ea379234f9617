"""Data larger than memory: npy files, Parquet files and dask arrays, read in pieces of rows.

In: what the user hands over as X, y and weights.  Out: ``RowSource``, small enough to be sent to workers, which read
their pieces themselves; on several hosts the files lie where all of them see them.

    >>> import numpy as np, tempfile
    >>> from exprkit.distributed.files import source_of
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/X.npy", np.arange(6.0).reshape(3, 2)); np.save(f"{folder}/y.npy", np.ones(3))
    >>> source = source_of(f"{folder}/X.npy", f"{folder}/y.npy", None)
    >>> source.n_rows, source.read(1, 3)[0].tolist()
    (3, [[2.0, 3.0], [4.0, 5.0]])
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, DamagedFileError, DataError, brought_by, one_of
from exprkit.runtime.files import file_errors

ENDINGS = (".npy", ".parquet")


class MappedArray(NamedTuple):
    """An array in a file that is mapped into memory where it is read."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    order: str

    def rows(self, first: int, stop: int) -> np.ndarray:
        order: Any = self.order
        return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, order)[first:stop]


class DaskArray(NamedTuple):
    """An array of dask's, whose pieces are computed where they are needed."""

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def rows(self, first: int, stop: int) -> np.ndarray:
        return np.asarray(self.array[first:stop].compute(scheduler="synchronous"))


class ParquetColumns(NamedTuple):
    """Columns of a Parquet file, 0 where a name is empty: nobody looks at those; of one column a vector."""

    path: str
    names: tuple[str, ...]
    n_rows: int
    is_vector: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n_rows,) if self.is_vector else (self.n_rows, len(self.names))

    def rows(self, first: int, stop: int) -> np.ndarray:
        import pyarrow.parquet as pq

        file, begin, parts, read = pq.ParquetFile(self.path), 0, [], list(filter(None, self.names))
        for group in range(file.num_row_groups):
            n = file.metadata.row_group(group).num_rows
            low, high = max(first - begin, 0), min(stop - begin, n)
            if low < high:
                table = file.read_row_group(group, columns=read).slice(low, high - low)
                nothing = np.zeros(high - low)
                parts.append(np.column_stack([table[name].to_numpy() if name else nothing for name in self.names]))
            begin += n
        columns = np.concatenate(parts)
        return columns[:, 0] if self.is_vector else columns


class RowSource(NamedTuple):
    """Rows of X, y and weights."""

    X: Any
    y: Any
    weights: Any | None

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    def read(self, first: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Rows ``first`` to ``stop``."""
        w = None if self.weights is None else self.weights.rows(first, stop)
        return self.X.rows(first, stop), self.y.rows(first, stop), w


def is_source(X: Any) -> bool:
    """Whether X is read in pieces: the path of an npy or Parquet file, a mapped array or one of dask's."""
    path = isinstance(X, str | os.PathLike) and os.fspath(X).endswith(ENDINGS)
    return path or isinstance(X, np.memmap) or hasattr(X, "__dask_graph__")


def columns_of(X: Any, y: Any, weights: Any) -> dict[str, None] | None:
    """The names of a Parquet file's variables: its columns except y and the weights; None of other sources."""
    return dict.fromkeys(_names(_parquet_file(X), y, weights)) if _is_parquet(X) else None


def source_of(X: Any, y: Any, weights: Any, variables: tuple[str, ...] | None = None) -> RowSource:
    """The rows of what a user hands over; of a Parquet file, y and weights are columns.

    Raises ArgumentError, DataError if it cannot be read in pieces, or the lengths differ.
    """
    if _is_parquet(X):
        return _parquet(os.path.abspath(X), y, weights, variables)
    parts = [None if part is None else _array(what, part) for what, part in (("X", X), ("y", y), ("weights", weights))]
    source = RowSource(*parts)
    if len(source.X.shape) != 2:
        raise DataError(f"X must have shape (n_points, n_vars), not {source.X.shape}")
    for what, part in (("y", source.y), ("weights", source.weights)):
        if part is not None and part.shape != (source.n_rows,):
            raise DataError(f"{what} must have shape ({source.n_rows},), not {part.shape}")
    return source


def _array(what: str, given: Any) -> Any:
    if isinstance(given, str | os.PathLike):
        with file_errors(given, "read"):
            given = np.load(given, mmap_mode="r")
    if hasattr(given, "__dask_graph__"):
        return DaskArray(given.to_dask_array(lengths=True) if hasattr(given, "to_dask_array") else given)
    if isinstance(given, np.memmap) and isinstance(given.filename, str | os.PathLike) and given.flags.forc:
        order = "C" if given.flags.c_contiguous else "F"
        start = given.offset + given.__array_interface__["data"][0] - _base_address(given)
        return MappedArray(os.path.abspath(given.filename), given.dtype.str, start, given.shape, order)
    raise ArgumentError(
        f"{what} must be an npy file, a mapped array or one of dask's, as X is one, not {type(given).__name__}"
    )


def _base_address(mapped: np.memmap) -> int:
    """The address of the mapped array that this one is, or is a part of."""
    while isinstance(mapped.base, np.memmap):
        mapped = mapped.base
    return int(mapped.__array_interface__["data"][0])


def _is_parquet(X: Any) -> bool:
    return isinstance(X, str | os.PathLike) and os.fspath(X).endswith(".parquet")


def _parquet_file(path: Any) -> Any:
    with brought_by("notebooks"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    with file_errors(path, "read"):
        try:
            return pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise DamagedFileError(f"{os.fspath(path)!r} is not a Parquet file, or it is damaged: {error}") from None


def _names(file: Any, y: Any, weights: Any) -> tuple[str, ...]:
    return tuple(name for name in file.schema_arrow.names if name not in (y, weights))


def _parquet(path: str, y: Any, weights: Any, variables: tuple[str, ...] | None) -> RowSource:
    file = _parquet_file(path)
    from pyarrow import types as of

    columns, n_rows = tuple(file.schema_arrow.names), file.metadata.num_rows
    names = variables or _names(file, y, weights)
    for name in (y,) if weights is None else (y, weights):
        one_of("a column of the file", name, columns)
    for name in filter(None, names):
        one_of("a variable", name, columns)
    for name in filter(None, (*names, y, weights)):
        kind = file.schema_arrow.field(name).type
        if not any(is_one(kind) for is_one in (of.is_integer, of.is_floating, of.is_decimal, of.is_boolean)):
            raise DataError(f"column {name!r} of the file must hold real numbers, not {kind}")
    w = None if weights is None else ParquetColumns(path, (weights,), n_rows, True)
    return RowSource(ParquetColumns(path, names, n_rows), ParquetColumns(path, (y,), n_rows, True), w)
