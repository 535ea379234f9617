"""Searches with a template or groups: the data of one, and its laws as the front of a ``SymbolicRegressor``.

In: a model with ``template`` or ``groups``, and data.  Out: the model's front, and the functions of each formula.
"""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import islice
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief
from exprkit.evaluate.tables import DataTable
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.regression.estimator import equations, numbers
from exprkit.regression.estimator.equations import DescribedFront
from exprkit.regression.estimator.refusals import checked_data, names_of
from exprkit.regression.formulas.archive import FormulaArchive
from exprkit.regression.formulas.front import Entry
from exprkit.regression.formulas.trees import Tree, expression_of, tree_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import Goal, rows_for
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules import constraints
from exprkit.regression.skeletons.alternate import JudgedLaw, TemplateSearch
from exprkit.regression.skeletons.law import TemplateLaw, with_leaves
from exprkit.regression.skeletons.skeleton import LawSkeleton
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.runtime import codec, machine
from exprkit.runtime.budget import Budget
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

REFUSED = (  # settings that a search with a template does not have
    *("monotone", "convex", "positive", "y_bounds", "box"),
    *("early_stop_condition", "guesses", "warm_start", "checkpoint", "progress", "devices", "client"),
)
MOST_CATEGORIES = 100  # of a column, as of ``ek.fit``
WHOLE = "f"  # the unknown function that is the whole formula, where only groups are given


