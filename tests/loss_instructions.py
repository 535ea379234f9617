r"""What a loss that is a text adds to the GPU interpreter's instructions for a point: a table, no test, and no GPU.

    PYTHONPATH=. python tests/loss_instructions.py [--precision fast] [--architecture sm_90]

A line for each loss of ``gpu_user_losses.py`` that is no sum of squares or absolute errors of f itself: instructions of
the floating-point units and the special function unit (MUFU, an eighth as fast) for a point, less those of the squared
loss, by counting the machine code of kernels with eight vectors a thread.  Needs NVRTC and nvdisasm.
"""

from __future__ import annotations

import argparse
import collections
import re

import gpu_user_losses
import numpy as np

from exprkit.backends.gpu import loss_code, nvrtc, opcodes
from exprkit.backends.precision import precision
from exprkit.backends.transpiler.assembler import disassemble
from exprkit.evaluate import inputs, loss_text

SHAPE = {
    "REAL": "float", "LANES": 32, "BLOCK": 128, "COLUMNS_SHARED": 1, "WIDE": 0, "COUNTED": 0,
    "POWERS": 1, "VECTORS": 8,
}  # fmt: skip
POINTS = 2 * 32  # of a thread; the code of losses stands there twice, for whole tiles and for the last
COUNTED = "FADD", "FMUL", "FFMA", "FMNMX", "FSETP", "FSET", "FSEL", "MUFU"


def instructions(architecture: str, operators: str, text: str, **chosen) -> collections.Counter:
    cubin = nvrtc.build(architecture, precision(operators), text, **SHAPE, **chosen)[0]
    found = re.finditer(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+ )?\s*([A-Z0-9]+)", disassemble(cubin))
    return collections.Counter(one[1] for one in found if one[1] in COUNTED)


def fused(text: str, fast: bool) -> loss_text.Fused | None:
    some = np.linspace(0.5, 2, 64)
    points = inputs.LossPoints(some, some if "w" in text else None, {"s": some} if "/ s" in text else {})
    loss = loss_text.parse_loss(text, tuple(points.columns))
    made = loss_text.compose(loss, points, 2)
    if made.formula is None:
        return None
    return loss_text.fused(loss, points, fast) if made.summed == "sum" else loss_text.fused_known(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--precision", default="fast", choices=["ieee", "fast"])
    parser.add_argument("--architecture", default="sm_90")
    chosen = parser.parse_args()
    how = chosen.architecture, chosen.precision
    squared = instructions(*how, opcodes.source(chosen.precision), TASK="SQUARE", WEIGHTED=0)
    print("loss | floating point | MUFU")
    for text in gpu_user_losses.LOSSES:
        if (made := fused(text, chosen.precision == "fast")) is None:
            continue
        kernel = opcodes.source(chosen.precision, loss_code.function(made.tokens, chosen.precision))
        found = instructions(*how, kernel, TASK="TEXT", WEIGHTED=int(made.counted), TARGETS=len(made.columns))
        more = {name: (found[name] - squared[name]) / POINTS for name in COUNTED}
        print(f"{text} | {sum(more.values()) - more['MUFU']:.2f} | {more['MUFU']:.2f}", flush=True)


if __name__ == "__main__":
    main()
