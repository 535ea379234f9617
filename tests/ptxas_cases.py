"""Every leaf of the case discussions through NVIDIA's assembler, for seven architectures: registers and spills.

    python tests/ptxas_cases.py --out data/results/cases_ptxas.csv --workers 2

No GPU is needed: NVRTC and its assembler come from PyPI.  A kernel takes two to five seconds of a core; what the file
has already is not compiled again, so that a run that was stopped goes on.  ``registers <= limit`` and ``spilled == 0``
are what the discussion promises, where the limit is what a multiprocessor has for the blocks that are to be resident.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import exprkit as ek
from exprkit.backends.cases.cards import CARDS
from exprkit.backends.gpu.schedule import REGISTERS, LaunchShape, registers_needed

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
    names = {"VECTORS": "v", "BLOCK": "b", "COLUMNS_SHARED": "k", "TANGENTS": "t", "MANY": "m", "GLOBAL_ARENA": "g"}
    names = {name: letter for name, letter in names.items() if name in macros}
    skipped = {"COLUMNS_SHARED"} if "TANGENTS" in macros else set()
    words = [f"{letter}{macros[name]}" for name, letter in names.items() if name not in skipped]
    without = ["no powers"] if macros["POWERS"] == "0" else ["all operators"] if macros.get("RARE") == "1" else []
    return " ".join(words + without)


def measured(case, architecture):
    """Registers and spilled bytes of a leaf's kernel, and what it may have."""
    report, macros = case.report(architecture), case.macros
    entry = report[report.index("fit'" if "TANGENTS" in macros else "interpret'") :]
    block, resident = int(macros["BLOCK"]), int(macros["MIN_BLOCKS"])
    registers = int(re.search(r"Used (\d+) registers", entry)[1])
    spilled = int(re.search(r"(\d+) bytes spill stores", entry)[1])
    return {
        "architecture": architecture, "block": block, "resident": resident, "registers": registers,
        "needed": needed(case), "limit": min(REGISTERS // (resident * block) // 8 * 8, 255), "spilled": spilled,
    }  # fmt: skip


def needed(case):
    """Registers with which the discussion says that the kernel spills none; of fits it says nothing."""
    short = "0" in (case.macros["PAIRS"], case.macros["POWERS"])
    return registers_needed(case.shape, short) if isinstance(case.shape, LaunchShape) else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/cases_ptxas.csv"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--precisions", nargs="+", default=("fast", "ieee"))
    parser.add_argument("--dtypes", nargs="+", default=("float32", "float64"))
    parser.add_argument("--architectures", nargs="+", default=tuple(CARDS))
    asked = parser.parse_args()
    importlib.import_module("cuda.core")  # before the threads do: it does not bear being imported twice at once
    done = set()
    if asked.out.exists():
        with asked.out.open() as file:
            done = {tuple(row[name] for name in FIELDS[:5]) for row in csv.DictReader(file)}
    pairs = [
        (head | {"architecture": architecture}, case)
        for head, case in leaves(asked.tasks, asked.precisions, asked.dtypes) for architecture in asked.architectures
    ]  # fmt: skip
    left = [(head, case) for head, case in pairs if tuple(head[name] for name in FIELDS[:5]) not in done]
    random.Random(0).shuffle(left)  # what there is when it is stopped is a fair sample
    print(f"{len(pairs)} kernels, {len(left)} to compile", flush=True)
    with asked.out.open("a", newline="") as file, ThreadPoolExecutor(asked.workers) as pool:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if not done:
            writer.writeheader()
        rows = pool.map(lambda one: one[0] | measured(one[1], one[0]["architecture"]), left)
        for n, row in enumerate(rows):
            writer.writerow(row)
            file.flush()
            if n % SHOWN == 0:
                print(n, row, flush=True)
    with asked.out.open() as file:
        rows = list(csv.DictReader(file))
    order = {name: place for place, name in enumerate((*TASKS, *CARDS))}
    rows.sort(key=lambda row: (order[row["task"]], row["precision"], row["dtype"], order[row["architecture"]]))
    with asked.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    broken = [row for row in rows if int(row["registers"]) > int(row["limit"]) or int(row["spilled"])]
    print(f"{len(rows)} kernels, {len(broken)} above their limit or with spills", *broken[:20], sep="\n")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
