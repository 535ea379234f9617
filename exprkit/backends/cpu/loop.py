"""The compiled loops of the CPU backend: programs over tiles of points, for values, losses, derivatives and fits.

In: programs and data (``TiledPrograms``), a work queue with a call's arguments.  Out: what the call asks for.

    >>> from exprkit.backends.cpu.loop import ARGUMENTS
    >>> ARGUMENTS["params"], ARGUMENTS["delta"]
    (dtype('int64'), dtype('float64'))

What is computed, plainly::

    for block of 64 rows:                     (a row: one expression with one parameter set)
        for row in block:
            put its parameters and constants into its uniforms
            run its prologue (uniform -> uniform)
        for tile of about 500 points:
            for row in block:
                for instruction of its program:
                    call the operator's kernel on the tile
                the last one's result goes into the matrix, or into the sum of a loss

and with derivatives, whose programs have several results::

    for row in rows:
        put its parameters and constants into its uniforms, run its prologue
        for tile of about 500 points:
            run the instructions of its value
            add the tile's losses to the row's; write the residuals
            run the instructions of its derivatives
            add the products of derivatives and residuals to the row's sums

A kernel call costs as much as some 200 additions, so programs on a tile that stays in the
fastest cache run near the speed of the arithmetic itself.  Sums are float64; rows are independent, and
what a row gets depends neither on its chunk nor on the thread.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

import numpy as np
from numba import carray
from numpy.typing import DTypeLike

from exprkit.backends.cpu import kernels, reductions
from exprkit.backends.cpu.threads import CALL, next_task, task_loop
from exprkit.backends.cpu.tiles import FORMS, LINE, TILE, aligned, cast, form_of, requests_of, step_of
from exprkit.operators import ops
from exprkit.programs.program import COLUMN, OUT, SLOT, UNIFORM, GradientProgram, Program
from exprkit.runtime.intrinsics import call, call_number, pointer
from exprkit.runtime.jit import inline

BLOCK = 64  # rows that go through the data together: 5 to 10 % faster where results go past the caches, else the same
SPAN = 64  # tiles whose losses are summed before they join the row's sum; threads share out whole spans
APART = 128  # bytes, of which a processor fetches the second half with the first
STATE_HEADER = 16  # numbers before the arrays of the state of a fit


class Call(NamedTuple):
    """The arguments of a call; plain numbers are counts, and addresses of memory that the caller keeps."""

    params: int  # (n_rows, width): of a value the data's type, of a fit float64
    n_rows: int
    width: int
    chunks: int  # first row of each chunk, and the end
    n_chunks: int
    ranges: int  # first tile of each range of tiles, and the end
    n_ranges: int
    out: int = 0  # a matrix of values or derivatives ...
    past: int = 0  # ... what is added to a kernel's form to write it past the caches, or 0
    sums: int = 0  # ... or, where out is 0, float64 (n_ranges, n_rows, n_sums)
    n_sums: int = 0
    loss: int = 0  # function
    y: int = 0
    w: int = 0
    weighted: int = 0  # working weights are written
    pairs: int = 0  # J'QJ is summed as well
    delta: float = 1.0
    fits: int = 0  # (n_rows) of ``levenberg_marquardt.FIT``
    lower: int = 0  # (n_bounds, width)
    upper: int = 0
    n_bounds: int = 0  # one line for all expressions, or a line for each
    linear: int = 0  # linear parameters are solved first
    max_iter: int = 0
    limits: int = 0  # (n_limits) of the loss: one for all expressions, or one for each
    n_limits: int = 0
    patience: int = 0
    tol: float = 0.0
    gtol: float = 0.0


ARGUMENTS = np.dtype([(name, type(Call._field_defaults.get(name, 0))) for name in Call._fields])  # int64 or float64
_DELTA = 8 * Call._fields.index("delta")  # bytes from the beginning of a call


class TiledPrograms(NamedTuple):
    """Programs and data, ready to run; plain numbers are addresses, counts and bytes."""

    code: np.ndarray  # of ``Program``, as those down to ``n_params``
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    offsets: np.ndarray
    n_prologue: np.ndarray
    first_const: np.ndarray
    n_params: np.ndarray
    table: np.ndarray  # address of the kernel of operator * FORMS + form
    constants: np.ndarray  # of the data's type
    tiles: int
    n_tiles: int
    tile_bytes: int  # from tile to tile
    step: int  # points from tile to tile
    n_points: int
    lanes: int
    itemsize: int
    copy: int  # functions
    fence: int


OF_PROGRAM = TiledPrograms._fields[: TiledPrograms._fields.index("table")]


class ResultPlaces(NamedTuple):
    """The additional fields of programs with derivatives."""

    results: np.ndarray
    first_result: np.ndarray
    n_value: np.ndarray
    equations: np.ndarray  # functions, by the number of derivatives
    product: int
    slope: int


# The loops of values take the shorter tuples: each array more costs every call half a microsecond
GradientPrograms = namedtuple("GradientPrograms", (*TiledPrograms._fields, *ResultPlaces._fields))  # type: ignore[misc]


def programs_of(program: Program, tiles: np.ndarray, n_points: int, library: kernels.Kernels, threads: int) -> Any:
    """Programs and data, ready to run: ``TiledPrograms``, with derivatives ``GradientPrograms``."""
    dtype, table = tiles.dtype, library.table(requests_of(program, threads)).reshape(-1)
    constants = program.constants if program.constants.dtype == dtype else cast(program.constants, dtype)
    sizes = tiles.ctypes.data, len(tiles), tiles.strides[0], step_of(dtype), n_points, library.lanes, dtype.itemsize
    functions = library.result("copy_points"), library.result("fence")
    of_program = [getattr(program, name) for name in OF_PROGRAM]
    programs = TiledPrograms._make([*of_program, table, constants, *sizes, *functions])
    if not isinstance(program, GradientProgram):
        return programs
    sums = reductions.functions(library)
    equations = np.array([0, *(sums[f"equations_{m}"] for m in range(1, reductions.COLUMNS + 1))])
    results = program.results, program.first_result, program.n_value
    return GradientPrograms(*programs, *results, equations, sums["product"], sums["slope"])  # type: ignore[call-arg]


class Scratch(NamedTuple):
    """The memory of one thread."""

    slots: np.ndarray  # temporaries: 512 points each
    uniforms: np.ndarray  # (BLOCK, n_uniforms)
    base: np.ndarray  # where the operands of each kind begin
    sums: np.ndarray  # of the rows of a block; of a row J'v, then the upper half of J'QJ, and last the loss


class GradientBuffers(NamedTuple):
    """The additional memory for derivatives."""

    columns: np.ndarray  # addresses of the derivatives
    q: np.ndarray  # working weights of a tile
    v: np.ndarray  # and its weighted residuals
    params: np.ndarray  # (1, max_params) of a trial
    block: np.ndarray  # (max_params, TILE)
    fit: np.ndarray  # of a row whose fit is begun (``levenberg_marquardt.State``)


GradientScratch = namedtuple("GradientScratch", (*Scratch._fields, *GradientBuffers._fields))  # type: ignore[misc]


def scratches_of(program: Program, dtype: np.dtype, n: int) -> list[Any]:
    """Memory for each of n threads: ``Scratch``, with derivatives ``GradientScratch``."""
    width = max(int(program.n_params.max(initial=0)), 1) if isinstance(program, GradientProgram) else 0
    slots = aligned((n, program.n_slots + 2, TILE), dtype)  # two more: for a result, and to read past the end
    slots[:] = 1
    base = _apart(n, 4, np.int64)
    base[:, SLOT] = slots.ctypes.data + slots.strides[0] * np.arange(n)
    n_uniforms = max(program.n_uniforms, 1)
    uniforms = _apart(n, (1 if width else BLOCK) * n_uniforms, dtype)
    uniforms[:] = np.nan
    sums = _apart(n, 1 + width * (width + 3) // 2 if width else BLOCK, np.float64)
    scratches = [Scratch(slots[k], uniforms[k].reshape(-1, n_uniforms), base[k], sums[k]) for k in range(n)]
    if not width:
        return scratches
    columns, vectors = _apart(n, width, np.int64), aligned((n, width + 2, TILE), dtype)
    params, states = _apart(n, width, dtype), _apart(n, state_size(width), np.float64)
    return [
        GradientScratch(*scratch, columns[k], v[0], v[1], params[k : k + 1], v[2:], states[k])  # type: ignore[call-arg]
        for k, (scratch, v) in enumerate(zip(scratches, vectors, strict=True))
    ]


def _apart(n: int, size: int, dtype: DTypeLike) -> np.ndarray:
    """Zeros, (n, size), whose rows share no cache line."""
    dtype = np.dtype(dtype)
    rows = aligned((n, -(-size * dtype.itemsize // APART) * APART // dtype.itemsize), dtype)
    rows[:] = 0
    return rows[:, :size]


def state_size(n):
    """Numbers of the state of a fit with n parameters, with room for what is no array of ``State``."""
    return STATE_HEADER + n * (5 + 2 * n)


class CallArrays(NamedTuple):
    """A call's arguments as arrays and numbers (``Call``)."""

    params: np.ndarray
    chunks: np.ndarray
    ranges: np.ndarray
    sums: np.ndarray
    out: int
    past: int
    loss: int
    y: int
    w: int
    weighted: int
    pairs: int
    delta: int  # address


