"""scikit-learn's checks of an estimator, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys

CHECKS = """
import warnings
warnings.simplefilter("ignore")
from sklearn.utils.estimator_checks import check_estimator
import exprkit as ek
for check in check_estimator(ek.{model}, on_skip=None, on_fail=None):
    print(check["check_name"], check["status"], check["exception"] or "")
"""


def failed_checks(model: str) -> list[str]:
    """A line for each check that fails or is skipped; ``model``: the call that makes the estimator."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}  # without it one check is skipped
    command = [sys.executable, "-c", CHECKS.format(model=model)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    checks = done.stdout.splitlines()
    assert len(checks) >= 50
    return [line for line in checks if line.split()[1] != "passed"]
