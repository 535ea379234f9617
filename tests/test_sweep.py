"""The sweep: everything checked first, each configuration once, failures told and no reason to start anew."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import exprkit as ek
from exprkit import data
from exprkit.__main__ import main
from exprkit.backends import Status
from exprkit.errors import ArgumentError, BackendError, FileError
from exprkit.study import bench, plots, records, sweep
from exprkit.study.notebook import checked, defaults

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parent.parent
BENCHMARK = ROOT / "notebooks" / "benchmark.ipynb"
PARAMETERS = 'n: int = 1  # a number\nname: str = "a"  # a name\nresults_dir: str = "x"  # where results go'
BODY = """import os
from dataclasses import replace
from pathlib import Path
if n == 2:
    raise ValueError("two is too many")
if n == 3:
    os.kill(os.getpid(), 9)
if n != 4:
    (Path(results_dir) / "found.parquet").write_bytes(b"1")"""


def notebook(folder, parameters=PARAMETERS, body=BODY, name="small"):
    cells = [
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": parameters},
        {"cell_type": "code", "metadata": {}, "source": body},
    ]
    for number, cell in enumerate(cells):
        cell.update(execution_count=None, outputs=[], id=f"cell-{number}")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture
def small(tmp_path):
    return notebook(tmp_path)


class Calls(list):
    """A function in a notebook's place that notes its parameters and leaves a result."""

    def __call__(self, parameters):
        self.append(parameters["n"])
        if parameters["n"] == 2:
            raise ValueError("more than a line\ntwo is too many\n")
        if parameters["n"] != 4:
            (Path(parameters["results_dir"]) / "found.parquet").write_bytes(b"1")


def states(outcomes):
    return [outcome.state for outcome in outcomes]


# ── studies ──


def test_a_study_is_blocks_of_fixed_points_and_grid():
    blocks = [
        {"fixed": {"a": 1}, "points": [{"b": 1}, {"b": 2, "a": 5}], "grid": {"c": [7, 8]}},
        {"grid": {"a": [3], "b": [4, 5]}},
        {"fixed": {"a": 9}},
    ]
    expected = [
        {"a": 1, "b": 1, "c": 7}, {"a": 1, "b": 1, "c": 8}, {"a": 5, "b": 2, "c": 7}, {"a": 5, "b": 2, "c": 8},
        {"a": 3, "b": 4}, {"a": 3, "b": 5}, {"a": 9},
    ]  # fmt: skip
    assert sweep.configurations(blocks) == expected
    assert sweep.configurations(blocks[1]) == expected[4:6]


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ([], "the study is empty"),
        ({"gird": {"n": [1]}}, "block 1 of the study has no 'gird'; did you mean 'grid'?"),
        ([{}, 3], "block 2 of the study must hold some of fixed, points, grid, not 3"),
        ({"grid": {"n": 3}}, "block 1 of the study: grid needs a list of values for 'n', not 3"),
        ({"grid": {"nam": [1]}}, "there is no parameter 'nam'; did you mean 'name'?"),
        ({"grid": {"n": [1, "2"]}}, "n must be a whole number, not '2' (str)"),
        ({"grid": {"n": [1.5]}}, "n must be a whole number, not 1.5 (float)"),
        (3, "a study is a block or a list of blocks, not 3"),
        ({"fixed": 3}, "block 1 of the study: fixed must be parameters as in  n_points: 362, not 3"),
        ({"fixed": None}, "block 1 of the study: fixed must be parameters as in  n_points: 362, not None"),
        ({"grid": [1]}, "block 1 of the study: grid must be parameters as in  n_points: 362, not [1]"),
        ({"points": {"n": 1}}, "block 1 of the study: points must be a list of runs, not {'n': 1}"),
        ({"points": []}, "block 1 of the study: points must be a list of runs, not []"),
        ({"points": [3]}, "block 1 of the study: a run of points must be parameters as in  n_points: 362, not 3"),
        ({"points": [{"n": 5}, {"n": 5.0}]}, "the study has this configuration twice: {'n': 5.0}"),
        ({"fixed": {1: 2}}, "there is no parameter '1'; there are n, name, results_dir"),
        (
            {"grid": {name: list(range(300)) for name in "abc"}},
            "the study has 27,000,000 runs, and 10,000 are the most: make its grid smaller",
        ),
        (
            [{"grid": {"n": list(range(6000))}}] * 2,
            "the study has 12,000 runs, and 10,000 are the most: make its grid smaller",
        ),
    ],
)
def test_a_wrong_study_is_named_before_anything_runs(small, tmp_path, study, message):
    calls = Calls()
    with pytest.raises(ArgumentError) as caught:
        sweep.sweep(small, study, out=tmp_path / "out", plain=calls)
    assert str(caught.value) == message
    assert calls == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../../x", "/abs", "a/b", ".", "", "nul\0byte", "n" * 300, "\ud800"])
