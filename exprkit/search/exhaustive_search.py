"""``exhaustive_search``: enumerates all functions up to a size, fits and ranks them.

In: X and y.  Out: a ``SearchResult``.  Here are the arguments and their checks; ``run`` does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exprkit.distributed.workers import Workers
from exprkit.errors import ArgumentError, brief, checks_keywords, one_of, whole
from exprkit.evaluate.inputs import CheckedData
from exprkit.runtime import machine
from exprkit.runtime.budget import Budget, Ended
from exprkit.search.best_fits import shared_problem
from exprkit.search.goal import SearchGoal
from exprkit.search.grammar import grammar
from exprkit.search.run import SearchBar, SearchPlan, SearchRun
from exprkit.search.search_result import SearchResult
from exprkit.search.state_file import StateFile

CHUNK = 1 << 13  # functions that are fitted together; chosen, not measured
MAX_ITER = 100  # steps of a fit from one start; chosen, not measured
RESTARTS = 511  # starts of a fit beside the first, at most; chosen, not measured
MEMORY = 0.5  # share of the free memory that a search may take by default; chosen, not measured


@checks_keywords
def exhaustive_search(
    X: Any,
    y: Any = None,
    *,
    operators: str | Sequence[str] = "esr",
    max_nodes: int = 7,
    n_params: int = 4,
    weights: Any = None,
    sigma: Any = None,
    loss: str = "gaussian",
    link: str | None = None,
    columns: Any = None,
    delta: float = 1.0,
    rank: str | None = None,
    restarts: int = RESTARTS,
    keep: int = 1000,
    seed: int = 0,
    backend: str = "auto",
    precision: Any = "ieee",
    dtype: Any = "float64",
    threads: int | None = None,
    chunk: int = CHUNK,
    timeout: float | None = None,
    max_memory: float | None = None,
    file: Any = None,
    progress: bool = True,
    devices: Any = None,
    client: Any = None,
    missing: str = "raise",
) -> SearchResult:
    """Fit every function of at most ``max_nodes`` nodes to ``y``, and rank them.

    Parameters
    ----------
    X : array (n_points, n_vars), DataFrame, dict of columns or Dataset
        The data, one column per variable; the column names of a table are the names of the variables.
    y : array, (n_points,), or str
        The target; for a table X the name of its column.  A Dataset has its own.
    operators : str or list of str
        The name of a set in ``ek.ops.SETS`` ("esr", "core_maths", ...), or a list of operators, those of
        ``ek.operator`` too.
    max_nodes : int
        Largest number of nodes of an expression.
    n_params : int
        Largest number of parameters in one expression, at most 6.
    weights, sigma : array, (n_points,), optional
        1 / variance of every point, or its standard deviation; not both.  Without either, the variance is unknown and
        the same for all points.
    loss, columns, delta
        As for ``ek.fit``: the likelihood of normal errors ("gaussian") or of counts ("poisson"), "squares", "mae",
        "huber" (``delta``), or an expression over f, y, w and ``columns`` that is summed over the points, as
        ``"huber(f - y, 0.5)"``.
    link : str, optional
        The transformation of an expression f that is compared with the data, such as "sqrt(f)".  It adds no nodes.
    rank : {"description_length", "loss"}, optional
        The ranking criterion.  Default: description length for the likelihoods "gaussian" and "poisson"; for all other
        losses the loss alone, which is smallest for the largest functions (``front`` shows the gain of each further
        node).  A text with ``rank="description_length"`` is the negative log-likelihood of a point, in nats.
    restarts : int
        Largest number of further starts per fit; a fit ends when two groups of starts have found the best loss
        (``best_fits``).
    keep : int
        Number of best functions in the result, in addition to those of the Pareto front.
    seed : int
        Seed of the random starts.
    backend, precision, dtype, threads
        As for ``ek.fit``; float64 by default.
    chunk : int
        Number of functions that are fitted at a time.
    timeout : float, optional
        Seconds after which the search ends with what it has found; compiling loops, once on a machine, is not counted.
    max_memory : float, optional
        Bytes of functions and of what is known of their fits at which the search ends with what it has found;
        default: half of the free memory.
    file : path, optional
        A file for the state of the search, written now and then and at the end; if it exists, the search continues.
    progress : bool
        Show a progress bar with the rate and the best function so far.
    devices, client
        As for ``ek.fit``: functions are fitted on several devices, ``chunk`` on each; what is found stays the same.
        They are told apart here, while those of the size before are fitted.
    missing : {"raise", "drop"}
        What becomes of data points at which y or a column is missing: an error, or they are left out.

    Returns
    -------
    SearchResult
        Also after Ctrl-C, ``timeout`` and ``max_memory``: ``stopped`` says so.

    Raises
    ------
    ArgumentError, DataError, BackendError, FileError
        Before the search begins; also where there are so many trees that comparing them alone would take more than a
        day, and neither ``timeout`` nor ``max_memory`` ends the search before.

    References
    ----------
    D. J. Bartlett, H. Desmond, P. G. Ferreira, "Exhaustive Symbolic Regression", IEEE Transactions on Evolutionary
    Computation 28 (2024).

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0.5, 3, 30)
    >>> found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), max_nodes=3, progress=False)
    >>> found.texts()[0], int(found.loss.argmin())
    ('p1 / x1', 0)
    """
    numbers = {"restarts": (restarts, 0), "keep": (keep, 1), "seed": (seed, 0), "chunk": (chunk, 1)}
    _check_numbers(numbers, {"timeout": timeout, "max_memory": max_memory})
    budget = Budget(timeout, most_bytes=_most_bytes(max_memory))
    drops = one_of("missing", missing, ("raise", "drop")) == "drop"
    if drops and columns is not None:
        raise ArgumentError("missing='drop' leaves rows of X, y and weights out, and columns= would keep them")
    data = CheckedData.of(X, y, weights, sigma, drops)
    basis = grammar(max_nodes, operators, data.X.shape[1], n_params)
    if timeout is None and max_memory is None:
        basis.refuse_endless(threads or machine.cores())
    compute: dict[str, Any] = {"backend": backend, "precision": precision, "dtype": dtype, "threads": threads}
    fits = {"loss": loss, "link": link, "columns": columns, "delta": delta, "max_iter": MAX_ITER, **compute}
    goal = SearchGoal.of(data.X, data.y, data.weights, rank=rank, **fits)
    workers = Workers.of(devices, client)
    shared = shared_problem(workers, goal.X, goal.y, goal.weights, goal.settings) if workers else None
    plan = SearchPlan(data, basis, goal, int(restarts), int(keep), int(seed), int(chunk), shared)
    search, state_file = SearchRun(plan), StateFile(file)
    search.prepare()
    search.resume(state_file)
    with SearchBar(bool(progress), budget) as bar:
        try:
            search.run(bar, state_file)
        except (Ended, KeyboardInterrupt) as error:
            bar.stopped = str(error) or "it was interrupted"
        state_file.save(search.arrays, now=True)
        return search.result(bar)


def _most_bytes(max_memory: float | None) -> float | None:
    """The bytes that a search may take; by default a share of the free memory, None where that is unknown."""
    free = machine.available_memory() if max_memory is None else None
    return max_memory if free is None else MEMORY * free


def _check_numbers(numbers: dict[str, tuple[Any, int]], limits: dict[str, Any]) -> None:
    """Raise ArgumentError unless numbers are whole and at least the least, and limits are None or > 0."""
    for name, (value, least) in numbers.items():
        whole(name, value, least)
    for name, value in limits.items():
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__float__") or not float(value) > 0):
            raise ArgumentError(f"{name} must be a number > 0 or None, not {brief(value)}")
