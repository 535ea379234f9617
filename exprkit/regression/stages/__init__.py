"""Stages of a search: each yields formulas of one kind, which the search offers to the front.

In: a ``SearchProblem``, frozen but for the front that the search writes.  Out: steps, most of them lists of formulas.

===================  ==========================================================================================
``search_problem``   ``SearchSettings``; ``SearchProblem``: what a stage may read; the ``Step``s that it may yield
``simplification``   formulas of the front with fewer or simpler numbers
``search``           ``FormulaSearch``: runs stages and alone writes to the front
``exact``            ``join``, ``join_three``, ``join_more``, ``sum_exactly``: several functions make y exactly
``nested``           ``curve``, ``nest``, ``nest_more``: numbers inside of operators
``sums``             ``single``, ``match``, ``sum``, ``divide``, ``regress``: functions by least squares
``fewer_variables``  ``group``, ``translate``, ``reduce``, ``factor``: stages with fewer variables
``growth``           ``grow_first``, ``grow``: formulas of the front with one function more
``islands``          generations on several devices
``discovery``        ``begin``: the mean and the user's guesses; ``breed``: generations; ``Discovery``: the order of all
===================  ==========================================================================================
"""
