"""The operator table: meaning, formulas on every backend, derivatives and notation; and the CPU's vector formulas.

In: nothing.  Out: rows of one table (``ops``), which every later stage reads, and the CPU's vector kernels.

=====================  ==================================================================
``ops``                the table: a row per operator
``defined``            operators of the user's own, beside the table and in it
``intervals``          what rows mean of intervals
``dimensions``         what rows do to units, found by their values
``numpy_definitions``  what rows mean where NumPy has no function
``simd_formulas``      the rows' formulas on vectors of numbers
``simd_values``        those vectors: what a formula may do with them
``polynomials``        coefficients of the formulas
``traced``             a user's Numba functions as operations of the table
``traced_vectors``     these as formulas on those vectors, in float32 where that is exact enough
``llvm_writer``        the text of LLVM's instructions that the vectors become
=====================  ==================================================================
"""
