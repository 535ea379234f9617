"""Functions in C, MATLAB, Julia and Excel: compiled and run where that can be done, else read."""

from __future__ import annotations

import ctypes
import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from scipy import special

import exprkit as ek
from exprkit.errors import ArgumentError, OperandError, ParseError
from exprkit.operators import ops

CC = shutil.which("cc") or shutil.which("gcc")
AWKWARD = np.array([0.0, 1, -1, 0.3, -0.3, 2.5, -2.5, 0.5, -1.5, 20.5, np.inf, -np.inf, np.nan])
A, B = (side.ravel() for side in np.meshgrid(AWKWARD, AWKWARD))
LONG = (
    "-(x1^2) / (2.5 * exp(-x2) - (3 - x1)) + logistic(x1) * cond(x1, 1 / x2) - -1.5 * -(x1 - x2) - (x1 + 2 ^ -x2 ^ 2)"
)
POINTS = np.random.default_rng(0).uniform(0.1, 3, (20, 2))
# of Excel's functions, in NumPy
EXCEL = {
    "POWER": np.power, "ABS": np.abs, "SIGN": np.sign, "SQRT": np.sqrt, "EXP": np.exp, "LN": np.log, "LOG10": np.log10,
    "LOG": lambda a, b: np.log(a) / np.log(b), "SIN": np.sin, "COS": np.cos, "TAN": np.tan, "ASIN": np.arcsin,
    "ACOS": np.arccos, "ATAN": np.arctan, "SINH": np.sinh, "COSH": np.cosh, "TANH": np.tanh, "ASINH": np.arcsinh,
    "ACOSH": np.arccosh, "ATANH": np.arctanh, "MIN": np.fmin, "MAX": np.fmax, "INT": np.floor, "MOD": np.mod,
    "ATAN2": lambda x, y: np.arctan2(y, x), "ERF": special.erf, "ERFC": special.erfc, "GAMMA": special.gamma,
    "GAMMALN": special.gammaln, "IF": np.where, "AND": np.logical_and, "OR": np.logical_or,
}  # fmt: skip


def of_row(row):
    return ek.parse(f"{row.name}(x1)" if row.arity == 1 else f"{row.name}(x1, x2)")[0]


def excel(formula, X):
    """What a formula gives: its functions are called by Python, which has the same infix signs."""
    assert re.fullmatch(r"=[A-Z0-9 .,()+\-*/<>=e]+", formula)
    return eval(formula[1:].replace(" = ", " == "), {**EXCEL, "A2": X[:, 0], "B2": X[:, 1]})  # the test's own text


def test_c_gives_what_exprkit_gives(tmp_path):
    if CC is None:
        pytest.skip("no C compiler is installed")
    able = [row for row in ops.OPERATORS if ops.ELSEWHERE.get(row.name, ("",) * 4)[0] is not None]
    expressions = [*map(of_row, able), ek.parse(LONG)[0]]
    for k, one in enumerate(expressions):
        text = one.code("c").replace("double f(", f"double f{k}(").replace("static double ", f"static double s{k}_")
        for row in able:  # the same helper may be in several
            text = re.sub(rf"(?<![\w]){row.name}_\(", f"s{k}_{row.name}_(", text)
        (tmp_path / f"f{k}.c").write_text(text)
    library = tmp_path / "all.so"
    names = [str(tmp_path / f"f{k}.c") for k in range(len(expressions))]
    whole = tmp_path / "all.c"
    whole.write_text("".join(f'#include "{name}"\n' for name in names))
    subprocess.run([CC, "-std=c99", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, whole, "-lm"], check=True)
    loaded, X = ctypes.CDLL(str(library)), np.column_stack([A, B])
    for k, one in enumerate(expressions):
        f = loaded[f"f{k}"]
        f.restype = ctypes.c_double
        got = np.array([f((ctypes.c_double * 2)(*row)) for row in X])
        with np.errstate(all="ignore"):
            expected = ek.Evaluator(ek.parse([one]), X, "numpy", dtype="float64").evaluate()[0]
        if one == of_row(ops.BY_NAME["gamma"]):
            got[X[:, 0] == -np.inf] = expected[X[:, 0] == -np.inf]
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15, err_msg=str(one))


