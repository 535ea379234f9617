"""Three-address programs: what a backend runs.

In: a ``Population``.  Out: steps without common subexpressions, on columns, numbers and slots.

=============  ==================================================================
``lower``      programs for values, and the rewrite rules of the table
``gradient``   programs for values with derivatives by the parameters
``linearity``  which parameters an expression is linear in, or has no slope by
=============  ==================================================================
"""
