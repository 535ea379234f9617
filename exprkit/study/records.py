"""Result files: samples as Parquet, with the record of the run as JSON; complete or absent.

In: samples and records of ``bench`` and ``sweep``.  Out: their files, and what figures and tables read of them.

    >>> from exprkit.study import records
    >>> records.key_of({"n_exprs": 3}, "text")
    '590642cd'

==================  ====================================================================
NAME-KEY.parquet    samples of one configuration: a row per sample
NAME-KEY.json       what made them, machine, versions, commit, parameters, warnings
STUDY.parquet       samples of all configurations of a study on one machine (``collect``)
STUDY.json          their records
==================  ====================================================================
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import reprlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, DataError, brought_by
from exprkit.runtime import files

with brought_by("notebooks"):
    import pandas as pd

SAMPLES = ".parquet"
PLAIN = re.compile(r"\w[\w .+-]*")  # of a name: nothing that leads to another folder, or that a file's name can't hold
LONGEST = 200  # bytes of a name, of the 255 that a file's may have
UNKNOWN = ""  # what made samples whose record does not tell
# what a record tells of its run; the rest is of the machine
OF_A_RUN = ("made_by", "parameters", "warnings", "time", "load", "memory_available", "roofs")


def key_of(*parts: Any) -> str:
    """Eight hexadecimal digits out of everything given."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def checked_name(name: str) -> str:
    """The name of a study, which its files' names begin with.

    Raises ArgumentError if it could lead to another folder, or no file can be named so.
    """
    if not isinstance(name, str) or not PLAIN.fullmatch(name) or len(name.encode()) > LONGEST:
        raise ArgumentError(
            f"study must be a plain name, for files are named by it: letters, digits, '_', '-', '+', '.' and spaces,"
            f" {LONGEST} bytes at most, a letter or digit first; not {reprlib.repr(name)}"
        )
    return name


def write_json(path: Path, content: Any) -> Path:
    """``content`` as indented JSON."""
    return files.write_text(path, json.dumps(content, indent=1) + "\n")


def write_samples(path: Path, samples: pd.DataFrame) -> Path:
    """``samples`` as parquet."""
    return files.write(path, lambda beside: samples.to_parquet(beside, index=False, compression="zstd"))


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
    parts = [_samples(path).assign(file=path.stem) for path in sorted(Path(folder).glob(f"*{SAMPLES}"))]
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table if cold else table[~table["cold"]].reset_index(drop=True)


def read_records(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The records of a folder that stand beside samples, by the name of their file."""
    beside = (path.with_suffix(".json") for path in sorted(Path(folder).glob(f"*{SAMPLES}")))
    return {path.stem: _record(path) for path in beside if path.exists()}


def _samples(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    with files.damage_errors(path, "file of samples"):
        return pd.read_parquet(path, columns=columns)


def _record(path: Path) -> dict[str, Any]:
    with files.damage_errors(path, f"record of {path.stem}{SAMPLES}"):
        return json.loads(path.read_text(encoding="utf-8"))


def collect(
    folders: Iterable[str | Path], target: str | Path, made_by: str = UNKNOWN, replace: Sequence[str] = ("run",)
) -> list[Path]:
    """Put the results of many configurations, a folder each, together: into ``target`` samples, beside it records.

    What the target holds of other configurations stays there, so that a study may be run in parts; samples that have
    the same in the columns ``replace`` as new ones go.  ``made_by`` is the command that made the new ones.  Gives the
    two files.

    Raises ArgumentError if there are no samples; FileError if a file cannot be read or written.
    """
    target = Path(target)
    paths = sorted(path for folder in folders for path in Path(folder).glob(f"*{SAMPLES}"))
    if not paths:
        raise ArgumentError(f"there are no samples (*{SAMPLES}) to put together into {target}")
    samples = pd.concat([_samples(path).assign(run=path.parent.name) for path in paths], ignore_index=True)
    runs = [_of_many(_record(path.with_suffix(".json")), made_by) for path in paths]
    if target.exists():
        old = _samples(target)
        again = _key(old, replace).isin(_key(samples, replace))
        samples = pd.concat([old[~again], samples], ignore_index=True)
        runs.insert(0, _record(target.with_suffix(".json")))
    record = functools.reduce(_joined, runs) | _clock(samples)
    files.folder(target.parent)
    return [write_json(target.with_suffix(".json"), record), write_samples(target, samples)][::-1]


def _key(samples: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """The values of columns of each sample, as one text."""
    return samples[list(columns)].astype(object).fillna("").astype(str).agg("|".join, axis=1)


def runs_in(target: str | Path) -> set[str]:
    """The names of the configurations that are put together in a file; none if there is no such file."""
    return set(_samples(Path(target), ["run"])["run"]) if Path(target).exists() else set()


def _of_many(run: dict[str, Any], made_by: str) -> dict[str, Any]:
    """The record of a run as one of many runs, of which there is one."""
    size = run["parameters"]
    named = f"{size.get('study', '')} {size.get('n_exprs', '')} x {size.get('n_points', '')}".strip()
    return {
        "made_by": [made_by],
        "machines": [{name: value for name, value in run.items() if name not in OF_A_RUN}],
        "time": [run["time"]] * 2,
        "roofs": run["roofs"],
        "warnings": [f"{named}: {warning}" for warning in run["warnings"]],
    }


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """One record of many runs out of two: each item once, and the highest of the roofs that were seen."""
    lists = {name: old.get(name, [UNKNOWN]) + new[name] for name in ("made_by", "machines", "warnings")}
    roofs = {name: max(record["roofs"].get(name, 0) for record in (old, new)) for name in old["roofs"] | new["roofs"]}
    return {
        **{name: [item for i, item in enumerate(items) if item not in items[:i]] for name, items in lists.items()},
        "time": [min(old["time"][0], new["time"][0]), max(old["time"][1], new["time"][1])],
        "roofs": roofs,
    }


def _clock(samples: pd.DataFrame) -> dict[str, Any]:
    """The clocks that a GPU's multiprocessors had after the samples, and how often they were held back."""
    clocks = samples["sm_mhz"].dropna()
    if clocks.empty:
        return {}
    held = int(samples.loc[clocks.index, "throttled"].astype(bool).sum())
    return {
        "sm_mhz": {"least": float(clocks.min()), "median": float(clocks.median()), "most": float(clocks.max())},
        "samples_on_gpu": len(clocks),
        "throttled_samples": held,
    }
