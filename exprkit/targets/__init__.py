"""Several targets of the same data: a formula for each, with parts that they share.

In: X and targets in columns.  Out: formulas, in the conventions of scikit-learn for targets of several columns.

=============  =============================================================================
``parts``      parts of formulas, each once however its operands are ordered
``regressor``  ``MultiTargetRegressor``: a search per target, and the choice among their formulas
=============  =============================================================================
"""
