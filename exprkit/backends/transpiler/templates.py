"""PTX templates: the fixed text of a module around the instructions of its structures.

A text here looks like its output; names in braces are
filled in here, numbers in braces by ``writer``, for each structure or instruction.

    >>> from exprkit.backends.transpiler.templates import Kind, VALUES
    >>> Kind(VALUES, itemsize=4, points=4, block=128).vector
    '.v4'

What an entry computes, plainly (``Kind.by_row`` below)::

    bundle, instance, set, tile = work[block]
    for each vector of V points of the tile, by thread:
        columns -> registers %x                              (once per vector, for all structures)
        for each structure of the bundle:
            results of its instructions -> registers %v      (equal ones once)
            the last one -> the matrix, or into the structure's sum %s
    sums: from registers to shared memory, added in float64 in a fixed order

By row, of results: bundles are single structures, and a block writes one row after the other, each from where
512 bytes of memory begin, for rows begin anywhere and whole lines are written fastest::

    bundle, rows, instance, set, tile = work[block]
    for each of the rows:
        one vector of V points of the tile, by thread, moved back to a multiple of 512 bytes
        columns -> %x, results -> %v, the last one -> the matrix

==============  ===================================================================================
in memory       layout
==============  ===================================================================================
given           the argument of an entry: addresses of job and work
job             what all blocks of a pass have in common: ``FIELDS``, 64 bits each
work            [block]: bundle in the module, first instance, set, tile (32 bits each); by row the first of
                them has also, in its lowest bytes, how many rows and how many pairs to the next one
tile            points first, first + stride, ... before first + extent and stop, a block's vectors
                at each; first = start + tile * spacing
columns         [chunk of 32 points][column][32]: a thread reaches all columns from one address
instances       [batch of a bundle][structure]: first number, expression (32 bits each); where columns are
                indirect, behind these the structure's columns, filled up to vectors of 4
numbers         [set][number] pairs: high and low part (see ``make_immediates`` in support.cu)
out             [set][expression][point]; of sums: [set][expression][tile], float64
target, weights [point]; of a loss that is a text, target is what it reads, and the weights behind that:
                [chunk of 32 points][column][32]
==============  ===================================================================================

Every addition and multiplication is written ``.rn``: the assembler would contract others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from exprkit.backends.transpiler.loss_ptx import LossCode
from exprkit.errors import number_of

VALUES, SQUARE, ABSOLUTE, SUM = "values", "square", "absolute", "sum"
CHUNK = 32  # points of a column that stand side by side
WARP = 32
LINE = 512  # bytes that a warp writes at once
_JOB = (
    "columns", "chunk_bytes", "instances", "numbers", "numbers_set_bytes", "out", "out_set_bytes", "row_bytes",
    "target", "weights", "start", "stop", "spacing", "extent", "stride", "n_tiles", "n_exprs",
)  # fmt: skip
FIELDS = {name: 8 * i for i, name in enumerate(_JOB)}
_FIELDS = {f"field_{name}": at for name, at in FIELDS.items()}


@dataclass(frozen=True)
class Kind:
    """The purpose of a module's code; a structure has different code for each kind."""

    task: str  # values, square or absolute
    itemsize: int  # of a number: 4 or 8
    points: int  # of a thread's vector: 1, 2 or 4, 16 bytes at the most
    block: int  # threads, a multiple of 32
    store: int = 1  # numbers written at once: as many as the rows' alignment allows (only values)
    masked: bool = False  # the number of points is not a multiple of ``points``
    weighted: bool = False  # points have weights (only sums)
    resident: int | None = None  # blocks that a multiprocessor must have registers for at a time
    indirect: bool = False  # structures have their columns from their instances (see ``structures``)
    by_row: bool = False  # a block takes one row after the other on the same points (only values, bundles of one)
    loss: LossCode | None = None  # what a sum adds up in place of f - y

    @property
    def read(self) -> int:
        """Numbers that stand side by side in memory as the target of a point."""
        return 1 if self.loss is None else self.loss.n_columns + self.weighted

    @property
    def real(self) -> str:
        """The PTX type of the numbers."""
        return "f32" if self.itemsize == 4 else "f64"

    @property
    def vector(self) -> str:
        """How a vector is loaded."""
        return _width(self.points)

    @property
    def zero(self) -> str:
        """0 as PTX writes it."""
        return "0f00000000" if self.itemsize == 4 else "0d0000000000000000"


