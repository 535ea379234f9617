"""Populations on disk: npz without pickle, written whole or not at all.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "population.npz"
    >>> ek.parse(["x1 + 1"]).save(path)
    >>> ek.Population.load(path).texts()
    ['x1 + 1']

===============  =======  ======================================================
array            dtype    what it holds
===============  =======  ======================================================
``format``       int64    FORMAT
``kinds``        uint8    as in ``population``, likewise the next two
``values``       uint64
``offsets``      int64
``variables``    str      names; missing where they are x1, x2, …
``parameters``   str      names; missing where they are p1, p2, …
===============  =======  ======================================================
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from pathlib import Path

import numpy as np

from exprkit.errors import PopulationError
from exprkit.population import Population

FORMAT = 1
ARRAYS = ("kinds", "values", "offsets")
NAMES = ("variables", "parameters")


def save(population: Population, path: str | os.PathLike[str]) -> None:
    """Write to a temporary file beside ``path``, then rename it: a reader never sees half a file."""
    target = Path(path)
    arrays = {name: getattr(population, name) for name in ARRAYS}
    for name in NAMES:
        if getattr(population, name) is not None:
            arrays[name] = np.array(getattr(population, name), dtype=np.str_)
    handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, format=np.int64(FORMAT), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def load(path: str | os.PathLike[str]) -> Population:
    """Read what ``save`` wrote; every token is checked."""
    content = Path(path).read_bytes()  # at once, for np.load forgets to close a file that it cannot read
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files}
        version = int(found["format"])
        arrays = [found[name] for name in ARRAYS] if version == FORMAT else []
        names = {name: tuple(map(str, found[name])) for name in NAMES if name in found}
    except Exception as error:  # damaged bytes make zipfile and NumPy raise nearly anything
        raise PopulationError(f"{os.fspath(path)!r} is not a saved population, or is damaged: {error}") from error
    if version != FORMAT:
        raise PopulationError(f"{os.fspath(path)!r} has format {version}; this exprkit reads {FORMAT}")
    for array in arrays:
        array.flags.writeable = False
    return Population(*arrays, **names)