def test_no_study_is_written_outside_its_folder(tmp_path, name):
    path, calls = notebook(tmp_path, PARAMETERS + '\nstudy: str = "s"  # its name'), Calls()
    with pytest.raises(ArgumentError, match="study must be a plain name, for files are named by it"):
        sweep.sweep(path, {"fixed": {"study": name}}, out=tmp_path / "in" / "out", plain=calls)
    assert calls == [] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"fixed: {n: [1}", b"fixed: {n: \xe9}", b"fixed: {n: \x00}", b"fixed: {n: [1, 2"])
def test_a_study_s_syntax_error_names_its_file_and_place(small, tmp_path, content):
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(content)
    message = r"(?s)^the study '.*bad.yaml' cannot be read: .*bad.yaml\", (line|position) "
    with pytest.raises(ArgumentError, match=message):
        sweep.sweep(small, bad)


@pytest.mark.parametrize("name", ["nul\0byte", "n" * 300, "gone.yaml", "."])
def test_a_study_that_cannot_be_opened_is_named(small, tmp_path, name):
    with pytest.raises(ArgumentError, match=r"^the study '.*' cannot be read: "):
        sweep.sweep(small, tmp_path / name)


@pytest.mark.slow
def test_a_study_that_is_nested_without_end_is_refused(small, tmp_path):
    deep = tmp_path / "deep.yaml"
    deep.write_text("[" * 3000)
    with pytest.raises(ArgumentError, match="it is nested too deeply"):
        sweep.sweep(small, deep)


