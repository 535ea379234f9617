"""Genetic programming: trees are bred, fitted and selected on host threads or a GPU by the same loops.

In: Rows of data, operators, blocks.  Out: generation by generation the formulas that are new bests of their size.

==============  ================================================================================
``variation``   tournaments, and new trees from old ones
``survival``    children as expressions to be fitted, and which trees go on
``breeding``    ``exprkit.breed``: the same for a population of one's own
``evolution``   a population of trees and its generations
==============  ================================================================================
"""