def _width(n: int) -> str:
    return f".v{n}" if n > 1 else ""


def fill(text: str, **words: object) -> str:
    """``{name}`` replaced by a word; braces around anything else are PTX's own."""
    return re.sub(r"\{(\w+)\}", lambda match: str(words.get(match[1], match[0])), text)


def vector(name: str, n: int, first: int = 0) -> str:
    """Registers as PTX writes them where a vector is loaded or stored; ``name`` has a [k]."""
    names = ", ".join(name.replace("[k]", str(k)) for k in range(first, first + n))
    return f"{{{names}}}" if n > 1 else names


# ── the head of a module, and an entry around its bundles ────────────────────────────

HEAD = """\
.version {version}
.target {target}
.address_size 64
{functions}"""

ENTRY = """\

// {n_structures} in {n_bundles}, {points} at a time
.visible .entry {name}(
	.param .align 8 .b8 given[16]
)
.maxntid {block}, 1, 1
{limit}{
{shared}\
	.reg .pred %p, %done{masks};
	.reg .b32 %thread, %block, %bundle, %instance, %set, %tile, %first, %stop, %spacing, %extent, %stride;
	.reg .b32 %end, %point, %chunk, %within, %chunk_bytes, %number, %expression, %t<8>;
	.reg .b64 %job, %work, %columns, %column_step, %step, %instances, %numbers, %own, %out, %a<4>;
	.reg .{real} %v<{n_values}>, %n<{n_numbers}>, %x<{n_columns}>;
{own_registers}{own_columns}\
"""
_VALUES_REGISTERS = """\
	.reg .b32 %row_bytes;
	.reg .b64 %at<{most_structures}>;
"""
_ROWS_REGISTERS = """\
	.reg .b32 %start, %length, %base, %rows;
	.reg .b64 %here;
"""
_SUMS_REGISTERS = """\
	.reg .b64 %target, %weights;
	.reg .{real} %s<{most_structures}>, %y<{n_read}>, %w<{n}>, %e, %weighted;
	.reg .f64 %total, %term;
"""
_LOSS_REGISTERS = """\
	.reg .b64 %target_step;
	.reg .{real} %l<{n_loss}>;
"""
_OWN_COLUMNS = "\t.reg .b64 %c<{n_columns}>;\n"

