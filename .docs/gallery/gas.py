"""
A gas near its critical point
=============================

Van der Waals' equation, fitted to simulated pressures of carbon dioxide, beside that of an ideal gas. Bounds keep the
volume of the molecules below the volumes measured; the critical point follows from the two fitted numbers.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

R = 0.0831446  # L bar / (mol K), the gas constant
A, B = 3.64, 0.0427  # L^2 bar / mol^2 and L / mol, of carbon dioxide

random = np.random.default_rng(0)
V, T = np.tile(np.geomspace(0.09, 0.6, 14), 4), np.repeat([305.0, 320.0, 340.0, 370.0], 14)  # L / mol, K
p = (R * T / (V - B) - A / V**2) * (1 + 0.01 * random.standard_normal(V.size))  # bar
bounds = {"p1": (0, 0.085), "p2": (0, None)}
law = ek.fit(f"{R} * T / (V - p1) - p2 / V^2", {"V": V, "T": T, "p": p}, "p", bounds=bounds, weights=1 / p**2)[0]
b, a = law.params
print(law.latex(errors=True))
print(f"critical point: {8 * a / (27 * R * b):.1f} K, {a / (27 * b**2):.1f} bar, {3 * b:.4f} L/mol")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
fine = np.geomspace(0.085, 0.65, 200)
for i, temperature in enumerate(np.unique(T)):
    rows = temperature == T
    axes.plot(V[rows], p[rows], "o", markersize=4, color=f"C{i}", label=f"{temperature:g} K")
    axes.plot(fine, law({"V": fine, "T": 0 * fine + temperature}), color=f"C{i}")
    axes.plot(fine, R * temperature / fine, ":", color=f"C{i}", linewidth=1)
axes.plot(3 * b, a / (27 * b**2), "*", color="black", markersize=12, label="critical point")
axes.set(xlabel="volume (L/mol)", ylabel="pressure (bar)", xscale="log", ylim=(0, 250), xticks=[0.1, 0.2, 0.4])
axes.xaxis.set_major_formatter("{x:g}")
axes.xaxis.set_minor_formatter("")
axes.legend(title="dotted: ideal gas")
