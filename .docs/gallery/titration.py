"""
A titration, with what is known beforehand
==========================================

25 ml of acetic acid are titrated with sodium hydroxide, simulated. The volume at each pH follows from the balance of
charges: from it the acid's concentration ``p1`` and its strength pK ``p2`` are fitted. The label of the hydroxide
says 0.1000 ± 0.0005 mol/l: a ``prior`` takes this as one more measurement, and the label's error becomes a part of
the result's.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

balance = "25 * (p1 / (1 + 10^(p2 - pH)) - 10^(-pH) + 10^(pH - 14)) / (p3 + 10^(-pH) - 10^(pH - 14))"  # ml
pH = np.concatenate([np.linspace(3, 6.2, 18), np.linspace(7, 11, 6), np.linspace(11.3, 12, 8)])
truth = ek.Evaluator(balance, {"pH": pH}, dtype="float64").evaluate([[0.08, 4.76, 0.1003]])[0]
table = {"pH": pH, "volume": truth + 0.1 * np.random.default_rng(0).standard_normal(len(pH))}

measured = {"weights": np.full(len(pH), 0.1**-2), "loss": "gaussian", "init": [[0.1, 5, 0.1]]}  # errors of 0.1 ml
without = ek.fit(balance, table, "volume", **measured)[0]
law = ek.fit(balance, table, "volume", **measured, prior={"p3": (0.1, 0.0005)})[0]
for name, one in (("without the label", without), ("with it", law)):
    numbers = (f"{p:.5f} ± {e:.5f}" for p, e in zip(one.params, one.standard_errors, strict=True))
    print(f"{name}: acid {next(numbers)} mol/l, pK {next(numbers)}, hydroxide {next(numbers)} mol/l")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.linspace(2.9, 12.1, 400)
axes.plot(law({"pH": grid}), grid, label="fit")
axes.plot(table["volume"], pH, "o", color="0.3", markersize=4, label="simulated measurements")
axes.axhline(law.params[1], color="C1", linestyle="--", linewidth=1)
axes.text(0.2, law.params[1] + 0.15, f"pK = {law.params[1]:.2f}")
axes.set(xlabel="volume of sodium hydroxide (ml)", ylabel="pH")
axes.legend(loc="lower right")
