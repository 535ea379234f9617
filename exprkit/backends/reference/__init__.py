"""The reference backend in NumPy: the definition that every other backend is compared with.

In: a ``Population`` and data.  Out: values, derivatives, fits, one operator after the other.

=======================  ==================================================================
``engine``               values and losses
``derivatives``          derivatives by the parameters, by the table's rules
``levenberg_marquardt``  fits, all expressions side by side; the order of its decisions
=======================  ==================================================================
"""
