"""Populations: the checks, selecting and joining, structures, files."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postfix_text import random_population

import exprkit as ek
from exprkit.errors import FileError, ParseError, PopulationError
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.runtime import files
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

TEXTS = ["x1 + 2.5", "p2 * x3", "-x1", "exp(x2) ^ 0.1", "p1", "1"]


@pytest.fixture
def pop():
    return ek.parse(TEXTS)


def test_arrays(pop):
    assert pop.kinds.dtype == np.uint8 and pop.values.dtype == np.uint64 and pop.offsets.dtype == np.int64
    assert pop.offsets.tolist() == [0, 3, 6, 8, 12, 13, 14]
    assert pop.n_tokens.tolist() == [3, 3, 2, 4, 1, 1]
    assert pop.n_params.tolist() == [0, 2, 0, 0, 1, 0] and pop.n_params.dtype == np.int32
    assert pop.n_vars == 3 and pop.max_params == 2 and len(pop) == 6 and pop.valid.all()
    for name in ("kinds", "values", "offsets", "valid", "n_params"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(pop, name)[0] = 1


TOKENS = np.array([VARIABLE, VARIABLE, OPERATOR], np.uint8), np.array([0, 1, 1], np.uint64), np.array([0, 3])


def given_plainly(array, _):
    return array, array


def given_as_a_view_that_is_read_only(array, _):
    view = array.view()
    view.flags.writeable = False
    return array, view


def given_read_only_with_a_view_from_before(array, _):
    view = array.view()
    array.flags.writeable = False
    return view, array


def given_as_a_file(array, folder):
    path = folder / f"{array.dtype}.bin"
    array.tofile(path)
    return np.memmap(path, array.dtype, "r+"), np.memmap(path, array.dtype, "r")


def given_as_bytes(array, _):
    memory = bytearray(array.tobytes())
    return np.frombuffer(memory, array.dtype), np.frombuffer(memoryview(memory).toreadonly(), array.dtype)


@pytest.mark.parametrize("give", [given_plainly, given_as_a_view_that_is_read_only,
    given_read_only_with_a_view_from_before, given_as_a_file, given_as_bytes])  # fmt: skip
def test_nobody_can_write_to_what_has_been_checked(give, tmp_path):
    pairs = [give(array.copy(), tmp_path) for array in TOKENS]
    pop = Population(*(array for _, array in pairs))
    for memory, _ in pairs:
        memory[:] = 200
    assert pop.texts() == ["x1 + x2"] and pop.offsets.tolist() == [0, 3]
    for array in (pop.kinds, pop.values, pop.offsets, pop.valid):
        assert array.base is None and type(array) is np.ndarray and not array.flags.writeable
    values = ek.Evaluator(pop, [[1.0, 2.0]], backend="cpu").evaluate()
    assert values.tolist() == [[3.0]]


def test_nobody_can_write_to_what_was_unpickled(pop):
    buffers = []
    data = pickle.dumps(pop, protocol=5, buffer_callback=buffers.append)
    memory = [bytearray(buffer.raw()) for buffer in buffers]
    twin = pickle.loads(data, buffers=memory)
    for part in memory:
        part[:] = bytes([255]) * len(part)
    assert memory and twin == pop and twin.n_params.tolist() == pop.n_params.tolist()


def test_arrays_that_are_made_inside_are_not_copied(pop, monkeypatch):
    monkeypatch.setattr("exprkit.expressions.population._own", None)
    assert ek.parse(TEXTS)[1:3].texts() == TEXTS[1:3]
    assert len(pop + pop) == 12 and len(pop.diff("x1")) == 6
    assert len(ek.generate.exhaustive(3, n_vars=1)) and len(ek.generate.random(10, n_vars=1))


def test_a_list_of_bits_and_small_numbers_keeps_every_bit():
    bits = np.float64(-2.5).view(np.uint64)
    for constant in (bits, int(bits)):
        pop = Population([CONSTANT, VARIABLE, OPERATOR], [constant, 0, ops.BY_NAME["mul"].code], [0, 3])
        assert pop.texts() == ["-2.5 * x1"]
    with pytest.raises(PopulationError, match="values must be a list of whole numbers, not float64 of shape"):
        Population([VARIABLE, VARIABLE], [0, 0.5], [0, 1, 2])


def test_empty():
    pop = ek.parse([])
    assert len(pop) == 0 and pop.n_vars == 0 and pop.max_params == 0 and pop.texts() == [] and list(pop) == []
    assert repr(pop) == "<Population: 0 expressions, 0 tokens, 0 variables, up to 0 parameters>"
    assert pop == pop[:] == Population.concatenate([]) == pop + pop
    assert [len(part) for part in pop.structures()] == [0, 0]
    assert "<table>" in pop._repr_html_()


# ── checks ───────────────────────────────────────────────────────────────────────────

ADD, EXP = ops.BY_NAME["add"].code, ops.BY_NAME["exp"].code
BAD = [
    ([VARIABLE, OPERATOR], [0, ADD], [0, 2], "expression 0: an operator lacks operands", 1),
    ([VARIABLE, OPERATOR, OPERATOR], [0, EXP, ADD], [0, 3], "expression 0: an operator lacks operands", 2),
    ([VARIABLE, VARIABLE], [0, 1], [0, 2], "expression 0: operands are left over at the end", 1),
    ([VARIABLE, 4], [0, 1], [0, 2], "expression 0: a token is of no known kind", 1),
    ([VARIABLE, OPERATOR], [0, 255], [0, 2], "expression 0: no operator has this code", 1),
    ([VARIABLE, OPERATOR], [0, 2**40], [0, 2], "expression 0: no operator has this code", 1),
    ([VARIABLE, OPERATOR], [0, ops.BY_NAME["copy"].code], [0, 2], "expression 0: no operator has this code", 1),
    ([VARIABLE, VARIABLE], [0, 65_535], [0, 1, 2], "expression 1: a variable's index is not below 65535", 0),
    ([PARAMETER], [65_535], [0, 1], "expression 0: a parameter's index is not below 65535", 0),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "values", "offsets", "message", "token"), BAD)
def test_a_bad_token_is_marked(kinds, values, offsets, message, token):
    with pytest.raises(PopulationError) as caught:
        Population(kinds, values, offsets)
    head, top, *_, marks = str(caught.value).split("\n")
    assert head == message
    assert top[: marks.index("^")].count("┬") + top[: marks.index("^")].count("┌") == token + 1


def test_an_unknown_operator_is_found_behind_many_operands():
    for n in (1, 254, 255, 256, 257, 65_534):
        with pytest.raises(PopulationError, match="no operator has this code"):
            Population([VARIABLE] * n + [OPERATOR], [0] * n + [99], [0, n + 1])


def test_a_marked_listing():
    with pytest.raises(PopulationError) as caught:
        Population([VARIABLE, OPERATOR], [0, ADD], [0, 2])
    assert str(caught.value) == "\n".join(
        [
            "expression 0: an operator lacks operands",
            "┌──────────┬──────────┐",
            "│ variable │ operator │",
            "│ x1       │ +        │",
            "│ 0        │ 1        │",
            "└──────────┴──────────┘",
            "             ^^^^^^^^",
        ]
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([VARIABLE], [0], [0, 2]), "offsets must rise from 0 to the number of tokens, 1"),
        (([VARIABLE], [0], [1, 1]), "offsets must rise from 0 to the number of tokens, 1"),
        (([VARIABLE] * 2, [0] * 2, [0, 3, 2]), "offsets must rise from 0 to the number of tokens, 2"),
        (([VARIABLE] * 2, [0] * 2, [0, 3, 1, 2]), "offsets must rise from 0 to the number of tokens, 2"),
        (([], [], []), "offsets must rise from 0 to the number of tokens, 0"),
        (([VARIABLE], [0, 1], [0, 1]),
         "kinds (1,) and values (2,) must be equally long, offsets (2,) one longer than valid (1,)"),
        (([0.5], [0], [0, 1]), "kinds must be a list of whole numbers, not float64 of shape (1,)"),
        (([[1]], [0], [0, 1]), "kinds must be a list of whole numbers, not int64 of shape (1, 1)"),
        (([257], [0], [0, 1]), "kinds holds numbers that do not fit into uint8"),
        (([VARIABLE], [-1], [0, 1]), "values holds numbers that do not fit into uint64"),
        (([VARIABLE] * 65_536, [0] * 65_536, [0, 65_536]), "expression 0: it has more than 65,535 tokens"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_population(arrays, message):
    with pytest.raises(PopulationError) as caught:
        Population(*arrays)
    assert str(caught.value).split("\n")[0] == message


def test_valid_goes_with_tokens():
    with pytest.raises(PopulationError, match="expression 0: it is valid but has no tokens"):
        Population([], [], [0, 0], valid=[True])
    with pytest.raises(PopulationError, match="expression 0: it is not valid but has tokens"):
        Population([VARIABLE], [0], [0, 1], valid=[False])
    assert Population([VARIABLE], [0], [0, 0, 1]).valid.tolist() == [False, True]


def test_names_are_checked():
    with pytest.raises(ParseError, match="comes twice"):
        Population([VARIABLE], [0], [0, 1], variables=("a", "a"))
    with pytest.raises(PopulationError, match="a variable's index is not below 1"):
        Population([VARIABLE], [1], [0, 1], variables=("a",))
    assert Population([VARIABLE], [0], [0, 1], variables=("a", "b")).n_vars == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 70)), max_size=12))
def test_random_tokens_are_refused_or_read_back(tokens):
    kinds, values = [kind for kind, _ in tokens], [value for _, value in tokens]
    try:
        pop = Population(kinds, values, [0, len(tokens)])
    except PopulationError:
        return
    assert ek.parse(pop.texts(), errors="mask") == pop


# ── as a sequence ────────────────────────────────────────────────────────────────────


def test_selecting(pop):
    assert str(pop[1]) == "p2 * x3" and str(pop[-1]) == "1" and str(pop[np.int64(2)]) == "-x1"
    assert [str(expression) for expression in pop] == TEXTS
    for index in (slice(1, 4), slice(None, None, -1), slice(10, 20)):
        assert pop[index].texts() == TEXTS[index]
    assert pop[[3, 0, 3, -1]].texts() == [TEXTS[3], TEXTS[0], TEXTS[3], TEXTS[5]]
    assert pop[np.array([], np.int64)].texts() == [] and pop[[]].texts() == []
    assert pop[pop.n_params > 0].texts() == ["p2 * x3", "p1"]
    assert pop[np.array([2], np.uint8)].texts() == ["-x1"]
    assert pop[1:2].n_params.tolist() == [2]


@pytest.mark.parametrize("index", [6, -7, [6], [-7], [True], "a", 1.5, [[1]], None])
def test_selecting_refuses(pop, index):
    with pytest.raises(IndexError):
        pop[index]


def test_joining(pop):
    assert (pop[:2] + pop[2:]) == pop
    assert Population.concatenate(pop[i : i + 1] for i in range(6)) == pop
    named = ek.parse("a + b", variables=["a", "b"])
    assert (named + named).texts() == ["a + b"] * 2
    assert (named + ek.parse("1")).variables == ("a", "b")
    with pytest.raises(PopulationError, match=r"different variables: \(x1, …\) and \(a, b\)"):
        pop + named
    with pytest.raises(TypeError):
        pop + 1


def test_as_a_value(pop):
    again = ek.parse(TEXTS)
    assert pop == again and hash(pop) == hash(again) and pop != again[::-1] and pop != TEXTS
    assert ek.parse("0.0") != ek.parse("-0.0") and ek.parse("nan") == ek.parse("-nan")
    assert ek.parse("x1") != ek.parse("a", variables=["a"])
    for twin in (copy.deepcopy(pop), pickle.loads(pickle.dumps(pop))):
        assert twin == pop and not twin.kinds.flags.writeable


def test_pictures(pop):
    assert repr(pop) == "<Population: 6 expressions, 14 tokens, 3 variables, up to 2 parameters>"
    bad = ek.parse(["x1", "<script>alert(1)</script>"] + ["1"] * 20, errors="mask")
    assert repr(bad) == "<Population: 22 expressions, 21 tokens, 1 variable, up to 0 parameters, 1 not valid>"
    picture = bad._repr_html_()
    assert "<script" not in picture and "expected a number" in picture and "14 more" in picture
    assert ek.parse("max(x1, 2) + " * 40 + "1")._repr_html_().count("…") == 1


# ── structures ───────────────────────────────────────────────────────────────────────


def test_structures():
    texts = ["x1 + 2.5", "x1 + 3", "x2 + 3", "x1 + p1", "x1 + p2", "x1 - 2.5", "x1 + nan", "", "x2 + 1", " "]
    pop = ek.parse(texts, errors="mask")
    representatives, inverse = pop.structures()
    assert representatives.tolist() == [0, 2, 3, 4, 5, 7]
    assert inverse.tolist() == [0, 0, 1, 2, 3, 4, 0, 5, 1, 5]


def test_structures_of_many_agree_with_a_dictionary():
    pop = random_population(20_000, seed=3, most_tokens=5)
    found: dict[bytes, int] = {}
    masked = np.where(pop.kinds == CONSTANT, 0, pop.values)
    expected = []
    for a, b in zip(pop.offsets[:-1], pop.offsets[1:], strict=True):
        expected.append(found.setdefault(pop.kinds[a:b].tobytes() + masked[a:b].tobytes(), len(found)))
    representatives, inverse = pop.structures()
    assert inverse.tolist() == expected
    assert (inverse[representatives] == np.arange(len(found))).all() and (np.diff(representatives) > 0).all()


# ── files ────────────────────────────────────────────────────────────────────────────


def test_save_and_load(tmp_path, pop):
    path = tmp_path / "population.npz"
    named = ek.parse(["a * k + nan", "bad +"], variables=["a", "λ"], parameters=["k"], errors="mask")
    for each in (pop, named, ek.parse([])):
        each.save(path)
        assert Population.load(str(path)) == each
        assert os.listdir(tmp_path) == ["population.npz"]
    assert Population.load(path).texts() == []


def test_a_failing_save_leaves_the_old_file(tmp_path, pop, monkeypatch):
    path = tmp_path / "population.npz"
    pop.save(path)

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        ek.parse("x1").save(path)
    assert os.listdir(tmp_path) == ["population.npz"] and Population.load(path) == pop


def test_damaged_files(tmp_path, pop):
    path = tmp_path / "population.npz"
    pop.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged[: rng.integers(0, len(content) + 1)] if rng.random() < 0.3 else damaged)
        try:
            assert Population.load(path) == pop  # the damage hit what nobody reads
        except PopulationError as error:
            refused += "is not a saved population" in str(error) or "has format" in str(error)
    assert refused > 100
    with pytest.raises(FileNotFoundError):
        Population.load(tmp_path / "missing.npz")


def test_other_files_are_refused(tmp_path, pop):
    path, one = tmp_path / "other.npz", {"kinds": [OPERATOR], "values": [ADD], "offsets": [0, 1]}
    np.savez(path, a=1)
    with pytest.raises(PopulationError, match="is not a saved population, or it is damaged: it has no checksums"):
        Population.load(path)
    np.savez(path, checksums=np.array(f"[{files.FORMAT + 1}, {{}}]"))
    with pytest.raises(PopulationError, match=f"it has format {files.FORMAT + 1}; this exprkit reads {files.FORMAT}"):
        Population.load(path)
    np.savez(path, **{**one, "kinds": np.array([None])})
    with pytest.raises(PopulationError, match="allow_pickle=False"):
        Population.load(path)
    files.write_arrays(path, {**one, "variables": "abc"})
    with pytest.raises(PopulationError, match="is not a saved population"):
        Population.load(path)
    files.write_arrays(path, one)
    with pytest.raises(PopulationError, match="an operator lacks operands"):
        Population.load(path)
    path.write_text("x1 + 1")
    with pytest.raises(PopulationError, match="is not a saved population"):
        Population.load(path)


def test_a_text_file_is_refused_without_bad_advice(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("x1,x2\n1,2\n")
    with pytest.raises(PopulationError) as caught:
        Population.load(path)
    assert str(caught.value) == f"{str(path)!r} is not a saved population, or it is damaged: File is not a zip file"


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused_before(tmp_path, monkeypatch):
    path, n = tmp_path / "bomb.npz", 1 << 24
    np.savez_compressed(path, kinds=np.ones(n, np.uint8), values=np.zeros(n, np.uint64), offsets=np.arange(2))
    size, read = path.stat().st_size, []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **options: read.append(1))
    message = rf"a file of {size:,} bytes that holds 15\d,\d+,\d+, more than 100 times as much"
    with pytest.raises(PopulationError, match=message):
        Population.load(path)
    assert not read


def test_arrays_that_are_not_needed_are_not_read(tmp_path, pop, monkeypatch):
    path = tmp_path / "more.npz"
    arrays = {name: getattr(pop, name) for name in ("kinds", "values", "offsets")}
    files.write_arrays(path, {**arrays, "unused": np.zeros(1 << 16)})
    read, read_array = [], np.lib.format.read_array

    def counted(file, **options):
        read.append(file.name)
        return read_array(file, **options)

    monkeypatch.setattr(np.lib.format, "read_array", counted)
    assert Population.load(path) == pop
    assert read == ["kinds.npy", "values.npy", "offsets.npy", "checksums.npy"]


def test_a_file_that_is_in_use_is_replaced_as_soon_as_it_is_free(tmp_path, pop, monkeypatch):
    """As Windows has it."""
    attempts, replace = [], os.replace

    def refusing(*paths):
        attempts.append(paths)
        if len(attempts) < 3:
            raise PermissionError(13, "Access is denied")
        replace(*paths)

    monkeypatch.setattr(os, "replace", refusing)
    with pytest.raises(FileError, match="Access is denied"):
        pop.save(tmp_path / "pop.npz")
    assert len(attempts) == 1 and not list(tmp_path.iterdir())
    monkeypatch.setattr(files, "IN_USE", 60.0)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    pop.save(tmp_path / "pop.npz")
    assert Population.load(tmp_path / "pop.npz") == pop and len(attempts) == 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_file_has_the_mode_of_any_new_file(umask, tmp_path, pop):
    records = pytest.importorskip("exprkit.study.records")
    before = os.umask(umask)
    try:
        pop.save(tmp_path / "a.npz")
        records.write_json(tmp_path / "a.json", {})
    finally:
        os.umask(before)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == dict.fromkeys(
        ("a.npz", "a.json"), 0o666 & ~umask
    )
