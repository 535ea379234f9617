"""
Fatigue of steel: tests that ended without a break
==================================================

How many cycles N a bar endures at a stress amplitude S is Basquin's power law, with scatter; simulated. A test that
has reached ten million cycles is stopped: N is larger. Taken as broken, or left out, these tests bias the law. Their
likelihood is the probability of lying above the limit, written with ``erfc`` as a loss of one's own.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

LIMIT = 7.0  # log10 of the cycles at which a test is stopped
SCATTER = 0.3  # standard deviation of log10 N, known from earlier tests

random = np.random.default_rng(1)
stress = np.repeat(np.arange(220.0, 421, 25), 6) + random.uniform(-5, 5, 54)  # MPa
life = 6.6 - 11 * np.log10(stress / 300) + SCATTER * random.standard_normal(len(stress))
stopped = life > LIMIT
table = {"S": stress, "logN": np.minimum(life, LIMIT), "stopped": stopped * 1.0}
law = "p1 - p2 * log10(S / 300)"
likelihood = f"(1 - stopped) * ((f - y) / {SCATTER})^2 / 2 - stopped * log(erfc((y - f) / ({SCATTER} * sqrt(2))) / 2)"
fits = {
    "censored": ek.fit(law, table, "logN", loss=likelihood, columns=["stopped"], init=[[6, 10]]),
    "stopped tests as broken": ek.fit(law, table, "logN"),
    "stopped tests left out": ek.fit(law, table, "logN", weights=1 - table["stopped"]),
}

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.linspace(210, 430, 100)
for (name, found), style in zip(fits.items(), ("-", "--", ":"), strict=True):
    print(f"{name:24} exponent {found.params[0, 1]:5.2f} ± {found.standard_errors[0, 1]:.2f} (simulated: 11)")
    axes.semilogx(10 ** found.predict({"S": grid}, 0), grid, style, label=name)
axes.plot(10 ** life[~stopped], stress[~stopped], "o", color="0.3", markersize=4, label="broken")
axes.plot(10 ** table["logN"][stopped], stress[stopped], ">", color="0.3", fillstyle="none", label="stopped")
axes.set(xlabel="cycles N", ylabel="stress amplitude S (MPa)")
axes.legend()
