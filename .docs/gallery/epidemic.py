"""
An epidemic's wave, with a likelihood of one's own
==================================================

Daily cases of a wave that ends where too few are left to be infected; simulated. Counts scatter more than Poisson's
law allows, as cases come in clusters: the negative binomial has a variance of f + f² / k. Any loss is written as a
text over the formula f and the data y. Poisson's likelihood gives nearly the same curve, but errors several times too
small.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

CLUSTERING = 8  # k of the negative binomial

random = np.random.default_rng(4)
day = np.arange(90.0)
wave = "p1 * p2 / 4 / cosh(p2 * (day - p3) / 2)^2"  # derivative of the logistic curve; p1: all cases
mean = ek.Evaluator(wave, {"day": day}, dtype="float64").evaluate([[12_000, 0.15, 42]])[0]
table = {"day": day, "cases": random.negative_binomial(CLUSTERING, CLUSTERING / (CLUSTERING + mean))}

binomial = f"(y + {CLUSTERING}) * log(f + {CLUSTERING}) - y * log(f)"  # minus log-likelihood, less what has no f

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.bar(day, table["cases"], color="0.8", width=0.9, label="simulated reports")
for loss, name, style in ((binomial, "negative binomial", "-"), ("poisson", "Poisson", "--")):
    law = ek.fit(wave, table, "cases", loss=loss, init=[[8000, 0.1, 45]], dtype="float64")[0]
    for what, number, error in zip(("all cases", "growth rate", "peak"), law.params, law.standard_errors, strict=True):
        print(f"{name:18} {what:12} {number:9.4g} ± {error:.2g}")
    axes.plot(day, law({"day": day}), style, label=name)
axes.set(xlabel="time (days)", ylabel="cases a day")
axes.legend()
