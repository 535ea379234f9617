"""Data sets and published expression samples for examples and benchmarks.

Beside the pipeline: gives the ``X`` and ``y`` that an ``Evaluator`` takes.

    >>> from exprkit import data
    >>> data.rough_pipe().repeat_to(10_860).X.shape
    (10860, 2)

``rough_pipe`` needs nothing but NumPy; ``nikuradse`` downloads the measurements that it imitates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit import csv_files
from exprkit.errors import (
    ArgumentError,
    DataError,
    brief,
    brought_by,
    checks_methods,
    did_you_mean,
    listed,
    one_of,
    shortened,
    whole,
)
from exprkit.numbers import as_numbers
from exprkit.runtime.machine import available_memory
from exprkit.text.names import column_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Dataset",
    "esr_sample",
    "from_table",
    "nikuradse",
    "rough_pipe",
    "thesis_samples",
    "thesis_steps",
    "uniform",
]

NIKURADSE_URL = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/nikuradse_1/nikuradse_1.tsv.gz"
NIKURADSE_SHA256 = "be6942e13096c21f10496a24056b01ff791e24d6172f5b7a09013c3307d38f28"

# Nikuradse's six pipes: radius over grain size, and the range of log10 Re that he measured
PIPES = (
    (15.0, 3.77, 6.01),
    (30.6, 3.67, 6.00),
    (60.0, 3.65, 5.96),
    (126.0, 3.63, 5.99),
    (252.0, 4.21, 5.99),
    (507.0, 4.11, 5.99),
)
DATE = re.compile(r"\d{4}-\d{2}")  # how a date begins
DAY = 86_400.0  # seconds
NAMELESS = "Unnamed: "  # what pandas calls a column without a name
MOST_MISSING = 0.2  # of a column's values, for which rows are left out
FRICTION = "log10(100 f)"  # the target of both data sets of pipes
MOST_SHOWN = 200  # characters of the names in a repr
NOISE = 0.005  # of log10(100 f): about what his measurements scatter within one pipe


@checks_methods
@dataclass(frozen=True, repr=False)
class Dataset:
    """Data points and their target.

    ``X`` is float64 (n_points, n_vars), ``y`` float64 (n_points,), ``variables`` the names
    of X's columns, ``name`` what it is called in results and figures, ``left_out`` what of
    a table is not among them, and why, ``target`` what y is called.

    >>> points = ek.data.Dataset([[1.0], [2.0]], [3.0, 5.0], ("t",), "two points")
    >>> len(points), points.variables
    (2, ('t',))
    """

    X: np.ndarray
    y: np.ndarray
    variables: tuple[str, ...]
    name: str
    left_out: tuple[str, ...] = ()
    target: str = "target"

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        names = shortened(", ".join(self.variables), MOST_SHOWN)
        return f"<Dataset {self.name}: {len(self):,} points, {self.target} over {names}>"

    def repeat_to(self, n_points: int) -> Dataset:
        """The points over and over, cut at ``n_points`` (the thesis: 362 x 30 = 10,860).

        >>> ek.data.rough_pipe(362).repeat_to(10_860).X.shape
        (10860, 2)
        """
        _check_counts(n_points=n_points, columns=self.X.shape[1] + 1)
        if not len(self):
            raise ArgumentError(f"{self.name} has no points to repeat")
        rows = np.arange(n_points) % len(self)
        return replace(self, X=self.X[rows], y=self.y[rows])


def rough_pipe(n_points: int = 362, seed: int = 0) -> Dataset:
    """Synthetic measurements of the friction of rough pipes, like Nikuradse's of 1933.

    Variables ``r_k`` (radius over grain size, Nikuradse's six values) and ``log_Re``
    (log10 of Reynolds' number); the target is log10(100 f), f the friction factor, with
    normal noise of standard deviation 0.005.

    Parameters
    ----------
    n_points
        How many; Nikuradse measured 362.
    seed
        Of the places along log_Re and of the noise.

    Raises
    ------
    ArgumentError
        If ``n_points`` is less than 1.

    Examples
    --------
    >>> ek.data.rough_pipe(100).X.shape
    (100, 2)
    """
    _check_counts(n_points=n_points, columns=len(PIPES) + 3)
    random = _random(seed)
    pipe = np.arange(n_points) * len(PIPES) // n_points
    r_k, low, high = np.array(PIPES)[::-1][pipe].T  # as in his table, the smoothest pipe first
    log_re = low + (high - low) * random.random(n_points)
    log_re = log_re[np.lexsort((log_re, pipe))]
    y = np.log10(100 * friction_factor(r_k, log_re)) + NOISE * random.standard_normal(n_points)
    return Dataset(np.column_stack([r_k, log_re]), y, ("r_k", "log_Re"), "rough_pipe", target=FRICTION)


def friction_factor(r_k: np.ndarray, log_re: np.ndarray) -> np.ndarray:
    """Darcy's friction factor of a pipe roughened with sand, for laminar to fully rough flow.

    Cheng's blend of three laws: laminar, f = 64 / Re (Hagen, Poiseuille); smooth turbulent,
    1 / sqrt f = 1.8 log10(Re / 6.8) (Colebrook); rough, 1 / sqrt f = 2 log10(3.7 D / k)
    (von Karman, Prandtl, Nikuradse).  ``alpha`` is the weight of laminar flow, ``beta``
    that of a smooth wall.

    Parameters
    ----------
    r_k : float array
        Radius of the pipe over the size of the sand grains.
    log_re : float array of the same shape
        log10 of Reynolds' number.

    Returns
    -------
    float array of the same shape

    References
    ----------
    N.-S. Cheng, "Formulas for friction factor in transitional regimes", Journal of
    Hydraulic Engineering 134 (2008) 1357-1362.
    """
    re, diameter = 10.0**log_re, 2 * r_k
    alpha = 1 / (1 + (re / 2720) ** 9)
    beta = 1 / (1 + (re / (160 * diameter)) ** 2)
    laminar = (re / 64) ** alpha
    smooth = (1.8 * np.log10(re / 6.8)) ** (2 * (1 - alpha) * beta)
    rough = (2 * np.log10(3.7 * diameter)) ** (2 * (1 - alpha) * (1 - beta))
    return 1 / (laminar * smooth * rough)


def uniform(n_points: int = 362, n_vars: int = 2, seed: int = 0) -> Dataset:
    """Random points, uniform over [-2, 2] in each variable; the target is standard normal noise.

    Parameters
    ----------
    n_points, n_vars : int
        Numbers of points and variables, at least 1.
    seed : int
        Seed of the random numbers.

    Raises
    ------
    ArgumentError
        If a number is less than 1.

    Examples
    --------
    >>> ek.data.uniform(100, n_vars=3).X.shape
    (100, 3)
    """
    _check_counts(n_points=n_points, n_vars=n_vars)
    random = _random(seed)
    X = random.uniform(-2, 2, (n_points, n_vars))
    return Dataset(X, random.standard_normal(n_points), tuple(f"x{i + 1}" for i in range(n_vars)), "uniform")


def _check_counts(**counts: Any) -> None:
    for name, count in counts.items():
        whole(name, count, 1)
    needed, available = 8 * math.prod(map(int, counts.values())), available_memory()
    if available is not None and needed > available:
        asked = ", ".join(f"{name}={brief(count)}" for name, count in counts.items())
        raise ArgumentError(f"{asked} need more memory than the {available / 1e9:,.1f} GB that are available")


def _random(seed: Any) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(whole("seed", seed, 0)))


def nikuradse() -> Dataset:
    """Nikuradse's measurements of 1933, 362 points, downloaded once (1.6 kB) and kept.

    From the Penn Machine Learning Benchmarks (``nikuradse_1``; MIT licence), checked
    against its SHA-256.  Columns as in ``rough_pipe``.

    Raises
    ------
    DataError
        If the file cannot be had.
    MissingError
        If pooch is not installed.
    """
    with brought_by("notebooks"):
        import pooch

    try:
        path = pooch.retrieve(NIKURADSE_URL, f"sha256:{NIKURADSE_SHA256}", path=pooch.os_cache("exprkit"))
    except Exception as error:  # whatever the network, the disk or the checksum raises means the same to the user
        first: BaseException = error  # of the chain of errors that network libraries make
        while cause := first.__cause__ or first.__context__:
            first = cause
        reason = shortened(f"{type(first).__name__}: {' '.join(str(first).split())}", 120)
        raise DataError(
            f"Nikuradse's data could not be downloaded from {NIKURADSE_URL} ({reason});"
            " without a network use exprkit.data.rough_pipe(), synthetic data of the same shape"
        ) from error
    table = np.genfromtxt(path, delimiter="\t", names=True)
    X = np.column_stack([table["r_k"], table["log_Re"]])
    return Dataset(X, np.asarray(table["target"]), ("r_k", "log_Re"), "nikuradse", target=FRICTION)


def from_table(
    table: Any,
    target: str | None = None,
    unusable: str = "raise",
    missing: str = "raise",
    columns: Sequence[str] | None = None,
    dates: str = "raise",
) -> Dataset:
    """Data points from a table: the target's column, and all others as variables.

    Parameters
    ----------
    table : DataFrame, mapping of columns, or path of a CSV file or the open file
        Numbers; a CSV file is read as ``csv_files`` says: any separator, decimal commas, a row of units.
    target : str, optional
        Name of the target's column; by default the last one.
    unusable : {"raise", "drop"}
        For other columns that are not numbers or lack values: an error, or leave them out.  The row numbers, which
        pandas writes as a column without a name, are always left out.
    missing : {"raise", "drop"}
        For rows that lack a value: an error, or leave them out; columns that lack more than a fifth of their values
        count as unusable.
    columns : list of str, optional
        Names of the columns that are variables, in this order; by default all but the target\'s.
    dates : {"raise", "elapsed"}
        Columns of dates or times (of texts: as ISO 8601 writes them) are unusable, or become the time since their
        first: days, or seconds if they are all within two days.

    Raises
    ------
    DataError
        If there is no such column, a column holds something else than numbers or lacks some,
        or there is nothing beside the target.
    MissingError
        If pandas is not installed.

    Examples
    --------
    >>> points = ek.data.from_table({"t": [1.0, 2.0], "y": [3.0, 5.0]}, "y")
    >>> points.X.tolist(), points.y.tolist()
    ([[1.0], [2.0]], [3.0, 5.0])
    """
    with brought_by("notebooks"):
        import pandas as pd

    one_of("unusable", unusable, ("raise", "drop"))
    one_of("missing", missing, ("raise", "drop"))
    one_of("dates", dates, ("raise", "elapsed"))
    name = Path(table).stem if isinstance(table, (str, Path)) else "table"
    table, read_out = _frame(table, pd)
    table = table.set_axis(names := list(map(column_name, table.columns)), axis=1)
    target = names[-1] if target is None and names else target
    if isinstance(target, str) and target not in names:
        raise DataError(f"there is no column {target!r}; there are {', '.join(names)}{did_you_mean(target, names)}")
    if len(names) == 1:
        raise DataError(f"there is one column alone, {names[0]!r}, and nothing that it could depend on")
    if not len(table):
        raise DataError("the table has no rows")
    if not isinstance(target, str) or len(names) < 2 or len(set(names)) < len(names):
        raise DataError(f"the columns must be a target and others, each once: {brief(target)} of {', '.join(names)}")
    if columns is not None:
        table = _chosen(table, target, columns)
    since = _elapsed(table.drop(columns=target), pd) if dates == "elapsed" else {}
    for column, (renamed, times, _) in since.items():
        table.isetitem(list(table.columns).index(column), times)
        table = table.rename(columns={column: renamed})
    read_out += [f"the first of {old!r}, {first}: {new!r} counts from it" for old, (new, _, first) in since.items()]
    may_lack = missing == "drop"
    y = _numbers(table.iloc[:, list(map(str, table.columns)).index(target)], target, float(may_lack))
    numbers, left_out = _variables(table, target, unusable, MOST_MISSING * may_lack)
    left_out = read_out + left_out
    if not numbers:
        raise DataError("; ".join([f"there is no column of numbers beside {target!r}", *left_out]))
    X = np.column_stack(list(numbers.values()))
    is_complete = ~np.isnan(np.column_stack([X, y])).any(axis=1)
    if not is_complete.any():
        raise DataError(f"every row lacks the target {target!r} or another value")
    if not is_complete.all():
        left_out.append(f"{np.sum(~is_complete):,} of {len(y):,} rows, which lack a value")
    return Dataset(X[is_complete], y[is_complete], tuple(numbers), name, tuple(left_out), target)


def _elapsed(table: Any, pd: Any) -> dict[str, tuple[str, Any, Any]]:
    """By column of dates: (its name with the unit, the times since the first date, the first date)."""
    elapsed = {}
    for name, column in table.items():
        if column.dtype.kind != "M" and not all(isinstance(cell, str) and DATE.match(cell) for cell in column.dropna()):
            continue
        times = pd.to_datetime(column, errors="coerce", format="ISO8601", utc=True)
        if times.isna().all() or (times.isna() & column.notna()).any():
            continue
        seconds = (times - times.min()).dt.total_seconds()
        unit, length = ("d", DAY) if seconds.max() > 2 * DAY else ("s", 1.0)
        elapsed[name] = f"{name} ({unit})", seconds / length, column.loc[times.idxmin()]
    return elapsed


def _chosen(table: Any, target: str, columns: Sequence[str]) -> Any:
    """The table with these columns and the target's alone."""
    names, chosen = list(map(str, table.columns)), listed(columns)
    if isinstance(columns, str) or not chosen or len(set(chosen)) < len(chosen):
        raise DataError(f"columns must be a list of names, each once, not {brief(columns)}")
    for name in chosen:
        if name not in names or name == target:
            others = f"none of {', '.join(names)}{did_you_mean(str(name), names)}"
            raise DataError(f"columns: {brief(name)} is {'the target' if name == target else others}")
    return table.iloc[:, [names.index(name) for name in (*chosen, target)]]


def _frame(table: Any, pd: Any) -> tuple[Any, list[str]]:
    """The table as a DataFrame, and what of a file is not in it."""
    if isinstance(table, np.ndarray) and table.dtype.names:
        return pd.DataFrame(table), []
    table = table.to_pandas() if hasattr(table, "to_pandas") else table  # polars', pyarrow's
    if isinstance(table, pd.DataFrame):
        return table, []
    if isinstance(table, (str, Path)) or hasattr(table, "read"):
        return csv_files.read(table)
    if not isinstance(table, Mapping):
        raise DataError(f"a table is a DataFrame, columns by name or a CSV file's path, not {type(table).__name__}")
    try:
        return pd.DataFrame(table), []
    except (TypeError, ValueError) as error:
        raise DataError(f"the columns are no table: {error}") from error


def _variables(table: Any, target: str, unusable: str, most: float) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns beside the target, and what is left out, each with its reason."""
    numbers, left_out = {}, []
    for place, column in enumerate(map(str, table.columns)):
        if column == target:
            continue
        try:
            values = _numbers(table.iloc[:, place], column, most)
            if column.startswith(NAMELESS) and np.array_equal(values, np.arange(len(values))):
                left_out.append(f"column {column!r}, a row number")
            else:
                numbers[column] = values
        except DataError as error:
            if unusable == "raise":
                raise
            left_out.append(str(error))
    return numbers, left_out


def _numbers(column: Any, name: str, most: float) -> np.ndarray:
    """A column; ``most`` is the share of its values that it may lack."""
    try:
        values = as_numbers(f"column {name!r}", column).astype(np.float64)
    except DataError as error:
        line, word = next(((line, cell) for line, cell in column.items() if isinstance(cell, str)), (None, ""))
        if (
            column.index.name != csv_files.LINE
            or line is None
            or all(isinstance(cell, str) for cell in column.dropna())
        ):
            raise
        raise DataError(f"column {name!r} must hold real numbers, not {brief(word)} (line {line})") from error
    lacking = int(np.isnan(values).sum())
    if lacking > most * len(values):
        raise DataError(f"column {name!r} lacks {lacking:,} of {len(values):,} values: drop or fill those rows first")
    return values


def esr_sample() -> list[str]:
    """247 expressions, 246 of its 480 distinct ones, as the thesis fed them to its evaluators: x1, x2, p1, p2.

    >>> ek.data.esr_sample()[:2]
    ['inv(inv(x1) - x1)', 'inv(inv(x1) - x2)']
    """
    return _published("esr_sample.txt").read_text(encoding="utf-8").split("\n")[:-1]


def thesis_samples() -> pd.DataFrame:
    """Every timed sample of the thesis.

    Columns ``benchmark`` (1: about 250,000 expressions x 362 points, 2: 10,000 x 362,
    3: 10,000 x 10,860), ``evaluator``, ``block_size``, ``sample``, ``seconds`` (of 100
    parameter steps; Intel i5-12500, RTX 3060 Ti).

    >>> ek.data.thesis_samples().columns.tolist()[:3]
    ['benchmark', 'evaluator', 'block_size']
    """
    return _published_table("thesis_samples.csv", dtype={"block_size": "Int64"})


def thesis_steps() -> pd.DataFrame:
    """The speed-up of each optimisation step of the thesis on benchmark 1, from its text.

    Columns ``evaluator``, ``benchmark``, ``step`` (0: before), ``change``, ``relative``: the
    time of a sample where that of the first version is 1.

    >>> ek.data.thesis_steps().columns.tolist()[:3]
    ['evaluator', 'benchmark', 'step']
    """
    return _published_table("thesis_steps.csv")


def _published_table(name: str, **options: Any) -> pd.DataFrame:
    with brought_by("notebooks"):
        import pandas as pd

    return pd.read_csv(_published(name), **options)


def _published(name: str) -> Path:
    """A file of ``data/``: in the installed package, or in the checkout it is imported from."""
    package = Path(__file__).resolve().parent
    for path in (package / "published" / name, package.parent / "data" / name):
        if path.exists():
            return path
    raise DataError(f"{name} belongs to exprkit and is missing: install exprkit again")
