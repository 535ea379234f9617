"""Lines of a file, beside Python's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.runtime import slices
from exprkit.text.reader import MARK, from_lines

BYTES = st.lists(st.sampled_from([b"\r", b"\n", b"\0", b"x", b"#", b" ", MARK, b"\t", b"\r\n"])).map(b"".join)


def lines_of(data):
    """The lines, by Python."""
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\0", b"\1")
    return text.split(b"\n")[:-1]


@given(data=BYTES)
def test_lines_that_count(data):
    batch = from_lines(bytearray(data) + b"\n")
    lines = lines_of(data.removeprefix(MARK) + b"\n")
    counted = [
        (k + 1, line)
        for k, line in enumerate(lines)
        if line.strip(b" \t\r\n\x0b\x0c") and not line.strip().startswith(b"#")
    ]
    assert [(int(line), batch.raw(i)) for i, line in enumerate(batch.lines)] == counted


def test_lines_are_those_of_slices_of_a_file(monkeypatch):
    data = MARK + b"x1\r\n# no\n\nx2\rx3\r\n" * 40
    whole = from_lines(bytearray(data) + b"\n")
    monkeypatch.setattr(slices, "LEAST", 7)
    sliced = from_lines(bytearray(data) + b"\n")
    for name in ("data", "starts", "ends", "lines"):
        np.testing.assert_array_equal(getattr(sliced, name), getattr(whole, name))
    assert len(sliced.lines) == 120 and sliced.lines[-1] == 200


@pytest.mark.parametrize("text", ["", "\n", "x1 + 1", "x1 + 1\n\n# no\n  x2\r\nx3\rp1\n", "\ufeffx1\n"])
def test_a_path_an_open_file_and_its_text_are_the_same(tmp_path, text):
    path = tmp_path / "texts.txt"
    path.write_bytes(text.encode())
    with open(path, "rb") as as_bytes, open(path, newline="", encoding="utf-8") as as_text:
        found = ek.parse(path)
        assert found == ek.parse(as_bytes) == ek.parse(as_text)
    whole = from_lines(bytearray(text.encode()) + b"\n")
    assert found.texts() == [str(ek.parse(whole.raw(i).decode())[0]) for i in range(len(found))]


def test_a_file_with_comments(tmp_path):
    lines = ["1+1+1+1", "# sum", "", "x1 * x2", "2-1"] * 40  # more than a token for every two bytes of some
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines))
    found, kept = ek.parse(path), [line for line in lines if line and line[0] != "#"]
    expected = ek.parse(kept)
    for name in ("kinds", "values", "offsets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert len(found) == 120
