"""
A pendulum, by units
====================

Which formula gives the period of a pendulum? With the units of the columns, a search makes only formulas in which they
match, so that the mass, which has the only kilogram, cannot come in. Simulated, with 1 % noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
length = random.uniform(0.2, 2, 39)  # m
mass = random.uniform(0.1, 1, 39)  # kg
gravity = random.choice([1.62, 3.71, 9.81], 39)  # m/s^2: the Moon, Mars, the Earth
period = 2 * np.pi * np.sqrt(length / gravity) * (1 + 0.01 * random.standard_normal(39))  # s
table = {"length": length, "mass": mass, "gravity": gravity}

operators = {"binary_operators": ["*", "/"], "unary_operators": ["sqrt"]}
model = ek.SymbolicRegressor(niterations=0, pool_size=300, random_state=0, maxsize=12, **operators)
model.fit(table, period, X_units=["m", "kg", "m/s^2"], y_units="s")
print(model)

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for (name, g), marker in zip({"Moon": 1.62, "Mars": 3.71, "Earth": 9.81}.items(), "o^s", strict=True):
    rows = gravity == g
    (points,) = axes.plot(length[rows], period[rows], marker, label=name)
    x = np.linspace(0.1, 2.1, 100)
    axes.plot(x, model.predict({"length": x, "mass": 0 * x, "gravity": 0 * x + g}), color=points.get_color())
axes.set(xlabel="length (m)", ylabel="period (s)", title=f"${model.latex()}$", xlim=0, ylim=0)
axes.legend()
