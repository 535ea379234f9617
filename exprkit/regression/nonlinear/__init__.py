"""Numbers inside of operators, which no lookup and no linear regression finds.

In: a sample, functions, operators.  Out: formulas.

=============  ===============================================================
``templates``  one number inside of an operator, or beside a 1, over a grid
``factored``   a factor with a number inside, beside a line
``curves``     several numbers inside, fitted from several starts
=============  ===============================================================
"""
