"""Checks of a notebook's parameters cell: a misspelt or ill-typed parameter stops the run at once.

papermill runs a notebook's default experiment when a parameter's name is misspelt, and
hands over ``1e4`` as a float and ``[cpu,numpy]`` as a text.  The first cell after the
parameters puts that right or raises:

    from exprkit.study.notebook import check_parameters
    check_parameters(globals())

The cell tagged ``parameters`` declares every parameter with its type: ``n_exprs: int = 10_000``.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from exprkit.errors import ArgumentError, did_you_mean

PLAIN = (bool, int, float, str, list, tuple, dict, type(None))  # what papermill can hand over
CHECKED = "_parameters_checked"
TAG = "parameters"
WORDS = {bool: "True or False", int: "a whole number", float: "a number"}
WORDS |= {str: "a text", list: "a list", dict: "a mapping"}


def check_parameters(namespace: MutableMapping[str, Any]) -> dict[str, Any]:
    """Check a notebook's parameters against their declared types, and look for misspelt ones.

    A whole number that came as a float (``-p n_exprs 1e4``) becomes an int in the
    notebook, an int where a float is declared a float; anything else of another type raises.

    Parameters
    ----------
    namespace
        The notebook's ``globals()``.

    Returns
    -------
    dict
        Every declared parameter with its value.

    Raises
    ------
    ArgumentError
        For a name that the parameters cell does not declare, and for a value of another
        type than the declared one.
    """
    declared = _declared(namespace)
    if not declared:
        raise ArgumentError("no parameters found: declare each as in  n_exprs: int = 10_000  # how many expressions")
    if CHECKED not in namespace:  # later on the notebook's own names are there as well
        _check_names(namespace, declared)
    for name, kind in declared.items():
        namespace[name] = _converted(name, namespace[name], kind)
    namespace[CHECKED] = True
    return {name: namespace[name] for name in declared}


def code_of(notebook: str | Path) -> list[str]:
    """The texts of a notebook's code cells, the one tagged ``parameters`` first."""
    try:
        cells = json.loads(Path(notebook).read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"{notebook} is no notebook that can be read: {error}") from None
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    is_tagged = [TAG in cell.get("metadata", {}).get("tags", []) for cell in code]
    if sum(is_tagged) != 1:
        raise ArgumentError(f"{notebook} needs one cell tagged {TAG!r}, and has {sum(is_tagged)}")
    code.insert(0, code.pop(is_tagged.index(True)))
    return ["".join(cell["source"]) for cell in code]


def defaults(notebook: str | Path) -> dict[str, tuple[type, Any]]:
    """Type and default of every parameter that a notebook declares, without running it.

    Raises ArgumentError if it has no cell tagged ``parameters``, or one that holds anything but lines such as
    ``n_exprs: int = 10_000``.
    """
    kinds = {kind.__name__: kind for kind in WORDS}
    parameters = {}
    for node in ast.parse(code_of(notebook)[0]).body:
        match node:
            case ast.AnnAssign(ast.Name(name), ast.Name(kind), ast.expr() as value) if kind in kinds:
                parameters[name] = kinds[kind], ast.literal_eval(value)
            case _:
                raise ArgumentError(f"{notebook}: line {node.lineno} of its parameters is no  name: type = value")
    return parameters


def checked(declared: Mapping[str, tuple[type, Any]], values: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters that ``defaults`` found, ``given`` in place of some; raises as ``check_parameters`` does."""
    _check_names(dict(values), {name: kind for name, (kind, _) in declared.items()}, every=True)
    return {name: _converted(name, values.get(name, value), kind) for name, (kind, value) in declared.items()}


def _declared(namespace: MutableMapping[str, Any]) -> dict[str, type]:
    annotations = namespace.get("__annotations__")
    if annotations is None:  # from Python 3.14 on they are made when the module is asked for them
        annotations = getattr(sys.modules.get(namespace.get("__name__", "")), "__annotations__", {})
    return dict(annotations)


def _check_names(namespace: MutableMapping[str, Any], declared: dict[str, type], every: bool = False) -> None:
    for name, value in namespace.items():
        name = str(name)  # a study's YAML may hold others
        of_jupyter = name.startswith("_") or name in ("In", "Out") or not isinstance(value, PLAIN)
        if name in declared or (of_jupyter and not every):
            continue
        hint = did_you_mean(name, declared) or f"; there are {', '.join(declared)}"
        raise ArgumentError(f"there is no parameter {name!r}{hint}")


def _converted(name: str, value: Any, kind: type) -> Any:
    if type(value) is kind:
        return value
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is float and type(value) is int:
        return float(value)
    came = f"{value!r} ({type(value).__name__})"
    raise ArgumentError(f"{name} must be {WORDS.get(kind, kind)}, not {came}{_hint(name, value, kind)}")


def _hint(name: str, value: Any, kind: type) -> str:
    """The papermill option that was probably meant."""
    if not isinstance(value, str):
        return ""
    if kind is bool:
        return f"; with papermill: -p {name} {value.lower() == 'true'}"
    if kind is list:
        return f"; with papermill: -y '{{{name}: [{value.strip('[]()')}]}}'"
    return ""
