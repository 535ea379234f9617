"""``TemplateSearch``: a search for each unknown function of a template, and joint fits that choose among formulas.

In: a ``LawSkeleton``, ``Rows`` and ``SearchSettings``.  Out: a front of ``JudgedLaw``s.

1. All unknowns are fitted as polynomials (``smooth``).
2. Each unknown function is searched for: where nothing else is unknown, with the values that the template, solved for
   it at every row, leaves to it; else with its polynomial's.
3. The best formulas of all are put together in every way and fitted jointly; those described shortest stay.
4. With the others as they are by now, the template is solved for each function in turn, which is searched for again.

Where numbers of the functions go by category, functions are searched for in single categories as well, all numbers are
fitted in each category, and those become one that are described shorter so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN, Front
from exprkit.regression.formulas.parameters import as_constants, is_fraction
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.accident import CoincidenceTest
from exprkit.regression.rules.admission import FormulaRules
from exprkit.regression.rules.constraints import Limit
from exprkit.regression.skeletons.law import TemplateLaw, with_leaves
from exprkit.regression.skeletons.skeleton import LawSkeleton
from exprkit.regression.skeletons.smooth import nats_explained, smooth
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import FITS, SearchSettings
from exprkit.runtime.budget import Budget, Ended, spend
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

# Chosen, not measured.
POOL = 5_000  # functions of a pool for a second of a search: the pairs of 20,000 take 1.3 s
KEPT = 0.2  # share of the time, for fits of all functions together
FIRST = 2  # times the time of a later search is that of the first for a function
ROUNDS = 2  # of searches with the other functions as they are
COMBINED = 150  # laws that are put together of all functions' formulas
REFITTED = 12  # formulas of a function that are fitted with the others
BEST = 4  # laws whose needless numbers are taken out
NEWTON = 40  # steps in which a template is solved for a function
SOLVED = 1e-12  # share of |y| by which a solution may be off
LIGHT = 1e-12  # share of the largest weight, below which a row says nothing of a function
AS_SMOOTH = 0.1  # share of what polynomials leave, with which a search for one of them ends
AS_EXACT = 1e-18  # share of the variance with which other searches end, and a whole formula is exact
CATEGORIES = 2  # that are searched alone: those of which a polynomial explains most
RESTARTS = 6  # of fits in a category
MEMORY = 3  # categories whose numbers others start from
LEAST = 1e-300  # a loss of 0 has no logarithm
Held = Callable[[float], bool]
HELD: tuple[Held, Held] = (
    (lambda number: False),
    is_fraction,
)  # which numbers of a formula stay as they were found, in two fits
LONGEST = 1 << 15  # tokens of a whole formula


class JudgedLaw(NamedTuple):
    """A law, fitted, with what describes the data by it."""

    law: TemplateLaw
    loss: float
    is_exact: bool
    nats: float


_nats = attrgetter("nats")


class TemplateSearch:
    """The search for a template's functions.

    Parameters
    ----------
    skeleton : LawSkeleton
    rows : Rows
        X has the template's columns, and one for each category behind them.
    settings : SearchSettings
        Of the search for each function.
    budget : Budget
        Of all searches together, each of which has a share of it.
    by_category : bool
        Whether the numbers of the functions may go by category.
    limits : dict
        Limits of operators, by code, in every function; of variables as columns.
    """

    def __init__(
        self,
        skeleton: LawSkeleton,
        rows: Rows,
        settings: SearchSettings,
        budget: Budget,
        by_category: bool,
        limits: Mapping[int, Limit] | None = None,
    ) -> None:
        self.skeleton, self.rows, self.settings, self.budget = skeleton, rows, settings, budget
        self._by_category = by_category
        self._problem = FormulaSearch(rows, replace(settings, maxsize=LONGEST), budget).problem
        self._floor = max(self._problem.goal.floor, AS_EXACT * self._problem.mean_loss, np.finfo(float).tiny)
        self._best: dict[int, JudgedLaw] = {}  # by tokens
        self.left_out: list[str] = []  # what a limit ended early, or left out
        self._coincidence_test = CoincidenceTest(rows)
        indicators = rows.X[:, len(skeleton.columns) :]
        self._n_categories = max(indicators.shape[1], 1)
        self._codes = indicators.argmax(axis=1) if indicators.shape[1] else np.zeros(len(rows), np.int64)
        self._calls = {name: skeleton.calls_of(name) for name in skeleton.functions}
        self._rules = {name: self._rules_of(name, limits) for name in skeleton.functions} if limits else {}

    def run(self) -> str:
        """Search; returns why it ended."""
        with self.budget.counting(), np.errstate(all="ignore"):
            try:
                return self._run()
            except Ended as ended:
                return str(ended)

    def _run(self) -> str:
        ones = [np.ones(self._n_categories if is_by else 1) for is_by in self.skeleton.numbers.values()]
        self.judge([TemplateLaw.of([(CONSTANT, 1.0)] * len(self._calls), ones, HELD[0])])
        polynomials = smooth(self.skeleton, self.rows)
        n, alone = len(self.skeleton.calls), len(self.skeleton.calls) == 1 and not self.skeleton.numbers
        n_searches = len(self._calls) * (FIRST + (0 if alone else ROUNDS))
        numbers = self._numbers_of(polynomials.unknowns[n:])
        fronts = [
            self._searched(name, polynomials.unknowns, polynomials.left, alone, (n_searches - FIRST * k) / FIRST)
            for k, name in enumerate(self._calls)
        ]
        most = max(int(COMBINED ** (1 / len(fronts))), 2)
        combinations = [*itertools.product(*(front[:most] for front in fronts))]
        best = self._best_of(lambda held, n: [TemplateLaw.of(parts, numbers, held, n) for parts in combinations])
        left = n_searches - FIRST * len(fronts)
        while left and not best.is_exact and not self.budget.is_over:
            before = best.nats
            for k, name in enumerate(self._calls):
                parts = self._searched(name, self._unknowns(best.law), polynomials.left, True, left - k)[:REFITTED]
                exchanged = partial(_exchanged, best.law, k, parts)
                best = min(best, self._best_of(exchanged), key=_nats)
                if best.is_exact:
                    break
            left -= len(fronts)
            if best.nats >= before:
                return "no function could be made better with the others as they are"
        if self.budget.is_over:
            self.budget.check()
        return "a formula is exact" if best.is_exact else "all functions were searched for"

    # ── rules ──

    def _rules_of(self, name: str, limits: Mapping[int, Limit]) -> FormulaRules:
        """The limits as they are for a function of arguments: of its variables those whose columns are all allowed."""
        arguments = zip(*(self.skeleton.calls[k].arguments for k in self._calls[name]), strict=True)
        used = [{int(i) for one in every for i in one.values[one.kinds == VARIABLE]} for every in arguments]

        def own(limit: Limit) -> Limit:
            if limit.variables is None:
                return limit
            return limit._replace(variables=tuple(k for k, of in enumerate(used) if of <= {*(limit.variables or ())}))

        return FormulaRules(len(used), limits={code: own(limit) for code, limit in limits.items()})

    def _is_allowed(self, law: TemplateLaw) -> bool:
        """Whether each function keeps to the limits, with the numbers of the first category."""

        def number(leaf: Tree) -> Tree:
            return (CONSTANT, float(law.values[leaf[1]][0])) if leaf[0] == PARAMETER else leaf

        trees = dict(zip(self._calls, law.functions, strict=True))
        formulas = ((rules, expression_of(with_leaves(trees[name], number))) for name, rules in self._rules.items())
        return all(rules.allow(Population.of([formula]))[0] for rules, formula in formulas)

    # ── the unknowns at the rows ──

    def _numbers_of(self, values: np.ndarray) -> list[np.ndarray]:
        """The template's numbers, of their values at every row."""
        first = [int(np.argmax(self._codes == g)) for g in range(self._n_categories)]
        by_group = self.skeleton.numbers.values()
        return [own[first] if is_by else own[:1] for own, is_by in zip(values, by_group, strict=True)]

    def _unknowns(self, law: TemplateLaw) -> np.ndarray:
        """Values of calls and numbers at the rows, (n_unknowns, n_rows)."""
        skeleton, at_rows = self.skeleton, law.at(self._codes)
        functions = dict(zip(skeleton.functions, law.functions, strict=True))
        values = []
        for k, call in enumerate(skeleton.calls):
            arguments = skeleton.arguments(k, self.rows.X)
            values.append(_values(functions[call.function], arguments, at_rows))
        values += [_values(tree, self.rows.X, at_rows) for tree in law.numbers]
        return np.array(values)

    def _solved(self, k: int, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the template, solved for call k, gives at every row, and its weights; by Newton's method.

        Where there is no solution nearby, one step is made (the working response of generalised linear models,
        J. A. Nelder and R. W. M. Wedderburn, J. R. Statist. Soc. A 135, 1972).
        """
        now, y = unknowns.copy(), self.rows.y
        values, slopes = self.skeleton.values(self.rows.X, now)
        response, weights = now[k] + (y - values) / slopes[k], slopes[k] ** 2
        for _ in range(NEWTON):
            step = (values - y) / slopes[k]
            most = 1 + np.abs(now[k])
            now[k] -= np.clip(np.where(np.isfinite(step), step, 0.0), -most, most)
            values, slopes = self.skeleton.values(self.rows.X, now)
        is_solved = np.abs(values - y) <= SOLVED * (np.abs(y) + np.abs(y).mean())
        return np.where(is_solved, now[k], response), np.where(is_solved, slopes[k] ** 2, weights) * self.rows.w

    # ── searches ──

    def _searched(self, name: str, unknowns: np.ndarray, left: float, is_solved: bool, n_left: float) -> list[Tree]:
        """Formulas of an unknown function, the most promising first.

        ``is_solved``: whether the others are known by now; else the values of polynomials are searched for.
        """
        calls, X = self._calls[name], self.rows.X
        if is_solved and len(calls) == 1:
            y, w = self._solved(calls[0], unknowns)
            goal = AS_EXACT
        else:
            if is_solved:
                own = smooth(self.skeleton, self.rows, unknowns, name)
                unknowns, left = own.unknowns, own.left
            slopes = self.skeleton.values(X, unknowns)[1]
            y = np.concatenate([unknowns[k] for k in calls])
            w = np.concatenate([slopes[k] ** 2 * self.rows.w for k in calls])
            goal = max(AS_SMOOTH * left, AS_EXACT)
        arguments = np.concatenate([self.skeleton.arguments(k, X) for k in calls])
        codes = np.tile(self._codes, len(calls))
        places = [np.arange(len(y))]
        if self._by_category:
            each = [np.flatnonzero(codes == g) for g in range(self._n_categories)]
            told = [nats_explained(arguments[rows], y[rows], w[rows]) for rows in each]
            places += [each[g] for g in np.argsort(told, kind="stable")[::-1][:CATEGORIES]]
        formulas: list[Tree] = []
        for i, rows in enumerate(places):
            formulas += self._search(name, arguments[rows], y[rows], w[rows], goal, n_left * len(places) - i)
        return list(dict.fromkeys(formulas)) or [(CONSTANT, 1.0)]

    def _search(self, name: str, X: np.ndarray, y: np.ndarray, w: np.ndarray, goal: float, n_left: float) -> list[Tree]:
        """Formulas of y, the most promising first; with the share 1 / n_left of the time that is left."""
        self.budget.keep_back(KEPT)
        if self.budget.is_over:
            self.left_out.append(f"search for {name}")
            return []
        good = np.isfinite(y) & np.isfinite(w) & np.isfinite(X).all(axis=1)
        good &= w > LIGHT * w.max(initial=0.0, where=good)
        if not good.any():
            return [(CONSTANT, 1.0)]
        if not np.ptp(y[good]):
            return [(CONSTANT, float(y[good][0]))]
        w = w[good] / w[good].mean()
        rows = Rows(X[good], y[good], w)
        least = goal * float(np.cov(rows.y, aweights=rows.w))
        rules = self._rules.get(name)
        settings = replace(self.settings, loss="squares", early_stop=lambda loss, size: loss <= least, rules=rules)
        budget = self.budget.shared(1 / n_left)
        if budget.limit is not None:
            size = int(POOL * budget.limit)
            settings = replace(
                settings, pool_size=size if settings.pool_size is None else min(settings.pool_size, size)
            )
        discovery = Discovery(rows, settings, budget)
        discovery.run()
        self.left_out += [f"{stage} of {name}" for stage in discovery.left_out]
        self.budget.spend(budget.work / 1e6)
        self.budget.count(budget.n_evals)
        return [tree_of(formula) for formula in _ranked(discovery.search.front)]

    # ── laws ──

    def _best_of(self, make: Callable[[Held, int], list[TemplateLaw]]) -> JudgedLaw:
        """The law described shortest after fits, without needless numbers.

        ``make`` gives laws for which numbers are held, and how many values each of the others has.
        """
        self.budget.keep_back(0.0)
        laws = [law for held in HELD for law in make(held, 1)]
        if self._by_category:
            laws += self._fitted_in_each(make(HELD[0], self._n_categories))
        judged = sorted(self.judge(laws), key=_nats)
        best = self._without_needless(judged[0])
        for other in judged[1:BEST]:
            if not self.budget.is_over:
                best = min(best, self._without_needless(other), key=_nats)
        return best

    def _without_needless(self, best: JudgedLaw) -> JudgedLaw:
        """A law with fewer numbers, or fewer of them by category, as long as it is described shorter so."""
        while others := [*best.law.shared(), *best.law.shorter()]:
            least = min(self.judge(others), key=_nats)
            if least.nats >= best.nats:
                break
            best = least
        return best

    def judge(self, laws: list[TemplateLaw]) -> list[JudgedLaw]:
        """Laws with the numbers of least loss, which the front is offered."""
        laws = list({law.flat(self.skeleton): law for law in laws}.values())
        pop = Population.of([expression_of(law.flat(self.skeleton)) for law in laws])
        starts = _padded([np.concatenate([*law.values, []]) for law in laws])
        if pop.max_params:
            params = self._problem.fitted(pop, starts)
            params = np.where(np.isfinite(params), params, starts)
            laws = [law.with_values(row) for law, row in zip(laws, params, strict=True)]
        self.budget.count(len(laws))
        fitted = as_constants(pop, _padded([np.concatenate([*law.values, []]) for law in laws]))
        values = values_of(list(fitted), self.rows.X)
        losses, exact = self._problem.goal.losses(values), self.rows.is_exact(values)
        return [self._offered(law, *one) for law, *one in zip(laws, losses.tolist(), exact.tolist(), strict=True)]

    def _offered(self, law: TemplateLaw, loss: float, is_exact: bool) -> JudgedLaw:
        formula = expression_of(law.shown(self.skeleton, len(self.skeleton.columns)))
        n_numbers = sum(map(len, law.values))
        is_exact = (is_exact or loss <= self._floor) and n_numbers < len(self.rows)
        is_exact = is_exact and self._coincidence_test.exceeds(formula)
        nats = (
            self.rows.total / 2 * np.log(max(loss, self._floor))
            + NATS_PER_TOKEN * formula.n_tokens
            + NATS_PER_NUMBER * n_numbers
        )
        judged = JudgedLaw(law, loss, is_exact, nats if np.isfinite(loss) and self._is_allowed(law) else np.inf)
        if np.isinf(judged.nats):
            return judged
        self._best[formula.n_tokens] = min(judged, self._best.get(formula.n_tokens, judged), key=_nats)
        return judged

    def laws(self) -> list[JudgedLaw]:
        """The law described shortest of each number of tokens, if no law of fewer tokens is as good."""
        front: list[JudgedLaw] = []
        for _, law in sorted(self._best.items()):
            if not front or max(law.loss, self._floor) < front[-1].loss:
                front.append(law)
        return front

    @property
    def goal(self) -> Goal:
        return self._problem.goal

    def _fitted_in_each(self, laws: list[TemplateLaw]) -> list[TemplateLaw]:
        """Laws whose numbers go by category, but for those of the template, fitted in each category alone.

        Starts are the law's numbers and those of categories before.
        """
        laws = [law for law in laws if any(len(own) > 1 for own in law.values)]
        if not laws:
            return []
        trees = [law.formula(self.skeleton, law.without_shared) for law in laws]
        pop = Population.of([expression_of(tree) for tree in trees])
        values = [np.array([np.broadcast_to(own, self._n_categories) for own in law.values]) for law in laws]
        starts = [_padded([own[:, 0] for own in values])[:, : pop.max_params]]
        order = np.argsort(-np.bincount(self._codes, minlength=self._n_categories), kind="stable")
        for g in order.tolist():
            self.budget.check()
            rows = self.rows.at(np.flatnonzero(self._codes == g))
            problem = Goal(self.settings.loss, rows).problem(**FITS)
            work = len(starts) + RESTARTS
            spend(work * (WORK.fits + len(pop) * WORK.fit + len(pop.kinds) * len(rows) * WORK.fit_value))
            params = problem.fit(pop, init=np.array(starts), restarts=RESTARTS).params
            params = np.where(np.isfinite(params), params, starts[0])
            for own, row in zip(values, params, strict=True):
                own[: len(row), g] = row[: len(own)]
            starts = [starts[0], *starts[1:][-MEMORY:], params]
        return [
            law._replace(values=tuple(new if len(old) > 1 else old for new, old in zip(own, law.values, strict=True)))
            for law, own in zip(laws, values, strict=True)
        ]


def _exchanged(law: TemplateLaw, k: int, parts: list[Tree], held: Held, n: int) -> list[TemplateLaw]:
    """Laws with other formulas for function k."""
    return [law.exchanged(k, tree, held, n) for tree in parts]


def _values(tree: Tree, arguments: np.ndarray, at_rows: list[np.ndarray]) -> np.ndarray:
    """Values of a tree over arguments, and numbers of which each row has its own."""
    n = arguments.shape[1]
    over = with_leaves(tree, lambda leaf: (VARIABLE, n + leaf[1]) if leaf[0] == PARAMETER else leaf)
    values: np.ndarray = values_of([expression_of(over)], np.column_stack([arguments, *at_rows]))[0]
    return values


def _padded(rows: list[np.ndarray]) -> np.ndarray:
    """Rows of several lengths as a matrix, with 0 behind their ends."""
    padded = np.zeros((len(rows), max(map(len, rows), default=0)))
    for own, row in zip(padded, rows, strict=True):
        own[: len(row)] = row
    return padded


def _ranked(front: Front) -> list[Expression]:
    """The formulas of a front: what is exact, then in turn those described shortest and those of the steepest steps."""
    entries = front.entries()
    exact = [entry for entry in entries if entry.is_exact]
    short = sorted(entries, key=lambda entry: front.nats(entry) + NATS_PER_TOKEN * entry.size)
    pairs = itertools.pairwise(entries)
    falls = {a: np.log(max(b.loss, LEAST) / max(a.loss, LEAST)) / (a.size - b.size) for b, a in pairs}
    steep = [*sorted(falls, key=falls.__getitem__), *entries[:1]]
    turns = itertools.chain.from_iterable(zip(short, steep, strict=True))
    return [entry.expression for entry in dict.fromkeys([*exact, *turns])]
