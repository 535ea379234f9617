"""Translation of compiled Python loops to CUDA C, so that host and device prepare a population with the same source.

In: functions as ``runtime.jit`` compiles them.  Out: their text and that of all functions they call.

    >>> from exprkit.backends.device_programs.translate import cuda_text
    >>> from exprkit.expressions.rewrite import is_uniform
    >>> print(cuda_text([is_uniform], {}))
    template <class A, class Graph> INLINE Long is_uniform(A a, Graph graph)
    {
        Bare<decltype(graph.group.get(a))> group;
        group = graph.group.get(a);
        return Long((group == Long(0) || group == Long(2) || group == Long(4)));
    }

What stands behind the lines, plainly:

    a name              a local variable, of the type of what it is first set to; all are declared at the beginning
    a whole number      int64, as in compiled loops, except uint64; constants of modules become literals
    a parameter         of any type: a number, or a bag, whose arrays have ``get`` and ``set`` (arrays.cu)
    a result            a whole number, or what the function is annotated with: ``float`` or ``np.uint64``
    several results     ``Several<n>``, whole numbers
    len(tokens.kinds)   ``tokens.kinds.length()``
    a.view(np.uint64)   the bits of a number, and the number of bits

A line in other words than these is an error of this module, which says which line.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from exprkit.backends.gpu import opcodes

_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<",
    ast.RShift: ">>", ast.FloorDiv: "/", ast.Mod: "%",  # the last two of numbers that are not negative
}  # fmt: skip
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_UNARY = {ast.Not: "!", ast.USub: "-", ast.Invert: "~"}
_FUNCTIONS = {
    abs: "absolute",
    max: "larger",
    min: "smaller",
    int: "Long",
    np.int64: "Long",
    np.uint64: "Bits",
    np.float64: "double",
}
_RESULTS = {"float": "double", "np.uint64": "Bits"}  # by annotation
_VIEWS = {"float64": "number_of", "uint64": "bits_of"}
_RESERVED = {"const", "char", "auto", "default", "switch", "case", "register", "this", "template", "struct", "union",
             "new", "delete", "double", "float", "int", "long", "short", "signed", "unsigned", "void"}  # fmt: skip


def cuda_text(functions: Iterable[Callable[..., Any]], instead: Mapping[str, str], unrolled: bool = False) -> str:
    """The text of functions and of all that they call, callees first.

    ``instead``: text of its own, by name; ``unrolled``: loops over numbers are.
    """
    texts: dict[str, str] = dict(instead)
    for function in functions:
        _add(_plain(function), texts, unrolled)
    return "\n\n".join(text for name, text in texts.items() if text)


def text_of(
    file: str | Path,
    functions: Iterable[Callable[..., Any]],
    instead: Mapping[str, str] | None = None,
    cases: Mapping[str, str] | None = None,
    head: tuple[str, ...] = ("gpu/common.cu",),
) -> str:
    """The CUDA C of a file, one of this folder if it is only a name, with functions in place of ``//{translated}``."""
    parts = {"arrays": arrays_text(), "translated": cuda_text(functions, instead or {}), **(cases or {})}
    return opcodes.joined((*head, str(Path(__file__).parent / file)), parts)


def arrays_text() -> str:
    """The CUDA C that translated functions are written in."""
    return (Path(__file__).parent / "arrays.cu").read_text()


def _plain(function: Any) -> Any:
    return getattr(function, "py_func", function)


def _add(function: Any, texts: dict[str, str], unrolled: bool) -> None:
    if function.__name__ in texts:
        return
    writer = _Writer(function, unrolled)
    text = writer.text()
    for callee in writer.callees:
        _add(callee, texts, unrolled)
    texts[function.__name__] = text


