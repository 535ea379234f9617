"""Bytecode that lies on a device: what ``Bytecode`` is, whose arrays are made when somebody asks for them.

In: a block of memory that lowering.cu has filled.  Out: ``DeviceBytecode``.

    >>> from exprkit.backends.gpu.device_bytecode import parts_of
    >>> parts_of("float32")["instructions"].n_bytes(10)  # 8 bytes each
    80
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from exprkit.backends.device_memory import Allocation, ArraySpec
from exprkit.backends.gpu.bytecode import Bytecode
from exprkit.backends.gpu.device import fetched_together
from exprkit.backends.gpu.opcodes import CodeTraits

NAMES = "instructions", "first_instruction", "sources", "steps", "first_step", "constants", "cost"


@functools.cache
def parts_of(dtype: Any) -> dict[str, ArraySpec]:
    """The arrays, in the order of ``NAMES``, of programs for data of a type."""
    whole = ArraySpec(np.int32)
    words = ArraySpec(np.uint32, 2), whole, whole, ArraySpec(np.int32, 4), whole
    return dict(zip(NAMES, (*words, ArraySpec(dtype), ArraySpec(np.int64)), strict=True))


class DeviceBytecode:
    """The programs of a population on a device; for its attributes see ``Bytecode``."""

    def __init__(
        self,
        block: Allocation,
        dtype: np.dtype,
        n_exprs: int,
        counts: tuple[int, int, int],
        n_slots: int,
        n_results: int,
        code: CodeTraits,
    ) -> None:
        self._block, self.dtype, self.n_exprs = block, dtype, n_exprs
        self.n_instructions, self.n_steps, n_constants = counts
        self.n_slots, self.n_results, self.code = n_slots, n_results, code
        self.addresses = block.addresses
        ends, n = n_exprs + 1, self.n_instructions
        self._lengths = dict(zip(NAMES, (n, n_exprs, n, self.n_steps, ends, n_constants + 1, ends), strict=True))

    def __getattr__(self, name: str) -> Any:
        """One of the arrays, which is made when it is asked for."""
        if name not in NAMES:
            raise AttributeError(name)
        array = self._block.array(name, self._lengths[name])
        setattr(self, name, array)
        return array

    def on_host(self) -> Bytecode:
        """Equal bytecode in the host's memory."""
        fetched = fetched_together([getattr(self, name) for name in NAMES])
        arrays: dict[str, Any] = dict(zip(NAMES, fetched, strict=True))
        return Bytecode(**arrays, n_slots=self.n_slots, n_results=self.n_results, code=self.code)


Programs = Bytecode | DeviceBytecode
