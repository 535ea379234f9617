"""Discovery: runs the stages of a search in order until a law is found or a limit is reached.

In: a ``Sample``, operators, ``SearchSettings``.  Out: a ``Front``.

    >>> import numpy as np
    >>> from exprkit.regression.discovery import Discovery
    >>> from exprkit.regression.sample import Sample
    >>> from exprkit.regression.settings import SearchSettings
    >>> from exprkit.runtime.budget import Budget
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> found = Discovery(Sample(X, X[:, 0] / (3 + 5 * X[:, 1])), SearchSettings(), Budget())
    >>> found.run()
    'a formula is exact'
    >>> print(found.front.entries()[-1].expression)
    x1 / (5 * x2 + 3)

======================  ===============================================================================
stage                   what it does
======================  ===============================================================================
``begin``               the mean, and what the user guesses
``join``                small pools: pairs of functions that make y exactly
``group``               with units: the same and the next stage in units that some of the variables make
``factor``              these stages and ``curve`` without variables of which y is a power, whatever the others are
``join_three``          three functions that make y exactly; of very many, on a GPU
``sum_exactly``         sums of a few simple functions that make y exactly, also within an operator
``curve``               shapes with several numbers inside, fitted from several starts
``single``              functions of a large pool, by least squares
``grow``                what has been found with one function more, again and again, for data without a law; after
                        ``join_more`` on a GPU
``sum``                 sums of several functions of a large pool, by least squares
``nest``                numbers inside of operators, by very many fits at once
``join_more``           exact pairs of a large pool
``sum_within``          sums within an operator
``nest_more``           numbers inside of operators within a logarithm or an exponential
``regress``             all pairs of a small pool by least squares, for data with noise
``evolve``              generations from all of that
``polish``              every formula of the front without one of its numbers, or with a simpler one
======================  ===============================================================================

The search ends where a formula is y but for rounding, at two rows more than it has numbers other than fractions: there
is nothing to be gained by what is longer, and no more numbers than that are no accident.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem, backend_of_fits
from exprkit.operators import defined, ops
from exprkit.regression import constants, effort, links, rests
from exprkit.regression.confirm import TRIED, confirmed, joined, values_of
from exprkit.regression.front import Entry, Front
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.goal import Goal
from exprkit.regression.join import Partners
from exprkit.regression.nonlinear import templates
from exprkit.regression.nonlinear.curves import curves
from exprkit.regression.nonlinear.factored import factored
from exprkit.regression.nonlinear.growth import Functions, Growing, unlike
from exprkit.regression.on_device import triples
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.on_device.programs import Programs, device_of, with_memory
from exprkit.regression.on_device.regress import regressed
from exprkit.regression.polish import nodes, simplified
from exprkit.regression.pool import Pool, is_power
from exprkit.regression.rules.factors import power_factors
from exprkit.regression.rules.groups import Measures, in_unit
from exprkit.regression.rules.pooled import RuledPool
from exprkit.regression.sample import Sample
from exprkit.regression.settings import SearchSettings
from exprkit.regression.simpler import Simpler
from exprkit.regression.sums.exact import exact_sums
from exprkit.regression.sums.formulas import Around, arounds, sums, terms_of
from exprkit.regression.sums.inside import InnerTerms, is_logarithm, terms_inside
from exprkit.regression.sums.regress import best_pairs
from exprkit.regression.sums.single import singles
from exprkit.runtime.budget import Budget, Ended
from exprkit.text.tokens import CONSTANT


class Halfway(NamedTuple):
    """A search between two steps: beside data and settings all that the rest of it depends on."""

    stages: int  # that are done
    generation: int  # so many are
    n_evals: int
    front: list[Entry]
    evolution: dict[str, np.ndarray]  # its ``state``; empty before it has begun


class Discovery:
    """A search and its front.

    Attributes
    ----------
    front : Front
    simpler : Simpler
        What makes its formulas simpler.
    is_exact : whether one of them is y but for rounding
    stage : what is being done, in words
    generation : how many are done

    Parameters
    ----------
    shown, kept
        Called with the search at every step; ``kept`` only where ``halfway`` says all of it.
    """

    def __init__(
        self, sample: Sample, settings: SearchSettings, budget: Budget, front: Front | None = None,
        shown: Callable[[Discovery], None] = lambda search: None,
        kept: Callable[[Discovery], None] = lambda search: None,
    ) -> None:  # fmt: skip
        self.sample, self.settings, self.budget, self._shown, self._kept = sample, settings, budget, shown, kept
        self.goal = Goal(settings.loss, sample)
        self.front = front or Front(settings.maxsize, self.goal.floor)
        self.front.rows = sample.total
        self.stage, self.generation, self.is_exact = "begin", 0, False
        on_host = settings.rules is not None or not self.goal.plain
        self._device = None if on_host else device_of(settings.backend)
        self._stages = effort.STAGES + effort.STAGES_ON_DEVICE * (self._device is not None)
        last = effort.LAST if self._device is None else effort.LAST_ON_DEVICE
        self._most = last if settings.pool_size is None else settings.pool_size
        self._unary = [row for row in settings.operators if row.arity == 1]
        self._rows, self.some, self._many = (
            sample if len(sample) <= n else sample.few(n, settings.seed)
            for n in (effort.FITTED_ROWS, effort.SOME_ROWS, effort.MANY_ROWS)
        )
        self._goal_of_many = Goal(settings.loss, self._many)
        self.usual_loss = float(self.goal.losses(np.zeros((1, len(sample))))[0])
        self._problem: FitProblem | None = None
        self._evolution: Evolution | None = None
        self._begun: Halfway | None = None
        self._done = 0  # stages
        self.simpler = Simpler(self)

    @property
    def resolved(self) -> dict[str, Any]:
        """The settings, those that were left open as they are here; those of a GPU with its name."""
        given = {one.name: getattr(self.settings, one.name) for one in dataclasses.fields(self.settings)}
        on_host = self.settings.rules is not None or not self.goal.plain
        backend = backend_of_fits("cpu" if on_host else self.settings.backend)
        device = "none" if self._device is None else self._device.name
        return given | {"backend": backend, "pool_size": self._most, "device": device}

    def run(self) -> str:
        """Search; says why it ended.  An interrupt ends it as well, after which the front is there."""
        with threadpool_limits(1, "blas"):  # products are small, and their bits are those of one thread
            return self._run()

    def _run(self) -> str:
        stages = [self.begin, self.join, self.group, self.factor, self.join_three, self.sum_exactly, self.curve,
                  self.single, self.sum, self.nest, self.join_more, self.sum_within, self.nest_more, self.regress,
                  self.evolve]  # fmt: skip
        # a GPU has seconds' worth of pools that the host has not
        stages.insert(stages.index(self.sum if self._device is None else self.sum_within), self.grow)
        if self._device is not None:
            self._device.use()  # a thread of its own begins with the first one
        self.budget.keep_back(effort.FINISH)
        try:
            for stage in stages[self._done :]:
                self.stage = stage.__name__
                stage()
                self._look()
                if stage != self.evolve:  # which keeps every generation: more of them may follow another time
                    self._done += 1
                    self._kept(self)
            why = f"{self.settings.niterations:,} iterations are done"
        except Ended as ended:
            why, is_over = str(ended), self.budget.is_over
            self.budget.keep_back(0.0)
            if is_over:
                self.simpler.finish()
        self.simpler.tidy()
        return why

    def halfway(self) -> Halfway:
        """The search as it is, when ``kept`` is called."""
        evolution = {} if self._evolution is None else self._evolution.state()
        return Halfway(self._done, self.generation, self.budget.n_evals, self.front.entries(), evolution)

    def resume(self, halfway: Halfway) -> None:
        """Before ``run``: go on from there, to the same bits as if there had been no end."""
        self._begun, self._done, self.generation = halfway, halfway.stages, halfway.generation
        self.budget.n_evals = halfway.n_evals
        self.front.restore(halfway.front)

    # ── stages ──

    def begin(self) -> None:
        mean = float(self.sample.w @ self.sample.y / self.sample.total)
        self.offer([*self.refitted([*parse([repr(mean)]), *self.settings.guesses]), *self.settings.guesses])
        if not self.front.entries():  # a number has no units, but 0 has all
            rules = self.settings.rules
            self.offer([*parse(["0"]), *in_unit(self.sample, rules.measures if rules else [], effort.MEASURES)])

    def join(self) -> None:
        """Exact pairs of small pools; the first that has some is the last."""
        for most in sorted({min(most, self._most) for most in self._stages} - {0}):
            self._join(most)

    def group(self) -> None:
        """Formulas of fewer variables, the others being units, in a part of the time: one stage after the other."""
        settings, is_over = self.settings, self.budget.part(effort.GROUPED)
        every = [] if settings.rules is None else settings.rules.measures[: effort.MEASURES]
        first, few = every[: effort.FITTED], effort.IN_GROUPS
        for stage, some, most in (
            (Discovery.join, every, None), (Discovery.join_three, first, None), (Discovery._nest_shares, first, few),
            (Discovery._sums_within_powers, first, few), (Discovery.join_three, every[effort.FITTED :], None),
        ):  # fmt: skip
            for measures in some:
                if is_over():
                    return
                self._in_units(measures, stage, most)
                self._look()

    def factor(self) -> None:
        """Formulas of fewer variables, times powers of the others that y has whatever they are."""
        is_over = self.budget.part(effort.FACTORED)
        stages = [Discovery.join, Discovery.sum_exactly, Discovery.join_three]
        for k, measures in enumerate(power_factors(self.sample) if self._most else []):
            for stage in [*stages, Discovery.curve] if k == 0 else stages:
                if is_over():
                    return
                self._in_units(measures, stage, None)
                self._look()

    def _in_units(self, measures: Measures, stage: Callable[[Discovery], None], most: int | None) -> None:
        """A stage with data in units that variables and constants of nature make, and pools of some size."""
        X, unit = measures.columns(self.sample.X)
        y = self.sample.y / unit
        if not X.shape[1] or not np.isfinite(np.column_stack([X, y])).all():
            return
        here = replace(self.settings, rules=None, guesses=(), loss="squares", backend="cpu", pool_size=most)
        # errors count as shares of a unit: a law holds where y is small as well
        inner = Discovery(Sample(X, y, self.sample.w), here, self.budget)
        with contextlib.suppress(Ended):
            stage(inner)
        self.offer(measures.restored(entry.expression) for entry in inner.front.entries())

    def curve(self) -> None:
        """Shapes with several numbers inside, the simplest kinds first, in a part of the time."""
        found = curves(
            self._for_squares(self._rows), self.settings.operators, self.settings.seed, self.settings.threads,
            self.budget.check, self.budget.count, effort.SHAPES * self._most,
        )  # fmt: skip
        self._offer_some(map(self.refitted, found) if self._most else [], effort.CURVES)
        self._look()

    def join_three(self) -> None:
        """Three functions that make y exactly, the simplest forms first, in a part of the time."""
        n_points = min(effort.POINTS, len(self.sample))
        if self._most < effort.STAGES[0] or n_points < effort.FEWEST_POINTS + 2:
            return
        few, check = self.sample.few(n_points, self.settings.seed), self.budget.check
        (pool := self._pool(few, min(effort.STAGES[-1], self._most))).multiply(len(pool) + len(pool) // 2)
        partners, rules = Partners(pool, self.settings.threads, check), self.settings.rules
        self._offer_some(rests.formulas(
            pool, partners, few.y, self.sample, self._unary, np.nan if rules is None else rules.target, check,
        ))  # fmt: skip
        if self._device is not None and self._most > effort.STAGES[-1] and not self.is_exact:
            self._join_three_on_device(few)

    def _join_three_on_device(self, few: Sample) -> None:
        """All of some ten thousand."""
        forms = links.forms(self._unary)

        def work(room: int) -> None:
            pool: Any = self._pool(few, room, self._device)
            pool.multiply(2 * room)
            self._offer_some(triples.formulas(pool, few.y, self.sample, forms, self.budget.check))

        with_memory(self._device, min(effort.STAGES_ON_DEVICE[0], self._most), len(few), work)

    def sum_exactly(self) -> None:
        """Sums of a few simple functions that make y exactly, also within an operator, in a part of the time."""
        few = self.sample.few(min(effort.SUMMED_ROWS, len(self.sample)), self.settings.seed)
        if not self._most or len(few) < effort.SUMMED_ROWS:
            return
        settings, pool = self.settings, self._pool(few, min(effort.SIMPLE, self._most))
        pool.multiply_operators(2 * len(pool))
        self._offer_some(exact_sums(
            pool, few, settings.operators, settings.maxsize, settings.rules, settings.threads, self.budget.check
        ), effort.EXACT_SUMS)  # fmt: skip
        self._look()

    def _offer_some(self, found: Iterable[list[Expression]], share: float = effort.THREE) -> None:
        """Until one is exact, or for a share of the time."""
        is_over = self.budget.part(share)
        for formulas in found:
            self.offer(formulas)
            if self.is_exact or is_over():
                break

    def join_more(self) -> None:
        """Exact pairs of the whole pool, unless what has been found says that there is noise."""
        if self._most > self._stages[-1] and not is_noise_left(self.front, self.goal):
            self._join(self._most)

    def _join(self, most: int) -> None:
        n_points = min(effort.POINTS, len(self.sample))
        if n_points < effort.FEWEST_POINTS:
            return
        few = self.sample.few(n_points, self.settings.seed)
        device = self._device if most > effort.STAGES[-1] else None
        with_memory(device, most, n_points, lambda room: self._join_in(few, self._pool(few, room, device), room))
        self._look()

    def _join_in(self, few: Sample, pool: Pool, most: int) -> None:
        """Exact pairs of a pool, which grows to half as many functions more."""
        pool.multiply(most + most // 2)
        check, threads = self.budget.check, self.settings.threads
        partners = DevicePartners(pool, check) if isinstance(pool, DevicePool) else Partners(pool, threads, check)
        for form, pairs in partners.each(few.y, links.forms(self._unary, self.settings.outermost)):
            self.budget.count(len(pool))
            self.offer(confirmed(pairs, form, pool, self.sample)[:TRIED])
            self.budget.check()

    def grow(self) -> None:
        """Formulas of the front with one function more at any node, fitted, in a part of the time."""
        if not self._most or self.front.least <= effort.NOISY * self.usual_loss:
            return
        is_over = self.budget.part(effort.GROWTH)
        growing = Growing(self.front, self._functions_to_add(self.some))
        rounds = growing.rounds(lambda: self._for_squares(self.some), self.budget.check)
        for made in itertools.islice(rounds, effort.GROWN):
            for k in range(0, len(made), effort.FITTED_AT_ONCE):
                best = self._best_fitted(self.allowed(made[k : k + effort.FITTED_AT_ONCE]))
                self.offer(growing.better(best, self._for_squares(self.some), self.settings.threads))
                self.budget.check()
            self._look()
            if is_over():
                return

    def _best_fitted(self, formulas: list[Expression]) -> list[Expression]:
        """Those that may enter the front once they are fitted, in their shortest form."""
        if not formulas:
            return []
        pop, starts = constants.as_parameters(parse(formulas))
        self.budget.count(len(pop))
        found = constants.as_constants(pop, self._fitted(pop, np.where(np.isnan(starts), 0.0, starts)))
        with np.errstate(all="ignore"):
            values = Evaluator(found, self._many.X, "cpu", dtype="float64", threads=self.settings.threads).evaluate()
        return self._best_of(found, self._goal_of_many.losses(values), effort.SHORTER)

    def _functions_to_add(self, sample: Sample) -> Functions:
        """The number 1, simple functions of a pool, and such with a number inside."""
        pool = self._pool(sample, effort.BLOCKS)
        terms = terms_of(pool, np.arange(len(pool)), effort.BLOCKS)
        inside = self._terms_inside(sample)
        values: list[np.ndarray] = [np.ones((1, len(sample))), pool.values[terms]]
        trees: list[Any] = [(CONSTANT, 1.0), *map(pool.tree, terms.tolist())]
        if inside is not None:
            values.append(inside.values)
            trees += inside.trees
        return unlike(Functions(np.concatenate(values), trees, np.array([nodes(tree) for tree in trees])))

    def nest(self) -> None:
        """Templates with a number inside of an operator; of functions that are no product of others."""
        for as_shares in (True, False) if self._most else ():
            self._nest(as_shares, None)
        if self._most:
            self._factored()

    def _nest_shares(self) -> None:
        self._nest(True, None)

    def _factored(self) -> None:
        """A factor with a number inside, beside a line."""
        some, settings = self._for_squares(self.some), self.settings
        binary = [row for row in settings.operators if row.arity == 2]
        if not binary:
            return
        pool = self._pool(self._rows, self._told_apart(effort.NESTED, self._rows))
        plain = self._pool(self._rows, self._told_apart(effort.NESTED, self._rows), None, binary, ())
        check, count = self.budget.check, self.budget.count
        found = factored((pool, plain), some, settings.operators, settings.threads, check, count)
        self.offer(found if settings.loss == "squares" else self.refitted(found))
        self.simpler.settle()
        self._look()

    def nest_more(self) -> None:
        """The same within a logarithm, and within what undoes one."""
        for outer in self._unary if self._most and not is_noise_left(self.front, self.goal) else []:
            undoing = links.inverse(outer)
            if is_logarithm(outer) or (undoing is not None and is_logarithm(undoing)):
                self._nest(True, outer)

    def _nest(self, as_shares: bool, outer: defined.Written | None) -> None:
        some = self._for_squares(self.some)
        v = some.y if outer is None else links.inverted(outer, some.y)
        rules = self.settings.rules
        dimension = None if rules is None else rules.behind(outer)
        if v is None or (rules is not None and dimension is None):
            return
        most = self._told_apart(effort.NESTED, self._rows)
        binary = [row for row in self.settings.operators if row.arity == 2]
        if not binary:
            return
        powers = [row for row in binary if row.code in (ops.MUL, ops.DIV)]
        powers += [row for row in self._unary if is_power(row)]
        pools = [self._pool(self._rows, most)]
        pools += [self._pool(self._rows, most, None, rows, ()) for rows in (powers or binary, binary)]
        found = templates.nested(
            pools, some.of(v), self.settings.operators, self.settings.threads, self.budget.check,
            self.budget.count, as_shares,
            np.nan if rules is None or rules.free_numbers or dimension is None else dimension,
        ).formulas  # fmt: skip
        around = Around(outer, False)
        is_best = as_shares and outer is None and self.settings.loss == "squares"
        self.offer(found if is_best else self.refitted([around.expression(one) for one in found]))
        self.simpler.settle()
        self._look()

    def sum(self) -> None:
        """Sums of a few functions, fitted again."""
        self._sums(arounds(self._unary)[:1])

    def single(self) -> None:
        """Single functions of a large pool, also within an operator, fitted again."""
        if not self._most:
            return
        few = self.sample.few(min(effort.PAIRED_ROWS, len(self.sample)), self.settings.seed)
        pool = self._pool(few, self._told_apart(effort.SINGLE, few))
        pool.multiply(2 * len(pool))
        for k, formulas in enumerate(singles(pool, self._for_squares(few), arounds(self._unary))):
            found = self.refitted(formulas)
            self.offer(found)
            if k == 0:  # of what may well be all of a law: without its number, or with a simple one
                self.offer(other for one in found for other in constants.simpler_numbers(one))
            self.budget.check()

    def _sums_within_powers(self) -> None:
        self._sums([around for around in arounds(self._unary) if around.outer is not None and is_power(around.outer)])

    def sum_within(self) -> None:
        """The same within an operator; what is as good as noise allows is polished first."""
        if is_noise_left(self.front, self.goal):
            self.simpler.polish()
        self._sums(arounds(self._unary)[1:])

    def _sums(self, places: list[Around]) -> None:
        settings, threads, go_on = self.settings, self.settings.threads, self.budget.check
        if not self._most:
            return
        few = self.sample.few(min(effort.PAIRED_ROWS, len(self.sample)), settings.seed)
        most = self._told_apart(effort.SUMMED, few)
        pool = self._pool(few, most)
        pool.multiply(2 * most)
        inside = self._terms_inside(few)
        for around in places:
            found = sums(
                pool, self._for_squares(few), around, settings.maxsize, inside, settings.rules, threads, go_on
            )
            self.budget.count(len(pool))
            for k in range(0, len(found), effort.FITTED_AT_ONCE):
                self.offer(self.refitted(found[k : k + effort.FITTED_AT_ONCE]))
                self.budget.check()
            self._look()

    def _terms_inside(self, sample: Sample) -> InnerTerms | None:
        binary = [row for row in self.settings.operators if row.arity == 2]
        if not binary or self._most < 100:
            return None
        most = min(effort.WITH_NUMBERS, self._most // 100)
        plain = self._pool(sample, most, None, binary, ())
        inner = templates.simplest(plain, most)
        return terms_inside(plain.values[inner], [plain.tree(i) for i in inner], self.settings.operators)

    def regress(self) -> None:
        """The best pairs by least squares; refitted in the terms of y and all rows."""
        few = self.sample.few(min(effort.PAIRED_ROWS, len(self.sample)), self.settings.seed)
        paired = (effort.PAIRED, effort.PAIRED_WITHIN) if self._device is None else effort.PAIRED_ON_DEVICE
        pools = [self._pool(few, self._told_apart(most, few)) for most in paired]
        how = functools.partial(regressed, self._device) if self._device else None
        few = self._for_squares(few)
        for form in links.forms(self._unary):
            pool = pools[form.outer is not None]
            pairs = best_pairs(pool, few, form, threads=self.settings.threads, go_on=self.budget.check, regress=how)
            self.budget.count(len(pool) if pairs else 0)
            made: list[Expression] = []
            for pair in pairs:
                if pair.size < self.settings.maxsize:
                    made += joined(pool, form, pair.f, pair.h, few.y)
            self.offer(self.refitted(made))
            self.budget.check()
            self._look()
        self.simpler.polish()

    def evolve(self) -> None:
        settings = self.settings
        pool = self._pool(self._rows, effort.BLOCKS)
        evolution = Evolution(
            self._rows, list(settings.operators), parse([pool.expression(i) for i in range(len(pool))]),
            population_size=settings.population_size, width=settings.maxsize, seed=settings.seed,
            crossover=settings.crossover_probability, tournament=settings.tournament_size,
            steps=settings.optimizer_iterations, loss=settings.loss, backend=settings.backend, threads=settings.threads,
            rules=settings.rules,
        )  # fmt: skip
        evolution.generation()  # the blocks', which take over the numbers that are fitted
        if self._begun is not None and self._begun.evolution:
            evolution.resume(self._begun.evolution)
            self.budget.n_evals = self._begun.n_evals  # the pool has been counted
        self._evolution = evolution
        for number in range(self.generation, settings.niterations):
            if number % effort.POLISHED == 0:
                evolution.seed(parse([entry.expression for entry in self.front.entries()]))
            made = evolution.generation()
            self.budget.count(made.tried)
            self.offer(self._best_of(made.formulas, made.loss))
            self.stage, self.generation = f"generation {number + 1}", number + 1
            self._look()
            if number % effort.POLISHED == effort.POLISHED - 1:
                self.simpler.polish()
            self._kept(self)
        self.simpler.polish()

    # ── what all stages do ──

    def _told_apart(self, most: int, sample: Sample) -> int:
        """So many functions to choose from at most by fits to some rows: few rows fit one of very many by accident."""
        return min(most, self._most, len(sample) ** 2)

    def _pool(
        self, sample: Sample, most: int, device: Any = None, operators: Sequence[defined.Written] = (),
        constants: Sequence[float] = (1.0, 2.0),
    ) -> Pool:  # fmt: skip
        rows, check, rules = tuple(operators) or self.settings.operators, self.budget.check, self.settings.rules
        pool: Pool
        if device is not None:
            pool = DevicePool(sample.X, rows, Programs(device, rows, len(sample)), go_on=check)
        else:
            make = Pool if rules is None else functools.partial(RuledPool, rules)
            pool = make(sample.X, rows, constants, threads=self.settings.threads, go_on=check)
        pool.grow(self.settings.maxsize, most)
        self.budget.count(pool.tried)
        return pool

    def offer(self, formulas: Iterable[Expression], front: Front | None = None) -> None:
        """To the front, by their loss at all rows."""
        listed = self.allowed([formula for formula in formulas if formula.n_tokens <= 2 * self.settings.maxsize])
        listed = self._promising(listed)
        if not listed:
            return
        values = values_of(listed, self.sample.X, self.settings.threads)
        losses, exact = self.goal.losses(values), self.sample.is_exact(values)
        for formula, loss, is_exact in zip(listed, losses.tolist(), exact.tolist(), strict=True):
            is_law = is_exact and constants.count(formula) + effort.SPARE <= len(self.sample)
            self.is_exact |= (front or self.front).offer(formula, loss, is_law) and is_law

    def _promising(self, formulas: list[Expression]) -> list[Expression]:
        """Those that are no worse than the front at some rows, where there are very many."""
        entries = self.front.entries()
        if self._many is self.sample or not formulas or not entries:
            return formulas
        values = values_of([*formulas, *(entry.expression for entry in entries)], self._many.X, self.settings.threads)
        losses = np.split(self._goal_of_many.losses(values), [len(formulas)])
        least = np.append(np.inf, np.maximum(effort.WORSE * np.minimum.accumulate(losses[1]), self.front.floor))
        place = np.searchsorted([entry.size for entry in entries], [one.n_tokens for one in formulas], side="right")
        return [one for one, bad in zip(formulas, losses[0] > least[place], strict=True) if not bad]

    def allowed(self, formulas: list[Expression]) -> list[Expression]:
        """Those that keep to the rules."""
        if not formulas or self.settings.rules is None:
            return formulas
        fits = self.settings.rules.allow(parse(formulas)).tolist()
        return [formula for formula, fit in zip(formulas, fits, strict=True) if fit]

    def _look(self) -> None:
        """Show what is there, and end if it is good enough."""
        self._shown(self)
        self.budget.check()
        if self.is_exact:
            self.simpler.exact()
            raise Ended("a formula is exact")
        if any(self.settings.early_stop(entry.loss, entry.size) for entry in self.front.entries()):
            raise Ended("the loss is as small as was asked for")

    def _best_of(self, pop: Population, loss: np.ndarray, shorter: int = 0) -> list[Expression]:
        """What may enter the front, in its shortest form, which may have so many tokens less."""
        entries = self.front.entries()
        sizes, limits = np.array([e.size for e in entries]), np.array([e.loss for e in entries])
        place = np.searchsorted(sizes, pop.n_tokens - shorter, side="right") - 1
        promising = np.flatnonzero(loss < np.where(place >= 0, limits[place], np.inf))
        best = promising[np.argsort(loss[promising], kind="stable")[:effort.MOST_OFFERED]]
        return [simplified(pop[int(i)]) for i in best]

    def refitted(
        self, formulas: Sequence[Expression], held: Callable[[float], bool] | None = None
    ) -> list[Expression]:
        """With the numbers of least loss, begun at those that they have; those that are held stay."""
        if not formulas:
            return []
        pop, params = constants.as_parameters(parse(list(formulas)), held)
        if not pop.max_params:
            return list(formulas)
        self.budget.count(len(pop))
        found = self._fitted(pop, np.where(np.isnan(params), 0.0, params))
        found = np.where(np.isfinite(found), found, np.where(np.isnan(params), 0.0, params))
        return [simplified(formula) for formula in constants.as_constants(pop, found)]

    def _fitted(self, pop: Population, starts: np.ndarray) -> np.ndarray:
        """The parameters of least loss that are found from there."""
        goal = self._goal_of_many
        settings: dict[str, Any] = {
            "max_iter": 100, "tol": 1e-15, "backend": "cpu", "dtype": "float64", "threads": self.settings.threads,
        }  # fmt: skip
        if not goal.plain:
            return goal.fitted(pop, starts, self._best_values(goal.sample), **settings)[0]
        if self._problem is None:
            self._problem = goal.problem(**settings)
        return self._problem.fit(pop, init=starts).params

    def _for_squares(self, sample: Sample) -> Sample:
        """Rows whose least squares are as near to the loss as the best formula so far lets know."""
        if self.settings.loss == "squares":
            return sample
        return Goal(self.settings.loss, sample).as_squares(self._best_values(sample))

    def _best_values(self, sample: Sample) -> np.ndarray:
        """Of the formula of least loss so far."""
        entries = self.front.entries()
        if not entries:
            return np.full(len(sample), float(sample.w @ sample.y / sample.total))
        values: np.ndarray = values_of([entries[-1].expression], sample.X, self.settings.threads)[0]
        return values


def is_noise_left(front: Front, goal: Goal) -> bool:
    """Whether formulas that are nearly as long as may be are no better than shorter ones, which are good already."""
    sample = goal.sample
    mean = float(sample.w @ sample.y / sample.total)
    good = effort.GOOD * float(goal.losses(np.full((1, len(sample)), mean))[0])
    before = [entry.loss for entry in front.entries() if entry.size <= front.maxsize - effort.LONGER]
    return bool(before) and front.floor < front.least < good and min(before) < effort.NOT_BETTER * front.least
