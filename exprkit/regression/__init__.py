"""Symbolic regression: the search for formulas behind ``SymbolicRegressor``.

In: X and y.  Out: ``SymbolicRegressor``, with a front of formulas from the shortest to the most accurate.

Each room uses those above it only:

================  ==============================================================================================
``problem/``      what is searched for: the rows, the loss, the noise, how much work each stage may do
``formulas/``     a formula as a tree, its numbers, its values, its shortest form; the Pareto front
``rules/``        what a formula may be: units, constraints, chosen operators
``pairs/``        two or three functions of a pool that make y exactly, a lookup each
``sums/``         linear combinations of functions by least squares
``shapes/``       numbers inside operators: templates, curves, growth; what they do between the rows
``generations/``  genetic programming on host threads or a GPU
``on_device/``    pools, lookups and regressions on a GPU
``stages/``       the order of all that, a stage each
``skeletons/``    templates with unknown functions, each with a search of its own
``estimator/``    what the user sees
================  ==============================================================================================
"""
