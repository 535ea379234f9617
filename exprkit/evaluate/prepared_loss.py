"""``PreparedLoss``: a loss against one target, of any parameters; what ``Evaluator.loss_of`` gives.

In: an evaluator, and y, weights and a loss as the user gave them.  Out: a function of parameters.  All that does not
depend on these (the checks of y and the weights, their sum, a loss's text, what lies on a device) is done once::

    prepare    y, weights, columns -> checked vectors -> what the engine adds up (``contract.Engine.prepare``)
    step       parameters -> checked sets -> sums (``contract.Engine.sums``) -> losses

    >>> import exprkit as ek
    >>> step = ek.Evaluator(ek.parse(["p1 * x1"]), [[1.0], [2.0]]).loss_of([3.0, 6.0], "mae")
    >>> step([[3.0]]).tolist(), step([[2.0]]).tolist()
    ([0.0], [1.5])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exprkit.backends.device_programs.population import on_host
from exprkit.errors import DataError, flag
from exprkit.evaluate import inputs, loss_text, losses, tables
from exprkit.runtime import ranges


class PreparedLoss:
    """The loss of an evaluator's expressions against one target, for any parameters: call it with them.

    ``Evaluator.loss_of`` makes one, and its docstring says what ``y``, ``kind``, ``weights``, ``columns`` and ``link``
    are.  After ``Evaluator.update`` it gives the losses of the new population.

    Examples
    --------
    >>> import exprkit as ek
    >>> step = ek.Evaluator(ek.parse(["p1 * x1"]), [[1.0], [2.0]]).loss_of([3.0, 6.0])
    >>> loss, gradient = step.with_gradient([[2.0]])
    >>> loss.tolist(), gradient.tolist()
    ([5.0], [[-10.0]])
    """

    def __init__(self, ev: Any, y: Any, kind: Any, weights: Any, columns: Any, link: Any, own: bool) -> None:
        self._evaluator, there = ev, ev.for_sums()
        if losses.is_own(kind, columns, link):
            self._loss: _NamedLoss | _OwnLoss = _OwnLoss(there, kind, link, y, weights, columns)
        else:
            self._loss = _NamedLoss(there, kind, *there.target(y, weights, own))

    @ranges.shown("step")
    def __call__(self, params: Any, out: Any = None, count_nonfinite: bool = False) -> Any:
        """The losses of all expressions.

        Parameters
        ----------
        params
            As for ``Evaluator.evaluate``; None where no expression has parameters.
        out : float64 array of the result's shape, optional
            Takes the result; C-contiguous, in the host's memory or on the backend's device.
        count_nonfinite : bool
            As for ``Evaluator.loss``.

        Returns
        -------
        float64 array, (n_exprs,) or (n_sets, n_exprs)
            ``out`` itself if given.
        int64 array, (n_exprs, 2) or (n_sets, n_exprs, 2)
            Only with ``count_nonfinite``, behind the first: how many nan and inf.

        Raises
        ------
        DataError
            If ``params`` or ``out`` does not fit, or values are missing (``Evaluator.loss``).
        """
        ev = self._evaluator.for_sums()
        counted = count_nonfinite is not False and flag("count_nonfinite", count_nonfinite, DataError)
        loss, counts = self._loss(ev, params, counted, out)
        loss = ev.as_given(loss) if out is None else out
        return (loss, counts) if counted else loss

    def with_gradient(self, params: Any) -> tuple[Any, Any]:
        """The losses of all expressions and their gradients by the parameters.

        Parameters
        ----------
        params
            As for ``Evaluator.evaluate``.

        Returns
        -------
        float64 arrays, (n_exprs,) and (n_exprs, max_params), or (n_sets, ...)
            As ``Evaluator.loss_and_grad`` gives them.

        Raises
        ------
        DataError
            If ``params`` does not fit, or values are missing.
        BackendError
            If the backend makes no derivatives.
        """
        ev = self._evaluator.for_sums()
        loss, gradient = self._loss.with_gradient(ev, params)
        return ev.as_given(loss), ev.as_given(gradient)


class _NamedLoss:
    """A loss that has a name at checked points; with ``text`` what a backend adds up in its place.

    It serves evaluators of the same data and backend, whatever their population.
    """

    def __init__(self, ev: Any, kind: Any, y: Any, w: Any, text: loss_text.Fused | None = None) -> None:
        self._summed, self._kind, self._y, self._w, self._text = losses.summed(kind), kind, y, w, text
        self._total = losses.total_of(ev, kind, y, w)
        self._engine: Any = None
        self._prepared: Any = None
        self._is_complete = False  # no number that counts is missing
        self._looked_at: Any = None  # the population whose columns were looked through on a device

    def __call__(self, ev: Any, params: Any, counted: bool, out: Any) -> tuple[Any, Any]:
        """Losses (None: the text can't be added up) and, if ``counted``, how many nan and inf."""
        sets, lead = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
        shape = (*lead, len(ev.pop))
        place = None if out is None else inputs.result_array(out, shape, np.dtype(np.float64), ev.adopt)
        counts = np.zeros((len(sets), len(ev.pop), 2), np.int64) if counted else None
        stored = place is not None and ev.engine.stores_sums and self._kind in losses.SUMS  # where they are wanted
        sums = self._sums(ev, sets, counts, place if stored else None)
        if sums is None:
            return None, None
        if counts is None:
            self._check(ev, sums)
        else:
            counts = counts.reshape(*shape, 2)
        if stored:
            return out, counts
        loss = losses.finished(self._kind, sums, self._total).reshape(shape)
        return (loss if place is None else inputs.written(out, place, loss)), counts

    def with_gradient(self, ev: Any, params: Any) -> tuple[Any, Any]:
        """Losses and gradients in the shape of the parameters."""
        sets, lead = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
        sums, gradient = losses.sums_and_slopes(ev, sets, self._y, self._w, self._summed)
        self._check(ev, sums)
        loss = losses.finished(self._kind, sums, self._total)
        with np.errstate(divide="ignore", invalid="ignore"):
            if (slope_of := losses.LOSSES[self._kind][2]) is not None:
                slope: Any = slope_of(loss, self._total)
                gradient = gradient * (slope[..., None] if np.ndim(slope) else slope)
        gradient = losses.nan_beside(loss, gradient)
        shape = (*lead, len(ev.pop))
        return loss.reshape(shape), gradient.reshape(*shape, gradient.shape[-1])

    def _sums(self, ev: Any, sets: Any, counts: Any, out: Any) -> Any:
        engine, is_measure = ev.engine, self._text is None and self._summed in losses.MEASURES
        if counts is not None and (is_measure or not engine.counts_losses):
            losses.count(ev, sets, self._w, counts)
            counts = None
        if is_measure:
            return losses.measured(ev, sets, self._y, self._w, self._summed)
        if engine is not self._engine:
            text, named = self._text, (self._y, self._w, self._summed)
            self._engine = engine
            self._prepared = engine.prepare(*named) if text is None else engine.prepare_text(*text)
        return None if self._prepared is None else engine.sums(sets, self._prepared, counts, out)

    def _check(self, ev: Any, sums: Any) -> None:
        """Raise DataError if a sum is nan because y or the data lack values at points of weight above 0.

        Random expressions are nan somewhere, so what can't be missing is not looked for.  To ask a device is to wait
        for it, so there it is asked once for a population.
        """
        has_gaps = bool(ev.gaps)
        if (self._is_complete and not has_gaps) or self._looked_at is ev.pop:
            return
        if not isinstance(sums, np.ndarray):
            self._looked_at = ev.pop
        if bool(np.isnan(sums).any()):
            ev.check_complete(self._y, self._w)
        self._is_complete = bool(sums.size)


class _OwnLoss:
    """A loss of the user's own at checked points: as it stands, or as a plain sum of other expressions."""

    def __init__(self, ev: Any, kind: Any, link: Any, y: Any, weights: Any, columns: Any) -> None:
        named = columns.items() if isinstance(columns, Mapping) else ()
        tables.check_order(ev.labels, y=y, weights=weights, **{f"column {name}": column for name, column in named})
        points = inputs.LossPoints.of(y, weights, columns, ev.n_points, ev.adopt)
        through, fused, fast = loss_text.parse_link(link), None, ev.precision == "fast"
        if loss_text.OwnGoal.is_text(kind, losses.LOSSES):
            loss = loss_text.linked(loss_text.parse_loss(kind, points.columns), through)
            composition = loss_text.compose(loss, points, ev.X.shape[1])
            kind = losses.OWN_KINDS[composition.summed]
            if composition.formula is not None:
                is_sum = composition.summed == "sum"
                fused = loss_text.fused(loss, points, fast) if is_sum else loss_text.fused_known(composition, fast)
        else:
            losses.summed(kind)
            if points.columns:
                raise DataError(f"kind={kind!r} takes no columns; a loss of your own does, an expression over f and y")
            composition = loss_text.unchanged(points, through, ev.X.shape[1])
        w = None if np.all(composition.weights == 1) else inputs.beside_data(composition.weights, ev.X)
        target, w = ev.target(inputs.beside_data(composition.target, ev.X), w)
        self._made, self._around = composition, _NamedLoss(ev, kind, target, w)
        self._as_it_stands = None if fused is None else _NamedLoss(ev, kind, target, w, fused)
        self._inner: Any = None  # the evaluator of the other expressions, and the population that they are made of
        self._pop: Any = None

    def __call__(self, ev: Any, params: Any, counted: bool, out: Any) -> tuple[Any, Any]:
        if self._as_it_stands is not None and not counted:
            result = self._as_it_stands(ev, params, counted, out)
            if result[0] is not None:
                return result
        return self._around(self._evaluator(ev), params, counted, out)

    def with_gradient(self, ev: Any, params: Any) -> tuple[Any, Any]:
        return self._around.with_gradient(self._evaluator(ev), params)

    def _evaluator(self, ev: Any) -> Any:
        """The evaluator of the expressions that the loss makes of those of ``ev``."""
        if self._made.formula is None and not self._made.columns:
            return ev
        if self._pop is not ev.pop:
            pop = self._made.of(on_host(ev.pop))
            if self._inner is None:
                self._inner = ev.with_population(pop, self._made.columns)
            else:
                self._inner.update(pop)
            self._pop = ev.pop
        return self._inner
