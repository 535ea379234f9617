"""What the project promises about itself: structure, safety, lightness, and documents that are true."""

from __future__ import annotations

import ast
import doctest
import fnmatch
import functools
import graphlib
import importlib
import inspect
import io
import itertools
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.__main__ import main
from exprkit.errors import MissingError, brought_by
from exprkit.operators import ops
from exprkit.study import readme

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "exprkit").rglob("*.py"))

# Each folder (or file) imports from those before it only, also inside functions and for types: the engine knows
# neither searches nor the lab, and the searches do not know the lab.
ENGINE = [
    "version", "errors", "numbers", "operators", "runtime", "text", "expressions", "csv_files", "data", "programs",
    "backends", "backends.reference", "backends.gpu", "backends.cases", "backends.device_programs", "backends.cpu",
    "backends.interpreter", "backends.transpiler", "backends.cost_model", "distributed", "evaluate", "fitting",
]  # fmt: skip
ROOMS = [
    "problem", "formulas", "rules", "pairs", "sums", "shapes", "generations", "on_device", "stages", "skeletons",
    "estimator",
]  # fmt: skip
SEARCHES = ["search", "regression", *(f"regression.{room}" for room in ROOMS), "classification", "targets", "dynamics"]
LAB = ["study", "explorer"]
LAYERS = [*ENGINE, *SEARCHES, "saved", *LAB, "warm_up", "build_hook", "__main__"]
TOP = "exprkit"  # the package itself, which users import, and of its own modules those that use it as a user does

# Lines of Python and CUDA C of each folder; those of regression with a page of docstring for each stage of a search
MOST_LINES = {
    "(top)": 1_770, "operators": 3_559, "runtime": 2_291, "text": 3_242, "expressions": 3_858, "programs": 1_694,
    "backends": 18_848, "distributed": 2_326, "evaluate": 4_140, "fitting": 8_040, "search": 4_153,
    "regression": 16_284, "classification": 294, "targets": 300, "dynamics": 1_078, "study": 4_529, "explorer": 2_465,
}  # fmt: skip

MOST_NAMES = 60  # of the engine, that the searches use; may fall

# LLVM's instructions, words of Matplotlib and pandas and a title, which happen to be names of operators as well
OTHER_WORDS = {
    "simd_values.py": {"add", "sub", "mul"}, "intrinsics.py": {"add"}, "drawings.py": {"log"}, "plots.py": {"min"},
    "figures.py": {"min", "max"}, "measured.py": {"min", "max"}, "data.py": {"log10"},
}  # fmt: skip


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


# ── structure ──


def imported(path):
    """Modules of exprkit that a module imports, wherever it does."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == TOP)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == TOP:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


MODULES = {module_name(path): path for path in SOURCES}


@functools.cache
def imports():
    """Of each module but the package itself: the modules that it imports."""
    return {name: {*imported(path)} for name, path in MODULES.items() if name != TOP}


def layer_of(module):
    """The longest beginning of a module's name that is a layer, as its number; the package itself is above all."""
    if module == TOP:
        return LAYERS.index("explorer")
    parts = module.split(".")[1:]
    return max(LAYERS.index(".".join(parts[:n])) for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in LAYERS)


def test_imports_flow_one_way():
    for name, others in imports().items():
        for other in others:
            assert layer_of(other) <= layer_of(name), f"{name} imports {other}, which is not below it"


def engine_names():
    """What the searches use of the engine, as "module.name", by imports and as attributes of modules."""
    engine = {name for name in MODULES if name != TOP and layer_of(name) <= LAYERS.index("fitting")}
    for path in (path for folder in ("search", "regression") for path in (ROOT / TOP / folder).rglob("*.py")):
        modules = {}
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    if whole in MODULES:
                        modules[alias.asname or alias.name] = whole
                    elif node.module in engine:
                        yield whole
        for node in ast.walk(tree_of(path)):
            module = modules.get(getattr(getattr(node, "value", None), "id", ""))
            if isinstance(node, ast.Attribute) and module in engine:
                yield f"{module}.{node.attr}"


