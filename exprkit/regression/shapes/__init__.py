"""Formulas with parameters inside operators, by nonlinear least squares; and checks of fitted formulas.

In: Rows of data, functions, operators.  Out: fitted formulas; what they do between the rows.

================  ==============================================================================
``templates``     one parameter inside an operator, by grid search and linear regression
``factored``      the same in a factor of a line
``curves``        several parameters inside: Gaussian, Hill, logistic, ..., by multistart
``growth``        a formula with one function more at any of its nodes, by leave-one-out errors
``between_rows``  formulas that are undefined or far off between the rows
``poles``         formulas that are infinite between the rows
``turns``         periodic operators above the Nyquist frequency of the rows
``spread``        weights where noise grows in proportion to y
================  ==============================================================================
"""
