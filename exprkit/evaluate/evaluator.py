"""``Evaluator``: a population prepared for one data set, on any backend.

In: a ``Population`` and what the user hands over.  Out: what the backend's ``Engine`` makes of it.  On its way there an
argument is checked once, by a function of ``inputs``:

===========  ======================  ===============================================================
argument     goes through            and comes to the engine as
===========  ======================  ===============================================================
``X``        ``data_matrix``         (n_points, n_vars) of dtype, memory of the evaluator's own
``params``   ``parameter_sets``      (n_sets, n_exprs, max_params) of dtype
``y``        ``point_vector``        (n_points,) of dtype
``weights``  ``weights_vector``      (n_points,) of dtype, or None
``out``      ``result_array``        itself or new memory, (n_sets, n_exprs, n_points, ...) of dtype
===========  ======================  ===============================================================

Arrays on the backend's device stay there, and results go back as the kind of array that ``X`` was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from exprkit.backends import contract, cost_model, load, status
from exprkit.backends.cases.tuning import Tuned
from exprkit.backends.device_memory import lies_on_device
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.device_programs.population import on_host as on_host_population
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as precision_of
from exprkit.distributed.engine import backend_of
from exprkit.distributed.workers import Workers
from exprkit.errors import (
    ArgumentError,
    BackendError,
    DataError,
    brief,
    checks_keywords,
    checks_methods,
    flag,
    number_of,
    one_of,
    whole,
    whole_number,
)
from exprkit.evaluate import inputs, rounding, tables
from exprkit.evaluate.compute import Compute
from exprkit.evaluate.losses import nan_beside
from exprkit.evaluate.options import check_options, check_runs, check_slopes, compiler_of
from exprkit.evaluate.prepared_loss import PreparedLoss
from exprkit.evaluate.trace import Trace, parts_of
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.runtime import ranges, slices
from exprkit.runtime.machine import available_memory

TUNED = ("square", "absolute", "values")  # kinds of work whose variants are timed
COUNTED_BYTES = 64 << 20  # of a matrix in which nan and inf are counted


@checks_methods
class Evaluator:
    """A population prepared for one data set: evaluates it with any parameters, and computes losses and derivatives.

    Parameters
    ----------
    pop : Population or DevicePopulation
        The expressions, from ``parse``; or a text, an Expression, or a list of them, which may call the variables as
        the columns of a table X are called.  One that lies on a device is for ``"cuda"``.
    X : array, (n_points, n_vars)
        The data, one column per variable: NumPy, nested lists, or any array with ``__dlpack__`` (PyTorch,
        JAX, ...), for the GPU backends also one that lies on the device.  Or a DataFrame, a dict of columns or
        a Dataset: by the population's names; without, by the names x1, x2, … if it has all that are used, else in
        their order.  Copied and prepared once: what becomes of it later does not matter.
    backend : str
        ``"auto"`` (the fastest available one by the estimates of ``explain``; losses may use another backend than
        values, whose matrix has to be copied to the host) or a name from ``backends()``.
    precision : {"ieee", "fast"} or Precision
        ``"ieee"``: every operator to the tolerance of its row in ``ops``, special values included.  ``"fast"``: cheaper
        powers, with nan for a negative base unless the exponent is a constant whole number; on a GPU, approximate
        functions as well.  A ``Precision`` chooses each setting of a GPU's compiler.
    dtype : {"float32", "float64"}
        Type of the data, the parameters, the arithmetic and the results.  Data that float32 cannot represent
        (time stamps that become equal, numbers beyond its range) is an error.
    threads : int, optional
        The most CPU threads, by default all that this process may use; a call takes as many as its work is worth.
    n_steps : int
        Expected number of evaluations; ``"auto"`` weighs their time against the time to set up.
    devices, client : int, list of int or "all"; dask.distributed.Client or str; optional
        Number or list of GPUs of this host (without a GPU: shares of its cores), or the workers of a cluster: they
        evaluate slices of the population, with the same bits as one device (``distributed.workers``).
    **options
        Further options of the backend, listed at its ``Engine`` (``exprkit.backends.interpreter.engine`` has
        ``block_size`` and ``points_per_thread``).

    Attributes
    ----------
    pop, backend, precision, dtype, threads, n_steps
        the settings in use
    X : array, (n_points, n_vars)
        the checked data, a copy that the evaluator owns
    engine : exprkit.backends.contract.Engine
        the prepared population; its methods take checked arrays only

    Raises
    ------
    DataError
        If ``X`` does not fit the population, or ``dtype`` spoils it.
    BackendError
        If the backend cannot run here; the message says why, and what to install.
    ArgumentError
        If the backend has no such option.

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> ev = ek.Evaluator(ek.parse(["x1 + p1", "x1 * x2"]), np.ones((3, 2)))
    >>> ev.evaluate(params=[[2.0], []]).tolist()
    [[3.0, 3.0, 3.0], [1.0, 1.0, 1.0]]
    """

    @ranges.shown("prepare")
    def __init__(
        self,
        pop: Any,
        X: Any,
        backend: str = "auto",
        precision: str | Precision = "ieee",
        dtype: Any = "float32",
        threads: int | None = None,
        n_steps: int = 1,
        devices: Any = None,
        client: Any = None,
        **options: Any,
    ) -> None:
        self.labels = tables.labels_of(X := tables.table_of(X))
        self.pop: Any = (pop := inputs.population(pop, X))
        settings = precision_of(precision)
        self.precision = settings.operators
        self.dtype = inputs.dtype_of(dtype)
        self.threads = None if threads is None else whole("threads", threads, 1, slices.MOST_ASKED, DataError)
        self.n_steps = whole("n_steps", n_steps, 1, error=DataError)
        check_options(options, Evaluator)
        self._workers = workers = Workers.of(devices, client)
        if isinstance(pop, DevicePopulation) and backend == "auto":
            backend = "cuda"
        auto = isinstance(backend, str) and backend == "auto"
        if auto and workers and not workers.devices:
            backend, auto = workers.best(), False
        self._choices = self._choose(X, settings, tuple(options)) if auto else {}
        self.backend = self._choices["values"].name if auto else backend
        implementation = load(self.backend) if workers is None else backend_of(workers, self.backend)
        self._check_runs = functools.partial(check_runs, name=self.backend, backend=implementation, sliced=workers)
        self._check_runs(pop)
        compiler = compiler_of(self.backend, implementation, settings, options)
        self.adopt = implementation.adopt
        self.X, self.as_given, self._column_name, self._unusable = inputs.data_matrix(X, pop, self.dtype, self.adopt)
        self.n_points = len(self.X)
        self._empty = None if isinstance(self.X, np.ndarray) else implementation.empty
        self._empty_on_host = None if implementation.empty is None else implementation.empty_on_host
        self._last_shape: tuple[int, ...] = ()
        self._compute = Compute(self.backend, settings, self.dtype, self.threads, workers, options)
        self._make_engine = lambda pop: implementation.engine(
            inputs.written_out(pop), self.X, precision=compiler, dtype=self.dtype, threads=self.threads, **options
        )
        self._n_operators = defined.count()  # an engine knows those that there were
        self.engine, self._has_slopes = self._make_engine(pop), False
        self._other: Evaluator | None = None

    def for_sums(self) -> Evaluator:
        """The evaluator of losses and their derivatives: not this one where ``"auto"`` takes another backend."""
        if not self._choices or self._choices["losses"].name == self.backend:
            return self
        if self._other is None:
            other = replace(self._compute, backend=self._choices["losses"].name)
            self._other = Evaluator(self.pop, self.X, n_steps=self.n_steps, **other.arguments)
        return self._other

    def update(self, pop: Population | DevicePopulation) -> None:
        """Take another population: the next generation of a search, on the same data.

        The checked data stays and so does the backend: ``"auto"`` does not choose again.  With ``"cuda"`` all that
        lies on the device stays too, and the programs are made there; other backends prepare anew.

        Parameters
        ----------
        pop : Population or DevicePopulation
            Of the same variables; its size may differ.

        Raises
        ------
        DataError
            If the population does not fit ``X``, or ``dtype`` spoils a column that it uses.  The evaluator then
            stays as it was, as with every other error.

        Examples
        --------
        >>> ev = ek.Evaluator(["x1", "x1 + 1"], [[1.0], [2.0]])
        >>> ev.update(ek.parse("3 * x1"))
        >>> ev.evaluate()
        array([[3., 6.]], dtype=float32)
        """
        new = inputs.successor(pop, self.pop, self.X.shape, self._unusable)
        self._check_runs(new)
        other, self._other = self._other, None
        if other is not None:
            other.update(new)
        known, self._n_operators = self._n_operators, defined.count()
        if known != self._n_operators or not self.engine.update(inputs.written_out(new)):
            self.engine = self._make_engine(new)
        self.pop, self._other, self._has_slopes = new, other, False

    @ranges.shown("step")
    def evaluate(self, params: Any = None, out: Any = None, count_nonfinite: bool = False, dtype: Any = None) -> Any:
        """Every expression at every data point.

        Parameters
        ----------
        params : optional
            A list of vectors, one per expression, each as long as the expression has
            parameters; or an array (n_exprs, max_params), padded with anything; or
            (n_sets, n_exprs, max_params) for many parameter sets at once.
        out : array, optional
            C-contiguous array of the evaluator's dtype (or of 16 bits) and the result's shape, in the host's
            memory or on the backend's device.  Reuse it: fresh memory for a large result
            costs more than filling it.  A GPU writes rows fastest where n_points is a multiple
            of 32 (float32; 16 of float64), and needs up to a quarter longer where it is odd.
        count_nonfinite : bool
            Also give how many nan and how many inf each expression made.
        dtype : {"float16", "bfloat16"}, optional
            Of the results, by default ``out``'s or the evaluator's: half the bytes on their way from a GPU.  Each is
            the number nearest to the result, as NumPy rounds; float16 ends at 65,504, and what is larger is inf (and
            counted as that).  bfloat16 is that of the package ml_dtypes, of float32, in the host's memory.

        Returns
        -------
        array of dtype, (n_exprs, n_points) or (n_sets, n_exprs, n_points)
            ``out`` itself if given, else the kind of array that ``X`` was.  nan for
            expressions that are not ``pop.valid``.
        int64 array, (n_exprs, 2) or (n_sets, n_exprs, 2)
            Only with ``count_nonfinite``, behind the first: how many nan and inf.

        Raises
        ------
        DataError
            If ``params`` or ``out`` does not fit; nothing is computed then.

        Examples
        --------
        >>> ek.Evaluator(["p1 * x1", "x1 + p1"], [[1.0], [2.0]]).evaluate([[3.0], [4.0]])
        array([[3., 6.],
               [5., 6.]], dtype=float32)
        """
        count_nonfinite = flag("count_nonfinite", count_nonfinite, DataError)
        kind = rounding.of_results(dtype, out, self.dtype, self._empty is not None)
        sets, array = self._sets_and_result(params, out, self.n_points, dtype=kind)
        values = array.reshape(len(sets), *array.shape[-2:])
        counts = np.zeros((len(sets), len(self.pop), 2), np.int64) if count_nonfinite else None
        engine: Any = self.engine
        if counts is not None and engine.counts and kind == self.dtype:
            engine.evaluate(sets, values, counts)
        else:
            rounding.evaluate(engine, sets, values, self.dtype)
            if counts is not None:
                counts[...] = np.stack([inputs.on_host(is_it(values).sum(-1)) for is_it in (np.isnan, np.isinf)], -1)
        # after the kernels are queued: exporting a device array synchronises with everything queued so far
        result = out if out is not None else self.as_given(array)
        return result if counts is None else (result, counts.reshape(*array.shape[:-1], 2))

    @checks_keywords
    def loss(
        self,
        params: Any,
        y: Any,
        kind: str = "sse",
        weights: Any = None,
        count_nonfinite: bool = False,
        out: Any = None,
        *,
        columns: Any = None,
        link: str | None = None,
    ) -> Any:
        """The error of every expression against ``y``, without making the matrix.

        For many sets of parameters and one ``y``, ``loss_of`` prepares it once.

        Parameters
        ----------
        params
            As for ``evaluate``; None where no expression has parameters.
        y : array, (n_points,)
            The target.
        kind : {"sse", "mse", "rmse", "mae", "sae", "sum", "r2", "max", "correlation"} or a loss of your own
            Sum or mean of squared errors, root of the mean square; mean or sum of absolute errors; sum of f - y;
            share of y's variance that is explained; largest absolute error; Pearson's correlation with y (nan for an
            expression that does not vary).  Or an expression over f, y, w (the weights) and ``columns``, whose
            values are summed over the points: ``"huber(f - y, 0.5) * w"``, ``"((sqrt(f) - y) / s)^2 / 2"``,
            ``"lessequal(abs(f - y), 0.1)"``.  Beside the operators it may name ``huber(r, d)``, ``pinball(y - f, q)``
            (of the quantile q) and ``logcosh(r)``.  Weights that it does not name multiply it.
        weights : array, (n_points,), optional
            A weight >= 0 for every point; means are weighted means.  A point of weight 0
            does not count, whatever an expression gives there.
        count_nonfinite : bool
            Also give how many nan and how many inf each expression made at the points that count.  Free with
            ``"cuda"``; elsewhere the expressions are evaluated once more.  Of a loss of your own, how many it made.
        out : float64 array of the result's shape, optional
            Takes the result; C-contiguous, in the host's memory or on the backend's device.
        columns : dict of arrays (n_points,), optional
            What a loss of your own names besides.
        link : str, optional
            What of the expression is compared with y: an operator's name as "sqrt", or an expression over f.

        Returns
        -------
        float64 array, (n_exprs,) or (n_sets, n_exprs)
            ``out`` itself if given.  nan where an expression is nan at a point that counts.  With float32 data,
            ``"cuda"`` squares in float32: errors beyond 1.8e19 make a squared loss inf.
            Powers and exponentials inside of each other may lose all digits of float32: ``dtype="float64"`` shows that.
        int64 array, (n_exprs, 2) or (n_sets, n_exprs, 2)
            Only with ``count_nonfinite``, behind the first: how many nan and inf.

        Raises
        ------
        DataError
            If ``params``, ``y``, ``weights`` or ``out`` does not fit, or values are missing: y or a column of X that
            the population uses is nan at a point that counts and ``count_nonfinite`` is not asked for.

        Examples
        --------
        >>> ek.Evaluator(["p1 * x1", "x1 + p1"], [[1.0], [2.0]]).loss([[3.0], [4.0]], [3.0, 7.0], "mae")
        array([0.5, 1.5])
        """
        step = PreparedLoss(self, y, kind, weights, columns, link, own=False)
        return step(params, out, count_nonfinite)

    @checks_keywords
    def loss_of(
        self, y: Any, kind: str = "sse", weights: Any = None, *, columns: Any = None, link: str | None = None
    ) -> PreparedLoss:
        """A loss against ``y`` for many sets of parameters, prepared once: ``step = ev.loss_of(y)``, ``step(params)``.

        The arrays are checked, and copied to where the backend reads them, when it is prepared: what becomes of them
        later does not matter.  A step of a prepared loss takes half the time of ``loss`` or less where expressions and
        points are few; where parameters and ``out`` lie on a device, it does not wait for that but the first time.

        Parameters
        ----------
        y, kind, weights, columns, link
            As for ``loss``.

        Returns
        -------
        PreparedLoss
            ``step(params, out=None)`` gives what ``loss`` does, ``step.with_gradient(params)`` what ``loss_and_grad``
            does; of the present population, after ``update`` of the next one.

        Raises
        ------
        DataError
            If ``y``, ``weights`` or ``columns`` do not fit.

        Examples
        --------
        >>> import exprkit as ek, numpy as np
        >>> x = np.arange(4.0)
        >>> ev = ek.Evaluator(ek.parse(["p1 * x1", "p1 + x1"]), x[:, None])
        >>> step = ev.loss_of(2 * x, "rmse")
        >>> [step([[p], [p]]).round(2).tolist() for p in (1.0, 2.0)]
        [[1.87, 1.22], [0.0, 1.22]]
        """
        return PreparedLoss(self, y, kind, weights, columns, link, own=True)

    def in_parts(self, sets: Any) -> Iterator[tuple[int, slice, Any]]:
        """Values in parts, for each of ``sets``: number of the set, slice of expressions, values (n, n_points)."""
        rows = max(1, COUNTED_BYTES // max(self.n_points * self.dtype.itemsize, 1))
        everything = on_host_population(self.pop)
        for start in range(0, len(everything), rows):
            part = slice(start, start + rows)
            pop = everything[part]
            engine, shape = self._make_engine(pop), (1, len(pop), self.n_points)
            for k, one_set in enumerate(sets):
                values = inputs.result_array(None, shape, self.dtype, self.adopt, self._empty)
                engine.evaluate(inputs.contiguous(one_set[None, part, : pop.max_params]), values)
                yield k, part, values[0]

    def jacobian(self, params: Any = None, out: Any = None) -> Any:
        """The derivatives of every expression by its parameters, at every data point.

        Where an operator has no derivative it is one between those of both sides: 0 of ``abs`` at 0 and of what
        jumps, that of the first of two equal operands of ``min`` and ``max``, 0 of ``relu`` and ``cond`` at 0.
        Terms that are 0 whatever the data are left out.

        Parameters
        ----------
        params, out
            As for ``evaluate``.

        Returns
        -------
        array of dtype, (n_exprs, n_points, max_params) or (n_sets, n_exprs, n_points, max_params)
            0 where an expression has fewer parameters; nan for expressions that are not ``pop.valid``
            and for parameters inside an operator without a derivative (``digamma``).

        Raises
        ------
        DataError
            If ``params`` or ``out`` does not fit.
        BackendError
            If the backend makes no derivatives.

        Examples
        --------
        >>> ek.Evaluator("p1 * x1 + p2", [[1.0], [2.0]]).jacobian([[3.0, 4.0]]).tolist()
        [[[1.0, 1.0], [2.0, 1.0]]]
        """
        compute = self.derivatives().jacobian
        sets, array = self._sets_and_result(params, out, self.n_points, self.pop.max_params)
        compute(sets, array.reshape(len(sets), *array.shape[-3:]))
        return out if out is not None else self.as_given(array)

    @checks_keywords
    def loss_and_grad(
        self,
        params: Any,
        y: Any,
        kind: str = "sse",
        weights: Any = None,
        *,
        columns: Any = None,
        link: str | None = None,
    ) -> tuple[Any, Any]:
        """The error of every expression against ``y`` and its gradient by the parameters, without the matrix.

        Parameters
        ----------
        params, y, kind, weights, columns, link
            As for ``loss``.  Of "max" the gradient is that of the error at the first point where it is so large,
            of errors as the evaluator's dtype rounds them; at a kink of a loss that of ``jacobian``.  Where float32
            leaves values few digits, as those of ``cos(exp(a))`` or where ``exp`` overflows on the way, it leaves
            slopes fewer: float64 has them.

        Returns
        -------
        float64 array, (n_exprs,) or (n_sets, n_exprs)
            What ``loss`` gives.
        float64 array, (n_exprs, max_params) or (n_sets, n_exprs, max_params)
            Its gradient; 0 where an expression has fewer parameters, and all nan where its loss is nan or inf.

        Raises
        ------
        DataError
            As for ``loss``.
        BackendError
            If the backend makes no derivatives.

        Examples
        --------
        >>> loss, gradient = ek.Evaluator("p1 * x1", [[1.0], [2.0]]).loss_and_grad([[3.0]], [3.0, 7.0])
        >>> loss, gradient
        (array([1.]), array([[-4.]]))
        """
        return PreparedLoss(self, y, kind, weights, columns, link, own=False).with_gradient(params)

    def normal_equations(self, params: Any, y: Any, weights: Any = None) -> tuple[Any, Any, Any]:
        """The normal equations of a Gauss-Newton step: J'WJ, J'Wr and the sum of w r^2, with r = y - f.

        The step is the solution of J'WJ step = J'Wr.

        Parameters
        ----------
        params, y, weights
            As for ``loss``.

        Returns
        -------
        float64 arrays, (..., max_params, max_params), (..., max_params) and (...)
            with ``...`` (n_exprs,) or (n_sets, n_exprs); 0 where an expression has fewer parameters, and all nan where
            its sum is nan or inf.

        Raises
        ------
        DataError
            As for ``loss``.
        BackendError
            If the backend makes no derivatives.

        Examples
        --------
        >>> square, gradient, loss = ek.Evaluator("p1 * x1", [[1.0], [2.0]]).normal_equations([[3.0]], [3.0, 7.0])
        >>> square, gradient, loss
        (array([[[5.]]]), array([[2.]]), array([1.]))
        """
        if (ev := self.for_sums()) is not self:
            return ev.normal_equations(params, y, weights)
        compute = self.derivatives().normal_equations
        sets, lead = inputs.parameter_sets(params, self.pop, self.dtype, self.adopt)
        target, w = self.target(y, weights)
        jtj, jtr, sse = compute(sets, target, w)
        jtr = 0.0 - jtr  # the engine's r is f - y; no zero becomes -0
        if bool(np.isnan(sse).any()):
            self.check_complete(target, w)
        jtj, jtr = (nan_beside(sse, of) for of in (jtj, jtr))
        shape = (*lead, len(self.pop))
        return tuple(self.as_given(array.reshape(*shape, *array.shape[2:])) for array in (jtj, jtr, sse))

    def ptx(self, i: int) -> str:
        """The PTX of expression ``i`` as a module of its own.

        Raises
        ------
        ArgumentError
            If there is no such expression.
        BackendError
            If the backend makes no code of its own for an expression.
        """
        number = self._number(i)
        return self._compiled("makes no PTX of an expression").ptx(number)

    def sass(self, i: int) -> str:
        """The machine code of expression ``i``, disassembled.

        Raises
        ------
        ArgumentError
            If there is no such expression.
        BackendError
            If the backend makes no code of its own for an expression, or no disassembler is installed.
        """
        number = self._number(i)
        return self._compiled("makes no code of an expression").sass(number)

    def _number(self, i: int) -> int:
        if (number := whole_number(i)) is None or not 0 <= number < len(self.pop):
            raise ArgumentError(f"there is no expression {brief(i)}: they are numbered 0 to {len(self.pop) - 1}")
        return number

    def derivatives(self) -> contract.Differentiable:
        """The engine, of a backend that makes derivatives and fits; for those its methods take checked arrays only.

        Raises
        ------
        BackendError
            If the backend makes none.
        """
        if not isinstance(self.engine, contract.Differentiable):
            raise BackendError(f"backend {self.backend!r} makes no derivatives; backend='cpu' does")
        if not self._has_slopes:  # to look takes longer than a gradient
            check_slopes(self.pop, self.backend)
            self._has_slopes = True
        return self.engine

    def _compiled(self, otherwise: str) -> contract.Compiling:
        if not isinstance(self.engine, contract.Compiling):
            raise BackendError(f"backend {self.backend!r} {otherwise}; backend='ptx' does")
        return self.engine

    def _sets_and_result(self, params: Any, out: Any, *shape: int, dtype: Any = None) -> tuple[Any, Any]:
        """Parameters, (n_sets, n_exprs, max_params), and ``out`` or memory, (n_exprs, *shape) or (n_sets, ...)."""
        sets, lead = inputs.parameter_sets(params, self.pop, self.dtype, self.adopt)
        size = (*lead, len(self.pop), *shape)
        fresh = self._empty or self._empty_again(size)
        array = inputs.result_array(out, size, dtype or self.dtype, self.adopt, fresh)
        return inputs.unaliased(sets, array), array

    def _empty_again(self, shape: tuple[int, ...]) -> Callable[..., Any] | None:
        """Memory that the backend fills fastest, for results that are asked for again: making it takes longer once."""
        before, self._last_shape = self._last_shape, shape
        if self._empty_on_host is None or before != shape:
            return None
        few = 8 * np.prod(shape, dtype=np.float64) * self.dtype.itemsize < (available_memory() or np.inf)
        return self._empty_on_host if few else None

    def target(self, y: Any, weights: Any = None, own: bool = False) -> tuple[Any, Any]:
        """``y`` and ``weights`` as the engine takes them; with ``own``, in memory that the user has not."""
        tables.check_order(self.labels, y=y, weights=weights)
        target = inputs.point_vector("y", y, self.n_points, self.dtype, self.adopt, own)
        return target, inputs.weights_vector(weights, self.n_points, self.dtype, self.adopt, own)

    def with_population(
        self, pop: Population, columns: Sequence[np.ndarray] = (), rows: Any = slice(None)
    ) -> Evaluator:
        """An evaluator of ``pop`` with the same settings, on ``rows`` of the data with further ``columns``."""
        X = inputs.with_columns(self.X[rows], columns, self.dtype)
        return Evaluator(pop, X, n_steps=self.n_steps, **self._compute.arguments)

    def check_complete(self, y: Any, w: Any) -> None:
        """Error if ``y`` (None: complete) or a used column is nan at a point whose weight in ``w`` is not 0."""
        missing = {} if y is None else {"y": np.isnan(y)}
        for i in tables.used_columns(on_host_population(self.pop)) if self.gaps else ():
            if i in self.gaps:
                missing[f"column {self._column_name(i)} of X"] = self.gaps[i]
        inputs.refuse_gaps(missing, w, inputs.DROP)

    @functools.cached_property
    def gaps(self) -> dict[int, np.ndarray]:
        """By number the columns of the data that are not complete, and where they are nan."""
        masks = ((i, np.isnan(self.X[:, i])) for i in range(self.X.shape[1] if bool(np.isnan(self.X).any()) else 0))
        return {i: inputs.on_host(gap) for i, gap in masks if bool(gap.any())}

    def trace(self, i: int, point: int, params: Any = None) -> Trace:
        """The value of every part of expression ``i`` at a data point, and the first part that is nan.

        Parameters
        ----------
        i, point : int
        params
            As for ``evaluate``, of one set.

        Returns
        -------
        Trace
            ``texts``, ``values`` and ``first_nan``; ``print`` shows a table.

        Raises
        ------
        ArgumentError
            If there is no such expression or point, or the expression is too long to be taken apart.
        DataError
            If ``params`` does not fit.

        Examples
        --------
        >>> ek.Evaluator("sqrt(x1) + 1", [[4.0], [-1.0]]).trace(0, 1)
        Trace(texts=['x1', 'sqrt(x1)', '1', 'sqrt(x1) + 1'], values=array([-1., nan,  1., nan], dtype=float32))
        """
        number, place = self._number(i), whole_number(point)
        if place is None or not 0 <= place < self.n_points:
            raise ArgumentError(f"there is no data point {brief(point)}: they are numbered 0 to {self.n_points - 1}")
        sets = inputs.on_host(inputs.parameter_sets(params, self.pop, self.dtype, self.adopt)[0])
        if len(sets) != 1:
            raise DataError(f"params must be one set to trace with, not {len(sets)}")
        parts = parts_of(on_host_population(self.pop), number)
        backend = "cpu" if self._workers else self.backend
        ev = Evaluator(parts, self.X[place : place + 1], backend, self.precision, self.dtype, self.threads)
        values = ev.evaluate(np.repeat(sets[:1, number, : parts.max_params], len(parts), axis=0))
        return Trace(parts.texts(), inputs.on_host(values)[:, 0])

    def explain(self) -> str:
        """A text: the backend that runs, on what and how, and the estimated time of each (``backends.cost_model``).

        >>> print(ek.Evaluator("x1 + 1", [[1.0], [2.0]], "numpy").explain().partition(":")[0])
        numpy
        """
        detail = number_of(len(self._workers.facts), "worker") if self._workers else status(self.backend).detail
        head = f"{self.backend}: {detail}; precision {self.precision}, {self.dtype}"
        choices = list(self._choices.values()) or [self._as_asked()]
        if len({choice.table() for choice in choices}) > 1 and choices[0].name != choices[-1].name:
            head += f"; losses on {choices[-1].name!r}, since no matrix goes to the host for them"
        else:
            choices = choices[:1]
        return "\n".join([head, *(f"  {line}" for line in self.engine.decisions()), *(one.table() for one in choices)])

    def tune(
        self, params: Any = None, y: Any = None, weights: Any = None, kind: str = "square", seconds: float = 2.0
    ) -> Tuned:
        """Time the kernel's variants that can run on this GPU for this work, and take the fastest from now on.

        All variants give the same bits.  The fastest is kept in the cache folder, for this card, driver and kernel and
        for work of these sizes: later evaluators take it at once, and ``explain`` says so.

        Parameters
        ----------
        params
            As for ``evaluate``.
        y, weights : (n_points,), optional
            As for ``loss``; by default zeros and none.
        kind : {"square", "absolute", "values"}
            What is timed: the sum of a loss, or predictions.
        seconds : float
            About how long, besides compiling.

        Returns
        -------
        Tuned
            ``print`` says what it gained; ``.seconds`` by variant, ``.best``, ``.chosen`` (the tree's), ``.gain``.

        Raises
        ------
        BackendError
            If the backend has no such variants: "cuda" has.
        """
        one_of("kind", kind, TUNED)
        if not isinstance(self.engine, contract.Tunable):
            raise BackendError(f"backend {self.backend!r} has no variants to tune; backend='cuda' has")
        sets, _ = inputs.parameter_sets(params, self.pop, self.dtype, self.adopt)
        target, w = self.target(np.zeros(self.n_points) if y is None else y, weights)
        tuned: Tuned = self.engine.tune(sets, target, w, kind, float(seconds))
        return tuned

    def _as_asked(self) -> cost_model.Choice:
        work = self._work(self.n_points, self._empty is not None, values=True)
        return cost_model.choose(work, pop=on_host_population(self.pop).expanded(), forced=self.backend)

    def _choose(self, X: Any, settings: Precision, options: tuple[str, ...]) -> dict[str, cost_model.Choice]:
        """The backends that "auto" takes for values and for losses; data are checked later."""
        pop, special = on_host_population(self.pop).expanded(), settings != Precision(settings.operators)
        choices = {}
        for task in ("values", "losses"):
            work = self._work(inputs.length(X), lies_on_device(X), values=task == "values")
            choices[task] = cost_model.choose(work, pop=pop, options=options, settings=special)
        return choices

    def _work(self, n_points: int, on_device: bool, values: bool) -> Any:
        return cost_model.work_of(
            on_host_population(self.pop).expanded(),
            n_points,
            dtype=self.dtype,
            fast=self.precision == "fast",
            n_steps=self.n_steps,
            threads=self.threads,
            on_device=on_device,
            values=values,
        )

    def __reduce__(self) -> Any:
        raise TypeError("an Evaluator cannot be pickled: send the Population and the data, and make it there")

    def __repr__(self) -> str:
        return (
            f"Evaluator({number_of(len(self.pop), 'expression')} x {number_of(self.n_points, 'point')}, "
            f"backend={self.backend!r}, "
            f"precision={self.precision!r}, dtype={self.dtype.name!r})"
        )