def test_the_searches_use_the_declared_surface_of_the_engine():
    page = (ROOT / TOP / "README.md").read_text(encoding="utf-8")
    section = page.partition("## What the searches use of the engine")[2].partition("\n## ")[0]
    declared = re.findall(r"^\| `([\w.*]+)` \| \S", section, re.MULTILINE)
    vocabularies = {name.removesuffix(".*") for name in declared if name.endswith(".*")}
    used = {name.removeprefix(f"{TOP}.") for name in engine_names()}
    used = {f"{module}.*" if (module := name.rpartition(".")[0]) in vocabularies else name for name in used}
    assert len(declared) == len(set(declared)) <= MOST_NAMES
    assert used - set(declared) == set(), "declare in exprkit/README.md what the searches need it for, or do without"
    assert set(declared) - used == set(), "declared in exprkit/README.md, and not used any more"


def test_the_explorer_uses_what_a_user_may():
    folders = {
        "errors",
        "explorer",
        "evaluate",
        "expressions",
        "fitting",
        "operators.defined",
        "runtime.files",
        "runtime.jit",
        "text",
    }
    for path in (ROOT / TOP / "explorer").glob("*.py"):
        for other in imported(path):
            assert other == TOP or any(f"{other}.".startswith(f"{TOP}.{folder}.") for folder in folders), other
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                assert isinstance(node.value, ast.Name) and node.value.id == "self", f"{path.name}: {node.attr}"


