"""Tables: matches the columns of a DataFrame, a dict or a Dataset to the variables of a population.

``inputs`` takes everything else that data may be.

    >>> import exprkit as ek
    >>> from exprkit.evaluate.tables import columns
    >>> columns({"T": [290, 291], "conc": [0.1, None]}, ek.parse("x1 + x2"))
    {"x1 ('T')": array([290, 291]), "x2 ('conc')": array([0.1, nan])}

A population with names takes its columns by name.  One without takes them by name if the table has all of x1, x2, …
that it uses, else by position.  What is missing (None, pandas' NA) is nan.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

from exprkit import csv_files
from exprkit.data import Dataset
from exprkit.errors import DataError, ParseError, brief, brought_by, did_you_mean, number_of, whole_number
from exprkit.evaluate.rounding import harm
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers, check_quantities
from exprkit.text.names import QUOTE, Names, column_name
from exprkit.text.tokens import VARIABLE

CSV = (".csv", ".tsv", ".txt", ".dat")  # endings of files that are read as tables
LAZY = {  # a method that makes a table, an attribute beside it, and whose they are
    "collect": ("collect_schema", "a polars LazyFrame, which has no numbers yet"),
    "to_dataframe": ("data_vars", "an xarray Dataset, which has no rows"),
}
SMALLEST, LARGEST = 1e-145, 1e150  # of y: of others the squares leave the range of float64
IS = "="  # in the name of a variable that is 1 where a column has a category


def is_table(X: Any) -> bool:
    """Whether it has columns with names."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # one sort of SciPy's sparse arrays is a dictionary
    return hasattr(X, "columns") and hasattr(X, "to_numpy")


def _keys(table: Any) -> list[Any]:
    """The keys of its columns."""
    return list(table if isinstance(table, Mapping) else table.columns)


def names_in(table: Any) -> list[str]:
    """The names of its columns."""
    return list(map(str, _keys(table)))


def table_of(X: Any) -> Any:
    """A Dataset, a CSV file, pyarrow's table and what else has columns with names as a table; else as it is."""
    check_quantities("X", X)
    if isinstance(X, str | os.PathLike) and os.fspath(X).lower().endswith(CSV):
        X = csv_files.read(X)[0]
    for method, (beside, what) in LAZY.items():
        if hasattr(X, method) and hasattr(X, beside) and not hasattr(X, "to_numpy"):
            raise DataError(f"X is {what}: give X.{method}()")
    if getattr(getattr(X, "columns", None), "nlevels", 1) > 1:
        X = X.set_axis(list(map(column_name, X.columns)), axis=1)
    if isinstance(X, Mapping):
        check_order(labels_of(X), **{f"column {name}": one for name, one in X.items()})
    if isinstance(X, Dataset):
        return {name: X.X[:, i] for i, name in enumerate(X.variables)}
    if isinstance(X, np.ndarray) and X.dtype.names:
        return {name: X[name] for name in X.dtype.names}
    if hasattr(X, "to_pandas") and not hasattr(X, "to_numpy"):  # pyarrow's
        return X.to_pandas()
    labels = X.index if hasattr(X, "to_frame") and not isinstance(getattr(X, "name", None), str | None) else ()
    if len(labels) and all(isinstance(label, str) for label in labels):
        raise DataError("X is one row of a table: keep it a table, as table.iloc[[0]]")
    return X.to_frame() if getattr(X, "name", None) is not None and hasattr(X, "to_frame") else X