@inline
def call_of(queue):
    """The arguments of the queue's call (``Call``); they stay while a task of it is at work."""
    return carray(pointer(queue + CALL), 1, ARGUMENTS)[0]


@inline
def job_of(queue, params_like):
    """Those arguments as arrays and numbers."""
    at = call_of(queue)
    return CallArrays(
        carray(pointer(at.params), (at.n_rows, at.width), params_like.dtype),
        carray(pointer(at.chunks), at.n_chunks, np.int64),
        carray(pointer(at.ranges), at.n_ranges, np.int64),
        carray(pointer(at.sums), (at.n_ranges - 1, at.n_rows, at.n_sums), np.float64),
        at.out,
        at.past,
        at.loss,
        at.y,
        at.w,
        at.weighted,
        at.pairs,
        queue + CALL + _DELTA,
    )


@inline
def begin(programs, params, scratch, row, expr, line):
    """Fill a row's uniforms: parameters, constants, results of the prologue."""
    n_params, first = programs.n_params[expr], programs.first_const[expr]
    for k in range(n_params):
        scratch.uniforms[line, k] = params[row, k]
    for k in range(programs.first_const[expr + 1] - first):
        scratch.uniforms[line, n_params + k] = programs.constants[first + k]
    start = programs.offsets[expr]
    if start == programs.offsets[expr + 1]:
        scratch.uniforms[line, 0] = np.nan
    _turn_to_line(programs, scratch, line)
    for k in range(start, start + programs.n_prologue[expr]):
        _run(programs, scratch, k, kernels.UU, 1)


