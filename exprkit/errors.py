"""What exprkit raises: every error of its own is an ``ExprkitError``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


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


class DataError(ExprkitError, ValueError):
    """Data, parameters or an output array whose shape or kind does not fit the population."""


class BackendError(ExprkitError, RuntimeError):
    """A backend that cannot run here; says why and which command mends it."""


class ArgumentError(ExprkitError, ValueError):
    """An argument that is none of those possible; says which are, and the nearest one to a misspelt name."""


class MissingError(ExprkitError, ImportError):
    """A package that an extra of exprkit brings is not installed; says which command installs it."""


def one_of(what: str, value: Any, choices: tuple[str, ...], error: type[ExprkitError] = ArgumentError) -> Any:
    """The value; an error if it is none of the choices."""
    if value not in choices:
        raise error(f"{what} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


def number_of(n: int, what: str) -> str:
    """As "1 column" and "2,000 columns"."""
    return f"{n:,} {what}{'s' * (n != 1)}"


@contextlib.contextmanager
def brought_by(extra: str) -> Iterator[None]:
    """Around the imports of packages that are installed with an extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "exprkit":
            raise
        raise MissingError(f"{error.name} is not installed: pip install 'exprkit[{extra}]'", name=error.name) from None
