"""Templates of formulas: what is known of a law, with unknown functions and numbers in it.

In: a text as ``"a * f(x1, x2) + g(x3)"``, and ``Rows``.  Out: formulas for f and g, and the numbers.

==============  ===========================================================================================
``skeleton``    the text read: ``LawSkeleton``, the known part with its unknown functions, calls and numbers
``smooth``      unknown functions as polynomials: their values at the rows, before there are formulas
``law``         ``TemplateLaw``: a formula for each unknown function, and numbers, shared or one for each category
``alternate``   a search per unknown function, and the joint fits that choose among their formulas
==============  ===========================================================================================
"""
