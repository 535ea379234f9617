"""Support for compiled Python: JIT, disk cache, threads, files, progress; independent of expressions.

In: functions and files.  Out: machine code that is kept between processes.

==============  ==================================================================
``jit``         the decorator of every loop that Numba compiles, and how loops are written
``bags``        named tuples of arrays; ``borrowed``: how loops see them
``intrinsics``  what such loops need beyond Numba: calls by address, atomics
``calls``       calls of the driver made one after the other in machine code
``slices``      expressions cut into slices that threads share
``budget``      what a search may take: time, evaluations, memory
``hashes``      words that look random
``progress``    what long work shows of itself; ``ranges``: what a profiler shows of it
``disk_cache``  machine code on disk, checked before it is used
``shipped``     machine code that came with the package
``files``       files that are whole or not there; ``codec``: dataclasses as their arrays
``machine``     what this machine is and has
==============  ==================================================================
"""
