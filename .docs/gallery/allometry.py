"""
Allometry, and noise in proportion
==================================

The metabolic rate of an animal grows as a power of its mass, Kleiber's law. Over six decades the scatter is a share of
the rate, not a constant. A search finds that out (``noise_``) and weights its rows by it; the exponent comes with its
standard error. Simulated, with 20 % scatter.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
mass = 10 ** random.uniform(-2, 4, 39)  # kg
rate = 3.4 * mass**0.75 * np.exp(0.2 * random.standard_normal(39))  # W
operators = {"binary_operators": ["+", "*", "^"], "unary_operators": []}
model = ek.SymbolicRegressor(niterations=0, pool_size=300, random_state=0, maxsize=9, **operators)
model.fit({"mass": mass}, rate)
print(model)
print("noise:", model.noise_)
constant = ek.fit("p1 * mass^p2", {"mass": mass}, rate)[0]
proportional = ek.fit("p1 * mass^p2", {"mass": mass, "rate": rate}, "rate", loss="(log(f) - log(y))^2")[0]

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.loglog(mass, rate, ".", color="0.5", label="simulated")
x = {"mass": np.geomspace(0.01, 1e4, 100)}
axes.plot(x["mass"], model.predict(x), label=f"search: ${model.latex(precision=3)}$")
for name, law, style in (("squares", constant, "--"), ("squares of logarithms", proportional, ":")):
    exponent = f"{law.params[1]:.3f} ± {law.standard_errors[1]:.3f}"
    axes.plot(x["mass"], law(x), style, label=f"{name}: exponent {exponent}")
axes.set(xlabel="mass (kg)", ylabel="metabolic rate (W)")
axes.legend()
