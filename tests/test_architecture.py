"""ARCHITECTURE.md: what its diagrams name exists, and those that can be made from the code are."""

from __future__ import annotations

import ast
import importlib
import itertools
import re

from test_project import ENGINE, LAB, MODULES, ROOT, SEARCHES, tree_of

from exprkit.backends.gpu import layout

PAGE = (ROOT / "exprkit" / "ARCHITECTURE.md").read_text(encoding="utf-8")
DIAGRAMS = re.findall(r"```mermaid\n(.*?)```", PAGE, re.DOTALL)
PATH = re.compile(r"\b(?:[a-z_]+\.)+[A-Za-z_]+\b")
OF_A_ROW = 6  # folders beside each other


def object_of(path):
    """What a dotted path below exprkit is; raises where there is nothing."""
    parts = path.split(".")
    place = max((n for n in range(1, len(parts) + 1) if ".".join(["exprkit", *parts[:n]]) in MODULES), default=0)
    assert place, f"{path}: there is no such module"
    found = importlib.import_module(".".join(["exprkit", *parts[:place]]))
    for name in parts[place:]:
        found = getattr(found, name)
    return found


def paths_in(diagram):
    return [path for path in PATH.findall(diagram) if path.split(".")[0] in (*ENGINE, *SEARCHES, *LAB)]


def test_every_module_class_and_function_that_is_named_exists():
    assert len(DIAGRAMS) == 5
    for diagram in DIAGRAMS:
        for path in paths_in(diagram):
            object_of(path)
    assert sum(len(paths_in(diagram)) for diagram in DIAGRAMS) > 40


def test_memory_is_that_of_the_kernels_arguments():
    boxes = re.findall(r"(\w+)\[\"(\w+)[<\"]", DIAGRAMS[1].partition("subgraph global")[2])
    assert {box for _, box in boxes} <= layout.Arguments.names and len(boxes) >= 10


def test_a_step_calls_methods_and_kernels_that_there_are():
    participants = dict(re.findall(r"participant (\w+) as ([\w.]+)", DIAGRAMS[2]))
    kernels = {name for path in (ROOT / "exprkit").rglob("*.cu")
               for name in re.findall(r"(\w+)\(const \w+ args\)", path.read_text())}  # fmt: skip
    for to, name in re.findall(r"\w->>(\w+): (\w+)[(:,]", DIAGRAMS[2]):
        if to == "gpu":
            assert name in kernels
        elif f": {name}." not in DIAGRAMS[2]:
            assert hasattr(object_of(participants[to]), name), (to, name)


def makes_an_evaluator(module):
    return any(isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Evaluator"
               for node in ast.walk(tree_of(MODULES[module])))  # fmt: skip


def test_every_module_of_the_searches_that_makes_an_evaluator_is_drawn():
    drawn = {f"exprkit.{path}" for path in paths_in(DIAGRAMS[3])}
    searches = [name for name in MODULES if name.split(".")[1:2] in (["search"], ["regression"])]
    assert {name for name in searches if makes_an_evaluator(name)} <= drawn


def layers():
    """Mermaid's text of the layers, in rows."""
    lines, rows = ["flowchart TB"], itertools.count()
    for title, folders in (("engine", ENGINE), ("searches", SEARCHES), ("lab", LAB)):
        lines += [f"  subgraph {title}", "    direction TB"]
        before = ""
        for begin in range(0, len(folders), OF_A_ROW):
            row = f"row{next(rows)}"
            boxes = [f'{name.replace(".", "_")}["{name}"]' for name in folders[begin : begin + OF_A_ROW]]
            lines += [f'    subgraph {row} [" "]', "      direction LR", f"      {' --> '.join(boxes)}", "    end"]
            lines += [f"    {before} --> {row}"] if before else []
            before = row
        lines.append("  end")
    return "\n".join([*lines, "  engine --> searches --> lab", ""])


def test_the_layers_are_those_that_are_enforced():
    assert DIAGRAMS[4] == layers(), f"put this into ARCHITECTURE.md:\n{layers()}"
