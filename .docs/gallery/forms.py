"""
Description length: which of thousands of formulas is worth its length
======================================================================

Every formula of up to seven nodes, of sums, products, quotients and squares, is fitted to the light of a lamp at
several distances, simulated. A description of the data is the formula, its numbers, and what is left unexplained, all
in nats: long formulas always explain more, and are worth it only up to a point. ``fold`` first leaves one of those
that predict the same.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
distance = np.geomspace(0.3, 4, 30)  # m
light = 60 / (distance**2 + 0.09) + 2 * random.standard_normal(30)  # lux; the lamp is 0.3 m behind its glass
pop = ek.generate.exhaustive(7, ["+", "*", "/", "sqr"], n_params=2, variables=["d"])
found = ek.fit(pop, {"d": distance, "light": light}, "light", loss="gaussian", restarts=4)
different = found.fold()
length = ek.description_length(different)
print(f"{len(pop):,} formulas, {len(different):,} that predict differently")
best = np.argsort(length.total)
for i in best[:5]:
    print(f"{length.total[i]:6.1f} nats  {different.pop[i]}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
cost = length.parameters + length.function
axes.plot(cost, length.residuals, ".", color="0.7", markersize=4, label="formulas")
for i, color in zip(best[:3], ("C0", "C1", "C2"), strict=True):
    axes.plot(cost[i], length.residuals[i], "o", color=color, markersize=9, label=f"${different.pop[i].latex()}$")
axes.axline((cost[best[0]], length.residuals[best[0]]), slope=-1, color="0.4", linestyle=":", linewidth=1)
axes.set(xlabel="length of the formula and its numbers (nats)", ylabel="length of what is left (nats)", ylim=(40, 230))
axes.text(0.2, 62, "as long as the best")
axes.legend(loc=(0.02, 0.2))
