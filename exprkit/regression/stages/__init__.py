"""Stages of a search: each looks for formulas in its own way and offers them to the front.

In: a ``FormulaSearch``, with its data, its front and what all stages do.  Out: a better front.

===================  ==========================================================================================
``search``           ``FormulaSearch``: the front, the pools, fits, the look whether it is time to end
``begin``            ``begin``
``exact``            ``join``, ``join_three``, ``join_more``, ``sum_exactly``: several functions make y exactly
``fewer_variables``  ``group``, ``factor``: other stages with fewer variables
``nested``           ``curve``, ``nest``, ``nest_more``: numbers inside of operators
``sums``             ``single``, ``sum``, ``sum_within``: one and several functions by least squares
``growth``           ``grow_first``, ``grow``: formulas of the front with one function more
``pairs``            ``regress``: all pairs of a pool by least squares
``generations``      ``evolve``: populations, bred from all of that
===================  ==========================================================================================

``discovery`` has the stages in order, ``settings`` what a user asked for, ``simplification`` formulas of the front with
fewer or simpler numbers.
"""
