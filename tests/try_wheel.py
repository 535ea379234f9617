"""Builds the wheel for this Python, or takes one, and tries it as a user would: in a bare environment, elsewhere.

    python tests/try_wheel.py                # builds it in dist/, which compiles for minutes
    python tests/try_wheel.py dist/NAME.whl

Needs Python alone.  Checked are the metadata, by twine, what the wheel requires, by ``pip check``, and the README's
examples but those of a GPU's compiler: that they print what stands there and, where machine code came with the wheel,
compile nothing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
NEEDS_COMPILER = "compile_ptx"


def environment(folder):
    """The Python of a new environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def call(python, *arguments):
    """Runs a module of an environment, which has to succeed."""
    print("$ python -m", *arguments, flush=True)
    subprocess.run([python, "-m", *map(str, arguments)], check=True)


def wheel(python, place):
    """The wheel of this checkout, built and put into dist/."""
    begin = time.perf_counter()
    call(python, "pip", "wheel", "--no-deps", "-w", place, ROOT)
    (path,) = place.glob("*.whl")
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, built in {time.perf_counter() - begin:.0f} s", flush=True)
    (ROOT / "dist").mkdir(exist_ok=True)
    return Path(shutil.copy(path, ROOT / "dist"))


def run_example(python, place, code, expected):
    """Runs an example in a folder where nothing is compiled yet."""
    begin = time.perf_counter()
    cache = Path(tempfile.mkdtemp(dir=place))
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables |= {"EXPRKIT_CACHE_DIR": str(cache), "PYTHONUTF8": "1"}
    away = "import exprkit; assert 'site-packages' in exprkit.__file__, exprkit.__file__\n"
    printed = subprocess.run(
        [python, "-c", away + code], cwd=place, env=variables, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout
    if printed.split() != expected.split():
        sys.exit(f"printed:\n{printed}\nin README.md:\n{expected}")
    compiled, shown = list(cache.iterdir()), code.strip().splitlines()[-1]
    print(f"{time.perf_counter() - begin:.1f} s, {len(compiled)} compiled: {shown}", flush=True)
    return compiled


def main(path=None):
    """Tries a wheel, in a folder that is removed again."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tools, user = environment(place / "tools"), environment(place / "user")
        path = Path(path).resolve() if path else wheel(tools, place)
        call(tools, "pip", "install", "--quiet", "twine")
        call(tools, "twine", "check", "--strict", path)
        call(user, "pip", "install", "--quiet", f"{path}[search]")
        call(user, "pip", "check")
        (place / "data").mkdir()
        shutil.copy(ROOT / "data" / "planets.csv", place / "data")
        examples = EXAMPLE.findall((ROOT / "README.md").read_text(encoding="utf-8"))
        compiled = [run_example(user, place, *example) for example in examples if NEEDS_COMPILER not in example[0]]
        if any(compiled) and not path.stem.endswith("none-any"):
            sys.exit("the wheel lacks machine code of these examples")


if __name__ == "__main__":
    main(*sys.argv[1:])
