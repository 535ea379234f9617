"""Formulas: trees, numbers, values, shortest forms, and the front of the best.

In: expressions.  Out: equal ones in other forms; the best of each size.

==============  ==================================================================
``trees``       an expression as nested tuples, and back
``numbers``     numbers rounded to fractions, fractions of pi, short decimals
``parameters``  constants as parameters, and back
``values``      values at rows of data
``simplify``    algebraic simplification to the fewest tokens
``front``       the Pareto front of size and loss
==============  ==================================================================
"""