@inline
def _turn_to_line(programs, scratch, line):
    scratch.base[UNIFORM] = scratch.uniforms.ctypes.data + line * scratch.uniforms.shape[1] * programs.itemsize


@inline
def _execute(programs, scratch, k, n_vectors, past):
    """Run an instruction on vectors; ``past`` is added to the kernel's form."""
    at = np.uint64(k)
    _run(programs, scratch, k, form_of(programs.a[at], programs.b[at]) + past, n_vectors)


@inline
def _run(programs, scratch, k, form, n_vectors):
    """Run an instruction with the kernel of that form."""
    at, base = np.uint64(k), scratch.base  # unsigned: Numba checks no negative index
    kernel = np.uint64(programs.code[at] * FORMS + form)
    a, b, y = programs.a[at], programs.b[at], programs.dst[at]
    y_at, a_at, b_at = _place(programs, base, y), _place(programs, base, a), _place(programs, base, b)
    call(programs.table[kernel], (y_at, a_at, b_at, n_vectors))


@inline
def _place(programs, base, operand):
    """The address of an operand; of none anything."""
    kind = np.uint64(operand & 3)
    size = programs.itemsize if kind == np.uint64(UNIFORM) else programs.itemsize * TILE
    return base[kind] + (operand >> 2) * size


# ── values and losses ────────────────────────────────────────────────────────────────


