"""The documentation site: its examples run, it builds without a warning, links lead somewhere, no name is missing."""

from __future__ import annotations

import ast
import builtins
import csv
import importlib.util
import io
import json
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from contextlib import redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from test_project import EXAMPLE, GUIDES, Numbers

import exprkit as ek
from exprkit.__main__ import _parser

ROOT = Path(__file__).resolve().parent.parent


def pages():
    """Those that have examples; searches take long."""
    for path in sorted((ROOT / ".docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if "```python" in text:
            searches = any("SymbolicRegressor(" in code for code, _ in EXAMPLE.findall(text))
            yield pytest.param(text, id=path.stem, marks=[pytest.mark.slow] * searches)


@pytest.mark.parametrize("text", list(pages()))
def test_examples_of_pages_print_what_they_say(text, monkeypatch):
    monkeypatch.chdir(ROOT)  # pages read data/planets.csv
    examples = EXAMPLE.findall(text)
    assert len(examples) == text.count("```python"), "behind each example stands what it prints"
    for name in {*re.findall(r"^from (\w+)", "".join(code for code, _ in examples), re.MULTILINE)}:
        pytest.importorskip(name)
    for code, expected in examples:
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, "example", "exec"), {})
        assert Numbers().check_output(expected, printed.getvalue(), 0), printed.getvalue()


KINDS = {
    "ev": "ek.Evaluator", "pop": "ek.Population", "law": "ek.FittedExpression", "found": "ek.FitResult",
    "model": "ek.SymbolicRegressor", "compiled": "ek.Compiled",
}  # fmt: skip
CHAIN = re.compile(rf"(?<![\"\w])({'|'.join(KINDS)}|ek)(\.\w+)+")
WRONG_CALL = re.compile(r"has no attribute|[Uu]nexpected keyword|Too many|is not defined")