def test_formulas_of_excel_give_what_exprkit_gives():
    for row in ops.OPERATORS:
        if ops.ELSEWHERE.get(row.name, ("",) * 4)[3] is None:
            continue
        X = np.random.default_rng(row.code).uniform(*np.transpose((*row.domain, (-3, 3))[:2]), (50, 2))
        got, expected = excel(of_row(row).code("excel"), X), of_row(row)(X)
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12, err_msg=row.name)
    np.testing.assert_allclose(excel(ek.parse(LONG)[0].code("excel"), POINTS), ek.parse(LONG)[0](POINTS))
    halves = np.column_stack([np.arange(-3, 3, 0.5)] * 2)
    assert excel(ek.parse("round(x1)")[0].code("excel"), halves).tolist() == np.rint(halves[:, 0]).tolist()


@pytest.mark.parametrize(("language", "command"), [("matlab", "octave"), ("julia", "julia")])
def test_what_cannot_be_run_here_is_read(language, command, tmp_path):
    expressions = [of_row(row) for row in ops.OPERATORS if ops.ELSEWHERE.get(row.name, ("",) * 4)[1] is not None]
    for one in (*expressions, ek.parse(LONG)[0]):
        text = one.code(language)
        code = "".join(line for line in text.splitlines(keepends=True) if line[0] not in "#%")
        assert code.count("(") == code.count(")") and "x1" not in code and "{" not in code, text
        known = re.findall(r"function y = (\w+)\(|^(\w+)\(", code, re.MULTILINE)
        helpers = {name for pair in known for name in pair if name} - {"f"}
        assert helpers == {name for name in re.findall(r"(\w+_)\(", code)}, "each is called, and each is there"
    if shutil.which(command) is None:
        pytest.skip(f"{command} is not installed: its text was read, not run")
    numbers = ", ".join(map(repr, POINTS[0].tolist()))
    shown = f"printf('%.17g', f([{numbers}]))" if language == "matlab" else f"print(f([{numbers}]))"
    (tmp_path / "f.m").write_text(f"1;\n{text}\n{shown}\n")
    done = subprocess.run([command, str(tmp_path / "f.m")], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(ek.parse(LONG)[0](POINTS)[0])


def test_names_of_columns_never_become_code():
    name = '*/ ??/ \\ "; system("x") // #{x}'
    one = ek.parse(f"`{name}` + 1", variables=[name])[0]
    for language in ("c", "matlab", "julia"):
        lines = one.code(language).splitlines()
        comments = [line for line in lines if line[:1] in "/%#" and not line.startswith("#include")]
        assert not re.search(r"[\\\"?;#{}]", "".join(line.lstrip("/%# ") for line in comments)), comments
        assert "system" not in "".join(line for line in lines if line not in comments)
    assert one.code("excel") == "=A2 + 1.0"


def test_numbers_and_what_is_lacking():
    assert "x[0] - INFINITY" in ek.parse("x1 - inf")[0].code("c")
    assert ek.parse("x28")[0].code("excel") == "=AB2"
    assert "zeros(size(X, 1), 1)" in ek.parse("3")[0].code("matlab")
    name, other = "half_of(a) = a / 2", ek.parse("p1 * x1")[0]
    ek.operator(name)
    assert ek.parse("half_of(x1)")[0].code("excel") == "=A2 / 2.0"
    for work, message, error in (
        (lambda: other.code("c"), "a parameter has no number yet", OperandError),
        (lambda: other.code("rust"), "language must be one of 'c', 'matlab', 'julia', 'excel'", ArgumentError),
        (lambda: ek.parse("digamma(x1)")[0].code("c"), "c has no function for 'digamma'", OperandError),
        (lambda: ek.parse("x1 + inf")[0].code("excel"), "excel has no number inf", OperandError),
        (lambda: ek.parse(["("], errors="mask")[0].code("c"), "could not be read", ParseError),
        (lambda: ek.parse(" + ".join(["x1"] * 3000))[0].code("excel"), "at most 8,192 characters", OperandError),
    ):
        with pytest.raises(error, match=message):
            work()
    fitted = ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.1])[0]
    assert float(re.search(r"return (.*) \*", fitted.code("c"))[1]) == pytest.approx(fitted.params[0], rel=math.ulp(1))
