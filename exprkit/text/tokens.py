"""Token kinds and limits: what an expression consists of, and how large it may be.

A token is a kind and a value, and an expression is its tokens in postfix order: ``x1 + 2.5`` is

========  ============================
kind      value
========  ============================
VARIABLE  0, an index counted from 0
CONSTANT  the bits of a float64
OPERATOR  an operator's code
========  ============================
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Protocol

import numpy as np

CONSTANT, VARIABLE, PARAMETER, OPERATOR = range(4)

MAX_TOKENS = 65_535  # of an expression
MAX_INDEX = 65_535  # of a variable or parameter; a larger one is a typing error, not a data set

Words = tuple[str, ...] | None  # names; None: the usual ones


class Tokens(Protocol):
    """The tokens of one expression, and what its variables and parameters are called."""

    @property
    def kinds(self) -> np.ndarray: ...  # uint8 (n_tokens,)

    @property
    def values(self) -> np.ndarray: ...  # uint64 (n_tokens,)

    @property
    def variables(self) -> Words: ...

    @property
    def parameters(self) -> Words: ...


class NewTokens(NamedTuple):
    """Arrays that tokens are written into."""

    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: Annotated[np.ndarray, "uint64[n]"]


class NamedTokens(Tokens, Protocol):
    """The same of many expressions, one behind the other."""

    @property
    def offsets(self) -> np.ndarray: ...  # int64 (n_exprs + 1,)


class TokenArrays(Protocol):
    """The tokens of many expressions without names: a population is such arrays, and more."""

    @property
    def kinds(self) -> np.ndarray: ...  # uint8 (n_tokens,)

    @property
    def values(self) -> np.ndarray: ...  # uint64 (n_tokens,)

    @property
    def offsets(self) -> np.ndarray: ...  # int64 (n_exprs + 1,)

    @property
    def n_params(self) -> np.ndarray: ...  # int32 (n_exprs,)
