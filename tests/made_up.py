"""Samples of a benchmark with made-up times, as ``bench.measure`` gives them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from exprkit.study import bench, sweep

FILES = {"cpu": ("C, 2 threads", ["cpu", "numpy"]), "gpu": ("NVIDIA H200", ["cuda", "ptx"])}


def samples(backend, seconds, **columns):
    """Samples with made-up times: half of each is spent once, the rest in the steps."""
    gpu = backend in ("cuda", "ptx")
    seconds = np.atleast_1d(np.asarray(seconds, float))
    fixed = {"bench": "benchmarks", "backend": backend, "dispatch": "", "device": FILES["gpu" if gpu else "cpu"][0]}
    fixed |= {"results": "every", "source": "exhaustive", "dataset": "d", "precision": "fast", "dtype": "float32"}
    fixed |= {"threads": 2, "n_exprs": 10_000, "n_points": 362, "n_vars": 2, "n_params": 20_000, "n_steps": 100}
    fixed |= {"cold": False, "sm_mhz": 1980.0 if gpu else np.nan, "throttled": False, "registers": 60.0}
    fixed |= {"code": "kept" if backend == "ptx" else "", "device_s": np.nan, "device_cold_s": np.nan}
    fixed |= {"local_bytes": 0.0, "shared_bytes": 1e4, "resident_blocks": 4.0, "lower_s": np.nan, "compile_s": np.nan}
    fixed |= {"emit_s": np.nan, "cpu_s": np.nan, "host_bytes": np.nan, "device_bytes": np.nan, "options": ""}
    fixed |= {"commit": "0123456789ab", "cpu": "C", "gpu": "NVIDIA H200" if gpu else "", "driver": "580" if gpu else ""}
    fixed |= {"versions": "numpy 2", "made_by": "", "day": ""}
    fixed |= {"most_warps": 64.0 if gpu else np.nan} | columns
    fixed = {"n_tokens": 6 * fixed["n_exprs"], "block_used": fixed.get("block_size") or 256} | fixed
    steps = max(fixed["n_steps"] - 1, 1)
    times = {f"{name}_s": seconds / 10 for name in ("parse", "upload", "prepare", "first", "download")}
    times |= {"evaluate_s": seconds / 2, "steps_s": seconds / 2, "total_s": seconds, "step_s": seconds / 2 / steps}
    times["kernel_s"] = times["step_s"] if gpu else np.full(len(seconds), np.nan)
    if gpu and not fixed["dispatch"] and fixed["results"] != "every":
        times |= {"device_s": 0.5 * times["step_s"], "device_cold_s": 0.6 * times["step_s"]}
    made = pd.DataFrame({name: [value] * len(seconds) for name, value in fixed.items()} | times)
    blocks = {name: pd.array([fixed.get(name)] * len(seconds), "Int64") for name in ("block_size", "points_per_thread")}
    return made.assign(**blocks, sample=range(len(seconds)))


TOKENS = {"exhaustive": 6, "esr": 6, "random": 30, "large": 200}  # of an expression
NODES = {
    "cpu": 1e9,
    "numpy": 1e8,
    "cuda": 1e12,
    "ptx": 2e12,
}  # evaluated a second; by cpu, on each of at most 8 threads
LINK, LAUNCH, COMPILED = 5e10, 5e-6, 1e-4  # bytes a second; seconds for an expression
LEFT = {"all": 3e-6, "transpile": 2e-6, "compile": 0.0}  # the same at every step, beside compiling
SWEEP = "python -m exprkit sweep n.ipynb s.yaml"


def study(path, cores, noise=0.0):
    """Samples of every run of a study in YAML, a cold one and three others of each, by a plain model of their times.

    A step evaluates nodes at a rate, after 0.1 ms on a GPU and 10 us a thread on a CPU; ``noise`` is the standard
    deviation of each time's logarithm.
    """
    random, parts = np.random.default_rng(0), []
    for run in sweep.configurations(path):
        run = bench.DEFAULTS | run
        parts += [_of_run(run, backend, cores, random, noise) for backend in run["backends"] or ["cpu"]]
    facts = {"file": ("cpu", "h200"), "gpu": ("", "NVIDIA H200"), "driver": ("", "580"), "cpu": ("C", "G")}
    facts |= {"commit": ("0123456789ab+", "ba9876543210"), "link_bytes_per_s": (np.nan, 1.25 * LINK)}
    about = {name: pair[cores > 2] for name, pair in facts.items()}
    return pd.concat(parts, ignore_index=True).assign(**about, day="2026-11-27", made_by=SWEEP)


def _of_run(run, backend, cores, random, noise):
    gpu, apart, options, n = backend in FILES["gpu"][1], bool(run["dispatch"]), run["options"], run["n_exprs"]
    threads = run["threads"] or (cores if backend == "cpu" and not apart else 1)
    cold = np.arange(-1, 54 if run["study"] == "search" else 3) < 0
    compiles = (backend == "ptx" and not apart) & (cold | (run["code"] == "anew"))
    each = run["n_tokens"] or TOKENS[run["expressions"]]
    work = n * run["n_points"] * each / (NODES[backend] * (1 if gpu else min(threads, 8)))
    moved = n * run["n_points"] * {"every": 4.0, "half": 2.0}.get(run["results"], 0.0)
    step = work + (1e-4 + moved / LINK if gpu else 1e-5 * threads)
    if apart:
        left = options.get("every_step")
        at_once = min(threads, options.get("streams", 1)) * (4 if "graph" in options else 1)
        step += n * (LAUNCH / at_once + (LEFT[left] + COMPILED * (backend == "ptx") if left else 0.0))
    once = n * (2e-6 if backend == "ptx" else 1e-6) + 1e-3 * gpu + compiles * (0.1 + n * COMPILED)
    step, once = (time * random.lognormal(0, noise, len(cold)) for time in (step, once))
    copied = {"bytes_in": 8e4, "bytes_out": moved or 4e4, "transfers": 2.0, "device_bytes": 2e9}
    if gpu and not apart and run["results"] != "fit":
        copied |= {"device_s": work + 1e-5, "device_cold_s": work + 2e-5}
    same = "n_exprs", "n_points", "n_vars", "n_steps", "results", "precision", "dtype", "dispatch", "dataset"
    made = samples(
        backend, once, bench=run["study"], source=run["expressions"], threads=threads, host_bytes=1e9, cpu_s=1.0,
        device="NVIDIA H200" if gpu else f"C, {threads} thread{'s' * (threads > 1)}", n_tokens=each * n,
        n_params=run["n_params"] * n, code=run["code"] if backend == "ptx" else "",
        options=", ".join(f"{key}={value}" for key, value in options.items()), block_size=run["block_size"] or None,
        points_per_thread=run["points_per_thread"] or None, lower_s=1e-3, **{name: run[name] for name in same},
    )  # fmt: skip
    times = {"steps_s": step * (run["n_steps"] - 1), "step_s": step, "first_s": step}
    if backend == "ptx" and not apart:
        times |= {"emit_s": 2e-3, "compile_s": np.where(compiles, 0.1, 0.01)}
    times |= {"total_s": once + step * run["n_steps"], "sample": made["sample"] - 1, "cold": cold}
    return made.assign(**times, **(copied if gpu else dict.fromkeys(copied, np.nan)))