def target_of(X: Any, y: Any, labels: bool = False) -> tuple[Any, Any]:
    """The table and the target, where that is one of the table's columns, by name, or belongs to a Dataset.

    A column of ``labels`` is given as it is.  Raises DataError where there is no target, or no such column.
    """
    if y is None:
        if not isinstance(X, Dataset):
            raise DataError("y is missing: give an array, the name of a column of a table X, or a Dataset as X")
        return table_of(X), X.y
    X = table_of(X)
    if isinstance(X, str):
        raise DataError(
            f"X is the text {brief(X)}: expressions come first, then the data, an array, a table "
            f"or the path of a file ({', '.join(CSV)})"
        )
    if not isinstance(y, str) and whole_number(y) is None:
        check_order(labels_of(X), y=y)
        return X, y
    if not is_table(X):
        raise DataError(f"y is {brief(y)}, and X has no columns with names: give an array")
    keys = _keys(X)
    place = _place(list(map(str, keys)), str(y))
    rest = [i for i in range(len(keys)) if i != place]
    others = X.iloc[:, rest] if hasattr(X, "iloc") else {keys[i]: X[keys[i]] for i in rest}
    if labels:
        return others, X.iloc[:, place] if hasattr(X, "iloc") else X[keys[place]]
    return others, _column(X, keys[place], place, f"column {y!r}")


def name_of_target(X: Any, y: Any) -> str:
    """The name of the target: of the column that ``y`` names or is, of a Dataset's target, or "y"."""
    if y is None and isinstance(X, Dataset):
        return X.target
    named = isinstance(y, str) or whole_number(y) is not None
    return str(y) if named else str(getattr(y, "name", None) or "y")


def labels_of(X: Any) -> Any:
    """The labels of the rows of a DataFrame, or of a dict's first Series; None: there are none."""
    some = X.values() if isinstance(X, Mapping) else (X,)
    return next((one.index for one in some if hasattr(one, "iloc")), None)


def check_order(labels: Any, **vectors: Any) -> None:
    """An error for what has the labels of X's rows in another order: by place they do not belong together."""
    for name, one in vectors.items():
        alike = labels is not None and hasattr(one, "iloc") and len(labels) == len(one)
        if alike and not labels.equals(one.index) and bool(labels.isin(one.index).all()):
            raise DataError(f"{name} has the labels of X's rows in another order: give {name}.loc[X.index]")


def vector_of(X: Any, values: Any, what: str = "weights") -> Any:
    """One number per data point: ``values`` itself, or the column of a table X with that name."""
    if isinstance(values, str) and is_table(X):
        keys, place = _keys(X), _place(names_in(X), values)
        return _column(X, keys[place], place, f"column {values!r}")
    check_order(labels_of(X), **{what: values})
    return values


def vectors_of(X: Any, columns: Any) -> Any:
    """The further columns of a loss by name; of a table X each may be given by a column's name."""
    if isinstance(columns, list | tuple) and all(isinstance(name, str) for name in columns):
        columns = {name: name for name in columns}
    if not isinstance(columns, Mapping):
        return columns
    return {name: vector_of(X, values, f"column {name}") for name, values in columns.items()}


def complete(X: Any, y: Any, weights: Any, pop: Population, words: Iterable[str] = ()) -> tuple[Any, Any, Any]:
    """X, y and weights without the data points at which y or a column that the population uses is missing.

    ``words``: names of columns of texts that must be there, too.
    """
    y = as_numbers("y", y)
    X = X if is_table(X) else as_numbers("X", X)
    arrays = list(columns(X, pop).values()) if is_table(X) else list(X.T)
    rows = ~np.isnan(y.astype(np.float64))
    for i in used_columns(pop):
        if i < len(arrays) and np.shape(arrays[i]) == rows.shape:  # else it is complained of where it is used
            rows &= ~np.isnan(np.asarray(arrays[i], np.float64))
    for name in words if is_table(X) and length(X) == len(rows) else ():
        rows &= ~words_of(X, name)[1]
    if rows.all() or length(X) != len(rows):
        return X, y, weights
    return _rows(X, rows), y[rows], None if weights is None else as_numbers("weights", weights)[rows]


def _rows(X: Any, rows: np.ndarray) -> Any:
    """Some rows of a table or an array."""
    if isinstance(X, np.ndarray):
        return X[rows]
    if hasattr(X, "iloc"):
        return X.iloc[np.flatnonzero(rows)]
    return {key: np.asarray(X[key], object)[rows] for key in _keys(X)}


def length(table: Any) -> int:
    """The number of its rows."""
    first = next(iter(table.values()), ()) if isinstance(table, Mapping) else table
    return len(first) if hasattr(first, "__len__") else 0


