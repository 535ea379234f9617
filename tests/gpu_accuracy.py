"""Every unary operator of the GPU on every float32: ``PYTHONPATH=. python tests/gpu_accuracy.py data/results``.

Writes ``accuracy_ieee.csv``, ``accuracy_fast.csv`` and ``accuracy.md``.  What is measured is the
shipped code: function ``scalar`` of support.cu, compiled as for an evaluation.  It is
compared on the device with the same table's formulas in float64, whose errors are far below
float32's last place.

==============  ============================================================================
column          what it holds
==============  ============================================================================
``ulp``         worst error over all inputs, in units of the result's last place, and ``at``
``domain_ulp``  the same over the domain of the operator's row, and ``domain_at``
``unit_ulp``    over the domain, in units of max(\\|y\\|, 1)'s last place, and ``unit_at``
``allowed``     of ``domain_ulp`` (ieee) or ``unit_ulp`` (fast), from the table
``nan``         how many results are nan where they should not be, or not nan
``inf``         the same for inf, beyond the two numbers next to it
``sign``        how many have the wrong sign; that of 0 counts
``flushed``     inputs or results below 1.2e-38 that count as 0 (fast; not in the errors)
==============  ============================================================================
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata

import cupy
import numpy as np
import timing

from exprkit.backends.gpu import device, nvrtc, opcodes
from exprkit.backends.precision import Precision
from exprkit.operators import ops
from exprkit.study import records

CHUNK = 1 << 27
COMPARE = r"""
#if SUPPORT
extern "C" __global__ void results(int code, unsigned first, long long n, T *y)
{
    const long long i = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T low;
    y[i] = scalar(code, T(__uint_as_float(first + unsigned(i))), T(0), T(0), low);
}

INLINE double last_place(double y)
{
    int exponent;
    frexp(fabs(y), &exponent);
    return ldexp(1.0, max(exponent - 24, -149));
}

INLINE void raise(unsigned long long *worst, double error, unsigned bits)
{
    const unsigned long long found = Long(__float_as_uint(float(fmin(error, 1e30)))) << 32 | bits;
    if (found > *(volatile unsigned long long *)worst) atomicMax(worst, found);
}

// worst: all, domain, units; counts: nan, inf, sign, flushed
extern "C" __global__ void compare(
    unsigned first, long long n, const float *y, const double *wanted, float from, float to, int flushes,
    unsigned long long *worst, unsigned long long *counts)
{
    const long long i = Long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned bits = first + unsigned(i);
    const float a = __uint_as_float(bits), least = 1.17549435e-38f;
    const double exact = wanted[i], edge = 3.4028236692093846e38;  // 2^128
    const double result = isinf(y[i]) ? copysign(edge, double(y[i])) : double(y[i]);
    const double target = fabs(exact) > edge ? copysign(edge, exact) : exact;
    if (isnan(exact) || isnan(y[i])) {
        if (isnan(exact) != isnan(y[i])) atomicAdd(counts, 1ull);
        return;
    }
    if (flushes && ((a != 0.0f && fabs(a) < least) || (exact != 0.0 && fabs(exact) < least))) {
        atomicAdd(counts + 3, 1ull);
        return;
    }
    if (isinf(y[i]) != (fabs(target) == edge) && fabs(result - target) > 2.1 * last_place(3e38)) {
        atomicAdd(counts + 1, 1ull);
        return;
    }
    if (signbit(y[i]) != signbit(exact)) atomicAdd(counts + 2, 1ull);
    const double error = fabs(result - target);
    raise(worst, error / last_place(target), bits);
    if (a >= from && a <= to) {
        raise(worst + 1, error / last_place(target), bits);
        raise(worst + 2, error / last_place(fmax(fabs(target), 1.0)), bits);
    }
}
#endif
"""


def built(architecture, real, name):
    """Machine code of the table's formulas and of the comparison."""
    text = opcodes.source(name) + COMPARE
    return nvrtc.build(architecture, Precision(name), text, REAL=real, SUPPORT=1)[0]


