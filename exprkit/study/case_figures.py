"""Figures of the case discussion: which kernel variant is chosen for which machine, and the cost of the others.

In: ``Cases`` of a population.  Out: a figure of regions over (shared memory, registers) with seven cards as points, and
tables of block x points a thread, as the papers on parametric kernels have them.

    >>> import exprkit as ek
    >>> from exprkit.study.case_figures import block_table
    >>> discussion = ek.cases({"n_exprs": 9_880, "n_columns": 12, "n_slots": 1}, "square", precision="fast")
    >>> block_table(discussion, "sm_86", 10_860).loc[16, 768]
    '1.00'
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.backends.cases.discussion import leaves_of
from exprkit.backends.cases.inequality import shown
from exprkit.backends.cases.tree import CARDS, Cases, limits_of
from exprkit.backends.gpu.schedule import BLOCKS, RESERVED, LaunchShape, Sizes, estimated, resident_blocks
from exprkit.errors import brought_by
from exprkit.evaluate.case_discussion import cases
from exprkit.study.plots import Drawing

with brought_by("notebooks"):
    import matplotlib.pyplot as plt
    import pandas as pd
    from matplotlib.colors import ListedColormap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KIB = 1 << 10
SHARED = np.arange(8, 233)  # KiB a block
REGISTERS = np.arange(16, 129, 4)  # thousands (of 1,024) of a multiprocessor
EXAMPLE = {"n_exprs": 9_880, "n_columns": 12, "n_slots": 1}  # of the thesis's expressions
POINTS, DEVICE = 10_860, "sm_86"
NEAR_CARDS = (REGISTERS > 58) & (REGISTERS < 82)  # rows with cards and their names
LEAST_WIDTH = 6  # KiB of a region that has room for a number
TALL = 5  # rows of one that has room for it on its side
# of layouts in their order: blue with columns in shared memory, orange without, which differ in grey as well
SHARED_HUES, GLOBAL_HUES = ("#6BAED6", "#B3D2E8", "#E3EEF8"), ("#D98C3F", "#F0BB80", "#FBE3CB")


def _region_labels(discussion: Cases, device: str) -> tuple[np.ndarray, list[LaunchShape]]:
    """The number of the leaf at each (registers, shared memory), with the multiprocessors of a card; the leaves."""
    multiprocessors = limits_of(device).multiprocessors
    registers, shared = (axis.ravel() * KIB for axis in np.meshgrid(REGISTERS, SHARED, indexing="ij"))
    values = {name: np.array([value]) for name, value in discussion.known.items()}
    values |= {"Z_B": shared, "Z_M": shared + RESERVED, "R_M": registers, "S": np.array([multiprocessors])}
    label, chosen = np.full(len(shared), -1), list[LaunchShape]()
    for leaf in leaves_of(discussion.over(values)):
        label[leaf.points] = len(chosen)
        chosen.append(discussion.subject.shape(leaf.code))
    return label.reshape(len(REGISTERS), len(SHARED)), chosen


def draw_regions(discussion: Cases, device: str) -> Figure:
    """The leaves over (shared memory of a block, registers of a multiprocessor), and seven cards.

    A colour is a layout (points a thread, where columns are), a number in a region its threads a block.  Of the
    discussion all but the machine's symbols are known; the multiprocessors are those of ``device``.
    """
    with brought_by("search"):
        from scipy import ndimage
    label, chosen = _region_labels(discussion, device)
    layouts = list(dict.fromkeys((shape.tile // shape.lanes, shape.columns_shared) for shape in chosen))
    hues: dict[tuple[int, bool], str] = {}
    for columns_shared, colours in ((True, SHARED_HUES), (False, GLOBAL_HUES)):
        own = sorted((shape for shape in layouts if shape[1] == columns_shared), reverse=True)
        hues |= dict(zip(own, itertools.cycle(colours), strict=False))
    figure, axis = plt.subplots(figsize=(11, 5.6), layout="constrained")
    cells = ListedColormap([hues[shape.tile // shape.lanes, shape.columns_shared] for shape in chosen])
    axis.pcolormesh(
        SHARED, REGISTERS, label, cmap=cells, vmin=0, vmax=len(chosen) - 1, shading="nearest", rasterized=True
    )
    for k, shape in enumerate(chosen):
        axis.contour(SHARED, REGISTERS, label == k, levels=[0.5], colors="white", linewidths=1)
        parts, n_parts = ndimage.label(label == k)
        for part in range(1, n_parts + 1):
            _write_block(axis, parts == part, str(shape.block))
    at: dict[int, list[str]] = {}
    for name, card in CARDS.items():
        at.setdefault(card.limits.shared_per_block // KIB, []).append(name)
    for shared, cards in at.items():
        axis.plot(shared, 64, "ko")
        bold: Any = {"ha": "right", "fontsize": 9, "fontweight": "bold"}
        axis.annotate("\n".join(cards), (shared, 64), (-5, 5), textcoords="offset points", **bold)
    for points, is_shared in layouts:
        words = f"{points} points a thread, columns in {'shared' if is_shared else 'global'} memory"
        axis.plot([], [], "s", color=hues[points, is_shared], label=words)
    axis.set(xlabel="shared memory of a block, KiB", ylabel="registers of a multiprocessor (1,024)")
    figure.legend(loc="outside lower center", ncols=2, fontsize=9, frameon=False, title="numbers: threads a block")
    plt.close(figure)  # it is shown where it is asked for, once
    return figure


def _write_block(axis: Axes, part: np.ndarray, block: str) -> None:
    """The number in a region, beside the cards' names where there is room; on its side in a narrow one."""
    aside = _widest(part & ~NEAR_CARDS[:, None])
    row, column, width = aside if aside[2] >= LEAST_WIDTH else _widest(part)
    upright = width < LEAST_WIDTH
    if upright:
        column, row, height = _widest(part.T)
        width = min(width, height // TALL)
    if width >= 1:
        size, rotation = (6, 90) if upright else (7, 0)
        at = SHARED[column], REGISTERS[row]
        axis.text(*at, block, ha="center", va="center", fontsize=size, rotation=rotation)


def _widest(inside: np.ndarray) -> tuple[int, int, int]:
    """The middle of the widest stretch of a region, its row of rows as wide taken in the middle; and how wide it is."""
    if not inside.any():
        return 0, 0, 0
    edges = np.diff(np.pad(inside.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    rows, begins = np.nonzero(edges == 1)
    widths = np.nonzero(edges == -1)[1] - begins
    widest = np.flatnonzero(widths == widths.max())
    place = widest[len(widest) // 2]
    return int(rows[place]), int(begins[place] + widths[place] // 2), int(widths[place])


def block_table(discussion: Cases, device: str, n_points: int) -> pd.DataFrame:
    """Estimated time of block x points a thread over the least, columns where they are better.

    Rows are points a thread of the device's leaves, columns are threads a block; the tree's choice has 1.00.  "-": does
    not fit into shared memory, or has more threads than there are registers for.
    """
    here = discussion.at(device=device, n_points=n_points)
    chosen: LaunchShape = here.case.shape
    limits, fast = limits_of(device), "fast" in here.subject.title or here.known.get("p") == 0
    sizes = Sizes(n_points, here.known["E"], here.known["c"], here.known["s"], here.known.get("b", 0))

    def cell(vectors: int, block: int) -> float:
        both = (chosen._replace(vectors=vectors, block=block, columns_shared=shared) for shared in (True, False))
        can = [
            shape
            for shape in both
            if shape.most_shared(sizes.n_columns, sizes.n_slots) <= limits.shared_per_block
            and resident_blocks(shape, fast, limits.registers) > 0
        ]
        return min((float(estimated(shape, sizes, limits, fast)) for shape in can), default=np.inf)

    rows = sorted({case.shape.vectors for case in discussion.at(device=device).leaves})
    least = float(estimated(chosen, sizes, limits, fast))
    table = {block: [cell(v, block) / least for v in rows] for block in BLOCKS}
    points = pd.Index([v * chosen.segment // chosen.lanes for v in rows], name="points a thread")
    texts = pd.DataFrame(table, index=points).map(lambda ratio: f"{ratio:.2f}" if np.isfinite(ratio) else "-")
    return texts.rename_axis(columns="threads")


def cards_table(discussion: Cases, n_points: int) -> pd.DataFrame:
    """The variant that each of the seven cards runs."""
    rows = []
    for name, card in CARDS.items():
        case = discussion.at(device=name, n_points=n_points).case
        limits = {"Z_B": shown(card.limits.shared_per_block), "S": card.limits.multiprocessors}
        rows.append({"card": name, "as": card.name, **limits, "runs": case.words})
    return pd.DataFrame(rows).set_index("card")


def regions() -> Drawing:
    """The regions of the thesis's expressions, for the study's figures."""
    discussion = cases({**EXAMPLE, "n_points": POINTS}, "square", precision="fast")
    caption = (
        f"Which variant of the interpreter sums errors of {EXAMPLE['n_exprs']:,} expressions ({EXAMPLE['n_columns']} "
        f"columns, {EXAMPLE['n_slots']} value put aside) x {POINTS:,} points, float32, fast, over the shared memory of "
        f"a block and the registers of a multiprocessor, with the multiprocessors of an {CARDS[DEVICE].name}: the "
        "leaves of the case discussion, and seven architectures. By arithmetic; nothing is measured here."
    )
    return Drawing("cases", draw_regions(discussion, DEVICE), caption)
