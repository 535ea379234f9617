"""``Expression``, ``Population``, their parser and generators.

In: what a user gives, or an alphabet.  Out: ``Population`` (postfix tokens in five arrays) and ``Expression``.

======================  ==================================================================
``parser``              text, SymPy and Expressions to a population
``generate``            ``exhaustive`` and ``random_trees``, their ``arguments`` checked
``expression``          one expression, written with Python's operators
``function_operators``  operators of the user's own that are functions
``population``          many; ``population_file``: on disk; ``checks``: what must hold of them
``duplicates``          which of many are equal, up to the order of operands or by structure
``rewrite``             the table's rewrite rules
``dag``                 an expression without common subexpressions, and its derivatives
``differentiate``       derivatives as expressions
======================  ==================================================================
"""

from collections.abc import Callable
from typing import Any

evaluator: Callable[..., Any]  # ``ek.Evaluator``, which stands above expressions: the package sets it
