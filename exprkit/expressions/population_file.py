"""Population files: a population's arrays in npz without pickle, with further arrays of what was computed from it.

    >>> import exprkit as ek, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "population.npz"
    >>> ek.parse(["x1 + 1"]).save(path)
    >>> ek.Population.load(path).texts()
    ['x1 + 1']

===============  =======  ======================================================
array            dtype    what it holds
===============  =======  ======================================================
``kinds``        uint8    as in ``population``, likewise the next two
``values``       uint64
``offsets``      int64
``variables``    str      names; missing where they are x1, x2, …
``parameters``   str      names; missing where they are p1, p2, …
``operators``    str      (n, 4), of every operator of the user's own: its code in ``values``,
                          text, LaTeX and domain; missing where there are none
``PART.NAME``             of a further part, "fit", "found", "model", "search"; ``Population.load`` does without
``checksums``    str      the format of files and a checksum of every array, as JSON; without it nothing is read
===============  =======  ======================================================
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from exprkit.operators import defined, ops
from exprkit.runtime import files
from exprkit.text.tokens import TokenArrays

ARRAYS = ("kinds", "values", "offsets")
NAMES = ("variables", "parameters")
OPERATORS = "operators"
OF_POPULATION = (*ARRAYS, *NAMES, OPERATORS, files.CHECKSUMS)


class _Saved(TokenArrays, Protocol):
    """A population."""

    def definitions(self) -> tuple[defined.Saved, ...]: ...


def arrays_of(pop: _Saved) -> dict[str, np.ndarray]:
    """A population as the arrays of a file."""
    arrays: dict[str, Any] = {name: getattr(pop, name) for name in ARRAYS}
    for name in NAMES:
        if getattr(pop, name) is not None:
            arrays[name] = np.array(getattr(pop, name), dtype=np.str_)
    if definitions := pop.definitions():
        arrays[OPERATORS] = np.array([_as_texts(*row) for row in definitions], dtype=np.str_)
    return arrays


def fields_of(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arguments of ``Population`` from the arrays of a file; the user's operators are defined."""
    fields: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    fields |= {name: tuple(map(str, arrays[name])) for name in NAMES if name in arrays}
    if OPERATORS in arrays:
        from exprkit.text.define import restored

        definitions = [_from_texts(*row) for row in arrays[OPERATORS].tolist()]
        fields["values"] = restored(fields["kinds"], fields["values"], definitions)
    return fields


def _as_texts(code: int, text: str, latex: str, domain: tuple[ops.Interval, ...]) -> tuple[str, str, str, str]:
    return str(code), text, latex, " ".join(repr(end) for pair in domain for end in pair)


def _from_texts(code: str, text: str, latex: str, domain: str) -> defined.Saved:
    ends = list(map(float, domain.split()))
    if not defined.FIRST_CODE <= int(code) < defined.END_CODE:
        raise ValueError(f"{code} is no code of an operator of one's own")
    return int(code), text, latex, tuple(zip(ends[::2], ends[1::2], strict=True))
