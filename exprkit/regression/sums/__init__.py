"""Linear combinations of several pool functions, by least squares.

In: a pool, the rows.  Out: formulas of a few terms, also under a root or below a fraction line.

=============  ==============================================================
``selection``  of every size the sets of functions of least error
``exact``      sums of few functions that make y exactly, in a moment
``dependent``  quotients of sums, and roots of quadratic equations, that make y exactly
``quotients``  the same by least squares, also in noise
``monomials``  products of powers of variables as terms
``inside``     terms with a number inside of an operator
``single``     one function of very many
``linear``     least squares of all columns
``formulas``   what is a term, and the sets as formulas
``nearest``    pairs whose product or sum is nearest to y, in noise
``regress``    all pairs of a small pool
=============  ==============================================================
"""