PROLOGUE = """\
	// what this block works on
	ld.param.u64 %job, [given];
	cvta.to.global.u64 %job, %job;
	ld.param.u64 %work, [given+8];
	cvta.to.global.u64 %work, %work;
	mov.u32 %block, %ctaid.x;
	mov.u32 %thread, %tid.x;
	mad.wide.u32 %work, %block, 16, %work;
	ld.global.nc.v4.u32 {%bundle, %instance, %set, %tile}, [%work];
	ld.global.nc.u32 %first, [%job+{field_start}];
	ld.global.nc.u32 %stop, [%job+{field_stop}];
	ld.global.nc.u32 %spacing, [%job+{field_spacing}];
	ld.global.nc.u32 %extent, [%job+{field_extent}];
	ld.global.nc.u32 %stride, [%job+{field_stride}];
	mad.lo.u32 %first, %tile, %spacing, %first;
	mad.lo.u32 %point, %thread, {points}, %first;
{turns}\
	// where its columns and numbers are
	ld.global.nc.u64 %columns, [%job+{field_columns}];
	ld.global.nc.u32 %chunk_bytes, [%job+{field_chunk_bytes}];
{column}\
	ld.global.nc.u64 %instances, [%job+{field_instances}];
	mad.wide.u32 %instances, %instance, 8, %instances;
	ld.global.nc.u64 %numbers, [%job+{field_numbers}];
	ld.global.nc.u64 %a0, [%job+{field_numbers_set_bytes}];
	cvt.u64.u32 %a1, %set;
	mad.lo.u64 %numbers, %a0, %a1, %numbers;
"""
TURNS = """\
	add.u32 %end, %first, %extent;
	min.u32 %end, %end, %stop;
	setp.ge.u32 %done, %point, %end;
"""
GUARD = "\t@%done ret;\n"
COLUMN = """\
	shr.u32 %chunk, %point, 5;
	and.b32 %within, %point, 31;
	mad.wide.u32 {here}, %chunk, %chunk_bytes, %columns;
	mad.wide.u32 {here}, %within, {itemsize}, {here};
"""
STEPS = """\
	shr.u32 %chunk, %stride, 5;
	mul.wide.u32 %column_step, %chunk_bytes, %chunk;
	mul.wide.u32 %step, %stride, {itemsize};
"""
OUT = """\
	ld.global.nc.u64 %out, [%job+{field_out}];
	ld.global.nc.u64 %a2, [%job+{field_out_set_bytes}];
	ld.global.nc.u32 %row_bytes, [%job+{field_row_bytes}];
	mad.lo.u64 %out, %a1, %a2, %out;
"""
PLACE = "\tmad.wide.u32 %out, %point, {itemsize}, %out;\n"
ROWS = """\
	// a row after the other
	ld.global.nc.u32 %start, [%job+{field_start}];
	sub.u32 %length, %stop, %start;
	mov.u32 %base, %point;
	and.b32 %rows, %bundle, 255;
	shr.u32 %t1, %bundle, 8;
	and.b32 %t1, %t1, 255;
	mul.wide.u32 %step, %t1, 8;
	shr.u32 %bundle, %bundle, 16;
next_row:
	ld.global.nc.{instance}, [%instances];
	mad.wide.u32 %own, %number, {of_a_number}, %numbers;
	mad.wide.u32 %at0, %expression, %row_bytes, %out;
	// its first point: the first one of {line} bytes of memory
	mad.wide.u32 %a0, %start, {itemsize}, %at0;
	cvt.u32.u64 %t1, %a0;
	and.b32 %t1, %t1, {within};
	shr.u32 %t1, %t1, {shift};
	sub.u32 %point, %base, %t1;
	sub.u32 %t1, %point, %start;
	setp.lt.u32 %on0, %t1, %length;
{masks}\
	selp.b32 %point, %point, %start, %on0;
	mad.wide.u32 %at0, %point, {itemsize}, %at0;
{column}\
"""
_ROW_MASK = "\tadd.u32 %t2, %t1, {k};\n\tsetp.lt.u32 %on{k}, %t2, %length;\n"
NEXT_ROW = """\
row_done:
	add.u64 %instances, %instances, %step;
	sub.u32 %rows, %rows, 1;
	setp.ne.u32 %p, %rows, 0;
	@%p bra next_row;
	ret;
"""
TARGET = """\
	ld.global.nc.u64 %target, [%job+{field_target}];
	mad.wide.u32 %target, %point, {itemsize}, %target;
"""
WEIGHTS = """\
	ld.global.nc.u64 %weights, [%job+{field_weights}];
	mad.wide.u32 %weights, %point, {itemsize}, %weights;
"""
READ = """\
	ld.global.nc.u64 %target, [%job+{field_target}];
	shr.u32 %chunk, %point, 5;
	and.b32 %within, %point, 31;
	mad.wide.u32 %target, %chunk, {chunk_bytes}, %target;
	mad.wide.u32 %target, %within, {itemsize}, %target;
	mul.wide.u32 %target_step, %stride, {bytes_of_a_point};
"""
DISPATCH = """\
bundles: .branchtargets {labels};
	brx.idx %bundle, bundles;
"""

