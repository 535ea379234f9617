"""The scikit-learn interface of the search.

In: data and settings.  Out: an estimator, its formulas as tables, text and figures.

==============  ==============================================================
``regressor``   ``SymbolicRegressor``
``equations``   formulas as tables, LaTeX, Python and figures; which is selected
``refusals``    tables in which nothing can be found
``progress``    what is shown while it searches
``checkpoint``  a search on disk; ``model_file``: what it found
==============  ==============================================================
"""
