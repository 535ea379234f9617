"""scikit-learn's checks of an estimator, in a process of their own; a search of few stages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKS = """
import warnings
warnings.simplefilter("ignore")
from sklearn.utils.estimator_checks import check_estimator
import exprkit as ek
from estimator_checks import few_turns
from exprkit.regression.stages import discovery
discovery.ORDER = few_turns()
for check in check_estimator(ek.{model}, on_skip=None, on_fail=None):
    print(check["check_name"], check["status"], check["exception"] or "")
"""


def few_turns():
    """Of the search's table of stages five rows, for tests that depend on none: all take eight times as long."""
    from exprkit.regression.stages import discovery, exact, growth, sums

    stages = discovery.begin, exact.join, sums.single, growth.grow_first, sums.regress
    return tuple(turn for turn in discovery.ORDER if turn.stage in stages)


def failed_checks(model: str) -> list[str]:
    """A line for each check that fails or is skipped; ``model``: the call that makes the estimator."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}  # without it one check is skipped
    command = [sys.executable, "-c", CHECKS.format(model=model)]
    folder = Path(__file__).parent
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(folder.parent)])
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    checks = done.stdout.splitlines()
    assert len(checks) >= 50
    return [line for line in checks if line.split()[1] != "passed"]
