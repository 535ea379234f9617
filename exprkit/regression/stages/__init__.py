"""Stages of a search: each yields formulas of one kind, which the search offers to the front.

In: a ``SearchProblem``, frozen but for the front that the search writes.  Out: steps, most of them lists of formulas.

===================  ==========================================================================================
``settings``         what a user asked for
``search_problem``   ``SearchProblem``: what a stage may read; the ``Step``s that it may yield
``simplification``   formulas of the front with fewer or simpler numbers
``search``           ``FormulaSearch``: runs stages and alone writes to the front
``begin``            ``begin``: the mean, and the user's guesses
``exact``            ``join``, ``join_three``, ``join_more``, ``sum_exactly``: several functions make y exactly
``nested``           ``curve``, ``nest``, ``nest_more``: numbers inside of operators
``sums``             ``single``, ``sum``, ``sum_within``: one and several functions by least squares
``fewer_variables``  ``group``, ``factor``, ``product``: other stages with fewer variables
``growth``           ``grow_first``, ``grow``: formulas of the front with one function more
``pairs``            ``regress``: all pairs of a pool by least squares
``generations``      ``breed``: genetic programming, begun with all of that
``discovery``        the table of the stages in order; ``Discovery`` runs them
===================  ==========================================================================================
"""
