"""The backend "ptx": structures of expressions written as PTX, assembled, and replayed as one CUDA graph.

In: a ``Population``.  Out: values and losses.

=============================================  ==================================================
``structures``                                 what expressions share: one piece of code each
``bundles``, ``program``                       which pieces run in which kernel
``operator_ptx``                               PTX of each operator, taken from NVRTC's output
``loss_ptx``                                   PTX of a loss that is a text
``templates``, ``writer``, ``emit``            kernels' text, written for many structures at once
``assembler``, ``modules``                     nvJitLink; modules on the device
``cuda_graph``, ``engine``                     launches as one graph; the backend itself
=============================================  ==================================================
"""