def test_scripts_import_what_there_is():
    for script in (ROOT / "tests").glob("*.py"):
        for node in ast.walk(tree_of(script)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == TOP:
                module = importlib.import_module(node.module)
                for name in (alias.name for alias in node.names):
                    assert hasattr(module, name) or f"{node.module}.{name}" in MODULES, f"{script.name}: {name}"


def test_no_module_imports_itself_by_way_of_others():
    sorter = graphlib.TopologicalSorter({name: others - {name} for name, others in imports().items()})
    sorter.prepare()  # raises CycleError with the circle


def test_a_noun_is_one_class():
    counts = Counter(
        node.name.lstrip("_") for path in SOURCES for node in tree_of(path).body if isinstance(node, ast.ClassDef)
    )
    del counts["Engine"]  # the protocol, and every backend's
    assert not [name for name, n in counts.items() if n > 1]


def test_folders_stay_small_and_say_what_they_are():
    for folder in {path.parent for path in SOURCES} - {ROOT / TOP}:
        assert len([path for path in folder.iterdir() if path.suffix in (".py", ".cu")]) <= 15, folder
        assert ast.get_docstring(tree_of(folder / "__init__.py")), f"{folder} says what it is for"


def test_no_folder_grows():
    """Lines may fall; who raises a number says why in the commit."""
    lines = Counter()
    for path in (ROOT / TOP).rglob("*"):
        if path.suffix in (".py", ".cu"):
            folder = path.relative_to(ROOT / TOP).parts[0]
            lines[folder if folder != path.name else "(top)"] += path.read_bytes().count(b"\n")
    assert {folder: n for folder, n in lines.items() if n > MOST_LINES[folder]} == {}


def test_only_tables_are_not_formatted():
    unformatted = [path for path in SOURCES for _ in re.findall(r"# fmt: (?:skip|off)", path.read_text("utf-8"))]
    assert len(unformatted) <= 40, Counter(map(str, unformatted))


def docstrings(tree):
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    heads = [node.body[0] for node in ast.walk(tree) if isinstance(node, kinds) and node.body]
    return {id(head.value) for head in heads if isinstance(head, ast.Expr) and isinstance(head.value, ast.Constant)}


def strings(path):
    """Every string of a module but docstrings."""
    tree = tree_of(path)
    skipped = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def test_no_operator_is_named_outside_the_table():
    for path in (path for path in SOURCES if path.name != "ops.py"):
        allowed = OTHER_WORDS.get(path.name, set())
        for text in strings(path):
            called = set(re.findall(r"([A-Za-z_]\w*)\(", text)) & set(ops.BY_SPELLING) - allowed  # "exp2(b * log2(a))"
            assert text not in ops.BY_NAME or text in allowed, f"{path}: {text!r} belongs in ops.py"
            assert not called, f"{path}: {text!r} uses {called}: it belongs in ops.py"


def nodes():
    """Every node of every module, with a text that says where it is."""
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            yield node, f"{path}, line {getattr(node, 'lineno', 0)}"


def test_no_user_text_reaches_an_interpreter():
    for node, place in nodes():
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            assert called not in {"eval", "exec", "sympify", "parse_expr", "system", "popen"}, place
            options = {option.arg: getattr(option.value, "value", None) for option in node.keywords}
            assert not options.get("shell") and not options.get("allow_pickle"), place
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
            assert not names & {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}, place


STEPS = """
import sys
HEAVY = {"numpy", "numba", "sympy", "pandas", "sklearn", "matplotlib", "dask", "distributed", "cupy", "IPython"}
import exprkit as ek
print("import", *sorted(HEAVY & {*sys.modules}))
pop = ek.parse(["p1 * x1 + p2"])
ek.Evaluator(pop, [[1.0], [2.0], [4.0]], backend="cpu").evaluate(params=[[3.0, 1.0]])
print("evaluate", *sorted(HEAVY & {*sys.modules}))
ek.fit(pop, [[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0], backend="cpu")
print("fit", *sorted(HEAVY & {*sys.modules}))
"""


def test_each_step_imports_what_it_uses():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.splitlines() == ["import", "evaluate numba numpy", "fit numba numpy"]


# ── the table of operators ──


def test_every_row_is_complete():
    for op in ops.OPERATORS:
        assert op.arity in (1, 2) and 0 < op.code < 200, op.name
        assert op.meaning and op.latex.count("{a}") >= 1, op.name
        assert len(op.derivative) in (0, op.arity), op.name
        assert op.sympy is not None and len(op.domain) >= op.arity, op.name
        assert all(low < high for low, high in op.domain), op.name
        assert all(error >= 0 for error in (*op.ulp, *(op.fast_ulp or ()))), op.name


def test_codes_and_names_are_used_once():
    rows = [*ops.OPERATORS, *ops.INTERNAL]
    assert len({row.code for row in rows}) == len(rows)
    spellings = [name for row in ops.OPERATORS for name in (row.name, *row.aliases)]
    assert len(set(spellings)) == len(spellings)


def test_other_operators_that_a_row_names_exist():
    for rules in (op.rewrite for op in ops.OPERATORS):
        named = [*rules.inner, *rules.inner.values(), *rules.constant_b.values(), *(rules.split or ())]
        named += [name for name in (rules.positive_a, rules.whole_b) if name]
        assert set(named) <= set(ops.BY_NAME)


def test_commutative_operators_commute():
    assert not [op.name for op in ops.OPERATORS if op.arity == 1 and op.commutative]
    for op in (op for op in ops.OPERATORS if op.arity == 2):
        random = np.random.default_rng(op.code)
        a, b = (random.uniform(*interval, 100) for interval in op.domain)
        with np.errstate(all="ignore"):
            assert np.array_equal(op.numpy(a, b), op.numpy(b, a), equal_nan=True) == op.commutative, op.name


def test_sets_hold_operators():
    for names in ops.SETS.values():
        assert set(names) <= {row.name for row in ops.OPERATORS}


def test_derivatives_agree_with_central_differences(op):
    random = np.random.default_rng(op.code)
    operands = [low + (high - low) * random.uniform(0.01, 0.99, 200) for low, high in op.domain[: op.arity]]
    y = op.numpy(*operands)
    points = np.column_stack([*operands, y])
    names = [*"ab"[: op.arity], "y"]
    for place, text in enumerate(op.derivative):
        found = ek.Evaluator(ek.parse([text], variables=names), points, "numpy", dtype="float64").evaluate()[0]
        step = 1e-6 * np.maximum(np.abs(operands[place]), 1e-2)
        above, below = list(operands), list(operands)
        above[place], below[place] = operands[place] + step, operands[place] - step
        expected = (op.numpy(*above) - op.numpy(*below)) / (above[place] - below[place])
        assert found == pytest.approx(expected, rel=2e-5, abs=2e-6 * max(1.0, np.abs(expected).max())), text


# ── documents ──

PAGES = [str(path.relative_to(ROOT)) for path in readme.pages(ROOT)]


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_fresh(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "made by `make readme`" in text
    assert readme.refresh(text, ROOT / "data" / "results") == text, "run: make readme"


GUIDES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / TOP).glob("*/README.md")))]
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def examples():
    """Of each page: what it shows of Python, and what that prints; searches take long."""
    for page in GUIDES:
        for n, (code, expected) in enumerate(EXAMPLE.findall((ROOT / page).read_text(encoding="utf-8"))):
            long = [pytest.mark.slow] * ("Regressor" in code)
            yield pytest.param(page, code, expected, marks=long, id=f"{page} {n}")


