"""What both GPU backends need.

In: programs.  Out: bytecode on the device, compiled kernels, launches.

============  ==================================================================
``device``    the GPU and its memory; ``nvrtc``: its compiler
``opcodes``   the numbers of operators with their operands, and the kernels' cases
``bytecode``  programs as instructions for one accumulator
``schedule``  which block works on what
``launch``    kernel arguments and what stays on the device
============  ==================================================================

Kernels' text for both: ``job.cu`` (arguments), ``arithmetic.cu`` (operators), ``support.cu`` (small kernels).
"""
