"""Data sets: repeatable, shaped as said, and close to the measurements they imitate."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pytest

from exprkit import data
from exprkit.errors import ArgumentError, DataError


def test_rough_pipe_has_the_shape_of_nikuradses_data():
    points = data.rough_pipe()
    assert points.X.shape == (362, 2) and points.y.shape == (362,)
    assert points.variables == ("r_k", "log_Re")
    assert np.unique(points.X[:, 0]).tolist() == [15, 30.6, 60, 126, 252, 507]
    assert points.X[:, 1].min() > 3.6 and points.X[:, 1].max() < 6.1
    assert points.y.min() > 0.2 and points.y.max() < 0.8


def test_a_data_set_is_shown_in_a_line():
    assert repr(data.rough_pipe()) == "<Dataset rough_pipe: 362 points, log10(100 f) over r_k, log_Re>"
    table = data.from_table({f"gene {i}": np.arange(3.0) for i in range(200)} | {"dose": np.ones(3)}, "dose")
    assert repr(table).startswith("<Dataset table: 3 points, dose over gene 0, gene 1") and len(repr(table)) < 300


def test_rough_pipe_is_repeatable():
    first, again, other = data.rough_pipe(seed=1), data.rough_pipe(seed=1), data.rough_pipe(seed=2)
    assert np.array_equal(first.X, again.X) and np.array_equal(first.y, again.y)
    assert not np.array_equal(first.y, other.y)
    assert len(data.rough_pipe(5)) == 5


@pytest.mark.parametrize(
    ("r_k", "log_re", "law"),
    [
        (507.0, 2.5, lambda re, d: 64 / re),  # laminar: Hagen and Poiseuille
        (1e9, 5.0, lambda re, d: (1.8 * np.log10(re / 6.8)) ** -2),  # smooth: Colebrook
        (15.0, 7.0, lambda re, d: (2 * np.log10(3.7 * d)) ** -2),  # rough: von Karman and Prandtl
    ],
)
def test_friction_factor_ends_in_the_three_laws(r_k, log_re, law):
    assert data.friction_factor(r_k, log_re) == pytest.approx(law(10**log_re, 2 * r_k), rel=1e-3)


def test_rough_pipe_is_close_to_nikuradses_measurements(root):
    path = root.parent / "shared" / "data" / "nikuradse_1.csv"
    if not path.exists():
        pytest.skip("Nikuradse's measurements are not here: ../shared/data/nikuradse_1.csv")
    r_k, log_re, target = np.loadtxt(path, delimiter=",", skiprows=1).T
    error = np.log10(100 * data.friction_factor(r_k, log_re)) - target
    assert np.sqrt(np.mean(error**2)) < 0.01  # of log10(100 f), which spans 0.25 to 0.79
    assert np.abs(error).max() < 0.04
    synthetic = data.rough_pipe()
    for pipe in np.unique(r_k):
        measured, made = target[r_k == pipe], synthetic.y[synthetic.X[:, 0] == pipe]
        assert abs(np.median(measured) - np.median(made)) < 0.02


def test_repetition_as_the_thesis_did():
    points = data.rough_pipe()
    many = points.repeat_to(10_860)
    assert many.X.shape == (10_860, 2) and many.variables == points.variables
    assert np.array_equal(many.X.reshape(30, 362, 2), np.broadcast_to(points.X, (30, 362, 2)))
    assert np.array_equal(many.y[362:724], points.y)
    with pytest.raises(ArgumentError, match="n_points must be a whole number >= 1"):
        points.repeat_to(0)


def test_uniform():
    points = data.uniform(50, 7, seed=3)
    assert points.X.shape == (50, 7) and np.abs(points.X).max() <= 2
    assert points.variables[-1] == "x7"


def test_published_files(root):
    texts = data.esr_sample()
    assert len(texts) == 247 and texts[0] == "inv(inv(x1) - x1)" and texts[-1] == "(abs(x1) ^ p1) ^ p2"
    samples = data.thesis_samples()
    assert list(samples.columns) == ["benchmark", "evaluator", "block_size", "sample", "seconds"]
    medians = samples.groupby(["benchmark", "evaluator"])["seconds"].median()
    assert medians[2, "cpu_interpreter"] == pytest.approx(3.77, abs=0.01)


def test_a_missing_file_says_what_to_do():
    with pytest.raises(DataError, match=r"nothing\.csv belongs to exprkit and is missing: install"):
        data._published("nothing.csv")


def test_nikuradse_without_a_network_names_the_synthetic_set(monkeypatch, tmp_path):
    monkeypatch.setattr(data, "NIKURADSE_URL", "http://127.0.0.1:9/nikuradse_1.tsv.gz")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataError, match=r"from http://127\.0\.0\.1:9/\S+ \(ConnectionRef.{,60}\); .*rough_pipe\(\)"):
        data.nikuradse()


def serve(monkeypatch, tmp_path, content, sha256):
    """Let ``nikuradse`` find a file of this content already downloaded."""
    pooch = pytest.importorskip("pooch")
    source = tmp_path / "nikuradse_1.tsv.gz"
    source.write_bytes(content)
    monkeypatch.setattr(data, "NIKURADSE_SHA256", sha256)
    monkeypatch.setattr(pooch, "retrieve", lambda url, known_hash, path: check(pooch, source, known_hash))


def check(pooch, source, known_hash):
    if not pooch.hashes.hash_matches(source, known_hash):
        raise ValueError("the hash does not match")
    return str(source)


def test_nikuradse_reads_the_table_by_its_column_names(monkeypatch, tmp_path):
    content = gzip.compress(b"target\tr_k\tlog_Re\n0.456\t507.0\t4.114\n0.438\t507.0\t4.23\n", mtime=0)
    serve(monkeypatch, tmp_path, content, hashlib.sha256(content).hexdigest())
    points = data.nikuradse()
    assert points.X.tolist() == [[507.0, 4.114], [507.0, 4.23]] and points.y.tolist() == [0.456, 0.438]


def test_nikuradse_refuses_another_file(monkeypatch, tmp_path):
    serve(monkeypatch, tmp_path, b"something else", data.NIKURADSE_SHA256)
    with pytest.raises(DataError, match="hash does not match"):
        data.nikuradse()


def test_numbers_of_rows_are_no_variable(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(",a,y\n0,5,2\n1,6,3\n")
    assert data.from_table(path).variables == ("a",)
    path.write_text(",a,y\n1.5,5,2\n1,6,3\n")
    assert data.from_table(path).variables == ("Unnamed: 0", "a"), "a column that lacks a name alone"
    named = pytest.importorskip("pandas").DataFrame({"read": [1.0, 2.0], "y": [3.0, 4.0]})
    assert data.from_table(named).variables == ("read",), "a column, not a file's method"


@pytest.mark.parametrize("text", ["1.5,2\n2.5,3\n", "1.5\t1.5\n2e-3\t3\n"])
def test_a_first_line_of_numbers_names_no_columns(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=r"the first line should name the columns, and holds numbers: 1[.,]5"):
        data.from_table(path)
    path.write_text("400,500,y\n" + text.splitlines()[-1].replace(";", ",").replace("\t", ",") + ",3\n")
    assert len(data.from_table(path).variables) == 2, "wavelengths, say"


def test_a_file_of_one_column_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("speed\n1.25\n2.25\n")
    with pytest.raises(DataError, match="there is one column alone, 'speed'"):
        data.from_table(path)


def test_chosen_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,word,b,y,c\n5,u,7,2,1\n6,v,9,3,0\n")
    chosen = data.from_table(path, "y", columns=["c", "a"])
    assert chosen.variables == ("c", "a")
    assert chosen.X.tolist() == [[1, 5], [0, 6]] and chosen.y.tolist() == [2, 3]
    assert data.from_table(path, columns=["b"]).y.tolist() == [1, 0]  # the last column is the target still
    for columns, message in (
        (["A"], "columns: 'A' is none of a, word, b, y, c"), (["wrd"], "did you mean 'word'"),
        (["y"], "'y' is the target"),
        ("ab", "a list of names"), (["a", "a"], "each once"), ([], "a list of names"),
        (["word"], "column 'word' must hold"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=message):
            data.from_table(path, "y", columns=columns)


@pytest.mark.parametrize(
    ("text", "X"),
    [
        ("a;b\n1,5;2\n2;3,5\n,25;4\n", [[1.5], [2], [0.25]]),  # whole numbers among them
        ("a;b\n1,5;2\n2.5;3\n", None),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_decimal_commas_where_commas_separate_nothing(tmp_path, text, X, opened):
    (tmp_path / "a.csv").write_text(text)
    with (tmp_path / "a.csv").open("rb") as file:
        source = file if opened else tmp_path / "a.csv"
        if X is None:
            with pytest.raises(DataError, match=r"column 'a' must hold real numbers, not '1,"):
                data.from_table(source)
        else:
            points = data.from_table(source)
            assert points.X.tolist() == X and points.y.tolist() == [2, 3.5, 4]