class TemplateFront:
    """The laws of a front, the shortest first, over the columns and the numbers that go by category."""

    def __init__(
        self, skeleton: LawSkeleton, laws: list[TemplateLaw], group: str | None, categories: list[str]
    ) -> None:
        self.skeleton, self.laws, self.group, self.categories = skeleton, laws, group, categories

    def names(self, i: int) -> list[str]:
        """The names of law i's numbers that go by category."""
        law = self.laws[i]
        own = {tree[1]: name for name, tree in zip(self.skeleton.numbers, law.numbers, strict=True)}
        words = [own.get(j, f"p{j + 1}") for j in range(len(law.values))]
        return [f"{word}[{self.group}]" for word, values in zip(words, law.values, strict=True) if len(values) > 1]

    @property
    def every_name(self) -> list[str]:
        return [name for i in range(len(self.laws)) for name in self.names(i)]

    @property
    def numbers(self) -> list[np.ndarray]:
        """Numbers of all laws that go by category, (n_categories,) each."""
        return [values for i in range(len(self.laws)) for values in self.numbers_of(i)]

    def numbers_of(self, i: int) -> list[np.ndarray]:
        """Those of law i."""
        return [values for values in self.laws[i].values if len(values) > 1]

    def codes(self, words: list[str]) -> np.ndarray:
        """The places of categories; raises DataError for one that the fit did not have."""
        place = {word: g for g, word in enumerate(self.categories)}
        if unknown := [word for word in words if word not in place]:
            known = ", ".join(self.categories)
            raise DataError(f"column {self.group!r} has the category {unknown[0]!r}; the formulas know {known}")
        return np.array([place[word] for word in words], np.int64)

    def columns(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """The columns of X and of the numbers that go by category."""
        return np.ascontiguousarray(np.column_stack([X, *(values[codes] for values in self.numbers)]))

    def formulas(self) -> list[Expression]:
        """The whole formulas over ``columns``."""
        first, formulas = len(self.skeleton.columns), []
        for i, law in enumerate(self.laws):
            formulas.append(expression_of(law.shown(self.skeleton, first)))
            first += len(self.names(i))
        return formulas

    def functions(self, i: int) -> dict[str, Expression]:
        """The unknown functions of law i by name, over the columns that they are of, else x1, x2, …"""
        law, own = self.laws[i], {}
        for (name, n), tree in zip(self.skeleton.functions.items(), law.functions, strict=True):
            arguments = self.skeleton.calls[self.skeleton.calls_of(name)[0]].arguments
            words = [f"x{k + 1}" for k in range(n)]
            if len(self.skeleton.calls_of(name)) == 1 and all(list(one.kinds) == [VARIABLE] for one in arguments):
                words = [self.skeleton.columns[int(one.values[0])] for one in arguments]
            formula = expression_of(with_leaves(tree, law.leaves(n)))
            own[name] = Expression(formula.kinds, formula.values, (*words, *self.names(i)))
        return own

    def to_arrays(self) -> dict[str, Any]:
        """The arrays of the laws in a file."""
        trees = [tree for law in self.laws for tree in (*law.functions, *law.numbers)]
        values = [own for law in self.laws for own in law.values]
        return codec.in_part("trees", Population.of([expression_of(tree) for tree in trees]).to_arrays()) | {
            "text": self.skeleton.text,
            "columns": np.array(self.skeleton.columns, np.str_),
            "group": self.group,
            "categories": np.array(self.categories, np.str_),
            "n_values": np.array([len(law.values) for law in self.laws]),
            "lengths": np.array([len(own) for own in values], np.int64),
            "values": np.concatenate([*values, []]),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> TemplateFront:
        """The laws among the arrays of a file."""
        group = str(arrays["group"]) if "group" in arrays else None
        skeleton = LawSkeleton.of(str(arrays["text"]), arrays["columns"].tolist(), group)
        trees = map(tree_of, Population.from_arrays(codec.of_part("trees", arrays)))
        values = iter(np.split(arrays["values"].astype(np.float64), np.cumsum(arrays["lengths"])[:-1]))

        def law(n_values: int) -> TemplateLaw:
            functions, numbers = (tuple(islice(trees, len(own))) for own in (skeleton.functions, skeleton.numbers))
            return TemplateLaw(functions, numbers, tuple(islice(values, n_values)))

        laws = [law(n) for n in arrays["n_values"].tolist()]
        return cls(skeleton, laws, group, arrays["categories"].tolist())

    def covariances(self, goal: Goal, most: int) -> np.ndarray:
        """Of the constants of ``formulas``, (n, most, most): 0 of known ones; ``goal`` has a column a category."""
        pop = Population.of([expression_of(law.flat(self.skeleton)) for law in self.laws])
        params = np.zeros((len(pop), pop.max_params))
        for row, law in zip(params, self.laws, strict=True):
            row[: sum(map(len, law.values))] = np.concatenate([*law.values, []])
        flat = numbers.covariances(goal, pop, params)
        shown = np.full((len(pop), most, most), np.nan)
        for i, law in enumerate(self.laws):
            begins, order = np.cumsum([0, *map(len, law.values)]).tolist(), list[int]()

            def note(leaf: Tree, law: TemplateLaw = law, begins: list[int] = begins, order: list[int] = order) -> Tree:
                if leaf[0] == CONSTANT or (leaf[0] == PARAMETER and len(law.values[leaf[1]]) == 1):
                    order.append(begins[leaf[1]] if leaf[0] == PARAMETER else -1)
                return leaf

            law.formula(self.skeleton, note)
            known = np.pad(flat[i], (0, 1))  # behind the last number: known ones
            shown[i, : len(order), : len(order)] = known[np.ix_(order, order)]
        return shown


def fit(model: Any, X: Any, y: Any, sample_weight: Any, settings: SearchSettings, seed: int, begin: float) -> None:
    """Search for the functions of ``model.template``; the model has its front and what is told of the search then."""
    _refuse(model)
    table, words = DataTable(X, y, sample_weight), list[str]()
    if model.groups is not None:
        if not isinstance(model.groups, str):
            raise ArgumentError(f"groups must be the name of a column of X, not {brief(model.groups)}")
        words = table.taken(model.groups)
    categories = sorted(set(words))
    if len(categories) > MOST_CATEGORIES:
        raise DataError(
            f"column {model.groups!r} has {len(categories):,} categories; a number can have {MOST_CATEGORIES}"
        )
    X, y, weights = checked_data(model, table)
    model._names, model._target_name = names_of(model), table.target
    columns = model._words()
    every = ", ".join(name if name.isidentifier() else f"`{name}`" for name in columns)
    text = f"{WHOLE}({every})" if model.template is None else model.template
    skeleton = LawSkeleton.of(text, columns, model.groups)
    n, indicators = X.shape[1], np.array([[word == one for one in categories] for word in words], np.float64)
    table_of_all = np.column_stack([X, indicators]) if words else X
    rows = rows_for(model._loss, table_of_all, y, weights, None).with_precision_of(np.asarray(table.y).dtype)
    weighted = model._weighted(rows) if sample_weight is None else rows
    few = weighted.at_most(effort.ROWS.search, seed)
    model.n_rows_searched_, model.noise_ = len(few), "constant" if weighted is rows else "proportional"
    by_category = model.groups is not None and not any(skeleton.numbers.values())
    budget = Budget(model.timeout_in_seconds, model.max_evals, begin=begin, by_work=model.deterministic)
    settings = replace(settings, seed=seed)
    limits = constraints.limits(model.constraints, model.nested_constraints, columns)
    search = TemplateSearch(skeleton, few, settings, budget, by_category, limits)
    model.interrupted_ = False
    with machine.limited(settings.threads):
        try:
            model.stopped_ = budget.run(search.run)
        except KeyboardInterrupt:
            model.interrupted_, model.stopped_ = True, "it was interrupted"
        judged, final = search.laws(), search
        if any(one.is_exact for one in judged):
            weighted, model.noise_ = rows, "constant"
        if weighted is not few:
            final = TemplateSearch(skeleton, weighted, settings, Budget(), by_category, limits)
            final.judge([one.law for one in judged])
            judged = final.laws()
        front = TemplateFront(skeleton, [one.law.in_order(skeleton) for one in judged], model.groups, categories)
        model._front = _described(front, judged, final, columns if words else model._names)
    model._forget()
    model._template, model._n_rows = front, len(weighted)
    plotted = weighted.at_most(effort.ROWS.search, 0)
    model._data = _over_numbers(front, plotted, n).X, plotted.y
    model.n_evals_, model.seconds_, model.cut_, model.refused_ = (
        budget.n_evals,
        budget.seconds,
        list(dict.fromkeys(search.left_out)),
        {},
    )
    archive = FormulaArchive(0 if words else int(model.keep_visited))
    archive.add(Population.of([entry.expression for entry in model._front.entries]), [one.loss for one in judged])
    model.visited_ = archive.formulas(columns)


def _refuse(model: Any) -> None:
    """An error for settings that a search with a template does not have."""
    defaults = {field.name: field.default for field in fields(model)}
    given = "template" if model.template is not None else "groups"
    for name in REFUSED:
        if getattr(model, name) != defaults[name]:
            raise ArgumentError(f"{name} is of searches without {given}=: leave one of the two out")


def _over_numbers(front: TemplateFront, rows: Rows, n: int) -> Rows:
    """The rows with columns of numbers by category in the place of those of categories."""
    indicators = rows.X[:, n:]
    codes = indicators.argmax(axis=1) if indicators.shape[1] else np.zeros(len(rows), np.int64)
    return rows.with_X(front.columns(rows.X[:, :n], codes))


def _described(
    front: TemplateFront, judged: list[JudgedLaw], search: TemplateSearch, names: tuple[str, ...] | None
) -> DescribedFront:
    n, formulas = len(front.skeleton.columns), front.formulas()
    goal = Goal(search.settings.loss, _over_numbers(front, search.rows, n))
    entries = [
        Entry(formula, one.loss, formula.n_tokens, True, one.is_exact)
        for formula, one in zip(formulas, judged, strict=True)
    ]
    every = None if names is None else (*names, *front.every_name)
    described = equations.described(entries, goal, every, search.goal.floor)
    covariances = front.covariances(search.goal, described.numbers.shape[1])
    described = replace(described, covariances=covariances, exact=np.array([one.is_exact for one in judged]))
    if front.group is None:
        return described
    nats = np.array([one.nats for one in judged])  # numbers that go by category are columns for ``described``
    return replace(described, lengths=nats, expected=nats, poles=np.zeros(len(judged), bool))