def module(code):
    """The same on the device."""
    loaded = cupy.cuda.function.Module()
    loaded.load(code)
    return loaded


class Comparison:
    """The kernels, and memory for a chunk of inputs."""

    def __init__(self, double, **singles):
        self.double = double.get_function("results")
        self.singles = {name: [one.get_function(f) for f in ("results", "compare")] for name, one in singles.items()}
        self.y, self.wanted = cupy.empty(CHUNK, np.float32), cupy.empty(CHUNK, np.float64)

    def run(self, row):
        """A line for each precision."""
        found = {name: (cupy.zeros(3, np.uint64), cupy.zeros(4, np.uint64)) for name in self.singles}
        low, high = map(np.float32, row.domain[0])
        grid, block, n, code = (CHUNK // 256,), (256,), np.int64(CHUNK), np.int32(row.code)
        for start in range(0, 1 << 32, CHUNK):
            first = np.uint32(start)
            self.double(grid, block, (code, first, n, self.wanted))
            for name, (results, compare) in self.singles.items():
                results(grid, block, (code, first, n, self.y))
                flushes = np.int32(bool(Precision(name).flush_subnormals))
                compare(grid, block, (first, n, self.y, self.wanted, low, high, flushes, *found[name]))
        return {name: line(row, name, *map(cupy.asnumpy, arrays)) for name, arrays in found.items()}


def line(row, precision, worst, counts):
    """One line of a table."""
    errors = (worst >> np.uint64(32)).astype(np.uint32).view(np.float32)
    inputs = worst.astype(np.uint32).view(np.float32)
    low, high = row.domain[0]
    made = {"operator": row.name, "from": low, "to": high, "allowed": allowed(row, precision)}
    for name, error, at in zip(("", "domain_", "unit_"), errors, inputs, strict=True):
        made[f"{name}ulp"], made[f"{name}at"] = f"{error:.3g}", f"{at:.9g}"
    return {**made, **dict(zip(("nan", "inf", "sign", "flushed"), counts.tolist(), strict=True))}


def allowed(row, precision):
    """What the table says of the error over the domain."""
    return row.cuda.fast_ulp if precision == "fast" and row.cuda.fast_ulp is not None else row.ulp[0]


def main(folder):
    wanted = [("double", "ieee"), ("float", "ieee"), ("float", "fast")]
    started = time.perf_counter()
    with ProcessPoolExecutor(3, multiprocessing.get_context("spawn")) as pool:
        codes = pool.map(functools.partial(built, device.current().architecture), *zip(*wanted, strict=True))
        double, ieee, fast = map(module, codes)
    compiled = time.perf_counter()
    comparison = Comparison(double, ieee=ieee, fast=fast)
    lines = [comparison.run(row) for row in ops.OPERATORS if row.arity == 1]
    seconds = time.perf_counter() - compiled
    for name in ("ieee", "fast"):
        rows = [one[name] for one in lines]
        records.write_rows(folder / f"accuracy_{name}.csv", rows)
        for row in rows:
            error = float(row["domain_ulp" if name == "ieee" else "unit_ulp"])
            print(name, *row.values(), "" if error <= row["allowed"] else "MORE THAN ALLOWED", flush=True)
    print(f"compiled in {compiled - started:.1f} s, compared in {seconds:.1f} s", flush=True)
    driver = cupy.cuda.runtime.driverGetVersion()
    (folder / "accuracy.md").write_text(f"""# Accuracy of the GPU's unary operators

`accuracy_ieee.csv` and `accuracy_fast.csv`: every float32 input, all 2^32; the columns are explained in
`tests/gpu_accuracy.py`, which makes the files (`python tests/gpu_accuracy.py data/results`).

| | |
|---|---|
| device | {device.current().name}, {device.current().architecture} |
| driver | CUDA {driver // 1000}.{driver % 1000 // 10} |
| compiler | {nvrtc.compiler_version()} |
| CuPy | {metadata.version("cupy-cuda13x")} |
| seconds | {seconds:.1f} |
""")


if __name__ == "__main__":
    main(timing.to_record(sys.argv[1]))
