"""Result files: samples as Parquet, rows of scripts as CSV; each row names its commit and machine.

In: samples of ``bench`` and ``sweep``, rows of scripts in ``tests/``.  Out: files, and what figures and tables read.

    >>> from exprkit.study import records
    >>> records.key_of({"n_exprs": 3}, "text")
    '590642cd'

==================  ====================================================================
NAME-KEY.parquet    samples of one configuration: a row per sample
STUDY.parquet       samples of all configurations of a study on one machine (``collect``)
NAME.csv            rows of a script (``write_rows``)
==================  ====================================================================

What lies in ``data/results`` is published: it names a commit without changes, or is not written.  A file is complete
or absent.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import reprlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, DataError, brought_by
from exprkit.runtime import files, machine
from exprkit.study.timed_device import card

with brought_by("notebooks"):
    import pandas as pd

SAMPLES = ".parquet"
PLAIN = re.compile(r"\w[\w .+-]*")  # of a name: nothing that leads to another folder, or that a file's name can't hold
LONGEST = 200  # bytes of a name, of the 255 that a file's may have
CONFIGURATION = (  # columns of samples; those that have all of them in common are compared
    "bench", "backend", "dispatch", "code", "device", "results", "source", "dataset", "precision", "dtype", "options",
    "threads", "block_size", "points_per_thread", "n_exprs", "n_tokens", "n_points", "n_vars", "n_params", "n_steps",
)  # fmt: skip
HASH = 12  # hexadecimal digits of a commit
RESULTS = Path(__file__).resolve().parents[2] / "data" / "results"


@functools.cache
def provenance() -> dict[str, str]:
    """Commit ("" without a checkout, ``+`` behind it if changed), processor, GPU and driver of this process."""
    commit = machine.commit() or ""
    return {"commit": commit[:HASH] + "+" * commit.endswith("+"), "cpu": machine.cpu_model(), **card()}


def refuse_changes() -> None:
    """Raise ArgumentError where no commit says which code is measured: without a checkout, or with changes in it."""
    commit = provenance()["commit"]
    if not commit:
        raise ArgumentError("published numbers name their commit, and this is no checkout: git clone exprkit")
    if commit.endswith("+"):
        raise ArgumentError("published numbers name their commit, and there are uncommitted changes: git commit -a")


def write_rows(path: str | Path, rows: pd.DataFrame | Iterable[dict[str, Any]]) -> Path:
    """Rows as CSV, with the columns of ``provenance`` where a row has none; ArgumentError as of ``refuse_changes``."""
    refuse_changes()
    path = Path(path)
    frame = rows.copy() if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, dtype=object)  # numbers as they are
    for name, value in provenance().items():
        frame[name] = frame[name].fillna(value) if name in frame else value
    files.folder(path.parent)
    return files.write_text(path, frame.to_csv(index=False, lineterminator="\n"))


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


def published_folder() -> Path:
    """The folder of the published results, in a checkout."""
    if not RESULTS.is_dir():
        raise DataError(f"there are no recorded results at {RESULTS}: use a checkout of exprkit, or name a folder")
    return RESULTS


def read(folder: str | Path, *, cold: bool = False) -> pd.DataFrame:
    """All samples of a folder, of a file each and of whole studies; without the cold ones unless asked for.

    ``file`` is the name of the file that a sample is from.
    """
    parts = [_samples(path).assign(file=path.stem) for path in sorted(Path(folder).glob(f"*{SAMPLES}"))]
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table if cold else table[~table["cold"]].reset_index(drop=True)


def _samples(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    with files.damage_errors(path, "file of samples"):
        return pd.read_parquet(path, columns=columns)


def is_published(target: str | Path) -> bool:
    """Whether a file is, or would be, one of the published results."""
    return RESULTS in Path(target).resolve().parents


def collect(folders: Iterable[str | Path], target: str | Path, made_by: str = "") -> Path:
    """Put the samples of many configurations, a folder each, together into the file ``target``; the file.

    What it holds of other configurations stays there, so that a study may be run in parts.  ``made_by`` is the command
    that made the new ones.

    Raises ArgumentError if there are no samples, or some that may not be published; FileError if a file cannot be read
    or written.
    """
    target = Path(target)
    paths = sorted(path for folder in folders for path in Path(folder).glob(f"*{SAMPLES}"))
    if not paths:
        raise ArgumentError(f"there are no samples (*{SAMPLES}) to put together into {target}")
    samples = pd.concat([_samples(path).assign(run=path.parent.name) for path in paths], ignore_index=True)
    if made_by:
        samples["made_by"] = made_by
    if is_published(target):
        refuse_changes()
        if (bad := ~samples["commit"].str.fullmatch(r"[0-9a-f]+")).any():
            runs = ", ".join(samples.loc[bad, "run"].unique())
            raise ArgumentError(f"measured with uncommitted changes, and not to be published: rm -r the folders {runs}")
    if target.exists():
        old = _samples(target)
        again = old["run"].isin(samples["run"]) | _key(old).isin(_key(samples))
        samples = pd.concat([old[~again], samples], ignore_index=True)
    files.folder(target.parent)
    return write_samples(target, samples)


def _key(samples: pd.DataFrame) -> pd.Series:
    """The configuration of each sample, as one text."""
    return samples[list(CONFIGURATION)].astype(object).fillna("").astype(str).agg("|".join, axis=1)


def runs_in(target: str | Path) -> set[str]:
    """The names of the configurations in a file that were measured at the present commit; none without such a file."""
    if not Path(target).exists():
        return set()
    samples = _samples(Path(target), ["run", "commit"])
    return set(samples["run"][samples["commit"].eq(provenance()["commit"])])