class _Writer:
    """One function's text."""

    def __init__(self, function: Any, unrolled: bool) -> None:
        self.function, self.globals, self.unrolled = function, function.__globals__, unrolled
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(definition, ast.FunctionDef)
        self.definition = definition
        self.parameters = [argument.arg for argument in self.definition.args.args]
        self.locals: dict[str, str] = {}  # type by name, in the order of their first lines
        self.callees: list[Any] = []
        self.n_several = 0
        self.result = _RESULTS.get(ast.unparse(definition.returns) if definition.returns else "", "Long")

    def text(self) -> str:
        body = self.definition.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        lines = self._block(body)
        results = [node.value for node in ast.walk(self.definition) if isinstance(node, ast.Return) and node.value]
        counts = {len(value.elts) if isinstance(value, ast.Tuple) else 1 for value in results}
        kind = "void" if not counts else self.result if counts == {1} else f"Several<{counts.pop()}>"
        types = ", ".join(f"class {_type(name)}" for name in self.parameters)
        parameters = ", ".join(f"{_type(name)} {safe(name)}" for name in self.parameters)
        head = f"template <{types}> INLINE {kind} {self.definition.name}({parameters})"
        declared = [f"    {kind} {name};" for name, kind in self.locals.items()]
        return "\n".join([head, "{", *declared, *lines, "}"])

    # ── statements ──

    def _block(self, body: list[ast.stmt], depth: int = 1) -> list[str]:
        return [line for statement in body for line in self._statement(statement, depth)]

    def _statement(self, node: ast.stmt, depth: int) -> list[str]:
        pad = "    " * depth
        match node:
            case ast.Assign(targets=targets, value=value):
                lines = self._assign(targets, value)
            case ast.AugAssign(target=target, op=op, value=value):
                old = ast.BinOp(target, op, value)
                lines = self._assign([target], ast.copy_location(old, node))
            case ast.Return(value=None):
                lines = ["return;"]
            case ast.Return(value=ast.Tuple(elts=values)):
                lines = [f"return {self._several(values)};"]
            case ast.Return(value=value):
                assert value is not None
                lines = [f"return {self.result}({self._value(value)});"]
            case ast.Break():
                lines = ["break;"]
            case ast.Continue():
                lines = ["continue;"]
            case ast.Expr(value=ast.Call() as call):
                lines = [f"{self._value(call)};"]
            case ast.While(test=test, body=body):
                return [f"{pad}while ({self._value(test)}) {{", *self._block(body, depth + 1), f"{pad}}}"]
            case ast.For():
                return [f"{pad}{line}" for line in self._loop(node)] + [*self._block(node.body, depth + 1), f"{pad}}}"]
            case ast.If(test=test, body=body, orelse=orelse):
                lines = [f"{pad}if ({self._value(test)}) {{", *self._block(body, depth + 1)]
                if orelse:
                    lines += [f"{pad}}} else {{", *self._block(orelse, depth + 1)]
                return [*lines, f"{pad}}}"]
            case _:
                raise self._error(node)
        return [pad + line for line in lines]

    def _loop(self, node: ast.For) -> list[str]:
        """The head of a loop over a range or over the values of a tuple."""
        assert isinstance(node.target, ast.Name)
        if node.orelse:
            raise self._error(node)
        name = self._declare(node.target.id, "Long")
        if (elements := self._elements(node.iter)) is not None:
            self.n_several += 1
            several = f"several_{self.n_several}"
            values = ", ".join(f"Long({element})" for element in elements)
            return [
                f"const Long {several}[] = {{{values}}};",
                *["#pragma unroll"] * self.unrolled,
                f"for (Long one_{several} : {several}) {{",
                f"    {name} = one_{several};",
            ]
        if not (isinstance(node.iter, ast.Call) and getattr(node.iter.func, "id", "") == "range"):
            raise self._error(node)
        bounds = [self._value(one) for one in node.iter.args]
        begin, end, step = {1: ["Long(0)", *bounds, "Long(1)"], 2: [*bounds, "Long(1)"], 3: bounds}[len(bounds)]
        self.n_several += 1
        stop, order = f"end_{self.n_several}", ">" if "-" in step else "<"
        turn = f"{name}_{self.n_several}"  # as in Python, the loop goes on whatever becomes of its variable
        return [
            *["#pragma unroll"] * self.unrolled,
            f"for (Long {turn} = {begin}, {stop} = {end}; {turn} {order} {stop}; {turn} += {step}) {{",
            f"    {name} = {turn};",
        ]

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> list[str]:
        """Lines that set one target or several to one value, or each of several to its own."""
        if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
            names, n = targets[0].elts, len(targets[0].elts)
            if isinstance(value, ast.Tuple):
                texts = [self._value(one) for one in value.elts]
                sources = [f"value_{k}" for k in range(n)]
                lines = [f"auto {source} = {text};" for source, text in zip(sources, texts, strict=True)]
            else:
                text = self._value(value)
                texts, sources = ["Long(0)"] * n, [f"values.at[{k}]" for k in range(n)]
                lines = [f"auto values = {text};"]
            lines += [self._set(*one) for one in zip(names, sources, texts, strict=True)]
            return [f"{{ {' '.join(lines)} }}"]
        text = self._value(value)
        if len(targets) == 1:
            return [self._set(targets[0], text, text)]
        sets = " ".join(self._set(target, "value", text) for target in targets)
        return [f"{{ auto value = {text}; {sets} }}"]

    def _set(self, target: ast.expr, source: str, text: str) -> str:
        """Set one target to ``source``; a name has the type of ``text``."""
        match target:
            case ast.Name(id=name):
                return f"{self._declare(name, f'Bare<decltype({text})>')} = {source};"
            case ast.Subscript(value=array, slice=place):
                return f"{self._value(array)}.set({self._places(place)}, {source});"
            case ast.Attribute(value=bag, attr=name):
                return f"{self._value(bag)}.{safe(name)} = {source};"
        raise self._error(target)

    def _declare(self, name: str, kind: str) -> str:
        if name not in self.parameters:
            self.locals.setdefault(safe(name), kind)
        return safe(name)

    # ── values ──

    def _value(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return self._literal(value, node)
            case ast.Name(id=name) if name in self.parameters or safe(name) in self.locals:
                return safe(name)
            case ast.Name() | ast.Attribute() if (value := self._global(node)) is not None:
                return self._literal(value, node)
            case ast.Attribute(value=bag, attr=name):
                return f"{self._value(bag)}.{safe(name)}"
            case ast.Subscript(value=array, slice=place):
                return f"{self._value(array)}.get({self._places(place)})"
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return f"(double({self._value(left)}) / double({self._value(right)}))"
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return f"({self._value(left)} {_BINARY[type(op)]} {self._value(right)})"
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return f"{_UNARY[type(op)]}{self._value(operand)}"
            case ast.BoolOp(op=op, values=values):
                sign = " && " if isinstance(op, ast.And) else " || "
                return f"({sign.join(map(self._value, values))})"
            case ast.Compare(left=left, ops=[ast.In()], comparators=[several]) if elements := self._elements(several):
                one = self._value(left)
                return f"({' || '.join(f'{one} == {element}' for element in elements)})"
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return f"({self._value(left)} {_COMPARE[type(op)]} {self._value(right)})"
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return f"({self._value(test)} ? {self._value(body)} : {self._value(orelse)})"
            case ast.Tuple(elts=values):
                return self._several(values)
            case ast.Call(func=ast.Name(id="len"), args=[array]):
                return f"{self._value(array)}.length()"
            case ast.Call(func=ast.Attribute(value=number, attr="view"), args=[ast.Attribute(attr=kind)]):
                return f"{_VIEWS[kind]}({self._value(number)})"
            case ast.Call(func=function, args=arguments, keywords=[]):
                return f"{self._called(function)}({', '.join(map(self._value, arguments))})"
        raise self._error(node)

    def _elements(self, node: ast.expr) -> list[str] | None:
        """The values of a tuple, which may be a module's constant; None: it is none."""
        if isinstance(node, ast.Tuple):
            return [self._value(value) for value in node.elts]
        known = self._global(node)
        return [self._literal(value, node) for value in known] if isinstance(known, tuple) else None

    def _several(self, values: list[ast.expr]) -> str:
        return f"Several<{len(values)}>{{{{{', '.join(f'Long({self._value(value)})' for value in values)}}}}}"

    def _places(self, place: ast.expr) -> str:
        return ", ".join(map(self._value, place.elts if isinstance(place, ast.Tuple) else [place]))

    def _called(self, function: ast.expr) -> str:
        """The name of what is called, which is translated as well if it is one of ours."""
        known = self._global(function)
        if known is None and isinstance(function, ast.Name):
            known = getattr(builtins, function.id, None)
        if known in _FUNCTIONS:
            return _FUNCTIONS[known]
        if isinstance(known, np.ufunc):  # a function of C of the same name
            return known.__name__
        if not callable(known):
            raise self._error(function)
        self.callees.append(_plain(known))
        return str(_plain(known).__name__)

    def _global(self, node: ast.expr) -> Any:
        """The value of a name of the function's module, or of a module in it; None for other expressions."""
        if isinstance(node, ast.Name):
            return None if node.id in self.parameters else self.globals.get(node.id)
        if isinstance(node, ast.Attribute):
            module = self._global(node.value)
            return getattr(module, node.attr) if isinstance(module, ModuleType) else None
        return None

    def _literal(self, value: Any, node: ast.AST) -> str:
        if isinstance(value, (bool, np.bool_)):
            return "true" if value else "false"
        if isinstance(value, np.uint64):
            return f"Bits({int(value)}ull)"
        if isinstance(value, (int, np.integer)):
            return f"Long({int(value)})"
        if isinstance(value, float):
            return "INFINITE" if value == np.inf else repr(value)
        raise self._error(node)

    def _error(self, node: ast.AST) -> NotImplementedError:
        line = self.function.__code__.co_firstlineno + getattr(node, "lineno", 1) - 1
        return NotImplementedError(f"{self.function.__code__.co_filename}:{line}: {ast.unparse(node)} in CUDA C")


def _type(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def safe(name: str) -> str:
    """A name that CUDA C has no other meaning for."""
    return f"{name}_" if name in _RESERVED else name
