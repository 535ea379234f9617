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
from exprkit.operators.dimensions import MAX_BASE_UNITS
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
    "speed of light": (299792458.0, "m/s"),
    "Planck": (6.62607015e-34, "J*s"),
    "Boltzmann": (1.380649e-23, "J/K"),
    "elementary charge": (1.602176634e-19, "C"),
    "gravitation": (6.67430e-11, "m^3/(kg*s^2)"),
    "electric field": (8.8541878128e-12, "F/m"),
    "Avogadro": (6.02214076e23, "1/mol"),
}
MAX_EXPONENT = 100
MAX_CHARACTERS = 200  # of a text
_TOKENS = re.compile(r"\s*(\*\*|[*/·^()+-]|\d+(?:\.\d+)?|[^\W\d_]+|%)")


def exponents(unit: Any) -> Exponents:
    """The exponents of the base units in a unit, a text or exponents; ArgumentError says where a text is none."""
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
    """The units in the order of the columns; raises ArgumentError for a column without a unit, or a unit of none."""
    for name in units:
        if name not in columns:
            raise ArgumentError(f"X_units: there is no column {name!r}{did_you_mean(str(name), columns)}")
    if lacking := [name for name in columns if name not in units]:
        raise ArgumentError(f"X_units says no unit of column {lacking[0]!r}")
    return [units[name] for name in columns]


def all_exponents(units: Sequence[Any], names: Sequence[str]) -> list[Exponents]:
    """Exponents of several units, all of one length; ``names`` are for messages."""
    result = []
    for unit, name in zip(units, names, strict=True):
        try:
            result.append(exponents(unit))
        except ArgumentError as error:
            raise ArgumentError(f"unit of {name}: {error}") from None
    if len({len(unit) for unit in result}) > 1:
        raise ArgumentError(f"units must have equally many exponents; texts have {len(BASE)} ({', '.join(BASE)})")
    if len(result[0]) > MAX_BASE_UNITS:
        raise ArgumentError(f"a unit has at most {MAX_BASE_UNITS} exponents, not {len(result[0])}")
    return result


def check_reachable(units: Sequence[Exponents], of_y: Exponents, given: Any) -> None:
    """Raises ArgumentError if no product of powers of these units is y's, which the user gave as ``given``."""
    with_y, without = (np.linalg.matrix_rank(np.array(rows, np.float64)) for rows in ([*units, of_y], units))
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
    """The constants of nature of ``CONSTANTS``, with their units as exponents."""
    return [NaturalConstant(value, exponents(unit)) for value, unit in CONSTANTS.values()]


class _Reader:
    """A recursive descent parser of a unit's text."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_CHARACTERS:
            raise ArgumentError(f"the text of a unit has at most {MAX_CHARACTERS} characters, not {len(text):,}")
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
        unit = self._unit() if self._tokens else _times(_NONE, _NONE, 0)
        if self._next is not None:
            raise self._error("nothing was expected here")
        return unit

    @property
    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _accept(self, *tokens: str) -> bool:
        """Skip the next token if it is one of these; returns whether it was."""
        self._at += (is_next := self._next in tokens)
        return is_next

    def _unit(self) -> Exponents:
        unit = self._factor()
        while self._next not in (None, ")"):
            sign = -1 if self._accept("/") else 1
            if sign == 1:
                self._accept("*", "·")
            unit = _times(unit, self._factor(), sign)
        return unit

    def _factor(self) -> Exponents:
        token = self._next
        if self._accept("("):
            factor = self._unit()
            if not self._accept(")"):
                raise self._error("')' is missing")
        elif token == "1" or (token is not None and (token.isalpha() or token == "%")):
            factor = _named(token) or self._unknown(token)
            self._at += 1
        else:
            raise self._error("a unit was expected")
        exponent = self._exponent() if self._accept("^", "**") else Fraction(1)
        return tuple(power * exponent for power in factor)

    def _exponent(self) -> Fraction:
        inside = self._accept("(")
        sign = -1 if self._accept("-") else 1
        if sign == 1:
            self._accept("+")
        number = sign * self._number()
        if inside and self._accept("/"):
            below = self._number()
            if not below:
                raise self._error("an exponent is divided by 0")
            number /= below
        if inside and not self._accept(")"):
            raise self._error("')' is missing")
        if abs(number) > MAX_EXPONENT:
            raise self._error(f"an exponent is larger than {MAX_EXPONENT}")
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
    """The exponents of a unit by its name, with or without a prefix; None for an unknown one."""
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
