"""
Quantiles by a loss of one's own
================================

A loss is a text over the prediction f and the measurement y. ``pinball(y - f, q)`` is least where a share q of the rows
lies below the curve: three fits give a median and a band of 80 %, without a law for the scatter. Simulated: the height
of waves beside the speed of the wind.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
wind = random.uniform(1, 20, 300)  # m/s
height = 0.022 * wind**2 * random.gamma(8, 1 / 8, 300)  # m
table = {"wind": wind, "height": height}

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.plot(wind, height, ".", color="0.6", markersize=4)
fine = {"wind": np.linspace(0, 20, 200)}
for q, style in ((0.9, "--"), (0.5, "-"), (0.1, ":")):
    law = ek.fit("p1 * wind^p2", table, "height", loss=f"pinball(y - f, {q})", dtype="float64")[0]
    below = (height < law(table)).mean()
    print(f"q = {q}: {law.latex(digits=3)}, {below:.0%} of the rows below")
    axes.plot(fine["wind"], law(fine), style, label=f"{q:.0%} quantile")
axes.set(xlabel="speed of the wind (m/s)", ylabel="height of the waves (m)", xlim=0, ylim=0)
axes.legend()
