"""Symbolic regression: the search for formulas behind ``SymbolicRegressor``.

In: X and y.  Out: ``SymbolicRegressor``, with a front of formulas from the shortest to the most accurate.

==============  ===============================================================================
``sample``      the data, each different row once
``goal``        the loss, whatever it is
``polish``      formulas in their shortest form
``constants``   the numbers of formulas as parameters, and back; simpler ones
``pool``        distinct functions of the variables, told apart by their values
``links``       the forms in which two functions and two numbers make y, and their inverses
``join``        pairs of functions that make y exactly, a lookup each
``rests``       three functions that make y exactly, one of them taken off it
``nonlinear/`` numbers inside of operators: over a grid, or fitted from several starts
``sums/``       single functions, all pairs, and sums of several by least squares
``confirm``     pairs of the join as formulas, at all rows
``generations/`` populations of trees, bred and fitted on the host or on a GPU
``front``       of every size the formula of least loss
``simpler``     formulas of the front with fewer or simpler numbers
``rules/``      what a formula may be: units, constraints
``stages/``     all of that, a stage each
``discovery``   one stage after the other
``on_device/``  pool, join and regressions on a GPU
``estimator/``  what the user sees
==============  ===============================================================================
"""
