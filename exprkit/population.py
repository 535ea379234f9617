"""A population: many expressions in postfix form, as flat immutable arrays.

Second stage of the pipeline: ``parse`` makes a population, ``lower`` reads it.

=============  ========  ==========  ==================================================
array          dtype     shape       what it holds
=============  ========  ==========  ==================================================
``kinds``      uint8     n_tokens    CONSTANT, VARIABLE, PARAMETER or OPERATOR
``values``     uint64    n_tokens    a constant's float64 bits, an index from 0, or an
                                     operator's code
``offsets``    int64     n_exprs+1   expression i is tokens ``offsets[i]:offsets[i+1]``
``n_params``   int32     n_exprs     parameters of each expression: its largest index + 1
``valid``      bool      n_exprs     False: could not be read; has no tokens, gives nan
=============  ========  ==========  ==================================================

    >>> import exprkit as ek
    >>> pop = ek.parse(["x1 + 2.5", "p1 * x2"])
    >>> len(pop), pop.n_vars, pop.n_params.tolist()
    (2, 2, [0, 1])
"""

from __future__ import annotations

import numpy as np

CONSTANT, VARIABLE, PARAMETER, OPERATOR = range(4)


class Population:
    """An ordered batch of expressions (see the module's table for the arrays)."""

    def __init__(self, kinds, values, offsets, *, variables=None, parameters=None, valid=None):
        self.kinds = kinds
        self.values = values
        self.offsets = offsets
        self.variables = variables
        self.parameters = parameters
        self.valid = np.ones(len(offsets) - 1, bool) if valid is None else valid

    def __len__(self):
        return len(self.offsets) - 1
