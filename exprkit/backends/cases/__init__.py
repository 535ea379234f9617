"""The case discussion: a decision tree that chooses the kernel variant for a GPU and a workload, and explains why.

In: variants of a kernel, what each needs and takes, and how one is made of another.  Out: a tree whose nodes are
inequalities between polynomials (and estimates) in the symbols of the machine and of the data, and whose leaves are
variants; and the plain decision that the backends take by it.  The method is that of C. Chen, M. Moreno Maza and
others, "Comprehensive Optimization of Parametric Kernels for Graphics Processing Units".

=================  ==========================================================================================
``inequality``     symbols, quantities of numbers, of arrays and of symbols alike; inequalities, with words and numbers
``discussion``     the paper's Algorithms 1 and 2: questions, accepted and refused, over a box of values
``tree``           the result: printed, restricted to one of seven architectures, the path of one
``interpreter``    the variants of the interpreter, for values and losses
``fits``           those of the kernel that fits
``bundles``        layouts of the transpiler's code
``tuning``         leaves timed on a device, and the fastest kept
=================  ==========================================================================================

A backend chooses with ``interpreter``, ``fits`` and ``bundles`` alone; SymPy is loaded when a tree is looked at.
"""
