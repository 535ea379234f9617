"""Samples of a benchmark with made-up times, as ``bench.measure`` gives them."""

from __future__ import annotations

import numpy as np
import pandas as pd

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
