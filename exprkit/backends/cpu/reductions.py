"""Machine code of sums over the points of a tile: losses, and the normal equations of a fit.

A kernel of ``kernels`` makes values out of values, here a tile's values and derivatives become sums in float64.

    >>> from exprkit.backends.cpu import kernels, reductions
    >>> addresses = reductions.functions(kernels.kernels("float32", "ieee"))
    >>> sorted(addresses)[:3]
    ['equations_1', 'equations_2', 'equations_3']

==========================================  =====================================================
function                                    what it does
==========================================  =====================================================
``sum_k(f, y, w, n)``                       the sum of w L over n points, as a double, for the
                                            objective of kind k (one of PLAIN)
``loss_k(f, y, w, q, v, delta, n)``         the same for all kinds, every term in float64; writes
                                            w q to ``q`` and w q r to ``v`` (L, q and r as in
                                            ``objective``)
``equations_m(sums, J, q, v, n)``           adds to ``sums`` J'v (m numbers), then the upper
                                            half of J' diag(q) J, a row after the other; J
                                            holds the addresses of m columns
``product(a, b, q, n)``                     the sum of q a b, as a double
``slope(a, v, q, n)``                       the sum of a v where q is not 0, as a double
==========================================  =====================================================

``w`` may be null (1 everywhere), ``q`` as well (1 everywhere; of SQUARES without weights it is
not written).  A point of weight 0 does not count, whatever the other numbers are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

from exprkit.backends import objective
from exprkit.backends.cpu.kernels import REAL, RESULTS, SHIPPED, Kernels, host, module_text, results_text
from exprkit.operators import simd_formulas
from exprkit.operators.llvm_writer import LEVELS, Code, Target
from exprkit.operators.simd_values import SIZE, Vec, literal, where

COLUMNS = 5  # more derivatives than this are multiplied pair by pair: the sums would not fit in registers
_VECTORS = SimpleNamespace(where=where, log=simd_formulas.log)
KINDS = (objective.SQUARES, objective.ABSOLUTE, objective.HUBER, objective.POISSON, objective.SUM)
PLAIN = (objective.SQUARES, objective.ABSOLUTE, objective.SUM)  # kinds that are also summed without derivatives
UNWEIGHTED = (objective.SQUARES, objective.SUM)  # kinds without a weight of their own
NAMES = (*(f"loss_{kind}" for kind in KINDS), *(f"equations_{m}" for m in range(1, COLUMNS + 1)), "product", "slope")


@cache
def functions(kernels: Kernels) -> dict[str, int]:
    """The addresses of the functions of derivatives and fits, by name."""
    return kernels.functions(NAMES, text, _source())


def compile_for(level: str) -> None:
    """Compile all kernels for a level of ``runtime.shipped``, so that the disk cache has them, without running them."""
    target = replace(LEVELS[SHIPPED[level]], triple=host().triple)
    for dtype in REAL:
        for precision in ("ieee", "fast"):
            library = Kernels(dtype, precision, target)
            library.compile_all()
            library.functions(RESULTS, results_text)
            functions(library)
            plain_sum(library, PLAIN[0])


@cache
def plain_sum(kernels: Kernels, kind: int) -> int:
    """The address of ``sum_kind``."""
    return kernels.functions([f"sum_{kind}" for kind in PLAIN], sums_text, _source())[f"sum_{kind}"]


@cache
def _source() -> str:
    return "".join(Path(path or "").read_text("utf-8") for path in (__file__, objective.__file__))


def sums_text(target: Target, dtype: str) -> str:
    """The LLVM text of the losses without derivatives."""
    arguments = "ptr %f, ptr %y, ptr %w, i64 %n"
    return module_text([(_plain_sum(target, REAL[dtype], kind), f"sum_{kind}", arguments, "double") for kind in PLAIN])


def text(target: Target, dtype: str) -> str:
    """The LLVM text of the functions of derivatives and fits."""
    real = REAL[dtype]
    loss = "ptr %f, ptr %y, ptr %w, ptr %q, ptr %v, ptr %delta, i64 %n"
    equations = "ptr %sums, ptr %J, ptr %q, ptr %v, i64 %n"
    return module_text(
        [
            *((_loss(target, real, kind), f"loss_{kind}", loss, "double") for kind in KINDS),
            *((_equations(target, real, m), f"equations_{m}", equations, "void") for m in range(1, COLUMNS + 1)),
            (_product(target, real, scaled=True), "product", "ptr %a, ptr %b, ptr %q, i64 %n", "double"),
            (_product(target, real, scaled=False), "slope", "ptr %a, ptr %b, ptr %q, i64 %n", "double"),
        ]
    )


def _either_way(code: Code, pointer: str, write: Callable[[bool], None]) -> None:
    """Write the code twice: for a null pointer (``write(False)``) and for another one."""
    plain, given = code.fresh("plain"), code.fresh("given")
    code.line(f"br i1 {code.let(f'icmp eq ptr {pointer}, null')}, label %{plain}, label %{given}")
    for label in (plain, given):
        code.label(label)
        write(label == given)


def load(code: Code, base: str, i: str, mask: Vec | None) -> Vec:
    """The numbers from i on; with a mask only those that are there."""
    place = code.place(base, i)
    return code.load(place) if mask is None else code.load_part(place, mask)


def _store(code: Code, a: Vec, base: str, i: str, mask: Vec | None) -> None:
    a = a.narrow() if a.element != code.real else a
    if mask is None:
        code.store(a, code.place(base, i))
    else:
        code.store_part(a, code.place(base, i), mask)


def _wide(a: Vec) -> Vec:
    return a if a.double else a.widen()


def in_whole_vectors(
    code: Code,
    body: Callable[[str, list[Vec], Vec | None], list[Vec]],
    totals: list[Vec],
    last: Callable[[list[Vec]], Vec] | None = None,
) -> list[Vec]:
    """totals = body(i, totals, mask) over n points; the mask is None but for the last points.

    ``last(totals)``: where a lane of it is set, no more whole vectors follow.
    """
    whole = code.let(f"and i64 %n, {-code.lanes}")
    totals = code.folds(0, whole, code.lanes, lambda i, sums: body(i, sums, None), totals, last)
    rest = code.first_lanes(code.let(f"sub i64 %n, {whole}"))
    return [where(rest, new, old) for new, old in zip(body(whole, totals, rest), totals, strict=True)]


# ── losses ───────────────────────────────────────────────────────────────────────────


def _plain_sum(target: Target, real: str, kind: int) -> Code:
    """The sum over n points of w L, as a double.

    float32 sums of four registers side by side, each over an eighth of a tile, have a relative
    error around 1e-7.  Where such a sum overflows, or is so small that its terms may have
    underflown, it is made again in float64.
    """
    code = Code(target, real, 4 * target.width // SIZE[real])

    def write(weighted: bool) -> None:
        total = _sum_of_losses(code, kind, weighted, wide=real == "double")
        if real == "float":
            sure_or_again(code, total, lambda: _sum_of_losses(code, kind, weighted, wide=True))
        code.line(f"ret double {total}")

    _either_way(code, "%w", write)
    return code


def sure_or_again(code: Code, total: str, make_again: Callable[[], str], unsure: str | None = None) -> None:
    """Go on with a sum of float32 numbers; where it overflows or may have underflown return ``make_again``'s.

    ``unsure``: an i1, where that is to be returned as well.
    """
    again, done = code.fresh("again"), code.fresh("done")
    size = code.call("double", "llvm.fabs.f64", f"double {total}")
    enough = code.let(f"fcmp oge double {size}, {literal(1e-30, 'double')}")
    finite = code.let(f"fcmp olt double {size}, {literal(math.inf, 'double')}")
    sure = code.let(f"and i1 {enough}, {finite}")
    if unsure is not None:
        sure = code.let(f"and i1 {sure}, {code.let(f'xor i1 {unsure}, true')}")
    code.line(f"br i1 {sure}, label %{done}, label %{again}")
    code.label(again)
    code.line(f"ret double {make_again()}")
    code.label(done)


def _sum_of_losses(code: Code, kind: int, weighted: bool, wide: bool) -> str:
    """The sum in the data's type, or ``wide``: every term in float64."""

    def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
        def number(base: str) -> Vec:
            return _wide(load(code, base, i, mask)) if wide else load(code, base, i, mask)

        f, y = number("%f"), number("%y")
        loss = objective.loss_of(kind, f - y, f, y, None, _VECTORS)
        if weighted:
            w = number("%w")
            loss = where(w == 0.0, 0.0, loss * w)
        return [totals[0] + loss]

    zero = code.constant(0.0, "double" if wide else code.real)
    return code.total(in_whole_vectors(code, body, [zero])[0])


