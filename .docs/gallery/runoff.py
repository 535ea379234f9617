"""
A power law where many values are zero
======================================

Runoff grows as a power of the rain above a threshold; on dry days both are zero, and small values scatter down to
zero (simulated). A line through logarithms cannot hold zeros and is drawn away by the small values that are left. The
power itself, fitted directly, keeps every row: ``max`` is an operator like any other.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
rain = np.where(random.random(200) < 0.3, 0, random.exponential(18, 200))  # mm a day
runoff = np.maximum(0.06 * np.maximum(rain - 5, 0) ** 1.5 + 0.5 * random.standard_normal(200), 0)
table = {"rain": rain, "runoff": runoff}

law = ek.fit("p1 * max(rain - p3, 0)^p2", table, "runoff", init=[[0.1, 1, 2]])[0]
plain = ek.fit("p1 * rain^p2", table, "runoff")[0]
wet = (rain > 0) & (runoff > 0)
slope, log_factor = np.polyfit(np.log(rain[wet]), np.log(runoff[wet]), 1)
print("with a threshold:", law.latex(errors=True))
print("without:         ", plain.latex(errors=True))
print(f"line through {wet.sum()} of 200 logarithms: {np.exp(log_factor):.3f} * rain^{slope:.2f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.linspace(0, rain.max(), 300)
axes.plot(rain, runoff, "o", color="0.6", markersize=3, label="simulated days")
axes.plot(grid, law({"rain": grid}), label="power above a threshold")
axes.plot(grid, plain({"rain": grid}), "--", label="power")
axes.plot(grid, np.exp(log_factor) * grid**slope, ":", color="C3", label="line through logarithms")
axes.set(xlabel="rain (mm a day)", ylabel="runoff (mm a day)")
axes.legend()
