"""Machine code of loops on disk: never stale, and never in the way."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

from exprkit import compiled

PROGRAM = """
import numpy as np, exprkit as ek
print(ek.Evaluator(ek.parse("x1 + p1"), np.ones((2, 1)), backend="cpu").evaluate([[1]]).tolist())
"""


def run(cache):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env={**os.environ, "EXPRKIT_CACHE_DIR": cache}
    )


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path):
    path = tmp_path / "a file"
    path.write_text("")
    done = run(str(path / "cache"))
    assert done.stdout == "[[2.0, 2.0]]\n"
    assert done.stderr.count("RuntimeWarning") == 1 and "EXPRKIT_CACHE_DIR names another folder" in done.stderr


def test_loops_are_kept_where_the_user_says(tmp_path):
    assert run(str(tmp_path)).stdout == "[[2.0, 2.0]]\n"
    (loops,) = tmp_path.glob("loops-*")
    kept = {path: path.stat().st_mtime_ns for path in loops.rglob("*.nb?")}
    assert kept and run(str(tmp_path)).stdout == "[[2.0, 2.0]]\n"
    assert kept == {path: path.stat().st_mtime_ns for path in loops.rglob("*.nb?")}


def test_another_version_of_a_shared_module_has_another_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled.objects, "folder", lambda: tmp_path)
    places = []
    for shared in (compiled.SHARED, compiled.SHARED[1:]):  # as if the text of one were another
        monkeypatch.setattr(compiled, "SHARED", shared)
        compiled.folder.cache_clear()
        places.append(compiled.folder())
    compiled.folder.cache_clear()
    assert places[0] != places[1]


def test_only_the_newest_folders_stay(tmp_path):
    for age in range(12):
        (tmp_path / f"loops-{age}").mkdir()
        os.utime(tmp_path / f"loops-{age}", (100 - age, 100 - age))
    compiled._remove_oldest(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"loops-{age}" for age in range(1 + compiled.KEPT)}


def test_shared_modules_are_all_that_compiled_loops_draw_upon(root):
    """What a module with compiled loops imports from exprkit is shared, or has nothing that could be compiled in."""
    harmless = {"exprkit.errors", "exprkit.machine"}
    shared = {f"exprkit.{name.replace('/', '.')}" for name in compiled.SHARED}
    users = 0
    for path in (root / "exprkit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "@compiled" not in text or path.stem == "compiled":
            continue
        users += 1
        for node in ast.parse(text).body:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("exprkit"):
                for alias in node.names:
                    assert {node.module, f"{node.module}.{alias.name}"} & (shared | harmless), f"{path}: {alias.name}"
    assert users > 5