@pytest.mark.parametrize(("page", "code", "expected"), list(examples()))
def test_pages_print_what_they_say(page, code, expected):
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(code, page, "exec"), {})
    assert Numbers().check_output(expected, printed.getvalue(), 0), printed.getvalue()


def test_the_version_is_the_same_everywhere():
    forms = {"pyproject.toml": 'version = "{}"', "CITATION.cff": "version: {}", "CHANGELOG.md": "## {} "}
    for page, form in forms.items():
        assert form.format(ek.__version__) in (ROOT / page).read_text(encoding="utf-8"), page


def test_pages_name_what_exists():
    texts = {
        page: (ROOT / page).read_text(encoding="utf-8") for page in (*GUIDES, f"{TOP}/README.md", "CONTRIBUTING.md")
    }
    for page, text in texts.items():
        assert len(EXAMPLE.findall(text)) == text.count("```python"), (
            f"{page}: behind each example stands what it prints"
        )
    assert texts["README.md"].count("\n") <= 250, "what is longer is a page of its folder"
    text = "".join(texts.values())
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"make {target}"
    for path in re.findall(r"`((?:exprkit|notebooks|data|figures)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path


def heading(line):
    """A heading's name in a link, as GitHub makes it."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def test_links_lead_somewhere():
    others = *GUIDES, "data/README.md", "exprkit/README.md", "CONTRIBUTING.md", "CHANGELOG.md"
    for page in {*(ROOT / name for name in (*PAGES, *others)), *(ROOT / "data" / "results").glob("**/*.md")}:
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert target.exists(), f"{page}: {link}"
            if anchor and target.suffix == ".md":
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in map(heading, titles), f"{page}: {link}#{anchor}"


def test_results_that_are_quoted_exist():
    quoted = re.compile(r"data/results/([\w./]+\.(?:md|csv|json|parquet))")
    for path in [*SOURCES, *(ROOT / "tests").glob("*.py"), *ROOT.glob("*.md")]:
        for name in quoted.findall(path.read_text(encoding="utf-8")):
            assert (ROOT / "data" / "results" / name).exists(), f"{path}: {name}"


# ── recorded numbers ──

OLD = 50  # commits that touch what a row measures


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def paths_measured(file, backend):
    """What the page of sources says that rows of a file, or those of a backend in it, measure."""
    page = (ROOT / "data" / "results" / "sources.md").read_text(encoding="utf-8")
    for files, paths in re.findall(r"^\| (.*) \| ((?:`exprkit/[\w/.]+` ?)+) \|$", page, re.MULTILINE):
        files, _, of = files.partition(" of ")
        if any(fnmatch.fnmatch(file, name) for name in re.findall("`(.*?)`", files)) and of in ("", f"`{backend}`"):
            return re.findall("`(.*?)`", paths)
    raise AssertionError(f"data/results/sources.md does not say what {file} of backend {backend} measures")


def recorded_rows(folder):
    """File, backend ("" of a script's rows) and commit of all rows in a folder, each once."""
    for path in sorted([*folder.glob("*.parquet"), *folder.glob("*.csv")]):
        rows = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, keep_default_na=False)
        missing = {"commit", "cpu", "gpu", "driver"} - set(rows)
        assert not missing, f"{path.name} has no columns {missing}: write it by exprkit.study.records"
        assert rows["cpu"].ne("").all() and rows["commit"].ne("").all(), (
            f"{path.name}: rows without commit or processor"
        )
        backends = rows["backend"] if path.suffix == ".parquet" else itertools.repeat("")
        yield from dict.fromkeys(zip(itertools.repeat(path.name), backends, rows["commit"]))


def ages(rows, history):
    """A sentence for each of the rows that tell no sure commit, or whose subject has changed much since."""
    for file, backend, commit in rows:
        paths, known = paths_measured(file, backend), commit.removesuffix("+")
        assert known in history or commit == "unknown", f"{file}: the history has no commit {commit}"
        since = 0 if commit == "unknown" else int(git("rev-list", "--count", f"{known}..HEAD", "--", *paths))
        if commit != known or commit == "unknown" or since > OLD:
            of = f" of {backend}" if backend else ""
            yield f"{file}{of}, commit {commit}: since then {since or 'nobody knows how many'} touch {' '.join(paths)}"


def test_scripts_record_rows_by_one_function():
    for script in (ROOT / "tests").glob("*.py"):
        if not script.name.startswith("test_"):
            text = script.read_text(encoding="utf-8")
            assert not re.search(r"csv\.(Dict)?[wW]riter|\.to_csv\(", text), f"{script.name}: use records.write_rows"


@pytest.mark.filterwarnings("default")  # they are what this test is for
def test_old_rows_of_results_are_named():
    try:
        if git("rev-parse", "--is-shallow-repository").strip() != "false" or not (ROOT / ".git").exists():
            pytest.skip("this checkout has no history")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout of git")
    history = {commit[:12] for commit in git("rev-list", "HEAD").split()}
    for sentence in ages(recorded_rows(ROOT / "data" / "results"), history):
        warnings.warn(sentence, stacklevel=1)


def test_rows_without_a_commit_or_of_another_history_are_refused(tmp_path):
    head = "what,commit,cpu,gpu,driver\n"
    for text, message in (("what\n1\n", "has no columns"), (f"{head}1,,C,,\n", "rows without commit")):
        (tmp_path / "peers.csv").write_text(text)
        with pytest.raises(AssertionError, match=message):
            list(recorded_rows(tmp_path))
    (tmp_path / "peers.csv").write_text(f"{head}1,0123456789ab,C,,\n2,unknown,C,,\n2,unknown,C,,\n")
    rows = list(recorded_rows(tmp_path))
    assert rows == [("peers.csv", "", "0123456789ab"), ("peers.csv", "", "unknown")]
    with pytest.raises(AssertionError, match="the history has no commit 0123456789ab"):
        list(ages(rows, set()))
    (sentence,) = ages(rows[1:], set())
    assert sentence.startswith("peers.csv, commit unknown: since then nobody knows how many touch exprkit/operators ")
    with pytest.raises(AssertionError, match=r"does not say what new\.csv of backend cpu measures"):
        paths_measured("new.csv", "cpu")


FOLDERS = sorted({str(path.parent.relative_to(ROOT)) for path in SOURCES})
ESTIMATOR = "exprkit/regression/estimator"  # whose examples take long


class Numbers(doctest.OutputChecker):
    """Compares numbers as numbers, to a unit of the last place that is written: processors round differently."""

    FORM = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")

    def check_output(self, want, got, optionflags):
        wanted, given = self.FORM.findall(want), self.FORM.findall(got)
        if len(wanted) == len(given) and all(map(self.close, wanted, given)):
            numbers = iter(wanted)
            got = self.FORM.sub(lambda _: next(numbers), got)
        return super().check_output(want, got, optionflags)

    @staticmethod
    def close(wanted, given):
        digits, _, exponent = wanted.partition("e")
        unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
        return abs(float(wanted) - float(given)) <= 1.5 * max(unit, 1e-15)


@pytest.mark.parametrize(("got", "same"), [
    ("a 0.334 b", True), ("a 0.335 b", False), ("a 0.333 c", False), ("a 0.333 b 1.0", False), ("a 1.333 b", False),
])  # fmt: skip
def test_numbers_of_examples_are_compared_as_numbers(got, same):
    assert Numbers().check_output("a 0.333 b", got, 0) == same
    assert Numbers().check_output("2 1.5e-16", "3 1.5e-16", 0) is False and Numbers().check_output("0.0", "-2e-16", 0)


@pytest.mark.parametrize(
    "folder", [pytest.param(folder, marks=[pytest.mark.slow] * (folder == ESTIMATOR)) for folder in FOLDERS]
)
def test_examples_in_docstrings_run(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT if folder.endswith("study") else tmp_path)  # where examples save, or read data/results
    for path in (ROOT / folder).glob("*.py"):
        module = importlib.import_module(module_name(path))
        runner = doctest.DocTestRunner(Numbers(), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        for example in doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs={"ek": ek, "np": np}):
            runner.run(example)
        assert not runner.summarize(verbose=False).failed, path
        assert module.__doc__, f"{path} says what it is for"


RESULTS = {"Compiled", "FitResult", "FittedExpression", "SearchResult"}  # made by others


def documented():
    """Every public function, class and method with the docstring that has to name its parameters."""
    modules = {"data": ek.data, "generate": ek.generate, "models": ek.models}
    things = {name: getattr(ek, name) for name in ek.__all__ if name not in {"bench", "ops", *modules}}
    for name, module in modules.items():
        own = [one for one in module.__all__ if name != "data" or one[0].islower()]
        things |= {f"{name}.{one}": getattr(module, one) for one in own}
    for name, thing in things.items():
        if name not in RESULTS:
            yield name, thing
        own = [cls for cls in getattr(thing, "__mro__", ()) if cls.__module__.startswith(TOP)]
        for inner, one in {inner: one for cls in reversed(own) for inner, one in vars(cls).items()}.items():
            one = getattr(one, "__func__", one)
            if inspect.isfunction(one) and not inner.startswith("_"):
                yield f"{name}.{inner}", one


def test_docstrings_name_every_parameter():
    for name, thing in documented():
        parameters = [one for one in inspect.signature(thing).parameters if one not in {"self", "cls", "ev"}]
        text = inspect.getdoc(thing) or ""
        assert text, f"{name} has no docstring"
        assert not [one for one in parameters if not re.search(rf"\b{one}\b", text)], name


NEEDS_MORE = {"compile_ptx", "sweep"}  # packages that are not always there, and a notebook's minutes


WITHOUT_EXAMPLE = {
    # made for other modules of exprkit
    "Evaluator": "check_complete derivatives for_sums in_parts target with_population tune ptx sass", "Expression":
    "applied", "FitProblem": "begun fitted make_ready", "FitResult": "restored", "SearchResult": "restored",
    "Population": "definitions expanded from_arrays order_of part put_into to_arrays user_operators verify",
    "SymbolicRegressor": "restored", "models": "StandardModel.applied",
    # on a GPU or with its compiler alone
    "Compiled": "assemble ptx sass", "DevicePopulation": "of to_host user_operators",
    # of searches of seconds each, which the classes' examples show; a download
    "DynamicsRegressor": "equations fit invariants predict print restored score simulate", "data": "nikuradse",
    "SymbolicClassifier": "decision_function fit latex predict predict_proba restored score sympy",
    "MultiTargetRegressor": "fit latex predict restored sympy",
}  # fmt: skip


def test_everything_public_shows_an_example_that_runs():
    for name in ek.__all__:
        thing = getattr(ek, name)
        text = inspect.getdoc(thing)
        examples = doctest.DocTestParser().get_examples(text)
        assert inspect.ismodule(thing) or "\nExamples\n--------\n" in text, name
        assert [one for one in examples if name in NEEDS_MORE or not one.options.get(doctest.SKIP)], name
    without = {name.partition(".")[::2] for name, thing in documented() if ">>> " not in (inspect.getdoc(thing) or "")}
    assert without == {(thing, method) for thing, methods in WITHOUT_EXAMPLE.items() for method in methods.split()}


WITHOUT_EXTRAS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pandas", "pooch", "matplotlib", "seaborn"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import importlib
import exprkit as ek
for use in (
    lambda: ek.bench, lambda: ek.data.nikuradse(), lambda: ek.data.thesis_samples(),
    lambda: importlib.import_module("exprkit.study.plots"), lambda: ek.parse("x1").texts(),
):
    try:
        print(use())
    except ImportError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_missing_extra_is_one_line_with_the_command_that_mends_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, cwd=ROOT, check=True)
    whole = '(or, in exprkit\'s folder, pip install ".[notebooks]" for all that this part needs)'
    wanted = [f"{name} is not installed: pip install {name} {whole}"
              for name in ("pandas", "pooch", "pandas", "matplotlib")]  # fmt: skip
    assert done.stdout.splitlines() == [*wanted, "['x1']"]


