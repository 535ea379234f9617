"""Two or three functions that make y exactly.

In: Rows of data, operators.  Out: formulas that are y but for rounding.

==============  ==================================================================
``pool``        distinct functions of the variables, compared by their values
``ruled_pool``  the same, of functions that the rules allow
``links``       the forms in which two functions and two numbers make y
``join``        pairs of functions that make y, one lookup each
``confirm``     these pairs at all rows, with their numbers, as formulas
``triples``     three functions that make y, one of them subtracted first
==============  ==================================================================
"""
