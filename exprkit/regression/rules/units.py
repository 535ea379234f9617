"""Units: parses texts such as "kg*m/s^2" to exponents of the base units.

In: a text, or exponents as they are.  Out: a tuple of fractions, of m, kg, s, A, K, mol, cd.

    >>> from exprkit.regression.rules.units import exponents
    >>> exponents("N/m^2") == exponents("Pa") == exponents("kg / (m*s^2)")
    True
    >>> [str(power) for power in exponents("m^(1/2)")[:2]]
    ['1/2', '0']

A prefix changes the size of a unit, no exponent: km and m are units of one kind, and a number makes up for the
difference.  Read by recursive descent::

    unit      factor (("*" | "/" | "·" | " ") factor)*
    factor    (name | "1" | "(" unit ")") (("^" | "**") exponent)?
    exponent  ("+" | "-")? number | "(" ("+" | "-")? number ("/" number)? ")"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, brief, did_you_mean, listed
from exprkit.regression.rules.dimensions import MOST_UNITS
from exprkit.regression.rules.groups import NaturalConstant

Exponents = tuple[Fraction, ...]

BASE = ("m", "kg", "s", "A", "K", "mol", "cd")
DERIVED = {
    "g": "kg", "Hz": "s^-1", "N": "kg*m/s^2", "Pa": "N/m^2", "J": "N*m", "W": "J/s", "C": "A*s", "V": "W/A",
    "F": "C/V", "Ohm": "V/A", "Ω": "V/A", "S": "A/V", "Wb": "V*s", "T": "Wb/m^2", "H": "Wb/A", "lm": "cd",
    "lx": "lm/m^2", "Bq": "s^-1", "Gy": "J/kg", "Sv": "J/kg", "kat": "mol/s", "eV": "J", "bar": "Pa", "L": "m^3",
    "l": "m^3", "minute": "s", "h": "s", "day": "s", "yr": "s", "AU": "m", "pc": "m", "u": "kg", "rad": "1", "sr": "1",
    "deg": "1", "percent": "1", "%": "1",
}  # fmt: skip
PREFIXES = ("da", *"QRYZEPTGMkhdcmuµnpfazyrq")
COHERENT = (  # of base units, without a factor
    "Hz", "N", "Pa", "J", "W", "C", "V", "F", "Ohm", "Ω", "S", "Wb", "T", "H", "lm", "lx", "Bq", "Gy", "Sv", "kat",
    "rad", "sr",
)  # fmt: skip
CONSTANTS = {  # of nature, in SI units (CODATA 2018; those of light, action, charge, heat and amount are exact)
    "speed of light": (299792458.0, "m/s"), "Planck": (6.62607015e-34, "J*s"), "Boltzmann": (1.380649e-23, "J/K"),
    "elementary charge": (1.602176634e-19, "C"), "gravitation": (6.67430e-11, "m^3/(kg*s^2)"),
    "electric field": (8.8541878128e-12, "F/m"), "Avogadro": (6.02214076e23, "1/mol"),
}  # fmt: skip
LARGEST = 100  # exponent
LONGEST = 200  # characters
_TOKENS = re.compile(r"\s*(\*\*|[*/·^()+-]|\d+(?:\.\d+)?|[^\W\d_]+|%)")


def exponents(unit: Any) -> Exponents:
    """Of the base units.

    Parameters
    ----------
    unit : str or sequence of numbers
        Exponents are taken as they are, whatever their units are.

    Raises
    ------
    ArgumentError
        For a text that is no unit; says where.
    """
    if isinstance(unit, str) or hasattr(unit, "dimensionality"):  # pint's
        return _Reader(str(unit)).read()
    given = listed(unit)
    if given is None:
        raise ArgumentError(f"a unit is a text as 'm/s^2' or a list of exponents, not {brief(unit)}")
    try:
        return tuple(Fraction(number).limit_denominator(1000) for number in given)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"the exponents of a unit must be numbers, not {brief(unit)}") from None


def by_column(units: Mapping[str, Any], columns: Sequence[str]) -> list[Any]:
    """The columns' units in the columns' order, of units by column.

    Raises
    ------
    ArgumentError
        For a column without a unit, or a unit of none.
    """
    for name in units:
        if name not in columns:
            raise ArgumentError(f"X_units: there is no column {name!r}{did_you_mean(str(name), columns)}")
    if lacking := [name for name in columns if name not in units]:
        raise ArgumentError(f"X_units says no unit of column {lacking[0]!r}")
    return [units[name] for name in columns]


def all_exponents(units: Sequence[Any], names: Sequence[str]) -> list[Exponents]:
    """Of several units, all of one length; ``names`` say whose they are."""
    found = []
    for unit, name in zip(units, names, strict=True):
        try:
            found.append(exponents(unit))
        except ArgumentError as error:
            raise ArgumentError(f"unit of {name}: {error}") from None
    if len({len(unit) for unit in found}) > 1:
        raise ArgumentError(f"units must have equally many exponents; texts have {len(BASE)} ({', '.join(BASE)})")
    if len(found[0]) > MOST_UNITS:
        raise ArgumentError(f"a unit has at most {MOST_UNITS} exponents, not {len(found[0])}")
    return found


def check_reachable(units: Sequence[Exponents], of_y: Exponents, given: Any) -> None:
    """An error where no product of powers of these units is y's, ``given`` so by the user."""
    with_y, without = (np.linalg.matrix_rank(np.array(some, np.float64)) for some in ([*units, of_y], units))
    if with_y > without:
        raise ArgumentError(
            f"no formula of these columns has y's unit, {brief(given)}: one of the units is wrong, a column is "
            "missing, or numbers have units (dimensionless_constants_only=False)"
        )


