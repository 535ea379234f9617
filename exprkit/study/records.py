"""Result files: samples as parquet, beside them the record of the run as JSON; whole or absent.

``bench.save`` and ``sweep`` write through here, figures and tables read.

    >>> from exprkit.study import records
    >>> records.key_of({"n_exprs": 3}, "text")
    '590642cd'

==================  ====================================================================
NAME-KEY.parquet    samples of one configuration: a row a sample
NAME-KEY.json       machine, versions, commit, parameters, warnings
STUDY.parquet       samples of all configurations of a study on one machine (``collect``)
STUDY.json          their records
==================  ====================================================================
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, DataError, brought_by
from exprkit.files import write

with brought_by("notebooks"):
    import pandas as pd

__all__ = ["collect", "key_of", "read", "read_records", "recorded", "write"]

SAMPLES = ".parquet"
OF_A_RUN = ("parameters", "warnings", "time", "load", "memory_available", "roofs")  # the rest tells the machine


def key_of(*parts: Any) -> str:
    """Eight hexadecimal digits out of everything given."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def write_json(path: Path, content: Any) -> Path:
    """``content`` as indented JSON."""
    text = json.dumps(content, indent=1) + "\n"
    return write(path, lambda beside: beside.write_text(text, encoding="utf-8"))


def write_samples(path: Path, samples: pd.DataFrame) -> Path:
    """``samples`` as parquet."""
    return write(path, lambda beside: samples.to_parquet(beside, index=False, compression="zstd"))


def recorded() -> Path:
    """The folder of the published results, in a checkout."""
    folder = Path(__file__).resolve().parent.parent.parent / "data" / "results"
    if not folder.is_dir():
        raise DataError(f"there are no recorded results at {folder}: use a checkout of exprkit, or name a folder")
    return folder


def read(folder: str | Path, *, cold: bool = False) -> pd.DataFrame:
    """All samples of a folder, of a file each and of whole studies; without the cold ones unless asked for.

    ``file`` is the name of the file that a sample is from.
    """
    parts = [pd.read_parquet(path).assign(file=path.stem) for path in sorted(Path(folder).glob(f"*{SAMPLES}"))]
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table if cold else table[~table["cold"]].reset_index(drop=True)


def read_records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The records of a folder, by the name of their file."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(Path(folder).glob("*.json"))}


def collect(folders: Iterable[str | Path], target: str | Path) -> list[Path]:
    """Put the results of many configurations together: one file of samples, one of records.

    What the target holds of other configurations stays there, so that a study may be run in parts.

    Parameters
    ----------
    folders
        Each with the samples and the record of a configuration; their names tell them apart.
    target
        ``.parquet``; the records go beside it.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    ArgumentError
        If there are no samples.
    """
    target = Path(target)
    found = sorted(path for folder in folders for path in Path(folder).glob(f"*{SAMPLES}"))
    if not found:
        raise ArgumentError(f"there are no samples (*{SAMPLES}) to put together into {target}")
    samples = pd.concat([pd.read_parquet(path).assign(run=path.parent.name) for path in found], ignore_index=True)
    record = _together([json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) for path in found])
    if target.exists():
        old = pd.read_parquet(target)
        samples = pd.concat([old[~old["run"].isin(samples["run"])], samples], ignore_index=True)
        record = _joined(json.loads(target.with_suffix(".json").read_text(encoding="utf-8")), record)
    record |= _clock(samples)
    target.parent.mkdir(parents=True, exist_ok=True)
    return [write_json(target.with_suffix(".json"), record), write_samples(target, samples)][::-1]


def runs_in(target: str | Path) -> set[str]:
    """The names of the configurations that are put together in a file; none if there is no such file."""
    return set(pd.read_parquet(target, columns=["run"])["run"]) if Path(target).exists() else set()


def _together(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """One record of many runs."""
    machines = [{name: value for name, value in run.items() if name not in OF_A_RUN} for run in runs]
    return {
        "machines": _different(machines),
        "time": [min(run["time"] for run in runs), max(run["time"] for run in runs)],
        "roofs": {name: max(run["roofs"].get(name, 0) for run in runs) for name in runs[0]["roofs"]},
        "warnings": _different([f"{_named(run)}: {sentence}" for run in runs for sentence in run["warnings"]]),
    }


def _clock(samples: pd.DataFrame) -> dict[str, Any]:
    """The clocks that a GPU's multiprocessors had after the samples, and how often they were held back."""
    clocks = samples["sm_mhz"].dropna() if "sm_mhz" in samples else pd.Series(dtype=float)
    if clocks.empty:
        return {}
    held = int(samples.loc[clocks.index, "throttled"].astype(bool).sum())
    return {"sm_mhz": {"least": float(clocks.min()), "median": float(clocks.median()), "most": float(clocks.max())},
            "samples_on_gpu": len(clocks), "throttled_samples": held}  # fmt: skip


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two of the records that ``_together`` makes."""
    return {
        "machines": _different(old["machines"] + new["machines"]),
        "time": [min(old["time"][0], new["time"][0]), max(old["time"][1], new["time"][1])],
        "roofs": old["roofs"] | new["roofs"],
        "warnings": _different(old["warnings"] + new["warnings"]),
    }


def _different(items: list[Any]) -> list[Any]:
    return [item for i, item in enumerate(items) if item not in items[:i]]


def _named(run: dict[str, Any]) -> str:
    size = run["parameters"]
    return f"{size.get('study', '')} {size.get('n_exprs', '')} x {size.get('n_points', '')}".strip()
