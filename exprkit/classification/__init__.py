"""Classes from formulas: the log-odds of each class as a formula.

In: labels.  Out: a formula of the log-odds for each class but the first, in the conventions of scikit-learn.

================  =============================================================================
``log_odds``      labels as probabilities, a first estimate, and what a search of squares is given
``classifier``    ``SymbolicClassifier``: searches for the log-odds, and fits of all their formulas
================  =============================================================================
"""