ADD_UP = """\
add_up:
	// a warp adds up one structure after the other: %t0 of them, each one sum a thread
	bar.sync 0;
	ld.global.nc.u64 %out, [%job+{field_out}];
	ld.global.nc.u32 %t1, [%job+{field_n_exprs}];
	ld.global.nc.u32 %t2, [%job+{field_n_tiles}];
	mul.wide.u32 %a0, %set, %t1;
	cvt.u64.u32 %a1, %t2;
	cvt.u64.u32 %a3, %tile;
	and.b32 %t3, %thread, 31;
	shr.u32 %t4, %thread, 5;
	mov.u32 %t5, own_sums;
	mad.lo.u32 %t5, %t3, {itemsize}, %t5;
next_structure:
	setp.ge.u32 %p, %t4, %t0;
	@%p ret;
	mad.wide.u32 %own, %t4, {of_an_instance}, %instances;
	ld.global.nc.u32 %expression, [%own+4];
	mad.lo.u32 %t6, %t4, {row}, %t5;
	mov.f64 %total, 0d0000000000000000;
{strides}\
{lanes}\
	cvt.u64.u32 %a2, %expression;
	add.u64 %a2, %a2, %a0;
	mad.lo.u64 %a2, %a2, %a1, %a3;
	shl.b64 %a2, %a2, 3;
	add.u64 %a2, %a2, %out;
	setp.eq.u32 %p, %t3, 0;
	@%p st.global.f64 [%a2], %total;
	add.u32 %t4, %t4, {warps};
	bra.uni next_structure;
"""
_STRIDE = {
    4: "\tld.shared.f32 %e, [%t6+{at}];\n\tcvt.f64.f32 %term, %e;\n\tadd.rn.f64 %total, %total, %term;\n",
    8: "\tld.shared.f64 %term, [%t6+{at}];\n\tadd.rn.f64 %total, %total, %term;\n",
}
_LANE = """\
	mov.b64 {%t1, %t2}, %total;
	shfl.sync.bfly.b32 %t1, %t1, {distance}, 31, -1;
	shfl.sync.bfly.b32 %t2, %t2, {distance}, 31, -1;
	mov.b64 %term, {%t1, %t2};
	add.rn.f64 %total, %total, %term;
"""


def opening(
    kind: Kind, n_structures: int, n_bundles: int, most_structures: int, n_columns: int, **words: object
) -> str:
    """An entry up to its first bundle; ``words``: name, n_values, n_numbers."""
    is_values = kind.task == VALUES
    own = kind.block * kind.itemsize * most_structures
    own_registers = _VALUES_REGISTERS + _ROWS_REGISTERS * kind.by_row if is_values else _SUMS_REGISTERS
    own_registers += _LOSS_REGISTERS if kind.loss else ""
    own_registers = fill(
        own_registers,
        most_structures=most_structures,
        real=kind.real,
        n=kind.points,
        n_read=kind.points * kind.read,
        n_loss=kind.loss.n_registers if kind.loss else 0,
    )
    has_masks = kind.masked or kind.weighted or kind.by_row
    entry = fill(
        ENTRY,
        own_registers=own_registers,
        masks=f", %on<{kind.points}>" if has_masks else "",
        n_bundles=number_of(n_bundles, "bundle"),
        points=number_of(kind.points, "point"),
        block=kind.block,
        real=kind.real,
        n_columns=n_columns * kind.points,
        own_columns=fill(_OWN_COLUMNS, n_columns=n_columns) if kind.indirect else "",
        n_structures=number_of(n_structures, "structure"),
        shared="" if is_values else f"\t.shared .align 16 .b8 own_sums[{own}];\n",
        limit=f".minnctapersm {kind.resident}\n" if kind.resident else "",
        **words,
    )
    targets = READ if kind.loss else TARGET + (WEIGHTS if kind.weighted else "")
    more = OUT + (_rows(kind) if kind.by_row else PLACE) if is_values else targets
    turns = "" if kind.by_row else TURNS + (GUARD if is_values else "")
    column = "" if kind.by_row else fill(COLUMN, here="%columns") + STEPS
    labels = ", ".join(f"bundle_{i}" for i in range(n_bundles))
    dispatch = fill(DISPATCH, labels=labels) if n_bundles > 1 else ""
    return (
        entry
        + fill(
            fill(PROLOGUE, turns=turns, column=column) + more,
            points=kind.points,
            itemsize=kind.itemsize,
            chunk_bytes=kind.read * CHUNK * kind.itemsize,
            bytes_of_a_point=kind.read * kind.itemsize,
            **_FIELDS,
        )
        + dispatch
    )


def _rows(kind: Kind) -> str:
    """The beginning of each row of a block that writes one after the other."""
    masks = "".join(fill(_ROW_MASK, k=k) for k in range(1, kind.points)) if kind.masked else ""
    return fill(
        ROWS,
        instance=_instance(kind),
        of_a_number=2 * kind.itemsize,
        line=LINE,
        masks=masks,
        within=LINE - kind.points * kind.itemsize,
        shift=kind.itemsize.bit_length() - 1,
        column=fill(COLUMN, here="%here"),
    )


