"""GPU architectures as the case discussion knows them: the limits that each puts on kernel variants.

In: nothing.  Out: limits.  Shared memory and registers as the CUDA C++ Programming Guide has them by compute
capability; multiprocessors of the card that is named.

    >>> from exprkit.backends.cases.cards import CARDS
    >>> CARDS["sm_86"].limits.shared_per_block
    101376
"""

from __future__ import annotations

from typing import Any, NamedTuple

from exprkit.backends.gpu.nvrtc import no_architecture
from exprkit.backends.gpu.schedule import DeviceLimits

KIB = 1 << 10


class Card(NamedTuple):
    """An architecture by one of its cards."""

    name: str
    limits: DeviceLimits


CARDS = {
    "sm_75": Card("Tesla T4", DeviceLimits(64 * KIB, 64 * KIB, 40)),
    "sm_80": Card("A100", DeviceLimits(163 * KIB, 164 * KIB, 108)),
    "sm_86": Card("RTX 3060 Ti", DeviceLimits(99 * KIB, 100 * KIB, 38)),
    "sm_89": Card("RTX 4090", DeviceLimits(99 * KIB, 100 * KIB, 128)),
    "sm_90": Card("H200", DeviceLimits(227 * KIB, 228 * KIB, 132)),
    "sm_100": Card("B200", DeviceLimits(227 * KIB, 228 * KIB, 148)),
    "sm_120": Card("RTX 5090", DeviceLimits(99 * KIB, 100 * KIB, 170)),
}


def symbols_of(limits: DeviceLimits) -> dict[str, int]:
    """Limits by the symbols that stand for them."""
    return {
        "Z_B": limits.shared_per_block,
        "Z_M": limits.shared_per_multiprocessor,
        "S": limits.multiprocessors,
        "R_M": limits.registers,
    }


def limits_of(device: Any) -> DeviceLimits:
    """Those of an architecture by its name, of a device that is there, or limits themselves.

    Raises
    ------
    ArgumentError
        If there is no such architecture.
    """
    if isinstance(device, str):
        if device not in CARDS:
            raise no_architecture(device, CARDS)
        return CARDS[device].limits
    return device if isinstance(device, DeviceLimits) else DeviceLimits.of(device)