def test_a_file_that_is_no_study_or_notebook(small, tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("fixed: [")
    with pytest.raises(ArgumentError, match=r"bad.yaml is no notebook that can be read"):
        sweep.sweep(bad, {"fixed": {}})
    with pytest.raises(ArgumentError, match="line 2 of its parameters is no  name: type = value"):
        defaults(notebook(tmp_path, parameters="n: int = 1  # fine\nm = 2  # has no type", name="untyped"))


def test_every_value_of_a_notebook_is_checked():
    given = checked(defaults(BENCHMARK), {"n_exprs": 1e3, "backends": ["numpy"]})
    assert given["n_exprs"] == 1000 and type(given["n_exprs"]) is int and given["backends"] == ["numpy"]
    assert {name: value for name, (_, value) in defaults(BENCHMARK).items()} == bench.DEFAULTS


@pytest.mark.slow
def test_every_kind_of_run_of_the_published_studies_measures(monkeypatch):
    monkeypatch.setattr(data, "nikuradse", lambda: replace(data.rough_pipe(), name="nikuradse"))  # which is downloaded
    small = {"n_exprs": 8, "n_points": 20, "n_samples": 1, "n_checked": 4, "backends": ["cpu"], "dispatch": ""}
    small |= {"block_size": 0, "points_per_thread": 0, "options": {}, "seconds": 0.0}
    kinds = {}
    studies = [ROOT / "data" / "studies" / f"{name}.yaml" for name in ("cpu", "h200", "nikuradse")]
    for job in itertools.chain.from_iterable(sweep.jobs_of(BENCHMARK, study, "out") for study in studies):
        one = {name: value for name, value in job.parameters.items() if name != "results_dir"} | small
        one["n_steps"] = min(one["n_steps"], 2)
        kinds[one["study"], one["results"], one["expressions"], one["dataset"]] = one
    samples = pd.concat([bench.run(one) for one in kinds.values()], ignore_index=True)
    found = samples.groupby(["bench", "results", "source", "dataset"]).size()
    assert (found == 2).all() and len(found) == len(kinds)


@pytest.mark.parametrize("name", ["cpu", "h200"])
def test_the_published_studies_are_right(name):
    assert all("backends" in run for run in sweep.configurations(ROOT / "data" / "studies" / f"{name}.yaml"))
    jobs = sweep.jobs_of(BENCHMARK, ROOT / "data" / "studies" / f"{name}.yaml", "out")
    studies = {job.parameters["study"] for job in jobs}
    assert {"benchmarks", "map", "vars", "params", "tokens"} <= studies
    benchmarks = {(job.parameters["n_exprs"], job.parameters["n_points"]) for job in jobs}
    assert {(250_000, 362), (10_000, 362), (10_000, 10_860)} <= benchmarks


def test_the_study_on_a_gpu_has_every_protocol_of_each_benchmark():
    jobs = sweep.jobs_of(BENCHMARK, ROOT / "data" / "studies" / "h200.yaml", "out")
    own = [job.parameters for job in jobs if job.parameters["study"] == "benchmarks"]
    there = {(name, one["n_exprs"], one["n_points"], one["results"]) for one in own for name in one["backends"]
             if one["expressions"] == "exhaustive"}  # fmt: skip
    sizes = plots.BENCHMARKS.values()
    assert there >= {(name, *size, back) for name in ("cuda", "ptx") for size in sizes for back in plots.PROTOCOLS}
    assert there >= {("cpu", *size, back) for size in sizes for back in ("every", "loss")}  # the last is one of every


# ── running ──


def test_each_configuration_runs_once(small, tmp_path):
    calls = Calls()
    for expected in (["done"] * 2, ["finished before"] * 2):
        outcomes = sweep.sweep(small, {"grid": {"n": [1, 5]}}, out=tmp_path / "out", plain=calls)
        assert states(outcomes) == expected
    assert calls == [1, 5]
    assert [outcome.parameters["n"] for outcome in outcomes] == [1, 5]
    assert all(outcome.folder.parent == tmp_path / "out" for outcome in outcomes)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_runs_on_the_workers_of_a_scheduler(small, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="pip install 'exprkit[distributed]'")
    calls, study, ran_on = Calls(), {"grid": {"n": [1, 5, 2]}}, set()

    def papermill(job, device):
        ran_on.add(distributed.get_worker().address)
        try:
            calls(job.parameters)
        except ValueError as error:
            return str(error), job.report
        return "", job.report

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "_papermill", papermill)
    with distributed.LocalCluster(
        n_workers=2, processes=False, threads_per_worker=1, dashboard_address=":0"
    ) as made, distributed.Client(made, set_as_default=False) as client:  # fmt: skip
        outcomes = sweep.sweep(small.name, study, out="out", client=client)
        assert states(outcomes) == ["done", "done", "failed"] and sorted(calls) == [1, 2, 5]
        assert ran_on <= set(client.scheduler_info()["workers"])
        assert [one.folder.parent for one in outcomes] == [Path("out")] * 3
        assert states(sweep.sweep(small.name, study, out="out", client=client))[:2] == ["finished before"] * 2
        with pytest.raises(ArgumentError, match="client= says who works: leave out workers= and plain="):
            sweep.sweep(small, study, out="out", client=client, workers=2)


def test_what_failed_runs_again_and_the_others_go_on(small, tmp_path):
    calls = Calls()
    study = {"grid": {"n": [2, 1, 4]}}
    outcomes = sweep.sweep(small, study, out=tmp_path / "out", plain=calls)
    assert states(outcomes) == ["failed", "done", "failed"]
    assert outcomes[0].detail.endswith("error.txt: ValueError: two is too many")
    assert "Traceback" in (outcomes[0].folder / "error.txt").read_text()
    assert outcomes[2].detail.endswith("it ended well but left no result file")
    outcomes = sweep.sweep(small, study, out=tmp_path / "out", plain=calls)
    assert states(outcomes) == ["failed", "finished before", "failed"]
    assert calls == [2, 1, 4, 2, 4]


def test_a_result_that_is_gone_or_another_notebook_is_run_again(small, tmp_path):
    calls, study = Calls(), {"fixed": {"n": 1}}
    (first,) = sweep.sweep(small, study, out=tmp_path / "out", plain=calls)
    (first.folder / "found.parquet").unlink()
    (again,) = sweep.sweep(small, study, out=tmp_path / "out", plain=calls)
    assert again.state == "done" and again.folder == first.folder
    (first.folder / sweep.FINISHED).write_text("{ half")
    assert states(sweep.sweep(small, study, out=tmp_path / "out", plain=calls)) == ["done"]
    (other,) = sweep.sweep(notebook(tmp_path, body=BODY + "\n# changed"), study, out=tmp_path / "out", plain=calls)
    assert other.state == "done" and other.folder != first.folder
    assert len(calls) == 4


