"""
A descriptor of perovskites, found among seven columns
======================================================

Whether ions A, B and X crystallise as perovskite goes by the ratio of their radii: two hundred compositions,
simulated, follow Goldschmidt's tolerance factor (a + x) / (sqrt 2 (b + x)) with noise. Electronegativities and masses
in the table do not matter. A search that knows the units makes only formulas in which they match; the one selected is
the factor, written in another way.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import exprkit as ek

random = np.random.default_rng(0)
low, high = [0.1, 0.05, 0.12, 0.8, 1.2, 20, 20], [0.18, 0.09, 0.22, 1.2, 2, 200, 200]
table = pd.DataFrame(random.uniform(low, high, (200, 7)), columns=["a", "b", "x", "chi_A", "chi_B", "m_A", "m_B"])
factor = (table["a"] + table["x"]) / (np.sqrt(2) * (table["b"] + table["x"]))
y = factor + 0.005 * random.standard_normal(200)

limits = {"pool_size": 3000, "timeout_in_seconds": 1, "deterministic": True, "niterations": 0}
model = ek.SymbolicRegressor(
    binary_operators=["+", "-", "*", "/"], unary_operators=[], random_state=0, progress=False, **limits
)
model.fit(table[:100], y[:100], X_units=["nm", "nm", "nm", "", "", "u", "u"], y_units="")
print(model)
print(f"R² at the other hundred: {model.score(table[100:], y[100:]):.3f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots(figsize=(4.8, 4.4))
axes.plot([0.74, 1.22], [0.74, 1.22], color="0.5", linewidth=1)
axes.plot(model.predict(table[:100]), y[:100], "o", markersize=4, label="rows of the search")
axes.plot(model.predict(table[100:]), y[100:], "s", markersize=4, label="other rows")
axes.set(xlabel=f"${model.latex()}$", ylabel="simulated", aspect="equal")
axes.legend()
