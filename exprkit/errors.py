"""exprkit's exceptions: every error of its own is an ``ExprkitError``; and helpers for their messages."""

from __future__ import annotations

import contextlib
import difflib
import functools
import heapq
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar

OTHER_KEYWORDS: dict[str, tuple[str, ...]] = {  # what arguments are called in other libraries; the first that is there
    "random_state": ("seed",), "rng": ("seed",), "seed": ("random_state",), "sample_weight": ("weights",),
    "weights": ("sample_weight",), "sigma": ("weights = 1 / sigma^2", "sample_weight = 1 / sigma^2"),
    "dy": ("weights = 1 / dy^2", "sample_weight = 1 / dy^2"),
    "yerr": ("weights = 1 / yerr^2", "sample_weight = 1 / yerr^2"),
    "p0": ("init",), "x0": ("init",), "start": ("init",), "guess": ("init",), "n_jobs": ("threads",),
    "workers": ("threads",),
    "max_nfev": ("max_iter",), "maxfev": ("max_iter",), "maxiter": ("max_iter",), "device": ("backend",),
    "ftol": ("tol",), "xtol": ("tol",), "gtol": ("tol",), "verbose": ("progress",),
    "variable_names": ("variables", "X = pandas.DataFrame(X, columns=names)"),
    "feature_names": ("variables", "X = pandas.DataFrame(X, columns=names)"), "target": ("y",), "units": ("X_units",),
    "nan_policy": ("missing",), "data": ("X",), "filename": ("path",), "file": ("path",),
}  # fmt: skip
MOST_CANDIDATES = 200  # names that a misspelt one is compared with in full, which is slow

Keywords = ParamSpec("Keywords")
Result = TypeVar("Result")


class ExprkitError(Exception):
    """The root of exprkit's errors."""