def are_coherent(units: Sequence[Any]) -> bool:
    """Whether all are texts of SI units without a factor: in others constants of nature have other values."""
    names = {*BASE, *COHERENT}
    return all(isinstance(unit, str) and names.issuperset(re.findall(r"[^\W\d_]+|%", unit)) for unit in units)


def constants() -> list[NaturalConstant]:
    """Those of nature."""
    return [NaturalConstant(value, exponents(unit)) for value, unit in CONSTANTS.values()]


class _Reader:
    """A text, token by token."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise ArgumentError(f"the text of a unit has at most {LONGEST} characters, not {len(text):,}")
        self._text, at = text, 0
        self._places: list[int] = []
        self._tokens: list[str] = []
        while at < len(text.rstrip()):
            match = _TOKENS.match(text, at)
            if match is None:
                raise self._error(f"{text[at:].lstrip()[0]!r} stands in no unit", at)
            self._places.append(match.start(1))
            self._tokens.append(match[1])
            at = match.end()
        self._at = 0

    def read(self) -> Exponents:
        found = self._unit() if self._tokens else _times(_NONE, _NONE, 0)
        if self._next is not None:
            raise self._error("nothing was expected here")
        return found

    @property
    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _taken(self, *wanted: str) -> bool:
        self._at += (taken := self._next in wanted)
        return taken

    def _unit(self) -> Exponents:
        found = self._factor()
        while self._next not in (None, ")"):
            sign = -1 if self._taken("/") else 1
            if sign == 1:
                self._taken("*", "·")
            found = _times(found, self._factor(), sign)
        return found

    def _factor(self) -> Exponents:
        token = self._next
        if self._taken("("):
            found = self._unit()
            if not self._taken(")"):
                raise self._error("')' is missing")
        elif token == "1" or (token is not None and (token.isalpha() or token == "%")):
            found = _named(token) or self._unknown(token)
            self._at += 1
        else:
            raise self._error("a unit was expected")
        to = self._exponent() if self._taken("^", "**") else Fraction(1)
        return tuple(power * to for power in found)

    def _exponent(self) -> Fraction:
        inside = self._taken("(")
        sign = -1 if self._taken("-") else 1
        if sign == 1:
            self._taken("+")
        number = sign * self._number()
        if inside and self._taken("/"):
            below = self._number()
            if not below:
                raise self._error("an exponent is divided by 0")
            number /= below
        if inside and not self._taken(")"):
            raise self._error("')' is missing")
        if abs(number) > LARGEST:
            raise self._error(f"an exponent is larger than {LARGEST}")
        return number

    def _number(self) -> Fraction:
        token = self._next
        if token is None or not token[0].isdigit():
            raise self._error("a number was expected")
        self._at += 1
        return Fraction(token)

    def _unknown(self, name: str) -> Exponents:
        raise self._error(f"there is no unit {name!r}{did_you_mean(name, [*BASE, *DERIVED])}")

    def _error(self, what: str, at: int | None = None) -> ArgumentError:
        end = len(self._text)
        place = at if at is not None else self._places[self._at] if self._at < len(self._places) else end
        return ArgumentError(f"{what}\n    {self._text}\n    {' ' * place}^")


_NONE: Exponents = (Fraction(0),) * len(BASE)


def _times(a: Exponents, b: Exponents, power: int) -> Exponents:
    return tuple(x + power * y for x, y in zip(a, b, strict=True))


def _named(name: str) -> Exponents | None:
    """Of a unit, with or without a prefix."""
    if name == "1":
        return _NONE
    if name in BASE:
        return tuple(Fraction(name == base) for base in BASE)
    if name in DERIVED:
        return exponents(DERIVED[name])
    for prefix in PREFIXES:
        rest = name.removeprefix(prefix)
        if rest != name and rest in (*BASE, *DERIVED) and rest != "kg":
            return _named(rest)
    return None
