"""CSV files as instruments and spreadsheets write them."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.errors import DataError
from exprkit.explorer.sources import uploaded

GOOD = {  # bytes: variables, X, y, what is left out
    "Latin-1": ("T°,y\n1,2\n2,3\n".encode("latin-1"), ["T°"], [[1], [2]], [2, 3], []),
    "a euro of Windows": ("T (€),y\n1,2\n2,3\n".encode("cp1252"), ["T (€)"], [[1], [2]], [2, 3], []),
    "UTF-8 with a mark": ("T°,y\n1,2\n2,3\n".encode("utf-8-sig"), ["T°"], [[1], [2]], [2, 3], []),
    "UTF-16 with a mark": ("T°\ty\n1\t2\n2\t3\n".encode("utf-16"), ["T°"], [[1], [2]], [2, 3], []),
    "UTF-16 without": ("T°;y\n1;2\n2;3\n".encode("utf-16-be"), ["T°"], [[1], [2]], [2, 3], []),
    "comments": (b"# device: XYZ, v2\n# 2024\nt,v\n0,1\n# pause\n1,3\n\n", ["t"], [[0], [1]], [1, 3], []),
    "names in a comment": (b"# NumPy\n# t (s), v\n0.5,1\n1,3\n", ["t (s)"], [[0.5], [1]], [1, 3], []),
    "Excel's sep": (b"sep=;\nt;v\n0,5;1\n1;3\n", ["t"], [[0.5], [1]], [1, 3], []),
    "blanks": (b"t   v\n0.5  1\n1    3\n", ["t"], [[0.5], [1]], [1, 3], []),
    "blanks behind commas": (b"t, v\n0.5, 1\n1, 3\n", ["t"], [[0.5], [1]], [1, 3], []),
    "a comma behind": (b"t,v\n0.5,1,\n1,3,\n", ["t"], [[0.5], [1]], [1, 3], []),
    "old Macs": (b"t,v\r0.5,1\r1,3\r", ["t"], [[0.5], [1]], [1, 3], []),
    "units": (b"t,v\ns,m/s\n0,1.0\n1,3.1\n", ["t"], [[0], [1]], [1, 3.1], ["line 2, units: t in s, v in m/s"]),
    "a unit of some": (b"n;t;v\n-;[s];\n1;0,5;1\n2;1;3\n", ["n", "t"], [[1, 0.5], [2, 1]], [1, 3],
                       ["line 2, units: n in -, t in [s]"]),
    "thousands": (b't,v\n0,"1,000"\n1,"12,500"\n2,900\n', ["t"], [[0], [1], [2]], [1000, 12500, 900], []),
    "millions": (b"t;v\n0;1,000,000.5\n1;3.5\n", ["t"], [[0], [1]], [1e6 + 0.5, 3.5], []),
    "thousands beside decimal points": (b"t;v\n0.5;1,000\n1.5;2,000\n", ["t"], [[0.5], [1.5]], [1000, 2000], []),
    "decimal commas of three digits": (b"t;v\n0,5;1,000\n1,5;2,000\n", ["t"], [[0.5], [1.5]], [1, 2], []),
    "points in thousands": (b"t;v\n0;1.234,5\n1;3,5\n", ["t"], [[0], [1]], [1234.5, 3.5], []),
    "blanks in thousands": (b"t;v\n0;1 234\n1;12 000,5\n".replace(b",5", b""), ["t"], [[0], [1]], [1234, 12000], []),
    "a typographer's minus": ("t,v\n−1.5,1\n2,3\n".encode(), ["t"], [[-1.5], [2]], [1, 3], []),
    "Fortran": (b"t,v\n1.5D-3,1\n2D0,3\n", ["t"], [[0.0015], [2]], [1, 3], []),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("opened", [True, False], ids=["file", "path"])
def test_what_is_written_elsewhere_is_read(tmp_path, name, opened):
    content, variables, X, y, left_out = GOOD[name]
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    found = ek.data.from_table(io.BytesIO(content) if opened else path)
    assert list(found.variables) == variables and list(found.left_out) == left_out
    assert found.X.tolist() == X and found.y.tolist() == y


@pytest.mark.parametrize("word", ["n.d.", "-", "NA", "N/A", "", "—", "--", "?", "n.a.", "NaN", "missing", "N.D."])
def test_words_for_what_is_missing(word):
    content = f"t,u,v\n1,1.5,3\n2,{word},5\n3,2.5,7\n4,3,9\n5,4.5,11\n6,5,13\n".encode()
    found = ek.data.from_table(io.BytesIO(content), missing="drop")
    assert found.X[:, 0].tolist() == [1, 3, 4, 5, 6] and found.left_out == ("1 of 6 rows, which lack a value",)
    with pytest.raises(DataError, match="column 'u' lacks 1 of 6 values"):
        ek.data.from_table(io.BytesIO(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# made\n\nt,rate\n1,3.5\n2,x\n3,4\n4,5\n", r"column 'rate' must hold real numbers, not 'x' \(line 5\)"),
        (b"t,v\n1,3\n2,4.5.6\n3,4\n", r"not '4.5.6' \(line 3\)"),
        (b"drug,v\nA,3\nB,4\n", "not 'A': categories are for groups= of exprkit.fit, or become .*get_dummies"),
        (b"day,v\n2020-01-01,3\n2020-01-02,4\n", "not '2020-01-01': take the time since the first"),
        (b"a;b\n1,5;2\n2.5;3\n", "column 'a' must hold real numbers, not '1,5'"),
        (b"t,v\n", "the table has no rows"),
        (b"# nothing\n\n", "results.csv is empty: its first line should name the columns"),
        (b"0.5,1\n1,3\n", "results.csv: the first line should name the columns, and holds numbers: 0.5,1"),
        (b"# made by hand\n0.5,1\n1,3\n", "results.csv: the first line should name the columns"),
    ],
)
def test_a_bad_file_is_named_and_so_is_the_cell(content, message):
    file = io.BytesIO(content)
    file.name = "results.csv"
    with pytest.raises(DataError, match=message) as caught:
        ek.data.from_table(file)
    assert "BytesIO" not in str(caught.value)


def test_random_tables_are_read_as_they_were_written():
    rng = np.random.default_rng(3)
    for _ in range(40):
        numbers = np.round(rng.normal(0, 10.0 ** rng.integers(-3, 6), (8, 3)), int(rng.integers(1, 6)))
        separator, decimal = [(",", "."), (";", ","), ("\t", "."), (";", "."), ("\t", ",")][rng.integers(5)]
        encoding = ["utf-8", "utf-8-sig", "utf-16", "latin-1"][rng.integers(4)]
        text = pd.DataFrame(numbers, columns=["a (°)", "b", "y"]).to_csv(sep=separator, decimal=decimal, index=False)
        text = "# by hand\n" * int(rng.integers(2)) + text
        assert ek.data.from_table(io.BytesIO(text.encode(encoding))).X.tolist() == numbers[:, :2].tolist()


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".txt", ".dat"])
def test_fits_take_files_as_tables(tmp_path, ending):
    path = tmp_path / f"table{ending}"
    path.write_text("t (s);y\ns;m\n1;3,5\n2;5,5\n3;7,5\n")
    for X in (path, str(path)):
        found = ek.fit("p1 * `t (s)` + p2", X, "y")
        assert found.params[0] == pytest.approx([2, 1.5]) and found.pop.variables == ("t (s)",)
    assert found.predict(path)[0] == pytest.approx([3.5, 5.5, 7.5])
    with pytest.raises(DataError, match="could not be read: No such file"):
        ek.fit("p1", tmp_path / f"other{ending}", "y")


@pytest.mark.parametrize(("dates", "name", "times"), [
    (["2024-01-03", "2024-01-01", "", "2024-01-11"], "when (d)", [2.0, 0.0, 10.0]),
    (["2024-01-01T00:00:01.5Z", "2024-01-01T00:00:00Z", "", "2024-01-01T01:00:00Z"], "when (s)", [1.5, 0.0, 3600.0]),
])  # fmt: skip
def test_dates_become_the_time_since_the_first(tmp_path, dates, name, times):
    text = "when,v,y\n" + "".join(f"{date},{v},{v}\n" for v, date in enumerate(dates, 1))
    points = uploaded("log.csv", text.encode(), "y").dataset
    assert points.variables == ("v",), "more than a fifth of the dates lack"
    points = uploaded("log.csv", "\n".join(line for line in text.splitlines() if line[0] != ",").encode(), "y").dataset
    assert points.variables == (name, "v") and points.X[:, 0].tolist() == times
    assert points.left_out == (f"the first of 'when', {dates[1]}: {name!r} counts from it",)
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(DataError, match="take the time since the first"):
        ek.data.from_table(tmp_path / "log.csv", "y")
    frame = pd.DataFrame({"when": pd.to_datetime(["2024-01-01", "2024-01-05"]), "y": [1, 2]})
    assert ek.data.from_table(frame, "y", dates="elapsed").X.tolist() == [[0.0], [4.0]]
    for wrong in ("2024-01-01", "2024-13-45"), ("monday", "2024-01-02"), ("2024-01-01", "7"):
        odd = pd.DataFrame({"when": wrong, "v": [1, 2], "y": [1, 2]})
        assert ek.data.from_table(odd, "y", "drop", dates="elapsed").variables == ("v",)
