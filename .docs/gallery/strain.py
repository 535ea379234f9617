"""
Stress and strain of an aluminium alloy
=======================================

Ramberg and Osgood's law adds elastic strain, in proportion to the stress, and plastic strain, a high power of it. The
test is simulated, with errors of 0.2 % of the strain, so that the loss compares strains in proportion. Numbers of
such different size need no scaling by hand; ``bounds`` keep them in the range of what is possible.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
stress = np.linspace(20, 330, 32)  # MPa
strain = stress / 71_000 + 0.002 * (stress / 290) ** 14
table = {"stress": stress, "strain": strain * (1 + 0.002 * random.standard_normal(32))}
formula = "stress / p1 + 0.002 * (stress / p2)^p3"
bounds = {"p1": (1e4, 3e5), "p2": (100, 600), "p3": (2, 50)}
law = ek.fit(formula, table, "strain", loss="((f - y) / y)^2", bounds=bounds, init=[[1e5, 200, 5]])[0]
names = "Young's modulus (MPa)", "yield strength (MPa)", "exponent"
for name, value, error in zip(names, law.params, law.standard_errors, strict=True):
    print(f"{name:22} {value:9.1f} ± {error:.1f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.linspace(0, 335, 300)
axes.plot(100 * table["strain"], stress, "o", color="0.3", markersize=4, label="simulated test")
axes.plot(100 * law({"stress": grid}), grid, label="fit")
axes.plot(0.2 + 100 * grid / law.params[0], grid, "--", color="C1", linewidth=1, label="offset of 0.2 %")
E, strength, _ = law.params
axes.plot(0.2 + 100 * strength / E, strength, "s", color="C1", markersize=8, label="yield strength")
axes.set(xlabel="strain (%)", ylabel="stress (MPa)", xlim=(0, 1.8), ylim=(0, 345))
axes.legend(loc="lower right")
