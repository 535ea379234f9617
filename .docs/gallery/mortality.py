"""
Mortality: four laws and their likelihoods
==========================================

How many of those of an age die within a year: Gompertz's law says that the rate grows exponentially, Makeham adds
accidents at any age, Perks lets the rate level off, Weibull takes a power of age. Deaths are counts, so
``loss="poisson"``; the number of people is a column of the formula. Akaike's criterion compares the laws. Simulated
by Perks' law with accidents.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
age = np.arange(20.0, 105)
people = np.round(100_000 * np.exp(-(((age - 20) / 55) ** 4)) + 30)
rate = 0.0006 + 2e-5 * np.exp(0.105 * age) / (1 + 1.2e-5 * np.exp(0.105 * age))
table = {"age": age, "people": people, "deaths": random.poisson(people * rate)}

laws = {
    "Weibull": "people * p1 * (age / 80)^p2",
    "Gompertz": "people * p1 * exp(p2 * (age - 80))",
    "Makeham": "people * (p1 * exp(p2 * (age - 80)) + p3)",
    "Perks": "people * (p1 * exp(p2 * (age - 80)) / (1 + p4 * exp(p2 * (age - 80))) + p3)",
}
starts = {"p1": 0.05, "p2": 0.1, "p3": 0.001, "p4": 0.1}
found = ek.fit(list(laws.values()), table, "deaths", loss="poisson", init=starts, restarts=10)
aic = found.score("aic")
for name, one in zip(laws, aic - aic.min(), strict=True):
    print(f"{name:9} {one:8.1f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.semilogy(age, table["deaths"] / people, "o", color="0.3", markersize=3, label="simulated")
for i, name in enumerate(laws):
    axes.semilogy(age, found.predict(table, i) / people, label=f"{name}, AIC + {aic[i] - aic.min():.0f}")
axes.set(xlabel="age (years)", ylabel="deaths per person and year")
axes.legend()
