"""Work over several devices: the same calls on GPUs of this host, or on workers of ``dask.distributed``.

In: a population and data, as any engine takes them, and ``Workers``.  Out: what one device would give, in the order
of the population.  The devices of this process have a thread each, which share its memory; for a client's workers dask
schedules, moves data, tries again what was lost, and shows what runs.  Here stands how the work is cut and what a
worker does with a piece.

==============  ==================================================================================
``threads``     the threads of this process, one for each device
``workers``     who works: ``devices=`` and ``client=`` made ready, versions compared
``tasks``       what runs on a worker: a backend's engine, kept for the next call
``collect``     pieces handed out, results put where they belong; workers that die, hang, or lack memory
``engine``      an engine whose population is cut into slices of about equal cost
``ahead``       calls that begin before those before them have ended
``shared``      an object that every worker has, and functions of it
``sharing``     loops of a search, by threads of this process or a client's workers
``steps``       Levenberg and Marquardt's method, a step of all expressions at a time
``rows``        an engine whose data is cut, and fits that add up its pieces' normal equations
``files``       rows out of Parquet and npy files and dask arrays, a piece at a time
==============  ==================================================================================
"""
