"""Code shared by both GPU backends.

In: programs.  Out: bytecode on the device, compiled kernels, launches.

============  ==================================================================
``layout``    structs and enums of host and device
``device``    the GPU and its memory; ``nvrtc``: its compiler
``opcodes``   operators with addressing modes: their numbers and the kernels' cases
``loss_code`` losses of the user's own as CUDA C
``bytecode``  programs as instructions for one accumulator; ``device_bytecode``: on a device
``schedule``  which block works on what (``schedule.cu`` finds its items)
``launch``    kernel arguments and what stays on the device
``engine``    what the engines of both backends do alike
============  ==================================================================

Kernels' text for both: ``common.cu``, ``arithmetic.cu`` (operators), ``support.cu`` (small kernels).
"""