class ParseError(ExprkitError, ValueError):
    """A text or SymPy object that is not an expression; says which, where and what was expected.

    ``indices``: all the bad expressions of the batch, also those that the message leaves out.
    """

    def __init__(self, message: str, indices: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.indices = indices


class PopulationError(ExprkitError, ValueError):
    """Arrays that are not a population; shows the listing with the bad token marked."""


class SelectionError(ExprkitError, IndexError):
    """A number, a list of numbers or a mask that selects no expressions of a population."""


class FileError(ExprkitError, OSError):
    """A file that cannot be read or written; says which and why."""


class NoSuchFileError(FileError, FileNotFoundError):
    """A file that is not there."""


class DamagedFileError(FileError, PopulationError):
    """A file that is damaged, or holds something else."""


class DataError(ExprkitError, ValueError):
    """Data, parameters or an output array whose shape or kind does not fit the population."""


class BackendError(ExprkitError, RuntimeError):
    """A backend that cannot run here; says why and which command mends it."""


class ArgumentError(ExprkitError, ValueError):
    """An argument that is none of those possible; says which are, and the nearest one to a misspelt name."""


class OperandError(ExprkitError, TypeError):
    """An operator that is given too few operands, too many, or something that is no expression and no number."""


class MissingError(ExprkitError, ImportError):
    """A package that an extra of exprkit brings is not installed; says which command installs it."""


def one_of(
    what: str,
    value: Any,
    choices: Iterable[str],
    error: type[ExprkitError] = ArgumentError,
    *,
    other_words: Mapping[str, str] | None = None,
    besides: str = "",
) -> Any:
    """The value; an error if it is none of the choices; ``besides``: what it could be as well, for the message."""
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:  # an array would be compared element by element
        hint = did_you_mean(value, choices, other_words) if isinstance(value, str) else ""
        able = ", ".join(map(repr, choices)) + (f" or {besides}" if besides else "")
        raise error(f"{what} must be one of {able}, not {brief(value, 60)}{hint}")
    return value


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt one is most like, if any is; quick among any number of names."""
    candidates = list(names)
    if len(candidates) > MOST_CANDIDATES:
        candidates = heapq.nlargest(MOST_CANDIDATES, candidates, key=lambda name: _likeness(word, name))
    return next(iter(difflib.get_close_matches(word, candidates, 1)), None)


def _likeness(a: str, b: str) -> tuple[int, int]:
    """With how many of the same characters both begin and end, then how little their lengths differ."""
    return _common(a, b) + _common(a[::-1], b[::-1]), -abs(len(a) - len(b))


def _common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def number_of(n: int, what: str) -> str:
    """As "1 column" and "2,000 columns"."""
    return f"{n:,} {what}{'s' * (n != 1)}"


def duration(seconds: float) -> str:
    """As "2.5 s", "12.5 ms" and "32 us": three digits, in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= (0.1 if unit == "s" else 1e-4):
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def whole_number(value: Any) -> int | None:
    """The value, if it is a whole number; flags and time spans are none."""
    try:
        return None if isinstance(value, bool) else int(type(value).__index__(value))
    except (AttributeError, TypeError):
        return None


def whole(
    name: str, value: Any, least: int | None = None, most: int | None = None, error: type[ExprkitError] = ArgumentError
) -> int:
    """The value as a whole number; an error if it is none, or outside of these limits."""
    number = whole_number(value)
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        limits = "" if least is None else f" >= {least}" if most is None else f" from {least:,} to {most:,}"
        raise error(f"{name} must be a whole number{limits}, not {brief(value)}")
    return number


def flag(name: str, value: Any, error: type[ExprkitError] = ArgumentError) -> bool:
    """True or False; an error for anything else."""
    import numpy as np  # here, so that ``import exprkit`` does without

    if not isinstance(value, bool | np.bool_):
        raise error(f"{name} must be True or False, not {brief(value)}")
    return bool(value)


def listed(values: Any) -> tuple[Any, ...] | None:
    """The items of a list; None for a text and for anything that is no list."""
    try:
        return None if isinstance(values, (str, bytes)) else tuple(values)
    except TypeError:
        return None


def brief(value: Any, most: int = 100) -> str:
    """A value as an error shows it."""
    return shortened(re.sub(r"\s*\n\s*", " ", repr(value)), most)


def shortened(text: str, most: int) -> str:
    """The text, cut where it has more than so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def checks_keywords(function: Callable[Keywords, Result]) -> Callable[Keywords, Result]:
    """The function or method, which says of a misspelt keyword what was probably meant."""
    names, called = tuple(inspect.signature(function).parameters), function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*given: Keywords.args, **named: Keywords.kwargs) -> Result:
        for name in named:
            if name not in names:
                hint = did_you_mean(name, names, OTHER_KEYWORDS)
                raise ArgumentError(f"{called} has no option {name!r}{hint}")
        return function(*given, **named)

    return checked


def checks_methods(cls: type[Result]) -> type[Result]:
    """The class, whose public methods say of a misspelt keyword what was probably meant."""
    for name, method in list(vars(cls).items()):
        function = getattr(method, "__func__", method)
        if name.startswith("_") or not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
            continue
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            checked = checks_keywords(function)
            setattr(cls, name, checked if function is method else type(method)(checked))
    return cls


def did_you_mean(
    name: str, possible: Iterable[str], other_words: Mapping[str, str | tuple[str, ...]] | None = None
) -> str:
    """A hint at what was meant, or nothing; ``other_words`` are what the same is called elsewhere, perhaps with how."""
    possible, words = list(possible), (other_words or {}).get(name, ())
    words = (words,) if isinstance(words, str) else words
    meant = next((word for word in words if word.partition(" ")[0] in possible), None) or nearest(name, possible)
    return f"; did you mean {meant!r}?" if meant else ""


@contextlib.contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """A context for imports: a missing package is reported with the command that installs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "exprkit":
            raise
        module = (error.name or "").partition(".")[0]
        package = {"PIL": "pillow", "yaml": "pyyaml", "sklearn": "scikit-learn"}.get(module, module)
        whole = f'(or, in exprkit\'s folder, pip install ".[{extra}]" for all that this part needs)'
        raise MissingError(f"{module} is not installed: pip install {package} {whole}", name=error.name) from None
