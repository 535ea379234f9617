"""Result files: samples as parquet, beside them the record of the run as JSON; whole or absent.

``bench.save`` and ``sweep`` write through here, figures and tables read.

    >>> from exprkit.study import records
    >>> records.key_of({"n_exprs": 3}, "text")
    '590642cd'

==================  ====================================================================
NAME-KEY.parquet    samples of one configuration: a row a sample
NAME-KEY.json       what made them, machine, versions, commit, parameters, warnings
STUDY.parquet       samples of all configurations of a study on one machine (``collect``)
STUDY.json          their records
==================  ====================================================================
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, DataError, brought_by
from exprkit.runtime import files

with brought_by("notebooks"):
    import pandas as pd

__all__ = ["checked_name", "collect", "folder_at", "key_of", "read", "read_records", "recorded", "write"]

SAMPLES = ".parquet"
PLAIN = re.compile(r"\w[\w .+-]*")  # of a name: nothing that leads to another folder, or that a file's name can't hold
LONGEST = 200  # bytes of a name, of the 255 that a file's may have
UNKNOWN = ""  # what made samples whose record does not tell
FULL = (errno.ENOSPC, errno.EDQUOT)
# what a record tells of its run; the rest is of the machine
OF_A_RUN = ("made_by", "parameters", "warnings", "time", "load", "memory_available", "roofs")


def key_of(*parts: Any) -> str:
    """Eight hexadecimal digits out of everything given."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]


def checked_name(name: str) -> str:
    """The name of a study, which its files' names begin with.

    Raises
    ------
    ArgumentError
        If it could lead to another folder, or no file can be named so.
    """
    if not isinstance(name, str) or not PLAIN.fullmatch(name) or len(name.encode()) > LONGEST:
        raise ArgumentError(
            f"study must be a plain name, for files are named by it: letters, digits, '_', '-', '+', '.' and spaces,"
            f" {LONGEST} bytes at most, a letter or digit first; not {reprlib.repr(name)}"
        )
    return name


def folder_at(path: str | Path) -> Path:
    """That folder, made if it is not there; ``write`` says what is raised."""
    folder = Path(path).expanduser()
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write(path: Path, fill: Callable[[Path], Any]) -> Path:
    """``files.write``, whose errors say what to do.

    Raises
    ------
    DataError
        If the system refuses, as where the disk is full; what was there before is there still.
    """
    with _writing(path):
        return files.write(path, fill)


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Around what writes: an error of the system's becomes one that says where, and what to do."""
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} cannot be written: no file's name can hold the character NUL")
    try:
        yield
    except OSError as error:
        remedy = "make room there, or name another folder" if error.errno in FULL else "name another folder"
        reason = error.strerror or error
        raise DataError(f"{path} cannot be written: {reason}; nothing half-written is left; {remedy}") from None


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
    try:
        return pd.read_parquet(path, columns=columns)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as a file of samples: {error}") from None


def _record(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as the record of {path.stem}{SAMPLES}: {error}") from None


def collect(folders: Iterable[str | Path], target: str | Path, made_by: str = UNKNOWN) -> list[Path]:
    """Put the results of many configurations together: one file of samples, one of records.

    What the target holds of other configurations stays there, so that a study may be run in parts.

    Parameters
    ----------
    folders
        Each with the samples and the record of a configuration; their names tell them apart.
    target
        ``.parquet``; the records go beside it.
    made_by
        The command that made them, for the record.

    Returns
    -------
    list of Path
        The two files.

    Raises
    ------
    ArgumentError
        If there are no samples.
    DataError
        If a file cannot be read or written.
    """
    target = Path(target)
    found = sorted(path for folder in folders for path in Path(folder).glob(f"*{SAMPLES}"))
    if not found:
        raise ArgumentError(f"there are no samples (*{SAMPLES}) to put together into {target}")
    samples = pd.concat([_samples(path).assign(run=path.parent.name) for path in found], ignore_index=True)
    record = _together([_record(path.with_suffix(".json")) for path in found]) | {"made_by": [made_by]}
    if target.exists():
        old = _samples(target)
        samples = pd.concat([old[~old["run"].isin(samples["run"])], samples], ignore_index=True)
        record = _joined(_record(target.with_suffix(".json")), record)
    record |= _clock(samples)
    folder_at(target.parent)
    return [write_json(target.with_suffix(".json"), record), write_samples(target, samples)][::-1]


def runs_in(target: str | Path) -> set[str]:
    """The names of the configurations that are put together in a file; none if there is no such file."""
    return set(_samples(Path(target), ["run"])["run"]) if Path(target).exists() else set()


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
        "made_by": _different(old.get("made_by", [UNKNOWN]) + new["made_by"]),
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
