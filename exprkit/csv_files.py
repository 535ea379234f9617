"""Reads CSV files as instruments and spreadsheets write them: to a pandas DataFrame, without a question.

In: a path, or an open file.  Out: the table, whose rows are labelled with the lines of the file, and what of it is no
row of data.

    >>> import io
    >>> table, left_out = read(io.BytesIO("# run 7\\nt;v\\ns;m/s\\n0;1,5\\n1;n.d.\\n".encode("utf-16")))
    >>> table["v"].tolist(), table.index.tolist(), left_out
    ([1.5, nan], [4, 5], ['line 3, units: t in s, v in m/s'])

===================  ==================================================================================
encoding             UTF-8, UTF-16 with its mark or half of zeros, else Latin-1 (Windows-1252)
lines                blank ones and those that begin with ``#`` do not count; names may stand in the last of these
separator            of tabs, semicolons, commas, bars and blanks the first that every line has as often
numbers              decimal points or commas, thousands in groups of three, a minus sign or a dash
missing              empty cells, what pandas takes for missing, and ``MISSING``
row of units         a first row without a number over columns of numbers
===================  ==================================================================================
"""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

from exprkit.errors import DataError, brought_by, shortened

LINE = "line"  # what the labels of the rows are
MISSING = {"n.d.", "nd", "n.a.", "n/d", "-", "--", "---", "—", "?", "*", ".", "..", "missing", "none", "nil", "k.a."}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?(\d+(,\d*)?|,\d+)([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}((,\d{3})+|([ '\u00a0\u202f]\d{3})+)(\.\d*)?")
DOTTED_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d*")
DASHES = str.maketrans("−–", "--")
LOOKED_AT = 50  # lines by which a separator is told
MOSTLY = 0.5  # so many of a column's cells are numbers, else it is a column of texts


def read(source: Any) -> tuple[Any, list[str]]:
    """(the table, what is left out, in words) of a path or an open file.

    Raises
    ------
    DataError
        For what cannot be read, and for a first line of numbers.
    MissingError
        If pandas is not installed.
    """
    with brought_by("notebooks"):
        import pandas as pd

    name = str(source) if isinstance(source, str | Path) else str(getattr(source, "name", "the file"))
    try:
        lines = [(n, line) for n, line in enumerate(_text(_content(source)).splitlines(), 1) if line.strip()]
    except OSError as error:
        raise DataError(f"{name} could not be read: {error.strerror or error}") from error
    comments = [line.lstrip(" #\t") for _, line in lines if line.lstrip().startswith("#")]
    lines = [(n, line) for n, line in lines if not line.lstrip().startswith("#")]
    if lines and re.fullmatch(r"\"?sep=.\"?", lines[0][1].strip()):  # Excel's
        del lines[0]
    if not lines:
        raise DataError(f"{name} is empty: its first line should name the columns")
    separator = _separator([line for _, line in lines[:LOOKED_AT]])
    first = _cells(lines[0][1], separator)
    if all(map(_is_number, first)):
        names = _cells(comments[-1], separator) if comments else []
        if len(names) == len(first) and not any(map(_is_number, names)):
            lines.insert(0, (0, comments[-1]))
        elif re.search("[.,]", "".join(first)):
            shown = shortened(lines[0][1], 60)
            raise DataError(f"{name}: the first line should name the columns, and holds numbers: {shown}")
    text = io.StringIO("\n".join(line for _, line in lines))
    exact = {"float_precision": "round_trip"} if pd.__version__ < "3" else {}  # later ones are exact
    options: dict[str, Any] = {"engine": "python"} if separator is None else {"low_memory": False, **exact}
    if separator and all(line.endswith(separator) for _, line in lines[1:]) and not lines[0][1].endswith(separator):
        options["index_col"] = False  # an empty cell behind the last one, in every line but the names'
    try:
        table = pd.read_csv(text, sep=separator, skipinitialspace=True, **options)
    except Exception as error:  # whatever pandas finds wrong with the text means the same to the user
        raise DataError(f"{name} is no CSV file with a line of names and lines of numbers: {error}") from error
    table.columns = [str(column).strip() for column in table.columns]
    if len(table) == len(lines) - 1:
        table.index = pd.Index([n for n, _ in lines[1:]], name=LINE)
    return _as_numbers(table, separator != ",") if len(table) else (table, [])


def _content(source: Any) -> str | bytes:
    return source.read() if hasattr(source, "read") else Path(source).expanduser().read_bytes()


def _text(content: str | bytes) -> str:
    if isinstance(content, str):
        return content
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    if content.count(0) > len(content) // 4:
        return content.decode("utf-16-le" if content[1:2] == b"\0" else "utf-16-be", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def _separator(lines: list[str]) -> str | None:
    """The separator of the cells; None if pandas is to determine it."""
    for separator in ("\t", ";", ",", "|", r"\s+"):
        lengths = [len(_cells(line, separator)) for line in lines]
        if not lines[0].endswith(separator) and all(line.endswith(separator) for line in lines[1:]):
            lengths[1:] = [length - 1 for length in lengths[1:]]  # with an empty cell behind the last one
        if lengths[0] > 1 and len(set(lengths)) == 1:
            return separator
    several = re.search(r"[^\w.\"'()]", lines[0])
    return None if several else ","


def _cells(line: str, separator: str | None) -> list[str]:
    if separator in (None, r"\s+"):
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]


def _is_number(word: str) -> bool:
    return bool(NUMBER.fullmatch(word) or DECIMAL_COMMA.fullmatch(word))


def _as_numbers(table: Any, may_have_commas: bool) -> tuple[Any, list[str]]:
    """(the table with numbers in place of their texts and without a row of units; that row, in words)."""
    cells = {
        place: [cell.strip().translate(DASHES) if isinstance(cell, str) else cell for cell in table.iloc[:, place]]
        for place in range(table.shape[1])
        if table.iloc[:, place].dtype.kind not in "fiub"
    }
    may_have_commas &= not any(column.dtype.kind == "f" and (column % 1 > 0).any() for _, column in table.items())
    numbers = {place: _numbers_of(column, may_have_commas) for place, column in cells.items()}
    of_rest = {place: _numbers_of(column[1:], may_have_commas) for place, column in cells.items()}
    texts = {
        place: cells[place][0]
        for place, rest in of_rest.items()
        if rest is not None
        and isinstance(cells[place][0], str)
        and not _is_number(cells[place][0])
        and not any(isinstance(cell, str) for cell in rest)
    }
    firsts = [table.iloc[0, place] for place in range(table.shape[1]) if place not in texts]
    no_numbers = all(cell != cell or (isinstance(cell, str) and not _is_number(cell)) for cell in firsts)
    has_units = len(table) > 1 and no_numbers and any(word.lower() not in MISSING for word in texts.values())
    left_out = []
    if has_units:
        units = ", ".join(f"{table.columns[place]} in {shortened(word, 20)}" for place, word in texts.items())
        left_out = [f"line {table.index[0]}, units: {units}"]
        table, numbers = table.iloc[1:], of_rest
    for place, column in numbers.items():
        if column is not None:
            whole = all(isinstance(cell, float) for cell in column)
            table = table.astype({table.columns[place]: object}) if not whole else table
            table.isetitem(place, column)
    return table, left_out


def _numbers_of(cells: list[Any], may_have_commas: bool) -> list[Any] | None:
    """The cells as numbers, nan where one is missing, a text where one is no number; None if few are."""
    words = [word for word in cells if isinstance(word, str) and word.lower() not in MISSING]
    with_comma = [word for word in words if "," in word]
    thousands = (
        bool(with_comma)
        and all(map(THOUSANDS.fullmatch, with_comma))
        and (not may_have_commas or any("." in word for word in words))
    )
    points = any("." in word for word in words)
    commas = not thousands and bool(with_comma) and all(map(DECIMAL_COMMA.fullmatch, with_comma)) and not points
    dotted = (
        bool(with_comma)
        and not thousands
        and all(DOTTED_THOUSANDS.fullmatch(word) or DECIMAL_COMMA.fullmatch(word) for word in words)
    )
    numbers = [_number(word, thousands, commas or dotted) for word in cells]
    if any(isinstance(word, str) for word in numbers):
        good = sum(isinstance(word, float) and word == word for word in numbers)
        return numbers if good > MOSTLY * len(numbers) else None
    return numbers


def _number(cell: Any, thousands: bool, commas: bool) -> Any:
    if not isinstance(cell, str):
        return float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else cell
    if cell.lower() in MISSING:
        return float("nan")
    word = cell
    if commas:
        word = re.sub(r"\.(?=\d{3}(\D|$))", "", word) if DOTTED_THOUSANDS.fullmatch(word) else word
        word = word.replace(",", ".")
    elif THOUSANDS.fullmatch(word) and (thousands or "," not in word):
        word = re.sub(r"[, '\u00a0\u202f]", "", word)
    return float(word.replace("d", "e").replace("D", "e")) if NUMBER.fullmatch(word) else cell
