"""Three-address programs: the form in which backends take expressions.

In: a ``Population``.  Out: steps without common subexpressions, on columns, numbers and slots.

=============  ================================================================================
``program``    the instructions, and how they read
``lower``      makes programs of values, or of values with derivatives by the parameters
``in_order``   makes those of values twice as fast, where slots may be many
``emit``       the last step of ``lower``: operands, and instructions in their order
``parts``      joins the programs of a population's parts, which threads make
``linearity``  which parameters an expression is linear in, or has a zero derivative by
=============  ================================================================================
"""
