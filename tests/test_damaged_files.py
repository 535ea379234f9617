"""Whatever has happened to a file, reading it gives what was written, or says that the file is damaged."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import FileError
from exprkit.runtime import files

pytest.importorskip("sklearn", reason="the search needs scikit-learn: pip install '.[search]'")

X = np.linspace(1, 2, 24)[:, None]
Y = 2 / X[:, 0] + 0.01 * np.sin(50 * X[:, 0])
SMALL = {"niterations": 0, "pool_size": 60, "maxsize": 7, "n_jobs": 1, "random_state": 0}


def searched(path):
    return ek.exhaustive_search(X, Y, max_nodes=3, progress=False, file=path).texts()


def regressed(path):
    return ek.SymbolicRegressor(**SMALL, checkpoint=path).fit(X, Y).equations_.equation.tolist()


def loaded(path):
    found = ek.load(path)
    return found.equations_.equation.tolist() if hasattr(found, "equations_") else repr(found), ek.Population.load(path)


def written(kind, path):
    """A file of this kind."""
    if kind == "population":
        ek.operator("damped(t) = t / (1 + t^2)")
        ek.parse(["p1 * damped(a)", "sin(a) + 2"], variables=["a"]).save(path)
    elif kind == "fit":
        ek.fit(["p1 * x1", "p1 + p2 / x1"], X, Y, bounds={"p1": (0, 9)}).save(path)
    elif kind == "search":
        ek.exhaustive_search(X, Y, max_nodes=3, progress=False).save(path)
    elif kind == "model":
        ek.SymbolicRegressor(**SMALL).fit(X, Y).save(path)
    else:
        READ[kind](path)


READ = {
    "population": loaded, "fit": loaded, "search": loaded, "model": loaded, "state": searched, "checkpoint": regressed,
}  # fmt: skip


def changes(array, rng):
    """What may have happened to an array: another number, type or shape, or it is gone (None)."""
    yield None
    yield array[None]
    yield array.ravel()[:-1]
    yield np.array(["x"])
    yield array.astype(np.complex128) if array.dtype.kind in "iufb" else np.array(3.5)
    if array.dtype.kind in "iufb" and array.size:
        other = array.copy().reshape(-1)
        other[rng.integers(other.size)] = 1 - other[rng.integers(other.size)] if array.dtype.kind == "b" else 77
        yield other.reshape(array.shape)
        whole = bytearray(array.tobytes())
        whole[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        yield np.frombuffer(bytes(whole), array.dtype).reshape(array.shape)


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_a_changed_array_is_told(tmp_path, kind):
    path, rng = tmp_path / f"{kind}.npz", np.random.default_rng(1)
    written(kind, path)
    with np.load(path) as file:
        arrays = dict(file)
    read, damaged = READ[kind], tmp_path / "damaged.npz"
    for name, array in arrays.items():
        for changed in changes(array, rng):
            same = [(one.dtype, one.shape, one.tobytes()) for one in (array, changed) if one is not None]
            if len(same) == 2 and same[0] == same[1]:
                continue
            others = {one: other for one, other in (arrays | {name: changed}).items() if other is not None}
            np.savez(damaged, **others)
            with pytest.raises(FileError, match=r"damaged\.npz' (is not|is the|cannot)"):
                read(damaged)


def test_a_file_of_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "FORMAT", files.FORMAT - 1)
    for kind in ("population", "fit", "state"):
        written(kind, tmp_path / f"{kind}.npz")
    monkeypatch.undo()
    for kind in ("population", "fit", "state"):
        with pytest.raises(FileError, match=f"it has format {files.FORMAT - 1}; this exprkit reads {files.FORMAT}"):
            READ[kind](tmp_path / f"{kind}.npz")


def test_a_part_of_a_file_and_what_has_come_into_it(tmp_path):
    written("fit", tmp_path / "fit.npz")
    with np.load(tmp_path / "fit.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "more.npz", **arrays, extra=np.ones(3))
    with pytest.raises(FileError, match="it has an array 'extra'"):
        ek.load(tmp_path / "more.npz")
    assert ek.Population.load(tmp_path / "fit.npz").texts() == ["p1 * x1", "p1 + p2 / x1"]
