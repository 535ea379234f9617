"""Hook of hatchling, which builds the wheel: compiles loops and GPU kernels, puts their machine code into the package.

Every feature is used once for one level of processors (``python -m exprkit warm``); what that has compiled is compiled
for the other levels without being run; a process a core.  Editable installations and source distributions get none.

    >>> from exprkit.build_hook import chosen
    >>> chosen("x86-64-v3,x86-64-v4"), chosen("none"), chosen("")
    (['x86-64-v3', 'x86-64-v4'], [], None)

====================  ==============================================================================
EXPRKIT_SHIP_LOOPS    levels of ``shipped.LEVELS``, the first of which this machine has; "none": the wheel is without
                      machine code and for every system; by default the best level of this machine
EXPRKIT_SHIP_KERNELS  GPU architectures ("sm_80,sm_90"), which need no GPU here, but NVRTC in the environment of pip,
                      where its libraries are sought even if pip builds in one of its own; by default none
====================  ==============================================================================
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # only who builds a wheel has it
    BuildHookInterface = object

LEVELS, ARCHITECTURES = "EXPRKIT_SHIP_LOOPS", "EXPRKIT_SHIP_KERNELS"
COMPILE = """
import pathlib, sys
from exprkit import warm_up
warm_up.compile_for(sys.argv[1], [pathlib.Path(entry) for entry in sys.argv[2:]])
"""


def chosen(levels: str) -> list[str] | None:
    """The levels that the environment names; None: the best one of this machine."""
    return [] if levels == "none" else levels.split(",") if levels else None


class LoopsHook(BuildHookInterface):
    """What hatchling calls."""

    def dependencies(self) -> list[str]:
        """What building needs: all that the features do, and the Numba that is installed where the wheel may go."""
        architectures = chosen(os.environ.get(ARCHITECTURES, "")) or []
        if chosen(os.environ.get(LEVELS, "")) == [] == architectures:
            return []
        project, installed = self.metadata.core, metadata.distributions(path=[sysconfig.get_path("purelib")])
        same = [f"{there.name}=={there.version}" for there in installed if there.name in ("numba", "llvmlite")]
        cuda = ["cuda-core>=1", "cuda-bindings==12.*"] if architectures else []  # they call NVRTC 12 and 13
        return [*project.dependencies, *project.optional_dependencies["search"], *same, *cuda]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds an archive for each level to the wheel, whose tag becomes that of Numba's wheel, and for each GPU."""
        if version == "editable":
            return
        self.place = tempfile.mkdtemp()
        root, place, levels = Path(self.root), Path(self.place), chosen(os.environ.get(LEVELS, ""))
        paths = kernel_archives(root, place, chosen(os.environ.get(ARCHITECTURES, "")) or [])
        paths += archives(root, place, levels) if levels != [] else []
        for path in paths:
            build_data["force_include"][str(path)] = f"exprkit/runtime/shipped/{path.name}"
        if levels == []:
            return
        tags = re.findall(r"^Tag: (\S+)", metadata.distribution("numba").read_text("WHEEL") or "", re.MULTILINE)
        build_data |= {"pure_python": False, **({"tag": tags[-1]} if tags else {"infer_tag": True})}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was compiled."""
        shutil.rmtree(getattr(self, "place", ""), ignore_errors=True)


def archives(root: Path, place: Path, levels: list[str] | None, features: Sequence[str] = ()) -> list[Path]:
    """The archives of levels, compiled from the package in ``root`` and written to ``place``; by default of all."""
    sys.path.insert(0, str(root))
    from numba.core.registry import cpu_target

    from exprkit import warm_up
    from exprkit.runtime import disk_cache, machine, shipped

    cores = machine.cores()
    here = shipped.levels(cpu_target.target_context.codegen().magic_tuple())
    first, *others = here[:1] if levels is None else sorted(levels, key=lambda level: level not in here)
    if first not in here:
        raise SystemExit(
            f"{LEVELS}: this machine has {', '.join(here) or 'none of the levels'}; none: leaves loops out"
        )
    paths = []
    for level in (first, *others):
        loops, kernels = (place / f"{kind}-{level}" for kind in ("compiled", "kernels"))
        entries = sorted(place.glob(f"compiled-{first}/*{disk_cache.LOOP}"))
        again = [["-c", COMPILE, level, *map(str, entries[k::cores])] for k in range(min(cores, len(entries)))]
        warm = [["-m", "exprkit", "warm", "--for", ",".join(features or warm_up.ON_CPU)]]
        environment = _environment(root) | {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
        commands = [(kernels, ["-c", COMPILE, level]), *((loops, command) for command in again or warm)]
        processes = [
            subprocess.Popen([sys.executable, *command], cwd=root, env=environment | {"EXPRKIT_CACHE_DIR": str(folder)})
            for folder, command in commands
        ]
        if any([process.wait() for process in processes]):
            raise SystemExit(f"the loops could not be compiled for {level}; {LEVELS}=none leaves them out")
        paths.append(place / shipped.file_name(level))
        shipped.pack([*loops.glob(f"*{disk_cache.LOOP}"), *kernels.glob(f"*{disk_cache.KERNEL}")], paths[-1])
    return paths


def _environment(root: Path) -> dict[str, str]:
    """Variables of a process that compiles the package in ``root``."""
    places = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": places, "EXPRKIT_CACHE_BYTES": ""}


def kernel_archives(root: Path, place: Path, architectures: Sequence[str]) -> list[Path]:
    """The archives of GPU architectures, compiled from the package in ``root`` and written to ``place``."""
    if not architectures:
        return []
    sys.path.insert(0, str(root))
    from exprkit.backends.gpu import nvrtc
    from exprkit.runtime import disk_cache, shipped

    paths = []
    for architecture in architectures:
        folder = place / architecture
        command = [sys.executable, "-m", "exprkit", "warm", "--for", architecture]
        variables = _environment(root) | {"EXPRKIT_CACHE_DIR": str(folder)}
        if subprocess.run(command, cwd=root, env=variables).returncode:
            raise SystemExit(f"{ARCHITECTURES}: the kernels could not be compiled for {architecture}")
        paths.append(place / shipped.file_name(architecture, "kernels"))
        shipped.pack(folder.glob(f"*{disk_cache.KERNEL}"), paths[-1], nvrtc.compiler_version())
    return paths
