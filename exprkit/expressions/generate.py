"""Generators of populations: every expression up to a size, or random ones.

A source of populations beside ``parse``; everything after it is the same.

    >>> from exprkit.expressions import generate
    >>> len(generate.exhaustive(3, operators=("add", "sqr"), n_vars=2, n_params=1))
    14
"""

from exprkit.expressions.exhaustive import count_exhaustive, exhaustive
from exprkit.expressions.random_trees import random

__all__ = ["count_exhaustive", "exhaustive", "random"]
