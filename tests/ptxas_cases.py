"""Every leaf of the case discussions through NVIDIA's assembler, for seven architectures: registers and spills.

    python tests/ptxas_cases.py --out data/results/cases_ptxas.csv --workers 2

No GPU is needed: NVRTC and its assembler come from PyPI.  A kernel takes some five seconds of a core; what the file
has already is not compiled again, so that a run that was stopped goes on.  ``registers <= limit`` and ``spilled == 0``
are what the discussion promises, where the limit is what a multiprocessor has for the blocks that are to be resident.
"""

from __future__ import annotations

import argparse
import csv
import functools
import itertools
import multiprocessing
import os
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

from nvrtc_reports import fresh_report, registers_and_spills
from timing import to_record

import exprkit as ek
from exprkit.backends.cases import fits
from exprkit.backends.cases.tree import CARDS
from exprkit.backends.gpu.schedule import REGISTERS, LaunchShape, registers_needed
from exprkit.backends.precision import Precision
from exprkit.study import records

TASKS = "values", "square", "fit"
FIELDS = (
    "architecture", "task", "precision", "dtype", "variant", "block", "resident", "registers", "needed", "limit",
    "spilled",
)  # fmt: skip
SHOWN = 40  # rows between two lines of progress


def leaves(tasks, precisions, dtypes):
    """Every variant that is a leaf anywhere: what names it, and the case."""
    for task, precision, dtype in itertools.product(tasks, precisions, dtypes):
        seen = set()
        for case in ek.cases(task=task, precision=precision, dtype=dtype).leaves:
            name = named(case)
            if name not in seen:
                seen.add(name)
                yield {"task": task, "precision": precision, "dtype": dtype, "variant": name}, case


def named(case):
    """A variant in a word: its numbers."""
    macros = case.macros
    names = {
        "VECTORS": "v", "BLOCK": "b", "COLUMNS_SHARED": "k", "TANGENTS": "t", "MANY": "m", "GLOBAL_ARENA": "g",
        "FITS": "f",
    }  # fmt: skip
    names = {name: letter for name, letter in names.items() if name in macros}
    skipped = {"COLUMNS_SHARED"} if "TANGENTS" in macros else set()
    words = [f"{letter}{macros[name]}" for name, letter in names.items() if name not in skipped]
    without = ["no powers"] if macros["POWERS"] == "0" else ["all operators"] if macros.get("RARE") == "1" else []
    return " ".join(words + without)


@functools.cache
def cases_of(task, precision, dtype):
    """The leaves of one tree by their names, made once in a process."""
    return {head["variant"]: case for head, case in leaves((task,), (precision,), (dtype,))}


def row_of(head):
    """A row of the table, of a kernel by what names it."""
    case = cases_of(head["task"], head["precision"], head["dtype"])[head["variant"]]
    return head | measured(case, head["architecture"], head["precision"])


def measured(case, architecture, precision):
    """Registers and spilled bytes of a leaf's kernel, and what it may have."""
    macros = case.macros
    is_fit = "TANGENTS" in macros
    report = fresh_report(architecture, Precision(precision), case.source, **macros)
    registers, spilled = registers_and_spills(report, "fit" if is_fit else "interpret")
    block, resident = int(macros["BLOCK"]) * int(macros.get("FITS", 1)), int(macros["MIN_BLOCKS"])
    return {
        "architecture": architecture, "block": block, "resident": resident, "registers": registers,
        "needed": needed(case), "limit": min(REGISTERS // (resident * block) // 8 * 8, 255), "spilled": spilled,
    }  # fmt: skip


def needed(case):
    """Registers with which the discussion says that the kernel spills none, or a few bytes."""
    short = "0" in (case.macros["PAIRS"], case.macros["POWERS"])
    if isinstance(case.shape, LaunchShape):
        return registers_needed(case.shape, short)
    return fits.registers_of(case.shape, case.macros["PAIRS"] == "0", case.macros["RARE"] == "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=to_record, default="data/results/cases_ptxas.csv")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no kernel is begun")
    parser.add_argument("--anew", action="store_true", help="compile the rows of these tasks again that the file has")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--precisions", nargs="+", default=("fast", "ieee"))
    parser.add_argument("--dtypes", nargs="+", default=("float32", "float64"))
    parser.add_argument("--architectures", nargs="+", default=tuple(CARDS))
    asked = parser.parse_args()
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # of code that lies in the driver's cache the assembler says nothing
    rows = []
    if asked.out.exists():
        with asked.out.open() as file:
            rows = list(csv.DictReader(file))
    if asked.anew:
        rows = [row for row in rows if row["task"] not in asked.tasks]
    done = {tuple(row[name] for name in FIELDS[:5]) for row in rows}
    heads = [
        head | {"architecture": architecture}
        for head, _ in leaves(asked.tasks, asked.precisions, asked.dtypes) for architecture in asked.architectures
    ]  # fmt: skip
    left = [head for head in heads if tuple(head[name] for name in FIELDS[:5]) not in done]
    random.Random(0).shuffle(left)  # what there is when it is stopped is a fair sample
    print(f"{len(heads)} kernels, {len(left)} to compile", flush=True)
    begin = time.perf_counter()
    # processes, for NVRTC reads texts one after the other in all threads of one
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.workers, context) as pool:
        waiting, n = set(), 0
        while waiting or (left and time.perf_counter() - begin < asked.seconds):
            while left and len(waiting) < 2 * asked.workers and time.perf_counter() - begin < asked.seconds:
                waiting.add(pool.submit(row_of, left.pop()))
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for one in ended:
                rows.append(one.result())
                if n % SHOWN == 0:
                    records.write_rows(asked.out, rows)
                    print(f"{n + 1} after {time.perf_counter() - begin:.0f} s: {one.result()}", flush=True)
                n += 1
    if n:
        each = (time.perf_counter() - begin) * asked.workers / n
        print(f"{n} compiled, {each:.1f} s of a worker each; {len(left)} left", flush=True)
    order = {name: place for place, name in enumerate((*TASKS, *CARDS))}
    rows.sort(key=lambda row: (order[row["task"]], row["precision"], row["dtype"], order[row["architecture"]]))
    records.write_rows(asked.out, rows)
    broken = [row for row in rows if int(row["registers"]) > int(row["limit"]) or int(row["spilled"])]
    print(f"{len(rows)} kernels, {len(broken)} above their limit or with spills", *broken[:20], sep="\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