def names_of_variables(table: Any, pop: Population, others: set[str]) -> list[str]:
    """The names of the columns that a population without names takes, in order, except ``others``."""
    names = names_in(table)
    own = [f"x{i + 1}" for i in range(pop.n_vars)]
    return own if all(name in names for name in own) else [name for name in names if name not in others][: pop.n_vars]


def words_of(table: Any, column: str) -> tuple[list[str], np.ndarray]:
    """A column's values as texts, and whether each is missing."""
    values = _values(table, column)
    missing = [value is None or type(value).__name__ == "NAType" or value != value for value in values]
    return list(map(_word, values)), np.array(missing, bool)


def holds_fractions(table: Any, column: str) -> bool:
    """Whether a column has numbers that are not whole."""
    return any(isinstance(value, float | np.floating) and not _is_whole(value) for value in _values(table, column))


def _values(table: Any, column: str) -> list[Any]:
    keys = _keys(table)
    place = _place(list(map(str, keys)), column)
    return list(table.iloc[:, place] if hasattr(table, "iloc") else table[keys[place]])


def _is_whole(value: Any) -> bool:
    return isinstance(value, float | np.floating) and float(value).is_integer()


def _word(value: Any) -> str:
    """As a category: 2 and 2.0, which a gap elsewhere in the column makes of it, are one."""
    return str(int(value)) if _is_whole(value) else str(value)


def with_indicators(table: Any, pop: Population) -> Any:
    """The table with the columns ``site=a`` that a population names and a column ``site`` says.

    Raises DataError for a category that the population does not know.
    """
    keys, names = _keys(table), names_in(table)
    names_here = [name for name in pop.variables or () if IS in name and name not in names]
    indicators_of: dict[str, list[str]] = {}
    for name in names_here:
        indicators_of.setdefault(name.partition(IS)[0], []).append(name)
    own: dict[str, np.ndarray] = {}
    for column, indicators in indicators_of.items():
        if column not in names:
            continue
        words, known = words_of(table, column)[0], [name.partition(IS)[2] for name in indicators]
        if unknown := sorted(set(words) - set(known)):
            here = ", ".join(known)
            raise DataError(f"column {column!r} has the category {unknown[0]!r}; the expressions know {here}")
        own |= {
            name: np.array([word == category for word in words], float)
            for name, category in zip(indicators, known, strict=True)
        }
    if not own:
        return table
    return table.assign(**own) if hasattr(table, "assign") else {**{key: table[key] for key in keys}, **own}


def columns(table: Any, pop: Population) -> dict[str, np.ndarray | str]:
    """The numbers of the variables' columns by what errors call them.

    Of one that no expression uses, a text may stand there instead: why it is not numbers.
    """
    table = with_indicators(table, pop)
    keys = _keys(table)
    used = set(used_columns(pop))
    arrays: dict[str, np.ndarray | str] = {}
    for i, (name, place) in enumerate(_places(list(map(str, keys)), pop)):
        what = f"column {name} of X"
        try:
            arrays[name] = f"{what} is not there" if place is None else _column(table, keys[place], place, what)
        except DataError as error:
            if i in used:
                raise
            arrays[name] = str(error)
    refuse_lengths({name: len(values) for name, values in arrays.items() if not isinstance(values, str)})
    return arrays


def refuse_lengths(lengths: Mapping[Any, int]) -> None:
    """An error for columns that have not as many numbers as each other."""
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {n:,}" for name, n in lengths.items())
        raise DataError(f"the columns of X have different lengths: {listed}")


def _column(table: Any, name: Any, place: int, what: str) -> np.ndarray:
    """Its numbers, (n_points,)."""
    numbers = as_numbers(what, table.iloc[:, place] if hasattr(table, "iloc") else table[name])
    if numbers.ndim != 1:
        raise DataError(f"{what} must have one number per data point, not shape {numbers.shape}")
    return numbers


def used_columns(pop: Population) -> list[int]:
    """The variables that occur in an expression."""
    return np.flatnonzero(np.bincount(pop.values[pop.kinds == VARIABLE].astype(np.int64))).tolist()


