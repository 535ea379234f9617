"""The CPU backend: vector kernels of the operators, run over tiles of points by a thread pool.

In: programs and data.  Out: values, losses, derivatives, fits.

=======================  ==================================================================
``engine``               what is asked of the backend, and how it is shared out
``loop``                 the compiled loops of values, losses and derivatives
``levenberg_marquardt``  that of a fit
``tiles``                the points, cut so that they stay in the cache
``kernels``              a compiled function per operator; ``reductions``: sums over points
``callbacks``            kernels of operators that are the user's functions
``loss_kernels``         losses that are texts, summed in registers
``threads``              the threads that take tasks of a call, and how they are woken
=======================  ==================================================================
"""
