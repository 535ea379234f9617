"""
Which kernel runs where: a case discussion
==========================================

The interpreter's kernel has dozens of variants. ``ek.cases`` gives the tree of inequalities, in symbols of the
machine and of the data, by which one is chosen, and needs no GPU for it. Here it is asked for a grid of sizes on two
cards: how many points does a thread take at a time? More share the work of decoding; fewer leave enough threads where
there are few points.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

discussion = ek.cases(task="square", precision="fast").at(n_columns=4, n_slots=2, bulky_operators=0)
print(discussion.at(device="sm_90", n_exprs=10_000, n_points=362).why())

points, exprs = np.geomspace(10, 1e6, 30).astype(int), np.geomspace(1, 1e6, 30).astype(int)
cards = {"sm_86": "RTX 3060 Ti", "sm_90": "H200"}
per_thread = [4, 8, 12, 16, 32]

plt.style.use("exprkit.study.plots")
figure, both = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for axes, (architecture, card) in zip(both, cards.items(), strict=True):
    of_card = discussion.at(device=architecture)
    variants = [[of_card.at(n_exprs=e, n_points=n).case.shape for n in points] for e in exprs]
    chosen = [[per_thread.index(4 * shape.vectors) for shape in row] for row in variants]
    print(f"{card}: {len({shape for row in variants for shape in row})} variants")
    colors = plt.get_cmap("cividis", len(per_thread))
    shown = axes.pcolormesh(points, exprs, chosen, cmap=colors, vmin=-0.5, vmax=4.5, rasterized=True)
    axes.set(xscale="log", yscale="log", xlabel="data points", title=card)
    axes.grid(False)
both[0].set_ylabel("expressions")
figure.colorbar(shown, ax=both, label="points a thread").set_ticks(range(5), labels=per_thread)
