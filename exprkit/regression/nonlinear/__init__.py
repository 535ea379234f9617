"""Parameters inside operators, which neither a lookup nor a linear regression can find.

In: a sample, functions, operators.  Out: formulas.

=============  ===============================================================
``templates``  one number inside of an operator, or beside a 1, over a grid
``factored``   a factor with a number inside, beside a line
``curves``     several numbers inside, fitted from several starts
``growth``     a formula with one function more at any of its nodes
``wild``       whether a formula is far off between the rows
``noise``      whether what a formula leaves of y is noise
=============  ===============================================================
"""