def code_that_is_not_run():
    """Of each page: fences of ``py``, and code between words that uses exprkit or what its calls give."""
    for path in [*sorted((ROOT / ".docs").rglob("*.md")), *(ROOT / page for page in GUIDES)]:
        text = path.read_text(encoding="utf-8")
        fences = re.findall(r"^```py\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for code in fences:
            ast.parse(code)
        words = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        yield from ((path, code) for code in [*fences, *filter(CHAIN.search, words)])


@pytest.mark.slow
def test_code_that_is_not_run_calls_what_there_is_by_arguments_that_it_has(tmp_path):
    """mypy says it, of each piece as a function of the names that the piece leaves open."""
    api, lines, pieces = pytest.importorskip("mypy.api"), ["from typing import Any", "import exprkit as ek"], {}
    for path, code in code_that_is_not_run():
        try:
            nodes = list(ast.walk(ast.parse(code)))
        except SyntaxError:  # "ek.fit(..., loss=" of a sentence: the name at least
            nodes = list(ast.walk(ast.parse(code := CHAIN.search(code)[0])))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bound |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
        kinds = KINDS | ({"found": "ek.SearchResult"} if path.parent.name == "search" else {})
        given = (f"{name}: {kinds.get(name, 'Any')}" for name in sorted(names - bound - {"ek"} - {*dir(builtins)}))
        lines += [f"def piece_{len(lines)}({', '.join(given)}):", *textwrap.indent(code, "    ").splitlines()]
        pieces[len(lines)] = path, code
    (tmp_path / "pieces.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert len(pieces) > 100
    configuration = "--config-file", str(ROOT / "pyproject.toml"), "--ignore-missing-imports"
    told = api.run([*configuration, str(tmp_path / "pieces.py")])[0]
    assert "checked 1 source file" in told or "Success" in told, told
    places = {line: int(re.search(r":(\d+): ", line)[1]) for line in told.splitlines() if WRONG_CALL.search(line)}
    assert not {line: pieces[min(end for end in pieces if end >= place)] for line, place in places.items()}


def test_commands_of_pages_are_understood():
    commands = set()
    for path in [*(ROOT / ".docs").rglob("*.md"), *(ROOT / page for page in (*GUIDES, "CONTRIBUTING.md"))]:
        text = re.sub(r"`([^`\n]*)\n([^`\n]*)`", r"`\1 \2`", path.read_text(encoding="utf-8"))
        commands |= {*re.findall(r"python -m exprkit ([a-z][^`\n]*)", text)}
    commands |= {*re.findall(r"^python -m exprkit (.*)", (ROOT / ".binder/postBuild").read_text("utf-8"), re.MULTILINE)}
    assert len(commands) >= 8
    for command in commands:
        _parser().parse_args(shlex.split(command, comments=True))  # else an exit


GALLERY = sorted((ROOT / ".docs" / "gallery").glob("*.py"))


def test_an_example_of_the_gallery_has_a_title_and_at_most_40_lines():
    assert len(GALLERY) >= 30
    for path in GALLERY:
        text = path.read_text(encoding="utf-8")
        assert re.match(r'"""\n\w.*\n=+\n\n\w', text), f"{path}: a docstring of a title and what it is about"
        assert text.count("\n") <= 40, path


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_an_example_of_the_gallery_runs_and_draws_one_figure(path, monkeypatch, functions):
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(path.parent)  # as Sphinx runs it
    with plt.rc_context():
        runpy.run_path(path.name)
    figures = plt.get_fignums()
    plt.close("all")
    assert len(figures) == 1


def test_the_reference_has_every_public_name():
    page = (ROOT / ".docs" / "reference.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: exprkit\.(\w+)$", page, re.MULTILINE)) == ek.__all__


def configuration():
    spec = importlib.util.spec_from_file_location("conf", ROOT / ".docs" / "conf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_explorer_has_every_row_with_its_source_and_choices_that_lead_to_rows():
    folder, conf = ROOT / "data" / "results", configuration()
    tables = json.loads(json.dumps(conf.tables_of(folder)))
    assert set(tables) == {"searches", "timings"}
    for table in tables.values():
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
        for name, values in table["filters"].items():
            assert len(values) > 1 and set(values) == {row[name] for row in rows} - {None}, name
        for row in rows:
            assert (folder / row["file"]).is_file() and re.fullmatch(r"[0-9a-f]{7}|unknown", row["commit"]), row
            assert row["command"] and min(row.get("seconds", 1), row.get("step_s", 1)) > 0, row
    searches = [dict(zip(tables["searches"]["columns"], row, strict=True)) for row in tables["searches"]["data"]]
    files = {path for pattern in ("laws*.csv", "recovery.csv") for path in folder.glob(pattern)}
    for path in files:
        with path.open(newline="", encoding="utf-8") as file:
            recorded = list(csv.DictReader(file))
        shown = [row for row in searches if row["file"] == path.name]
        assert [row["formula"] for row in shown] == [row.get("equation", row.get("formula")) for row in recorded]
        found = [row.get("found", row.get("recovered")) for row in recorded]
        assert [row["found"] for row in shown] == [{"1": "yes", "0": "no"}[value] for value in found]
    noisy = {row["file"] for row in searches if row["noise"] > 0}
    assert noisy == {"laws_lists.csv", "laws_noise.csv", "laws_unseen_noise.csv", "recovery.csv"}
    lists = {row["list"] for row in searches if row["file"] == "laws_lists.csv"}
    assert lists == {"laws", "feynman", "held_out", "textbook", "new", "curves", "other_fields"}


def test_the_paper_cites_what_its_list_holds_and_has_the_length_and_authors_it_should():
    paper, sources = ((ROOT / ".docs" / name).read_text(encoding="utf-8") for name in ("paper.md", "paper.bib"))
    _, head, body = paper.split("---\n", 2)
    assert {*re.findall(r"@(\w+)", body)} == {*re.findall(r"^@\w+\{(\w+),", sources, re.MULTILINE)}
    assert 700 <= len(body.split()) <= 1_000
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8").partition("\nreferences:")[0]
    names = (re.findall(r"^  - name: (.*)", text, re.MULTILINE) for text in (head.partition("affiliations:")[0], cited))
    assert next(names) == next(names)


class Page(HTMLParser):
    """What a page refers to, and the places in it that others may refer to."""

    def __init__(self, path):
        super().__init__()
        self.links, self.places = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.places.add(attributes.get("id"))
        self.links |= {attributes[name] for name in ("href", "src") if attributes.get(name)}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", ".docs", "-d", tmp_path / "doctrees"]
    command += ["-D", "plot_gallery=False"]  # its scripts take minutes, and have tests of their own
    done = subprocess.run([*command, ".", tmp_path / "site"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {path: Page(path) for path in (tmp_path / "site").rglob("*.html")}
    folders = {"site", ".docs", "exprkit", "notebooks", "results", "tables", "gallery"}
    assert folders <= {path.parent.name for path in pages}
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if not parts.scheme and not parts.netloc:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                assert target.exists(), f"{path}: {link}"
                if parts.fragment and target in pages:
                    assert unquote(parts.fragment) in pages[target].places, f"{path}: {link}"
    results = tmp_path / "site" / "data" / "results"
    assert (results / "explorer.js").read_text(encoding="utf-8").startswith("const RESULTS = {")
    assert {path.name for path in results.glob("*.csv")} == {p.name for p in (ROOT / "data/results").glob("*.csv")}
    reference = pages[tmp_path / "site" / ".docs" / "reference.html"].places
    names = {"exprkit.Population.unique", "exprkit.data.rough_pipe", "exprkit.generate.exhaustive"}
    assert (
        names | {f"exprkit.{name}" for name in ek.__all__ if name not in {"data", "generate", "bench", "models", "ops"}}
        <= reference
    )


@pytest.mark.slow
def test_the_explorer_s_page_narrows_down_and_sorts_and_shows_text_as_text(tmp_path):
    from test_explore_browser import FLAGS, chromium

    path, bad, empty = chromium(), "<img src=x onerror=alert(1)>", tmp_path / "page.html"
    empty.write_text("<div class=explorer data-table=t></div>", encoding="utf-8")
    columns = ["list", "seconds", "found", "formula", "file", "commit", "command"]
    rows = [
        [*part, "yes", bad, "laws.csv", "abc", "the command in `laws.md`"] for part in (("a", 20), ("a", 3), ("b", 1))
    ]
    table = {"columns": columns, "data": rows, "filters": {"list": ["a", "b"]}}
    script = (ROOT / ".docs" / "_static" / "explorer.js").read_text(encoding="utf-8")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page()
        page.goto(f"{empty.as_uri()}#t.list=a")
        page.add_script_tag(content=f"const RESULTS = {json.dumps({'t': table})};")
        page.add_script_tag(content=script)
        seconds, count = page.locator("tbody td:nth-child(2)"), page.locator(".explorer-count")
        assert (seconds.all_text_contents(), count.text_content()) == (["20 s", "3 s"], "2 rows, found 2 (100 %)")
        page.get_by_role("button", name="seconds").press("Enter")  # as who uses no mouse does
        assert seconds.all_text_contents() == ["3 s", "20 s"]
        page.get_by_label("list").select_option("b")
        assert seconds.all_text_contents() == ["1 s"] and page.url.endswith("#t.list=b")
        assert page.locator("img").count() == 0 and page.locator("td.formula").all_text_contents() == [bad]
        links = page.locator("details a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert links == ["../data/results/laws.csv", "../data/results/laws.html"]
        browser.close()
