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
        self.n_instructions, self.n_steps, self._n_constants = counts
        self.n_slots, self.n_results, self.code = n_slots, n_results, code

    @property
    def addresses(self) -> dict[str, int]:
        """Where the arrays are."""
        return self._block.addresses

    @functools.cached_property
    def instructions(self) -> Any:
        """uint32 (n_instructions, 2)"""
        return self._block.array("instructions", self.n_instructions)

    @functools.cached_property
    def first_instruction(self) -> Any:
        """int32 (n_exprs,)"""
        return self._block.array("first_instruction", self.n_exprs)

    @functools.cached_property
    def sources(self) -> Any:
        """int32 (n_instructions,)"""
        return self._block.array("sources", self.n_instructions)

    @functools.cached_property
    def steps(self) -> Any:
        """int32 (n_steps, 4)"""
        return self._block.array("steps", self.n_steps)

    @functools.cached_property
    def first_step(self) -> Any:
        """int32 (n_exprs + 1,)"""
        return self._block.array("first_step", self.n_exprs + 1)

    @functools.cached_property
    def constants(self) -> Any:
        """dtype (n_constants + 1,)"""
        return self._block.array("constants", self._n_constants + 1)

    @functools.cached_property
    def cost(self) -> Any:
        """int64 (n_exprs + 1,)"""
        return self._block.array("cost", self.n_exprs + 1)

    def on_host(self) -> Bytecode:
        """The same in the host's memory."""
        fetched = fetched_together([getattr(self, name) for name in NAMES])
        arrays: dict[str, Any] = dict(zip(NAMES, fetched, strict=True))
        return Bytecode(**arrays, n_slots=self.n_slots, n_results=self.n_results, code=self.code)


Programs = Bytecode | DeviceBytecode