@task_loop
def drive_values(programs, scratch, queue, me, most):
    """Run up to ``most`` tasks, each a chunk of rows on a range of tiles; whether any may be left."""
    k = next_task(queue, me)
    if k < 0:
        return 0
    job = job_of(queue, scratch.uniforms)
    n_chunks = len(job.chunks) - 1
    while k >= 0:
        chunk, of_tiles = k % n_chunks, k // n_chunks
        last = job.chunks[chunk + 1]
        for row in range(job.chunks[chunk], last, BLOCK):
            _block(programs, job, scratch, row, min(row + BLOCK, last), last, of_tiles)
        most -= 1
        if most == 0:
            break
        k = next_task(queue, me)
    if job.past:
        call(programs.fence, ())
    return np.int64(k >= 0)


@inline
def _block(programs, job, scratch, first, end, last, of_tiles):
    """Rows first:end of a chunk that ends at row ``last``, over one range of tiles."""
    n_exprs = len(programs.n_params)
    first_expr = first % n_exprs
    expr = first_expr
    for row in range(first, end):
        begin(programs, job.params, scratch, row, expr, row - first)
        expr = 0 if expr + 1 == n_exprs else expr + 1
    scratch.sums[:] = 0.0
    for tile in range(job.ranges[of_tiles], job.ranges[of_tiles + 1]):
        left = programs.n_points - tile * programs.step
        last_tile = tile + 1 == programs.n_tiles
        n_points = left if last_tile else programs.step
        n_vectors = n_computed = (n_points + programs.lanes - 1) // programs.lanes
        if job.past:  # some of the next tile's first points are written with this one's
            n_computed = (min(left, scratch.slots.shape[1]) + programs.lanes - 1) // programs.lanes
        scratch.base[COLUMN] = programs.tiles + tile * programs.tile_bytes
        expr = first_expr
        for row in range(first, end):
            k = _all_but_last(programs, scratch, expr, row - first, n_computed)
            place = job.out + (row * programs.n_points + tile * programs.step) * programs.itemsize
            if job.out == 0:
                scratch.sums[row - first] += _loss(programs, job, scratch, k, tile, n_points, n_vectors)
            elif job.past:
                _write_past(programs, job, scratch, k, place, tile, left)
            else:
                # The last vector may reach past the row's end where rows are written later: not beyond
                # the chunk, nor where other tiles of the next rows are there already.
                room = (last - row - 1) * n_points if programs.n_tiles == 1 else 0
                _write(programs, scratch, k, place, n_points, n_vectors, room)
            expr = 0 if expr + 1 == n_exprs else expr + 1
        if job.out == 0 and ((tile + 1) % SPAN == 0 or tile + 1 == job.ranges[of_tiles + 1]):
            for row in range(first, end):
                job.sums[of_tiles, row, 0] += scratch.sums[row - first]
            scratch.sums[:] = 0.0


@inline
def _all_but_last(programs, scratch, expr, line, n_vectors):
    """Run the program of an expression on one tile up to its last instruction; says which that is, -1: none."""
    _turn_to_line(programs, scratch, line)
    start, stop = programs.offsets[expr], programs.offsets[expr + 1]
    if start == stop:
        return -1
    for k in range(start + programs.n_prologue[expr], stop - 1):
        _execute(programs, scratch, k, n_vectors, 0)
    return stop - 1


@inline
def _last(programs, scratch, k, first, y, n_vectors, past):
    """Run the last instruction on the tile's points from ``first`` on; its result goes to address ``y``."""
    base, at = scratch.base, first * programs.itemsize
    base[OUT] = y
    base[SLOT], base[COLUMN] = base[SLOT] + at, base[COLUMN] + at
    if k < 0:  # an invalid expression: the first uniform, which is nan
        call(programs.table[ops.COPY * FORMS + kernels.SV + past], (y, base[UNIFORM], base[UNIFORM], n_vectors))
    else:
        _execute(programs, scratch, k, n_vectors, past)
    base[SLOT], base[COLUMN] = base[SLOT] - at, base[COLUMN] - at


@inline
def _spare_slot(programs, scratch):
    return scratch.base[SLOT] + (scratch.slots.shape[0] - 2) * scratch.slots.shape[1] * programs.itemsize


