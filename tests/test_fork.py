"""Processes that are forked while other threads work, and threads that are not left behind."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

FORKING = """
import os, signal, threading, time
import numpy as np, exprkit as ek
from exprkit.operators import ops
from exprkit.backends.cpu import kernels as cpu_kernels
from exprkit.runtime import disk_cache
from exprkit.runtime.jit import compiled

X = np.ones((5, 1))
LATER = ["sinh", "cosh", "add", "mul"]
ek.Evaluator(ek.parse("x1"), X, backend="cpu").evaluate()
disk_cache.read, compiling = lambda *where: None, []  # everything is made anew

def kernels():
    for dtype, precision in ("float32", "ieee"), ("float64", "ieee"), ("float32", "fast"), ("float64", "fast"):
        for row in ops.OPERATORS:
            if row.name not in LATER and len(children) < 8:
                cpu_kernels.kernels(dtype, precision).table([(row.code, cpu_kernels.VV), (row.code, cpu_kernels.UU)])

def loops():
    while compiling[0].is_alive():
        compiled(lambda a: a + 1)(1)

def child():
    signal.alarm(60)  # ends a process that hangs
    values = ek.Evaluator(ek.parse("x1 + sinh(x1) * cosh(x1)"), X, backend="cpu").evaluate()
    os._exit(not np.allclose(values, 1 + np.sinh(1) * np.cosh(1)) or compiled(lambda a: a + 2)(1) != 3)

children = []
compiling += [threading.Thread(target=kernels), threading.Thread(target=loops)]
for thread in compiling:
    thread.start()
while compiling[0].is_alive() and len(children) < 8:
    time.sleep(0.02)
    children.append(os.fork() or child())
print([os.waitpid(pid, 0)[1] for pid in children])
for thread in compiling:
    thread.join()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_while_other_threads_compile_does_not_hang():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, timeout=300)
    ends = ast.literal_eval(done.stdout or done.stderr)
    assert ends and set(ends) == {0}  # how many there are depends on the machine
