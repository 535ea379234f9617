"""The beginning of a search: the mean, and what the user guesses.

In: a ``FormulaSearch``.  Out: a front that is not empty.
"""

from __future__ import annotations

from exprkit.errors import ArgumentError
from exprkit.expressions.parser import parse
from exprkit.regression.problem import effort
from exprkit.regression.rules.groups import monomials_in_unit_of_y
from exprkit.regression.stages.search import FormulaSearch


def begin(search: FormulaSearch) -> None:
    sample, settings = search.sample, search.settings
    for guess in settings.guesses:
        if search.spelling is not None and search.spelling.spell(guess) is None:
            raise ArgumentError(
                f"guesses: {str(guess)!r} has an operator that was not chosen; add it to binary_operators or "
                "unary_operators, or leave these out"
            )
    mean = float(sample.w @ sample.y / sample.total)
    search.offer([*search.refitted([*parse([repr(mean)]), *settings.guesses]), *settings.guesses])
    if not search.front.entries():  # a number has no units, but 0 has all
        systems = settings.rules.unit_systems if settings.rules else []
        most = effort.FEWER_VARIABLES.max_unit_systems
        search.offer([*parse(["0"]), *monomials_in_unit_of_y(sample, systems, most)])