def _loss(target: Target, real: str, kind: int) -> Code:
    code = Code(target, real, 2 * target.width // SIZE[real])
    delta = code.broadcast(code.let("load double, ptr %delta"), "double")

    def write(weighted: bool) -> None:
        def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
            f, y = load(code, "%f", i, mask), load(code, "%y", i, mask)
            r, f, y = _wide(f - y), _wide(f), _wide(y)
            loss = objective.loss_of(kind, r, f, y, delta, _VECTORS)
            q = objective.weight_of(kind, r, f, delta, _VECTORS)
            if kind == objective.SUM:
                r = code.constant(0.5, "double")  # the gradient is twice the sum of what is stored times J
            if weighted:
                w = _wide(load(code, "%w", i, mask))
                none = w == 0.0
                loss, q = where(none, 0.0, loss * w), where(none, 0.0, w if q is None else q * w)
                r = where(none, 0.0, r)
            if q is not None:
                _store(code, q, "%q", i, mask)
                r = r * q
            _store(code, r, "%v", i, mask)
            return [totals[0] + loss]

        code.line(f"ret double {code.total(in_whole_vectors(code, body, [code.constant(0.0, 'double')])[0])}")

    _either_way(code, "%w", write)
    return code


# ── normal equations ─────────────────────────────────────────────────────────────────


def _equations(target: Target, real: str, m: int) -> Code:
    """One pass over the points, all sums in registers."""
    lanes = target.width // SIZE[real]
    code = Code(target, real, lanes if m <= 2 or real == "double" else lanes // 2)
    columns = [code.let(f"load ptr, ptr {code.let(f'getelementptr ptr, ptr %J, i64 {k}')}") for k in range(m)]
    pairs = [(j, k) for j in range(m) for k in range(j, m)]

    def write(weighted: bool) -> None:
        def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
            J, v = [_wide(load(code, column, i, mask)) for column in columns], _wide(load(code, "%v", i, mask))
            scaled = J
            if weighted:
                q = _wide(load(code, "%q", i, mask))
                J = [where(q == 0.0, 0.0, column) for column in J]
                scaled = [column * q for column in J]
            sums = [column.times_plus(v, total) for column, total in zip(J, totals, strict=False)]
            return sums + [J[j].times_plus(scaled[k], totals[m + n]) for n, (j, k) in enumerate(pairs)]

        zeros = [code.constant(0.0, "double")] * (m + len(pairs))
        for n, total in enumerate(in_whole_vectors(code, body, zeros)):
            place = code.let(f"getelementptr double, ptr %sums, i64 {n}")
            before = code.let(f"load double, ptr {place}")
            code.line(f"store double {code.let(f'fadd double {before}, {code.total(total)}')}, ptr {place}")
        code.line("ret void")

    _either_way(code, "%q", write)
    return code


def _product(target: Target, real: str, scaled: bool) -> Code:
    code = Code(target, real, 2 * target.width // SIZE[real])

    def write(weighted: bool) -> None:
        def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
            a, b = (_wide(load(code, base, i, mask)) for base in ("%a", "%b"))
            if weighted:
                q = _wide(load(code, "%q", i, mask))
                b = where(q == 0.0, 0.0, b * q if scaled else b)
                a = where(q == 0.0, 0.0, a)
            return [a.times_plus(b, totals[0])]

        code.line(f"ret double {code.total(in_whole_vectors(code, body, [code.constant(0.0, 'double')])[0])}")

    _either_way(code, "%q", write)
    return code
