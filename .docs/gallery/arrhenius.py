"""
Arrhenius's law: which errors, which fit
========================================

A reaction's rate k at temperatures T; simulated, with errors of 8 %. The usual line through log k is the loss (log f
- log y)²: it takes errors in proportion to k. Squares of k itself count little but the hottest points. Written about
the middle temperature, the law's two numbers are nearly independent.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

R = 8.314462618e-3  # kJ / (mol K), gas constant, CODATA 2018
MIDDLE = 330.0  # K

T = np.linspace(290, 370, 17)
truth = 0.02 * np.exp(-75 / R * (1 / T - 1 / MIDDLE))  # 1/s
table = {"T": T, "k": truth * np.exp(0.08 * np.random.default_rng(2).standard_normal(len(T)))}
law = f"p1 * exp(-p2 / {R} * (1 / T - 1 / {MIDDLE}))"

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.linspace(285, 375, 100)
for loss, name in (("(log(f) - log(y))^2", "errors in proportion"), ("squares", "errors alike")):
    found = ek.fit(law, table, "k", loss=loss, init=[[0.01, 50]])
    (k, energy), (_, error) = found.params[0], found.standard_errors[0]
    correlation = found.covariance[0, 0, 1] / found.standard_errors[0].prod()
    print(f"{name}: energy {energy:.1f} ± {error:.1f} kJ/mol, correlation with p1 {correlation:.2f}")
    axes.semilogy(1000 / grid, found.predict({"T": grid}, 0), label=f"{name}: {energy:.0f} ± {error:.0f} kJ/mol")
truth = 0.02 * np.exp(-75 / R * (1 / grid - 1 / MIDDLE))
axes.semilogy(1000 / grid, truth, "k--", linewidth=1, label="truth: 75 kJ/mol")
axes.semilogy(1000 / T, table["k"], "o", color="0.3", label="simulated rates")
axes.set(xlabel="1000 K / temperature", ylabel="rate (1/s)")
axes.legend()
