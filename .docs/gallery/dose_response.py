"""
Dose and response
=================

Hill's law as an operator of one's own, fitted to simulated responses that were clipped at the detector's limit.
Readings at the limit only say that the response was larger: a censored likelihood, written as a text, uses just that.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

LIMIT = 80.0  # % of the full scale
S = 3.0  # %, standard deviation of a reading
random = np.random.default_rng(0)
dose = np.repeat(np.geomspace(0.01, 100, 13), 3)  # µmol/L
true = 100 * dose**1.5 / (1.5**1.5 + dose**1.5)
reading = np.minimum(true + S * random.standard_normal(dose.size), LIMIT)
table = {"dose": dose, "y": reading, "above": (reading == LIMIT) * 1.0}

ek.operator("hill(a, k, n) = a^n / (k^n + a^n)")
law = "p1 * hill(dose, p2, p3)"
censored = f"(1 - above) * ((f - y) / {S})^2 / 2 - above * log(erfc(({LIMIT} - f) / ({S} * sqrt(2))) / 2)"
settings = {"dtype": "float64", "bounds": {"p1": (1, 200), "p2": (0.01, 100), "p3": (0.2, 5)}}
fits = {
    "as read": ek.fit(law, table, "y", **settings),
    "censored": ek.fit(law, table, "y", loss=censored, columns=["above"], **settings),
}
plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.semilogx(dose, reading, "o", color="0.5", label="readings")
x = np.geomspace(0.01, 100, 200)
axes.plot(x, 100 * x**1.5 / (1.5**1.5 + x**1.5), ":", color="black", label="truth")
for name, found in fits.items():
    axes.plot(x, found[0]({"dose": x}), label=f"{name}: ${found[0].latex()}$")
axes.set(xlabel="dose (µmol/L)", ylabel="response (%)")
axes.legend()
