"""Data layout and kernel tables shared by the loops of the CPU backend.

In: a data matrix and programs.  Out: the same, as ``engine`` and ``derivatives`` run over them.

    >>> import numpy as np
    >>> from exprkit.backends.cpu.tiles import shares
    >>> shares(np.array([0, 2, 4, 6, 8]), n_sets=1, n=2)  # four programs of two instructions, for two threads
    array([0, 2, 4])
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np

from exprkit.backends.cpu import kernels
from exprkit.backends.cpu.kernels import Kernels
from exprkit.operators import ops
from exprkit.programs.program import UNIFORM, Program
from exprkit.runtime import slices
from exprkit.runtime.intrinsics import call
from exprkit.runtime.jit import compiled, inline

TILE, FORMS = kernels.TILE, 2 * kernels.PAST
LINE = 64  # bytes of a cache line; neighbouring tiles share so much


# ── preparation ──────────────────────────────────────────────────────────────────────


def never_negative(X: np.ndarray) -> np.ndarray:
    """For each variable: it has no value below 0 and no -0."""
    return ~np.any(np.signbit(X) & ~np.isnan(X), axis=0)


def cast(numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Memory that starts at a cache line."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def requests_of(program: Program, threads: int | None = None) -> list[kernels.Request]:
    """The kernels that a program needs, and the one that an invalid expression runs."""
    used, offsets = np.zeros(256 * FORMS, np.bool_), program.offsets

    def find(begin: int, end: int) -> None:
        part = slice(offsets[begin], offsets[end])
        _find_used(program.code[part], program.a[part], program.b[part], program.dst[part], used)

    slices.each(find, slices.cut(offsets, threads))
    used[ops.COPY * FORMS + kernels.SV] = True
    return [divmod(k, FORMS) for k in np.flatnonzero(used).tolist()]


@compiled
def _find_used(code, a, b, dst, used):
    for k in range(len(code)):
        form = kernels.UU if dst[k] & 3 == UNIFORM else form_of(a[k], b[k])
        used[code[k] * FORMS + form] = True


@inline
def form_of(a, b):
    """The form of the kernel of an instruction for every point, by which operands are uniforms."""
    return (a & 3 == UNIFORM) * kernels.SV + (b & 3 == UNIFORM) * kernels.VS


def step_of(dtype: np.dtype) -> int:
    """Points from the start of one tile to the start of the next."""
    return TILE - LINE // dtype.itemsize


def tiles_of(X: np.ndarray, program: Program, library: Kernels) -> np.ndarray:
    """The data as the programs want it, (n_tiles, n_columns, TILE)."""
    table = library.table((code, kernels.VV) for code in program.column_code.tolist()).reshape(-1)
    step, n_columns = step_of(X.dtype), len(program.column_code)
    n_tiles = max(1, -(-(len(X) + step - TILE) // step)) if len(X) else 0
    room = aligned((n_tiles * n_columns + 1, TILE), X.dtype)
    room[-1] = 1  # may be read, is never used
    tiles = room[:-1].reshape(n_tiles, n_columns, TILE)
    if n_tiles == 0:
        return tiles
    padded = aligned((n_tiles * step + TILE,), X.dtype)
    for column, (code, var) in enumerate(zip(program.column_code.tolist(), program.column_var.tolist(), strict=True)):
        if column and (code, var) == (program.column_code[column - 1], program.column_var[column - 1]):
            continue  # the low part of a pair, made together with the high part
        padded[: len(X)], padded[len(X) :] = X[:, var], X[-1, var]
        y = tiles.ctypes.data + column * tiles.strides[1]
        kernel = table[code * FORMS + kernels.VV]
        _derive(kernel, y, tiles.strides[0], padded.ctypes.data, step * X.itemsize, n_tiles, TILE // library.lanes)
    return tiles


@compiled
def _derive(kernel, y, y_step, a, a_step, n_tiles, n_vectors):
    for tile in range(n_tiles):
        call(kernel, (y + tile * y_step, a + tile * a_step, 0, n_vectors))


def shares(offsets: np.ndarray, n_sets: int, n: int) -> np.ndarray:
    """First row of each of at most ``n`` chunks of about equal work, and the end."""
    n_exprs = len(offsets) - 1
    if n_exprs == 0:
        return np.zeros(1, np.int64)
    cost = offsets + np.arange(n_exprs + 1)  # an instruction is one unit of work, so is a row
    goals = np.arange(n) * int(cost[-1]) * n_sets // n
    rows = goals // cost[-1] * n_exprs + np.searchsorted(cost, goals % cost[-1])
    return np.unique(np.append(rows, n_sets * n_exprs))
