"""The scikit-learn interface of the search.

In: data and settings.  Out: an estimator, its formulas as tables, text and figures.

========================  =========================================================================
``regressor``             ``SymbolicRegressor``; ``chosen_operators``: those that it may use
``expression_regressor``  ``ExpressionRegressor``, which fits formulas that it is given
``formulas``              what can be read of a fitted one
``equations``             formulas as tables, LaTeX, Python and figures; which is selected
``refusals``              scikit-learn's checks of the data
``reduction``             ``reduce``: products of powers and differences that data depend on
``progress``              what is shown while it searches
``checkpoint``            a search on disk; ``model_file``: what it found; ``searches_file``: what several found
========================  =========================================================================
"""
