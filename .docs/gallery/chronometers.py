"""
The expansion of the universe, every formula up to six nodes
============================================================

Every function up to a size is fitted by ``ek.exhaustive_search`` and ranked by description length. The data are the
32 cosmic chronometers: expansion rates H at redshifts z, measured from the ages of galaxies (compiled by Moresco et
al. 2022, Living Reviews in Relativity 25, 6). Formulas are of H², as Friedmann's equation is: ``link="sqrt"``
compares their roots with H.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

z = [0.07, 0.09, 0.12, 0.17, 0.179, 0.199, 0.2, 0.27, 0.28, 0.352, 0.3802, 0.4, 0.4004, 0.4247, 0.4497, 0.47, 0.4783,
     0.48, 0.593, 0.68, 0.75, 0.781, 0.875, 0.88, 0.9, 1.037, 1.3, 1.363, 1.43, 1.53, 1.75, 1.965]  # fmt: skip
H = [69, 69, 68.6, 83, 75, 75, 72.9, 77, 88.8, 83, 83, 95, 77, 87.1, 92.8, 89, 80.9, 97,
     104, 92, 98.8, 105, 125, 90, 117, 154, 168, 160, 177, 140, 202, 186.5]  # fmt: skip
errors = [19.6, 12, 26.2, 8, 4, 5, 29.6, 14, 36.6, 14, 13.5, 17, 10.2, 11.2, 12.9, 49.6, 9, 62,
          13, 8, 33.6, 12, 17, 40, 23, 20, 17, 33.6, 18, 14, 40, 50.4]  # fmt: skip

x, H, errors = 1 + np.array(z), np.array(H), np.array(errors)  # km/s/Mpc
found = ek.exhaustive_search({"x": x}, H, sigma=errors, link="sqrt", max_nodes=6, progress=False)
print(found.equations[["text", "size", "total"]].head().round(2).to_string(index=False))
lambda_cdm = ek.fit("sqrt(p1 + p2 * x^3)", {"x": x}, H, weights=1 / errors**2, loss="gaussian")
print("the standard model's description length:", ek.description_length(lambda_cdm).total.round(2))

curve = {"x": np.linspace(1, 3, 200)}
plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.errorbar(x - 1, H, errors, fmt="o", color="gray", markersize=4, elinewidth=0.8, label="measured")
for i in range(3):
    axes.plot(curve["x"] - 1, found.predict(curve, i), label=rf"$H^2 = {found.pop[i].latex()}$")
axes.plot(curve["x"] - 1, lambda_cdm.predict(curve, 0), "k--", label=r"$\Lambda$CDM")
axes.set(xlabel="redshift z", ylabel="expansion rate H (km/s/Mpc)", ylim=(0, 270))
axes.legend(loc="upper left")
