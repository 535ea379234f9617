"""Populations whose tokens lie on a GPU, and the generation of their bytecode there.

In: tokens on the device.  Out: what the interpreter reads, without a way through the host.

====================  ================================================================================
``population``        ``DevicePopulation``: tokens on the device, checked there (``checks.cu``)
``translate``         compiled loops as CUDA C, so that host and device run the same lines
``lowering``          tokens to bytecode (``lowering.cu``)
``loops``             any compiled loop over items, on the host's threads or as a kernel (``loops.cu``)
``dependence``        linear parameters, and what can't be fitted (``dependence.cu``)
``operator_kernels``  kernels of a file that apply operators, as those of a search
====================  ================================================================================
"""
