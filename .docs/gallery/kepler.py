"""
Kepler's third law
==================

A power law fitted to the eight planets: the period grows as the power 3/2 of the distance from the Sun. Periods range
from months to centuries, so the loss compares logarithms; ``latex(errors=True)`` rounds each number by its standard
error.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import exprkit as ek

planets = pd.read_csv("../../data/planets.csv")  # planet, distance (AU), period (years)
law = ek.fit("p1 * `distance (AU)` ^ p2", planets, "period (years)", loss="(log(f) - log(y))^2")[0]
print(law.latex(errors=True))

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
distance = np.geomspace(0.3, 50, 100)
axes.loglog(distance, law({"distance (AU)": distance}), label=f"${law.latex()}$")
axes.loglog(planets["distance (AU)"], planets["period (years)"], "o")
for name, x, y in planets.to_numpy():
    axes.annotate(name, (x, y), (7, -3), textcoords="offset points", va="top")
axes.set(xlabel="distance from the Sun (AU)", ylabel="period (years)", xlim=(0.25, 90))
axes.legend(loc="upper left")