@inline
def _loss(programs, job, scratch, k, tile, n_points, n_vectors):
    f, at = _spare_slot(programs, scratch), tile * programs.step * programs.itemsize
    _last(programs, scratch, k, 0, f, n_vectors, 0)
    return call_number(job.loss, (f, job.y + at, job.w + at if job.w != 0 else 0, n_points))


@inline
def _write(programs, scratch, k, place, n_points, n_vectors, room):
    """Write a tile's results to ``place``, and no more than ``room`` points more."""
    if n_vectors * programs.lanes - n_points <= room:
        _last(programs, scratch, k, 0, place, n_vectors, 0)
    else:
        _write_part(programs, scratch, k, 0, place, n_points)


@inline
def _write_part(programs, scratch, k, first, place, n_points):
    """Write exactly the points first:first + n_points of the tile to ``place``."""
    y = _spare_slot(programs, scratch)
    _last(programs, scratch, k, first, y, (n_points + programs.lanes - 1) // programs.lanes, 0)
    call(programs.copy, (place, y, n_points))


@inline
def _write_past(programs, job, scratch, k, place, tile, left):
    """Write a tile's results past the caches, in whole cache lines.

    A row starts anywhere in a line, so what the tile's share of it holds begins at point
    ``head`` of the tile and ends as far into the next one.  ``left`` points of the row are
    left from the tile's first one on.
    """
    head = (-place % LINE) // programs.itemsize
    end = left if tile + 1 == programs.n_tiles else head + programs.step
    if tile == 0 and head > 0:
        _write_part(programs, scratch, k, 0, place, min(head, left))
    n_vectors = (end - head) // programs.lanes
    if n_vectors > 0:
        _last(programs, scratch, k, head, place + head * programs.itemsize, n_vectors, job.past)
    rest = head + max(n_vectors, 0) * programs.lanes
    if rest < end:
        _write_part(programs, scratch, k, rest, place + rest * programs.itemsize, end - rest)


# ── derivatives ──────────────────────────────────────────────────────────────────────


@task_loop
def drive_derivatives(programs, scratch, queue, me, most):
    """Run up to ``most`` tasks, each a chunk of rows on a range of tiles; whether any may be left."""
    k = next_task(queue, me)
    if k < 0:
        return 0
    job = job_of(queue, scratch.uniforms)
    n_chunks, n_exprs = len(job.chunks) - 1, len(programs.n_params)
    while k >= 0:
        chunk, of_tiles = k % n_chunks, k // n_chunks
        for row in range(job.chunks[chunk], job.chunks[chunk + 1]):
            begin(programs, job.params, scratch, row, row % n_exprs, 0)
            if job.out == 0:
                _sum(programs, job, scratch, row, of_tiles)
            else:
                _write_jacobian(programs, job, scratch, row, of_tiles)
        most -= 1
        if most == 0:
            return 1
        k = next_task(queue, me)
    return 0


@inline
def _write_jacobian(programs, job, scratch, row, of_tiles):
    expr, width = row % len(programs.n_params), job.params.shape[1]
    n_params, block = programs.n_params[expr], scratch.block
    out = carray(pointer(job.out), (job.params.shape[0], programs.n_points, width), scratch.block.dtype)
    for tile in range(job.ranges[of_tiles], job.ranges[of_tiles + 1]):
        n_points, n_vectors = _turn_to_tile(programs, scratch, tile)
        _value(programs, scratch, expr, n_vectors)
        _derivatives(programs, scratch, expr, n_vectors)
        for j in range(n_params):
            to = block.ctypes.data + j * block.shape[1] * programs.itemsize
            call(programs.copy, (to, scratch.columns[j], n_points))
        first = tile * programs.step
        for k in range(n_points):
            for j in range(n_params):
                out[row, first + k, j] = block[j, k]


@inline
def _sum(programs, job, scratch, row, of_tiles):
    """A row's loss, J'v and the upper half of J'QJ over a range of tiles, spread to the widest row's.

    SPAN after SPAN, so that the bits are the same for any ranges, which are made of whole spans.
    """
    expr, width = row % len(programs.n_params), job.params.shape[1]
    n_params, sums, end = programs.n_params[expr], job.sums, job.ranges[of_tiles + 1]
    for first in range(job.ranges[of_tiles], end, SPAN):
        no_equations(programs, scratch, expr)
        equations(programs, job, scratch, expr, first, min(first + SPAN, end), np.inf)
        sums[of_tiles, row, 0] += loss_so_far(scratch)
        for j in range(n_params):
            sums[of_tiles, row, 1 + j] += scratch.sums[j]
        if job.pairs:
            at = n_params
            for j in range(n_params):
                for m in range(j, n_params):
                    sums[of_tiles, row, 1 + width + j * width - j * (j - 1) // 2 + m - j] += scratch.sums[at]
                    at += 1


@inline
def _turn_to_tile(programs, scratch, tile):
    """The numbers of points of the tile that count, and of their vectors."""
    left = programs.n_points - tile * programs.step
    scratch.base[COLUMN] = programs.tiles + tile * programs.tile_bytes
    n_points = left if left <= scratch.slots.shape[1] else programs.step
    return n_points, (n_points + programs.lanes - 1) // programs.lanes


@inline
def _value(programs, scratch, expr, n_vectors):
    """Run the instructions of a value; gives its address."""
    start = programs.offsets[expr]
    for k in range(start + programs.n_prologue[expr], start + programs.n_value[expr]):
        _execute(programs, scratch, k, n_vectors, 0)
    result = programs.results[programs.first_result[expr]]
    return _place(programs, scratch.base, result)


@inline
def _derivatives(programs, scratch, expr, n_vectors):
    """Run the rest; the derivatives' addresses go into ``scratch.columns``."""
    start, first = programs.offsets[expr], programs.first_result[expr] + 1
    for k in range(start + programs.n_value[expr], programs.offsets[expr + 1]):
        _execute(programs, scratch, k, n_vectors, 0)
    for j in range(programs.n_params[expr]):
        result = programs.results[first + j]
        scratch.columns[j] = _place(programs, scratch.base, result)


@inline
def no_equations(programs, scratch, expr):
    """Set the equations to 0."""
    n_params = np.int64(programs.n_params[expr])
    for k in range(n_params * (n_params + 3) // 2):
        scratch.sums[k] = 0.0
    scratch.sums[len(scratch.sums) - 1] = 0.0


@inline
def loss_so_far(scratch):
    return scratch.sums[len(scratch.sums) - 1]


@inline
def equations(programs, job, scratch, expr, first, last, limit):
    """Add the loss of an expression over the tiles first:last, J'v and J'QJ to ``scratch.sums``.

    Stops as soon as the loss is above ``limit`` or nan, and says so.  The parameters are in place (``begin``).
    """
    loss, n_params = loss_so_far(scratch), np.int64(programs.n_params[expr])
    sums, columns = scratch.sums.ctypes.data, scratch.columns.ctypes.data
    v, q = scratch.v.ctypes.data, scratch.q.ctypes.data if job.weighted else 0
    for tile in range(first, last):
        n_points, n_vectors = _turn_to_tile(programs, scratch, tile)
        f = _value(programs, scratch, expr, n_vectors)
        at = tile * programs.step * programs.itemsize
        w = job.w + at if job.w != 0 else 0
        loss += call_number(job.loss, (f, job.y + at, w, scratch.q.ctypes.data, v, job.delta, n_points))
        if not loss <= limit:
            break
        if n_params == 0:
            continue
        _derivatives(programs, scratch, expr, n_vectors)
        if job.pairs and n_params < len(programs.equations):
            call(programs.equations[n_params], (sums, columns, q, v, n_points))
            continue
        at_pair = n_params
        for j in range(n_params):
            scratch.sums[j] += call_number(programs.slope, (scratch.columns[j], v, q, n_points))
            if job.pairs:
                for m in range(j, n_params):
                    a, b = scratch.columns[j], scratch.columns[m]
                    scratch.sums[at_pair] += call_number(programs.product, (a, b, q, n_points))
                    at_pair += 1
    scratch.sums[len(scratch.sums) - 1] = loss
    return not loss <= limit
