"""
When a battery ends, with a prediction band
===========================================

A cell is worn out at 80 % of its capacity. It has been measured for 500 cycles (simulated): growth of a film takes a
part in proportion to the root of the number of cycles, loss of material one in proportion to the number. Beyond the
data a law is only as sure as its parameters: ``bands`` propagates their covariance.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

cycles = np.arange(10.0, 501, 10)
truth = 100 - 0.32 * np.sqrt(cycles) - 0.006 * cycles
table = {"n": cycles, "capacity": truth + 0.25 * np.random.default_rng(3).standard_normal(len(cycles))}
law = ek.fit("p1 - p2 * sqrt(n) - p3 * n", table, "capacity")[0]
print(law.latex(errors=True))

future = {"n": np.linspace(0, 2500, 400)}
band = law.bands(future)
ends = [future["n"][np.argmax(band[name] < 80)] for name in ("lower", "prediction", "upper")]
print(f"80 % after {ends[1]:.0f} cycles, between {ends[0]:.0f} and {ends[2]:.0f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.plot(cycles, table["capacity"], ".", color="gray", label="simulated measurements")
axes.plot(future["n"], band["prediction"], label="fit")
axes.fill_between(future["n"], band["lower"], band["upper"], color="C0", alpha=0.25, linewidth=0, label="95 %")
axes.plot(future["n"], 100 - 0.32 * np.sqrt(future["n"]) - 0.006 * future["n"], "k--", linewidth=1, label="truth")
axes.axhline(80, color="C1", linewidth=1)
axes.text(30, 79.7, "end of life", color="C1", va="top")
axes.set(xlabel="charging cycles", ylabel="capacity (% of the first)", xlim=(0, 2500), ylim=(70, 101))
axes.legend()
