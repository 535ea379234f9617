"""
Friction of rough pipes
=======================

Two formulas for turbulent flow in six pipes with sand glued to the wall, fitted together and compared by their
Bayesian information criterion. Haaland's form falls monotonically and misses the dip between a smooth and a rough
wall; a blend of both laws has it. Simulated like Nikuradse's measurements; with a network, ``ek.data.nikuradse()``
downloads his own.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

pipes = ek.data.rough_pipe()  # simulated: radius over grain size, log10 of Reynolds' number, log10 of 100 f
table = {"r_k": pipes.X[:, 0], "Re": 10 ** pipes.X[:, 1], "y": pipes.y}
laws = {
    "Haaland": "2 - 2 * log10(p1 * log10(p2 * r_k^p3 + p4 / Re))",
    "blend": "2 - 2 * log10(p1 * log10(p2 * r_k))"
    " - 2 * log10(p3 * log10(p4 * Re) / log10(p2 * r_k)) / (1 + (Re / (p5 * r_k))^p6)",
}
starts = [[-1.8, 0.1, -1.0, 7.0], [2.0, 7.0, 0.9, 0.1, 300.0, 2.0]]
found = ek.fit(list(laws.values()), table, "y", loss="gaussian", init=starts)
print({name: float(bic.round()) for name, bic in zip(laws, found.score("bic"), strict=True)})

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for r_k in np.unique(table["r_k"])[::-1]:
    rows = table["r_k"] == r_k
    (points,) = axes.loglog(table["Re"][rows], 10 ** table["y"][rows] / 100, ".", label=f"{r_k:g}")
    for i, style in enumerate((":", "-")):
        f = 10 ** found.predict({name: column[rows] for name, column in table.items()}, i) / 100
        axes.plot(table["Re"][rows], f, style, color=points.get_color())
axes.set(xlabel="Reynolds' number", ylabel="friction factor", yticks=[0.02, 0.03, 0.04, 0.06])
axes.yaxis.set_major_formatter("{x:g}")
axes.yaxis.set_minor_formatter("")
figure.legend(title="radius / grain", loc="outside right")