EXTRAS = {"ipywidgets", "matplotlib", "pandas", "papermill", "pooch", "seaborn", "sklearn", "threadpoolctl", "xarray"}


def is_guard(node):
    """Whether imports inside the statement may fail."""
    heads = [item.context_expr for item in node.items] if isinstance(node, ast.With) else [getattr(node, "test", None)]
    words = " ".join(ast.unparse(head) for head in heads if head)
    return isinstance(node, ast.Try) or "brought_by" in words or "TYPE_CHECKING" in words


def test_what_an_extra_brings_is_imported_where_an_error_says_so():
    guarded = {
        inner
        for node, _ in nodes()
        if isinstance(node, ast.With | ast.If | ast.Try) and is_guard(node)
        for inner in ast.walk(node)
    }
    for node, place in nodes():
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in guarded:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not {name.partition(".")[0] for name in names} & EXTRAS, f"{place}: with brought_by(…)"


def test_make_installs_what_its_notebooks_import():
    makefile = (ROOT / "Makefile").read_text()
    assert "'.[notebooks,search$(EXTRA)]'" in makefile and "$(LAB_ARGS)" in makefile


def test_benchmark_and_lab_start_without_make(monkeypatch, capsys, tmp_path):
    started = []

    def run(command, **options):
        started.append(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(ROOT)
    assert main(["benchmark", "--results", str(tmp_path / "new")]) == 3  # the exit code of what was started
    assert started[0][1:3] == ["-m", "papermill"] and (tmp_path / "new").is_dir()
    monkeypatch.delattr(os, "geteuid", raising=False)  # as on Windows
    assert main(["lab", "--port=8889", "--no-browser"]) == 3
    assert started[1][1:3] == ["-m", "jupyterlab"] and started[1][-2:] == ["--port=8889", "--no-browser"]
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert main(["lab"]) == 1 and "lab --allow-root" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["benchmark", "--port=8889"])
    monkeypatch.chdir(tmp_path)
    assert main(["benchmark"]) == 1 and "checkout" in capsys.readouterr().err
    assert len(started) == 2


@pytest.mark.parametrize(("module", "package"), [("sklearn.base", "scikit-learn"), ("yaml", "pyyaml")])
def test_a_missing_package_is_called_by_the_name_that_pip_installs(module, package):
    with pytest.raises(MissingError, match=rf"pip install {package} \("), brought_by("search"):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
