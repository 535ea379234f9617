"""What a first use costs on a GPU: fresh processes, by which machine code is there already; and which kernels that is.

    PYTHONPATH=. python tests/gpu_first_use.py [--for values,fit,exhaustive,law] [--archive FILE] [--csv FILE]
    PYTHONPATH=. python tests/gpu_first_use.py --record exprkit/backends/gpu/kernels.jsonl

A line is a process that does what it names and what that needs, from the start of Python.  ``nothing``: an empty cache;
``loops``: what the processor runs is there; ``shipped``: that, and the archive of GPU kernels as of a wheel, which is
built before unless it is given; ``all``: a second use.  Kernels that ``shipped`` compiles nevertheless are listed.

``--record`` writes the kernels that ``work`` asks for on this GPU and, by the limits of their cards, on those of other
architectures: a line for each, with its architectures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = "use", "cache", "wall_s", "processor_s", "kernels_compiled"
CACHES = "nothing", "all", "loops", "shipped"  # in the order in which folders for them come about
HEAD, CUDA = 40, 190  # bytes before an entry's code; what an ELF file of a GPU has for its machine
ROWS = 100, 362, 10_000  # of data, that kernels are chosen for
MANY = 3000  # expressions that fill a GPU
WRITERS = {  # of kernels' texts: modules of exprkit and their functions
    "backends.gpu.opcodes": "source",
    "backends.gpu.launch": "schedule_source",
    "backends.device_programs.lowering": "source",
    "backends.device_programs.dependence": "source",
    "backends.device_programs.operator_kernels": "source_of",
    "backends.device_programs.population": "checks_source",
    "backends.interpreter.batches": "measure_source",
    "backends.interpreter.dual_opcodes": "source",
    "backends.interpreter.dual_opcodes ": "choice",
}


# ── in the measured process ──


def values():
    import exprkit as ek

    points = ek.data.rough_pipe()
    pop = ek.parse(["p1 + p2 / x2", "abs(x1)^p1", "exp(-x2) * x1"])
    ev = ek.Evaluator(pop, points.X, "cuda")
    params = [[0.1, 2.0], [-0.2], []]
    ev.evaluate(params)
    ev.loss(params, points.y)
    return pop, points


def fit():
    import exprkit as ek

    pop, points = values()
    ek.fit(pop, points.X, points.y, restarts=3, backend="cuda")


def exhaustive():
    import exprkit as ek

    pipe = ek.data.rough_pipe()
    ek.exhaustive_search(pipe.X[:, :1], pipe.y, max_nodes=9, backend="cuda", progress=False)


def law():
    import exprkit as ek

    x, (y, _) = laws()
    ek.SymbolicRegressor(niterations=2, timeout_in_seconds=10, random_state=0, backend="cuda").fit(x, y)


def laws():
    """Points, and values with noise and exact ones."""
    import numpy as np

    x = np.random.default_rng(0).uniform(1, 3, (60, 2))
    noise = 0.01 * np.random.default_rng(1).standard_normal(len(x))
    return x, (x[:, 0] * np.exp(x[:, 1]) + noise, 0.5 * x[:, 0] * x[:, 1])


USES = {"values": values, "fit": fit, "exhaustive": exhaustive, "law": law}


def measured(use, archive):
    """Do what a use names, with the kernels of an archive; processor seconds, and the kernels that were compiled."""
    from exprkit.backends.gpu import nvrtc
    from exprkit.runtime import shipped

    compiled, build = [], nvrtc.build

    def noted(architecture, settings, text, **chosen):
        compiled.append({"precision": settings.operators, "characters": len(text), **chosen})
        return build(architecture, settings, text, **chosen)

    nvrtc.build = noted
    shipped.kernels = lambda architecture: shipped.opened(archive) if archive else None
    USES[use]()
    return {"processor_s": round(time.process_time(), 2), "kernels_compiled": len(compiled), "kernels": compiled}


# ── which kernels ──


def work():
    """What users usually do with a GPU."""
    import numpy as np

    import exprkit as ek

    pop, pipe = ek.parse(ek.data.esr_sample()), ek.data.rough_pipe()
    for n in ROWS:
        points = pipe.repeat_to(n)
        for few in (pop[:3], pop, ek.generate.random(MANY, n_vars=2, n_params=2)):
            params = np.ones((len(few), few.max_params))
            for precision, dtype in (("ieee", "float32"), ("fast", "float32"), ("ieee", "float64")):
                ev = ek.Evaluator(few, points.X, "cuda", precision, dtype)
                ev.evaluate(params)
                step = ev.loss_of(points.y)
                for _ in range(2):
                    step(params)
                if precision == "ieee":
                    ek.fit(few, points.X, points.y, backend="cuda", dtype=dtype, restarts=2)
    ev.loss(params, points.y, "mae", weights=np.ones(n))
    ev = ek.Evaluator(pop[:3], pipe.X, "cuda")
    ev.jacobian(np.ones((3, pop[:3].max_params)))
    ev.update(ek.DevicePopulation.of(pop))
    ek.fit(pop, pipe.X, np.abs(pipe.y), backend="cuda", loss="mae", weights=np.ones(len(pipe.y)))
    for operators in ("esr", "core_maths"):
        ek.exhaustive_search(pipe, max_nodes=6, operators=operators, backend="cuda", progress=False)
    x, ys = laws()
    for y in ys:
        ek.SymbolicRegressor(niterations=2, timeout_in_seconds=20, random_state=0, backend="cuda").fit(x, y)
    for use in USES.values():
        use()


class Listener:
    """What a launcher or the derivatives take for a device of a card; ``kernel`` notes what is asked for."""

    lanes = 32

    def __init__(self, asked, origins, card, limits):
        self.asked, self.origins, self.card = asked, origins, card
        self.shared_per_block, _, self.multiprocessors, _ = limits

    def kernel(self, name, settings, text=None, **chosen):
        from exprkit.backends.gpu import opcodes

        self.note(settings, text or opcodes.source(settings.operators), chosen)

    def note(self, settings, text, chosen):
        if text in self.origins:
            row = *self.origins[text], settings.operators, dict(sorted(chosen.items()))
            self.asked.setdefault(json.dumps(row, default=lambda number: number.item()), set()).add(self.card)
        else:
            print(f"not in the list, of a writer that is none of WRITERS: {text.splitlines()[0]}", file=sys.stderr)


def written_by(origins):
    """Have WRITERS note of which function each text is, and what that was given."""
    import importlib

    def noting(module, name, write):
        def call(*given):
            text = write(*given)
            origins[text] = module, name, given
            return text

        return call

    for module, name in WRITERS.items():
        loaded = importlib.import_module(f"exprkit.{module.strip()}")
        setattr(loaded, name, noting(module.strip(), name, getattr(loaded, name)))


def kernels():
    """What ``work`` asks for here and, by the case discussions, on other cards: rows of the list."""
    from exprkit.backends.cases.interpreter import Decision
    from exprkit.backends.cases.tree import CARDS
    from exprkit.backends.gpu import device, nvrtc
    from exprkit.backends.interpreter.derivatives import Derivatives
    from exprkit.backends.interpreter.engine import Engine

    asked, origins, here, ready = {}, {}, device.current().architecture, []
    written_by(origins)
    cards = [Listener(asked, origins, card, known.limits) for card, known in CARDS.items()]
    compiled, interpreting = nvrtc.compiled, Engine._interpreting
    plans, make_ready = Derivatives._plans, Derivatives.make_ready

    def heard(architecture, settings, text, **chosen):
        for card in cards:
            if "TASK" not in chosen or card.card == here:
                card.note(settings, text, chosen)
        return compiled(architecture, settings, text, **chosen)

    def interpreting_on_all(self, items, points, wide, macros, **fixed):
        sizes = self._sizes(self.programs, items.stop - items.start, self._launcher.n_columns)
        powers, launcher = self._powers(self.programs), self._launcher
        own = launcher.device
        for card, known in zip(cards, CARDS.values(), strict=True):
            shape = Decision(known.limits, self._variants(wide, powers))(sizes)
            tile = {"ONE_TILE": int(self.n_points <= shape.tile)} if "ONE_TILE" in macros else {}
            launcher.device = card
            launcher.interpreter(shape, POWERS=int(powers), **{**macros, **tile})
        launcher.device = own
        return interpreting(self, items, points, wide, macros, **fixed)

    def plans_on_all(self, *given):
        own = self.device
        for card in cards:
            self.device = card
            for one in plans(self, *given):
                for has_any in {one.kernel.prologues, *ready}:
                    kernel = one.kernel._replace(prologues=has_any)
                    card.note(kernel.settings, kernel.text, kernel.macros())
        self.device = own
        return plans(self, *given)

    def made_ready(self, *given):
        ready[:] = True, False
        make_ready(self, *given)
        ready.clear()

    nvrtc.compiled, Engine._interpreting = heard, interpreting_on_all
    Derivatives._plans, Derivatives.make_ready = plans_on_all, made_ready
    for _ in range(2):  # what searches have time for once nothing is to be compiled
        work()
    rows = [[sorted(of, key=list(CARDS).index), *json.loads(row)] for row, of in asked.items()]
    slow = "backends.interpreter.dual_opcodes"
    return sorted(rows, key=lambda row: (row[1] != slow, row[5].get("REAL") != "double", json.dumps(row)))


# ── processes ──


def process(folder, *arguments):
    """What a fresh process prints last, and its seconds."""
    begin = time.perf_counter()
    variables = {**os.environ, "EXPRKIT_CACHE_DIR": str(folder), "CUDA_CACHE_DISABLE": "1"}
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]), round(time.perf_counter() - begin, 2)


def is_cubin(path):
    code = path.read_bytes()[HEAD : HEAD + 20]
    return code[:4] == b"\x7fELF" and int.from_bytes(code[18:20], "little") == CUDA


def rows_of(use, place, archive):
    """A row for each of ``CACHES``."""
    full = place / use
    for cache in CACHES:
        folder = full
        if cache in ("loops", "shipped"):
            folder = place / f"{use}-{cache}"
            shutil.copytree(full, folder)
            for path in filter(is_cubin, folder.glob("*.o")):
                path.unlink()
        told, wall = process(folder, "--measured", use, *(["--archive", archive] if cache == "shipped" else []))
        missing = told.pop("kernels")
        yield {"use": use, "cache": cache, "wall_s": wall, **told}, missing if cache == "shipped" else []


def built(place):
    """The archive of this GPU's kernels."""
    from exprkit import build_hook
    from exprkit.backends.gpu import device

    begin = time.perf_counter()
    (path,) = build_hook.kernel_archives(ROOT, place, [device.current().architecture])
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB in {time.perf_counter() - begin:.0f} s", flush=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="uses", default=",".join(USES), help=f"of {', '.join(USES)} (all)")
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--csv", type=Path, help="from a committed checkout alone")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--measured", choices=USES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measured:
        print(json.dumps(measured(options.measured, options.archive), default=str))  # numbers of NumPy's
        return
    if options.record:
        rows = kernels()
        options.record.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        print(f"{len(rows)} kernels in {options.record}: {dict(Counter(card for row in rows for card in row[0]))}")
        return
    from exprkit.study import records

    if options.csv:
        records.refuse_changes()
    with tempfile.TemporaryDirectory() as folder:
        rows, archive = [], options.archive or built(Path(folder))
        print(" ".join(f"{column:>16}" for column in COLUMNS), flush=True)
        for use in options.uses.split(","):
            for row, missing in rows_of(use, Path(folder), archive):
                rows.append(row)
                print(" ".join(f"{row[column]:>16}" for column in COLUMNS), flush=True)
                print(
                    "".join(f"    not in the archive: {json.dumps(kernel)}\n" for kernel in missing),
                    end="",
                )
    if options.csv:
        records.write_rows(options.csv, rows)


if __name__ == "__main__":
    main()