def test_what_is_to_be_published_is_measured_at_the_present_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "published")
    study = {"fixed": {"n_exprs": 9, "n_steps": 1, "n_samples": 1, "backends": ["cpu"]}}
    for commit, into, state in (
        ("0" * 12, "mine", "done"), ("1" * 12, "mine", "finished before"), ("1" * 12, "published", "done"),
        ("1" * 12, "published", "finished before"), ("2" * 12, "published", "done"),
    ):  # fmt: skip
        about = {"commit": commit, "cpu": "C", "gpu": "", "driver": ""}
        monkeypatch.setattr(records, "provenance", lambda about=about: about)
        target = tmp_path / into / "cpu.parquet"
        (outcome,) = sweep.sweep(BENCHMARK, study, out=tmp_path / "out", plain=bench.run_and_save, into=target)
        assert outcome.state == state
    assert set(records.read(tmp_path / "published")["commit"]) == {"2" * 12}


def test_progress_counts_what_is_to_be_run_and_the_bar_what_failed(small, tmp_path, capsys):
    seen, study = [], {"grid": {"n": [1, 2]}}
    sweep.sweep(small, study, out=tmp_path, plain=Calls(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    sweep.sweep(small, study, out=tmp_path, plain=Calls(), progress=True)
    assert re.search(r"sweep: 100%.* 1/1 .*1 failed", capsys.readouterr().err)


def test_a_backend_that_cannot_run_is_skipped_and_one_that_is_not_there_stops(tmp_path, monkeypatch):
    path = notebook(tmp_path, PARAMETERS + '\nbackends: list = ["cpu"]  # which')
    real = sweep.status
    monkeypatch.setattr(sweep, "status", lambda name: Status(False, "no driver") if name == "cuda" else real(name))
    calls = Calls()
    outcomes = sweep.sweep(path, {"grid": {"backends": [["cpu"], ["cpu", "cuda"]]}}, out=tmp_path, plain=calls)
    assert states(outcomes) == ["done", "skipped"] and calls == [1]
    assert outcomes[1].detail == "cuda: no driver"
    assert sweep.summary(outcomes) == "1 done, 1 skipped\nskipped, 1 run: cuda: no driver"
    with pytest.raises(BackendError, match="there is no backend 'cupu'; did you mean 'cpu'"):
        sweep.sweep(path, {"grid": {"backends": [["cpu"], ["cupu"]]}}, out=tmp_path, plain=calls)


def test_a_full_disk_stops_a_sweep_with_the_file_s_name_and_keeps_what_is_finished(small, tmp_path, monkeypatch):
    def until_full(parameters):
        Calls()(parameters)
        if parameters["n"] == 5:
            monkeypatch.setattr(sweep.files.os, "fsync", full)

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FileError, match=r"finished.json' cannot be written: No space left .*make room there"):
        sweep.sweep(small, {"grid": {"n": [1, 5, 6]}}, out=tmp_path / "out", plain=until_full)
    monkeypatch.undo()
    left = [path.name for path in (tmp_path / "out").rglob("*") if path.name.startswith(".")]
    assert left == []
    assert states(sweep.sweep(small, {"grid": {"n": [1, 5, 6]}}, out=tmp_path / "out", plain=Calls())) == [
        "finished before", "done", "done",
    ]  # fmt: skip


def test_no_run_is_started_when_the_time_is_up(small, tmp_path):
    calls = Calls()
    outcomes = sweep.sweep(small, {"grid": {"n": [1, 5]}}, out=tmp_path / "out", plain=calls, minutes=-1)
    assert states(outcomes) == ["not started"] * 2 and calls == []
    assert "start the same command again" in sweep.summary(outcomes)
    assert states(sweep.sweep(small, {"grid": {"n": [1, 5]}}, out=tmp_path / "out", plain=calls)) == ["done"] * 2


def test_a_sweep_that_is_stopped_keeps_what_it_has(tmp_path):
    def stopped(parameters):
        if parameters["n_points"] == 6:
            raise KeyboardInterrupt
        bench.run_and_save(parameters)

    study = {"fixed": {"n_exprs": 20, "n_steps": 2, "n_samples": 1}, "grid": {"n_points": [5, 6, 7]}}
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(BENCHMARK, study, out=tmp_path / "out", plain=stopped, into=tmp_path / "all" / "cpu.parquet")
    assert set(records.read(tmp_path / "all")["n_points"]) == {5}


def test_results_are_put_together(tmp_path):
    study = {"fixed": {"n_exprs": 20, "n_steps": 2, "n_samples": 1}, "points": [
        {"study": "one", "n_points": 5}, {"study": "two", "n_points": 6},
    ]}  # fmt: skip
    into = tmp_path / "all" / "cpu.parquet"
    (only,) = ek.sweep(BENCHMARK, study, out=tmp_path, plain=bench.run_and_save, into=into, only="two")
    assert only.state == "done" and only.folder.name.startswith("two-")
    assert set(records.read(into.parent)["n_points"]) == {6}
    ek.sweep(BENCHMARK, study, out=tmp_path, plain=bench.run_and_save, into=into)
    assert set(records.read(into.parent)["n_points"]) == {5, 6}
    (tmp_path / "s.yaml").write_text(json.dumps(study))
    ek.sweep(BENCHMARK, tmp_path / "s.yaml", out=tmp_path, plain=bench.run_and_save, into=into, only="two")
    made_by = records.read(into.parent).set_index("bench")["made_by"].to_dict()
    assert made_by == {
        "one": f"exprkit.sweep({str(BENCHMARK)!r}, ...)",
        "two": f"python -m exprkit sweep {BENCHMARK} {tmp_path / 's.yaml'} --plain --only two",
    }
    elsewhere = ek.sweep(BENCHMARK, study, out=tmp_path / "new", plain=bench.run_and_save, into=into)
    assert states(elsewhere) == ["finished before"] * 2  # for they are in the file
    with pytest.raises(ArgumentError, match="no configuration named 'three'"):
        ek.sweep(BENCHMARK, study, only="three")


# ── through papermill ──


@pytest.mark.slow
def test_papermill_runs_are_judged_by_exit_and_result(small, tmp_path):
    outcomes = sweep.sweep(small, {"grid": {"n": [1, 2, 3]}}, out=tmp_path / "out", workers=3)
    assert states(outcomes) == ["done", "failed", "failed"]
    good, raised, killed = outcomes
    injected = json.loads((good.folder / "small.ipynb").read_text())["cells"][1]
    assert injected["metadata"]["tags"] == ["injected-parameters"]
    assert raised.detail == f"{raised.folder / 'small.ipynb'}: ValueError: two is too many (exit 1)"
    assert str(killed.folder / "small.ipynb") in killed.detail and "(exit 0)" not in killed.detail
    assert sweep.finished(good.folder) and not sweep.finished(killed.folder)


def test_a_run_that_was_unlucky_gets_a_second_chance(small, tmp_path, monkeypatch):
    runs = []

    def unlucky(command, **options):
        runs.append(command)
        return subprocess.CompletedProcess(command, 1, "", f"RuntimeError: {sweep.UNLUCKY} to kernel_info")

    monkeypatch.setattr(sweep.subprocess, "run", unlucky)
    (outcome,) = sweep.sweep(small, {"fixed": {"n": 1}}, out=tmp_path / "out")
    assert outcome.state == "failed" and len(runs) == 2


# ── side by side ──


def test_wrong_numbers_of_workers_are_refused_before_anything_runs(small, tmp_path):
    into, calls = tmp_path / "all.parquet", Calls()
    wrong = (2, calls, "workers must be 1$"), (0, None, "workers must be 1 or more, not 0")
    for workers, plain, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            sweep.sweep(small, {"fixed": {"n": 1}}, out=tmp_path / "out", plain=plain, workers=workers, into=into)
    assert calls == [] and not (tmp_path / "out").exists()


def test_a_device_has_one_run_at_a_time(small, tmp_path, monkeypatch):
    busy, most, used, lock = {}, [], set(), threading.Lock()

    def run(job, device):
        with lock:
            busy[device] = busy.get(device, 0) + 1
            most.append(busy[device])
            used.add(device)
        time.sleep(0.05)
        with lock:
            busy[device] -= 1
        (job.folder / "found.parquet").write_bytes(b"1")
        return "", job.report

    monkeypatch.setattr(sweep, "_papermill", run)
    monkeypatch.setattr(sweep, "_on_gpu", lambda job: True)
    monkeypatch.setattr(sweep, "_device_count", lambda: 2)
    outcomes = sweep.sweep(small, {"grid": {"n": [5, 6, 7, 8, 9]}}, out=tmp_path / "out", workers=2)
    assert states(outcomes) == ["done"] * 5
    assert used == {0, 1} and max(most) == 1


# ── from a shell ──


def shell(folder, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "exprkit", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_run_that_fails_is_told_to_the_shell(small, tmp_path):
    (tmp_path / "study.yaml").write_text("grid: {n: [2]}")
    done = shell(tmp_path, "sweep", small, "study.yaml", "--workers", "2")
    assert done.returncode == 1
    first, failed, where = done.stdout.splitlines()
    assert first == "1 failed" and where == "results: a folder for each run in results/study"
    assert failed.startswith("failed: results/study/small-") and failed.endswith("two is too many (exit 1)")


def test_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text("fixed: {n_exprs: 20, n_points: 5, n_steps: 2, n_samples: 1, backends: [numpy]}")
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--check"]) == 0
    assert '"n_exprs": 20' in capsys.readouterr().out and not (tmp_path / "results").exists()
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--check", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["parameters"]["n_exprs"] == 20 and listed["folder"].startswith("results/s/benchmark-")
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--plain", "--json", "--into", "all.parquet"]) == 0
    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["state"] == "done" and (tmp_path / "all.parquet").exists()
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--plain"]) == 0
    assert capsys.readouterr().out == "1 finished before\nresults: a folder for each run in results/s\n"
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--plain", "--into", "all.parquet"]) == 0
    assert capsys.readouterr().out.endswith("in results/s; all samples in all.parquet\n")
    assert main(["sweep", str(ROOT / "notebooks" / "comparison.ipynb"), "s.yaml", "--plain"]) == 1
    assert "needs papermill" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["swep"])
    assert caught.value.code == 2
    monkeypatch.setattr(sweep, "sweep", interrupted)
    assert main(["sweep", str(BENCHMARK), "s.yaml"]) == 130
    assert "what is finished is kept" in capsys.readouterr().err


def test_a_check_lists_what_differs_and_how_many(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        "- {fixed: {study: one, n_exprs: 20, backends: [cpu]}, grid: {n_points: [5, 6]}}\n"
        "- {fixed: {study: two, n_exprs: 20, backends: [cpu, numpy]}}\n"
    )
    assert main(["sweep", str(BENCHMARK), "s.yaml", "--check"]) == 0
    lines = [re.sub(r"-\w{8} ", "- ", line) for line in capsys.readouterr().out.splitlines()]
    assert '"n_exprs": 20' in lines[0] and "n_points" not in lines[0]
    assert lines[1:] == [
        'one- {"study": "one", "n_points": 5, "backends": ["cpu"]}',
        'one- {"study": "one", "n_points": 6, "backends": ["cpu"]}',
        'two- {"study": "two", "n_points": 362, "backends": ["cpu", "numpy"]}',
        "3 runs in results/s, 3 of them to be started",
    ]


def test_a_check_tells_what_is_finished(small, tmp_path):
    study = {"grid": {"n": [1, 5]}}
    sweep.sweep(small, {"fixed": {"n": 1}}, out=tmp_path / "out", plain=Calls())
    lines = sweep.listing(sweep.jobs_of(small, study, tmp_path / "out")).splitlines()
    assert lines[0] == 'all with {"name": "a"}'
    assert [line.partition(" ")[2] for line in lines[1:3]] == ['{"n": 1}', '{"n": 5}']
    assert lines[-2:] == [f"2 runs in {tmp_path / 'out'}, 1 of them to be started", "1 finished before"]


def test_the_command_line_tells_its_version_and_without_a_command_its_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0 and capsys.readouterr().out == f"exprkit {ek.__version__}\n"
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert "run a notebook once for every configuration" in shown and "examples:" in shown


def test_a_readme_is_replaced_as_a_whole_or_left(tmp_path, capsys, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- samples: made by `make readme` -->\nold\n<!-- end of samples -->\n")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sweep.files.os, "fsync", full)
    assert main(["readme", "--readme", str(page), "--results", str(tmp_path)]) == 1
    assert "README.md' cannot be written: No space left on device" in capsys.readouterr().err
    assert "old" in page.read_text() and list(tmp_path.iterdir()) == [page]


def interrupted(*arguments, **options):
    raise KeyboardInterrupt


def test_a_file_that_is_not_there_is_named(tmp_path, capsys):
    gone = str(tmp_path / "gone")
    for command in (["figures", "--results", gone], ["readme", "--readme", gone]):
        assert main(command) == 1
        assert gone in capsys.readouterr().err
