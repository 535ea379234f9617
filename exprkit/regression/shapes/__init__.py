"""Numbers inside operators, which neither a lookup nor a linear regression finds.

In: a sample, functions, operators.  Out: formulas; what they do between the rows.

================  ================================================================
``templates``     one number inside an operator, over a grid
``factored``      a factor with a number inside, times a line
``curves``        several numbers inside, fitted from several starts
``growth``        a formula with one function more at any of its nodes
``between_rows``  formulas that are undefined or far off between the rows
``poles``         formulas that are infinite between the rows
``turns``         periodic operators that are faster than the rows
``spread``        weights of rows whose noise grows in proportion to y
================  ================================================================
"""