def _places(names: list[str], pop: Population) -> list[tuple[str, int | None]]:
    """For every variable what its column is called, and which one it is."""
    if pop.variables is not None:
        used = {pop.variables[i] for i in used_columns(pop)}
        return [
            (repr(name), _place(names, name) if name in used or names.count(name) == 1 else None)
            for name in pop.variables
        ]
    defaults = [f"x{i + 1}" for i in range(pop.n_vars)]
    used = {defaults[i] for i in used_columns(pop)}
    lacking = [name for name in defaults if name in used and name not in names]
    if used and not lacking:
        return [(name, _place(names, name) if name in used else None) for name in defaults]
    here = list(zip(names, defaults, strict=False))
    if astray := [name for name in defaults if name in used and name in names and (name, name) not in here]:
        raise DataError(
            f"X has a column {astray[0]!r}, but none is called {lacking[0]!r}: name all columns that are used, or none "
            "of them, to be taken in their order"
        )
    return [(name if column == name else f"{name} ({column!r})", place) for place, (column, name) in enumerate(here)]


def _place(names: list[str], name: str) -> int:
    if name not in names:
        column, of_categories, _ = name.partition(IS)
        lacking = f"{name!r}, nor {column!r}, whose categories would make it" if of_categories else repr(name)
        raise DataError(f"X has no column {lacking}; its columns are {', '.join(names)}{did_you_mean(name, names)}")
    if names.count(name) > 1:
        raise DataError(f"X has {names.count(name)} columns called {name!r}: names must differ")
    return names.index(name)


def _free_name(name: str) -> str:
    """A name that a formula may have, for a variable among others."""
    shown = "".join(character if character.isprintable() and character != QUOTE else "_" for character in name)
    try:
        Names((shown, "another variable"))  # one alone might be x1
    except ParseError:
        return f"{shown}_"
    return shown


# ── at the door of an estimator ──