def closing(kind: Kind) -> str:
    """An entry behind its last bundle."""
    if kind.task == VALUES:
        return (NEXT_ROW if kind.by_row else "") + "}\n"
    strides = "".join(fill(_STRIDE[kind.itemsize], at=at * WARP * kind.itemsize) for at in range(kind.block // WARP))
    lanes = "".join(fill(_LANE, distance=distance) for distance in (16, 8, 4, 2, 1))
    return (
        fill(
            ADD_UP,
            itemsize=kind.itemsize,
            row=kind.block * kind.itemsize,
            warps=kind.block // WARP,
            strides=strides,
            lanes=lanes,
            of_an_instance="%t7" if kind.indirect else 8,
            **_FIELDS,
        )
        + "}\n"
    )


# ── the lines of a bundle ────────────────────────────────────────────────────────────


_LOOP = 'loop_{0}:\n\t.pragma "nounroll";\n'  # the code is long enough as it is


def lines(kind: Kind) -> dict[str, str]:
    """The text of a bundle line by line; {0}, {1}, {2} are whole numbers, {0+k} is the first of them plus k.

    ===============  ==============================================================
    line             numbers
    ===============  ==============================================================
    bundle           bundle
    instance         place of the structure's instance
    more, address    place of more of its columns; column in the bundle, register that its number is in
    number           number in the bundle, place of it among the structure's
    place, zero_sum  structure in the bundle
    loop, end        bundle, structures in the bundle, bytes of an instance
    column           the first of V registers, place of the column
    result           the first of V registers, structure in the bundle
    advance          column in the bundle
    own_sum          structure in the bundle, place in shared memory
    ===============  ==============================================================
    """
    real, size, n = kind.real, kind.itemsize, kind.points
    here = "%here" if kind.by_row else "%columns"
    column = "[%c{1}]" if kind.indirect else f"[{here}+{{1}}]"
    instance = f"\tld.global.nc.{_instance(kind)}, [%instances+{{0}}];\n"
    instance += f"\tmad.wide.u32 %own, %number, {2 * size}, %numbers;\n"
    common = {
        "bundle": "bundle_{0}:\n",
        "instance": "" if kind.by_row else instance,
        "more": "\tld.global.nc.v4.u32 {%t1, %t2, %t3, %t4}, [%instances+{0}];\n",
        "address": f"\tmad.wide.u32 %c{{0}}, %t{{1}}, {CHUNK * size}, {here};\n",
        "advance": "" if kind.by_row else "\tadd.u64 %c{0}, %c{0}, %column_step;\n",
        "number": f"\tld.global.nc.{real} %n{{0}}, [%own+{{1}}];\n",
        "column": f"\tld.global.nc{kind.vector}.{real} {vector('%x{0+[k]}', n)}, {column};\n",
    }
    return common | (_values_lines(kind) if kind.task == VALUES else _sums_lines(kind))


def _instance(kind: Kind) -> str:
    return "v4.u32 {%number, %expression, %t3, %t4}" if kind.indirect else "v2.u32 {%number, %expression}"


def _values_lines(kind: Kind) -> dict[str, str]:
    n, result = kind.points, ""
    for k in range(0, n, kind.store):
        guard = f"@%on{k} " if kind.masked and k else "@%on0 " if kind.by_row else ""
        registers, place = vector("%v{0+[k]}", kind.store, k), f"[%at{{1}}+{k * kind.itemsize}]"
        result += f"\t{guard}st.global.cs{_width(kind.store)}.{kind.real} {place}, {registers};\n"
    return {
        "place": "" if kind.by_row else "\tmad.wide.u32 %at{0}, %expression, %row_bytes, %out;\n",
        "loop": "" if kind.by_row else _LOOP + _mask(kind),
        "result": result + ("" if kind.by_row else "\tadd.u64 %at{1}, %at{1}, %step;\n"),
        "end": "\tbra.uni row_done;\n" if kind.by_row else _next(kind) + "\tret;\n",
    }


def _sums_lines(kind: Kind) -> dict[str, str]:
    n, of_an_instance = kind.points, "\tmov.u32 %t7, {2};\n" if kind.indirect else ""
    return {
        "zero_sum": f"\tmov.{kind.real} %s{{0}}, {kind.zero};\n",
        "loop": "\t@%done bra sums_{0};\n" + _LOOP + _mask(kind) + _targets(kind),
        "result": "".join(_error(kind, k) for k in range(n)),
        "end": _next(kind) + "sums_{0}:\n\tmov.u32 %t0, {1};\n" + of_an_instance + "\tmov.u32 %t5, own_sums;\n"
        f"\tmad.lo.u32 %t5, %thread, {kind.itemsize}, %t5;\n",
        "own_sum": f"\tst.shared.{kind.real} [%t5+{{1}}], %s{{0}};\n",
        "to_sums": "\tbra.uni add_up;\n",
    }


def _mask(kind: Kind) -> str:
    """Which points of a vector are there and count; the first one always is there."""
    if kind.weighted or not kind.masked:
        return ""
    return "".join(f"\tadd.u32 %t7, %point, {k};\n\tsetp.lt.u32 %on{k}, %t7, %end;\n" for k in range(1, kind.points))


def _targets(kind: Kind) -> str:
    n, real, load = kind.points, kind.real, f"\tld.global.nc{kind.vector}.{kind.real}"
    n_read = kind.loss.n_columns if kind.loss else 1
    text = "".join(f"{load} {vector('%y[k]', n, c * n)}, [%target{_beside(kind, c)}];\n" for c in range(n_read))
    if kind.weighted:
        weights = f"%target{_beside(kind, n_read)}" if kind.loss else "%weights"
        text += f"{load} {vector('%w[k]', n)}, [{weights}];\n"
        text += "".join(f"\tsetp.neu.{real} %on{k}, %w{k}, {kind.zero};\n" for k in range(n))
    return text


def _beside(kind: Kind, c: int) -> str:
    """The offset of a column that a loss reads from its first one."""
    return f"+{c * CHUNK * kind.itemsize}" if c else ""


def _error(kind: Kind, k: int) -> str:
    """Add the error of a vector's point k to a structure's sum."""
    real, total = kind.real, "%s{1}"
    text = f"\tsub.rn.{real} %e, %v{{0+{k}}}, %y{k};\n" if kind.loss is None else _loss(kind, kind.loss.text, k)
    if kind.loss is not None and kind.loss.factors is not None and not kind.weighted:
        a, b = (_loss(kind, factor, k) for factor in kind.loss.factors)
        if not (kind.masked and k):
            return text + f"\tfma.rn.{real} {total}, {a}, {b}, {total};\n"
        return text + f"\tfma.rn.{real} %e, {a}, {b}, {total};\n\tselp.{real} {total}, %e, {total}, %on{k};\n"
    if kind.weighted or (kind.masked and k):
        text += f"\tselp.{real} %e, %e, {kind.zero}, %on{k};\n"
    if kind.task in (ABSOLUTE, SUM):
        text += f"\tabs.{real} %e, %e;\n" if kind.task == ABSOLUTE else ""
        if kind.weighted:
            return text + f"\tfma.rn.{real} {total}, %e, %w{k}, {total};\n"
        return text + f"\tadd.rn.{real} {total}, {total}, %e;\n"
    if kind.weighted:
        return text + f"\tmul.rn.{real} %weighted, %e, %w{k};\n\tfma.rn.{real} {total}, %weighted, %e, {total};\n"
    return text + f"\tfma.rn.{real} {total}, %e, %e, {total};\n"


def _loss(kind: Kind, text: str, k: int) -> str:
    """The text of a loss at a vector's point k."""
    assert kind.loss is not None
    text = text.replace("<f>", f"%v{{0+{k}}}").replace("{n}", f"{{n}}_{k}")
    for c in range(kind.loss.n_columns):
        text = text.replace(f"<{c}>", f"%y{c * kind.points + k}")
    return text


def _next(kind: Kind) -> str:
    places = [] if kind.task == VALUES else ["target", "weights"][: 1 + kind.weighted]
    text = "".join(f"\tadd.u64 %{name}, %{name}, %step;\n" for name in places)
    text = "\tadd.u64 %target, %target, %target_step;\n" if kind.loss else text
    text += "" if kind.indirect else "\tadd.u64 %columns, %columns, %column_step;\n"
    return text + ("\tadd.u32 %point, %point, %stride;\n\tsetp.lt.u32 %p, %point, %end;\n\t@%p bra loop_{0};\n")
