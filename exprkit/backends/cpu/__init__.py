"""The CPU backend: the operators' vector kernels, run over tiles of points by threads.

In: programs and data.  Out: values, losses, derivatives, fits.

=======================  ==================================================================
``engine``               values and losses; ``derivatives``: the same with derivatives
``tiles``                the points, cut so that they stay in the cache
``kernels``              a compiled function an operator; ``reductions``: sums over points
``levenberg_marquardt``  a fit, all in one loop
``threads``              a thread pool whose workers wait a moment for the next call
=======================  ==================================================================
"""