class DataTable:
    """The data of an estimator: X with the y and the weights of its rows; names of its columns are taken out of it.

    >>> import pandas as pd
    >>> DataTable(pd.DataFrame({"Re": [1.0, None]})).frame()
    Traceback (most recent call last):
    exprkit.errors.DataError: X: column 'Re' contains NaN, it lacks 1 of 2 values: leave those rows out, or fill them in

    ``labels``: y may hold texts.

    Attributes
    ----------
    X, y, weights : as they were given
    target : str
        The name of y.

    Raises
    ------
    DataError
        For a column that there is not, and for masked values.
    """

    def __init__(self, X: Any, y: Any = None, weights: Any = None, labels: bool = False) -> None:
        for name, values in {"X": X, "y": y, "sample_weight": weights}.items():
            if np.ma.is_masked(values):
                raise DataError(f"{name} has masked values: leave those rows out, or give them weight 0 and a number")
        self.target, self.X = name_of_target(X, y), table_of(X)
        columns: dict[str, Any] = {}
        for name in dict.fromkeys(one for one in (y, weights) if isinstance(one, str)) if self._has_names else ():
            self.X, columns[name] = target_of(self.X, name, labels and name is y)
        self.y, self.weights = (columns.get(one, one) if isinstance(one, str) else one for one in (y, weights))

    @staticmethod
    def free_names(columns: Iterable[Any]) -> tuple[str, ...]:
        """The columns' names as formulas may have them; one that is taken, or there before, gets a _ behind it."""
        names: dict[str, None] = {}
        for name in map(_free_name, map(str, columns)):
            while name in names:
                name += "_"
            names[name] = None
        return tuple(names)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names; none of an array."""
        return tuple(names_in(self.X)) if is_table(self.X) else ()

    @property
    def _has_names(self) -> bool:
        return is_table(self.X)

    def taken(self, column: str) -> list[str]:
        """The words of a column of categories, which is taken out of X.

        Raises
        ------
        DataError
            For an X without such a column, and where words are missing.
        """
        if not self._has_names:
            raise DataError(f"groups={column!r} is the name of a column: X must be a table")
        words, missing = words_of(self.X, column)
        if missing.any():
            raise DataError(
                f"column {column!r} lacks {missing.sum():,} of {len(words):,} categories: leave those rows out"
            )
        self.X = target_of(self.X, column, labels=True)[0]
        return words

    def frame(self) -> Any:
        """X; a dict, a Dataset, a Series or an array with named fields as a DataFrame.  Single numbers are one row.

        Raises
        ------
        DataError
            For a column that is no use, and for what is no table and no array.
        """
        X = as_numbers("X", self.X) if isinstance(self.X, list | tuple) else self.X
        if self._has_names and isinstance(X, Mapping):
            with brought_by("search"):
                import pandas as pd
            lengths = {name: len(column) for name, column in X.items() if _is_sequence(column)}
            refuse_lengths(lengths)
            X = pd.DataFrame(dict(X), index=None if lengths else [0])
        if not _is_sequence(X) and not hasattr(X, "__array__"):
            raise DataError(f"X must be an array (n_rows, n_vars) or a table, not {brief(X)}")
        if is_table(X):
            _refuse_columns(X)
        for i in range(X.shape[1] if isinstance(X, np.ndarray) and X.ndim == 2 else 0):
            _refuse_numbers(f"X: column x{i + 1}", X[:, i])
        return X

    def target_numbers(self) -> Any:
        """y; as numbers where it is a table's column, a list or of objects.

        Raises
        ------
        DataError
            For texts, dates, categories, a single number, and for labels of X's rows in another order.
        """
        y = self.y
        check_order(labels_of(self.X), y=y, sample_weight=self.weights)
        _refuse_name("y", y)
        numbers = y if getattr(getattr(y, "dtype", None), "kind", "O") in "fiubc" else as_numbers("y", y)
        if getattr(numbers, "ndim", 1) == 0:
            raise DataError(f"y should be a 1d array, a number for every row of X, not {brief(y)}")
        flat = np.asarray(numbers).ravel()
        _refuse_numbers("y", flat)
        if flat.dtype.kind in "iuf":
            refuse_sizes(flat)
        return numbers

    def weight_numbers(self) -> Any:
        """Weights, as numbers where they are several.

        Raises
        ------
        DataError
            For texts, dates and categories.
        """
        _refuse_name("sample_weight", self.weights)
        alone = isinstance(self.weights, int | float | None)
        return self.weights if alone else as_numbers("sample_weight", self.weights)


def _refuse_columns(X: Any) -> None:
    """An error for a table's column that holds no numbers, lacks some, or has another's name, or for none."""
    names = list(X.columns)
    if not names:
        raise DataError("X has no columns: nothing is left that a formula could be made of")
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"X: {number_of(names.count(name), 'column')} are called {name!r}")
    for name in names:
        _refuse_numbers(what := f"X: column {name!r}", as_numbers(what, X[name]))


def _refuse_numbers(what: str, values: np.ndarray) -> None:
    """An error for numbers that are missing, infinite, or not told apart by float64: whole ones beyond 2^53, say."""
    if values.dtype.kind in "iuf" and (lost := harm(values, np.dtype(np.float64))):
        raise DataError(f"{what}: {lost}")
    if values.dtype.kind != "f":
        return
    n = number_of(values.size, "value")
    if lacking := int(np.isnan(values).sum()):
        raise DataError(f"{what} contains NaN, it lacks {lacking:,} of {n}: leave those rows out, or fill them in")
    if endless := int(np.isinf(values).sum()):
        raise DataError(f"{what} is infinite in {endless:,} of {n}: leave those rows out")


def _is_sequence(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | Set) and getattr(value, "ndim", 1) != 0


def _refuse_name(what: str, values: Any) -> None:
    if isinstance(values, str):
        raise DataError(f"{what} is the text {brief(values)}: give the numbers, table[{brief(values)}] without it in X")


def refuse_sizes(y: np.ndarray) -> None:
    """Raise DataError for numbers whose squares can not be added up."""
    size = float(np.abs(y[np.isfinite(y)]).max(initial=0.0))
    if size and not SMALLEST < size < LARGEST:
        raise DataError(
            f"y is up to {size:.3g}, and the squares of such numbers can not be added up: search for "
            f"y / {10.0 ** np.round(np.log10(size)):.3g}"
        )
