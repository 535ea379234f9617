"""The beginning of a search: the mean, and the user's guesses.

In: a ``SearchProblem``.  Out: formulas, at least one of which the front takes.
"""

from __future__ import annotations

from collections.abc import Iterator

from exprkit.errors import ArgumentError
from exprkit.expressions.parser import parse
from exprkit.regression.problem import effort
from exprkit.regression.rules.groups import monomials_in_unit_of_y
from exprkit.regression.stages.search_problem import SearchProblem, Step


def begin(problem: SearchProblem) -> Iterator[Step]:
    """The mean of y, and the user's guesses as they are and after constant optimisation.

    Where no number has the unit of y: 0, and the products of variables and constants of nature that have it.

    Raises
    ------
    ArgumentError
        For a guess that the chosen operators cannot write.
    """
    rows, settings = problem.rows, problem.settings
    for guess in settings.guesses:
        if problem.spelling is not None and problem.spelling.spell(guess) is None:
            raise ArgumentError(
                f"guesses: {str(guess)!r} has an operator that was not chosen; add it to binary_operators or "
                "unary_operators, or leave these out"
            )
    mean = float(rows.w @ rows.y / rows.total)
    yield [*problem.refitted([*parse([repr(mean)]), *settings.guesses]), *settings.guesses]
    if not problem.front.entries():
        system = settings.rules.unit_systems if settings.rules else []
        yield [*parse(["0"]), *monomials_in_unit_of_y(rows, system, effort.FEWER_VARIABLES.max_unit_systems)]
