"""Starts of fits, and bounds of parameters.

In: what the user gave, expressions and data.  Out: float64 arrays (n_starts, n_exprs, max_params).

===============  ==================================================================
``given``        starts and bounds as the user gives them
``alike``        ones, but for terms that may change places
``candidates``   numbers for parameters, drawn by where they stand in an expression
``units``        of data and parameters, in which data of any size are near 1
``seeing``       starts that see the data: the best of candidates
===============  ==================================================================
"""
