"""The backend "cuda": one kernel that interprets the bytecode of a whole population.

In: bytecode and data on the device.  Out: values, losses, derivatives, fits.

==================  ==================================================================
``engine``          values and losses (``interpreter.cu``, ``points.cu``, ``results.cu``)
``derivatives``     derivatives and fits (``tangents.cu``, ``equations.cu``, ``fit.cu``)
``batches``         who is fitted with whom (``batches.cu``)
``dual_opcodes``    the cases of values with derivatives
==================  ==================================================================
"""
