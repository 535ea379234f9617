"""
Enzyme kinetics with constants per group
========================================

How fast an enzyme works depends on the concentration of its substrate, by the law of Michaelis and Menten. Treating the
enzyme with puromycin changes the highest rate; does it change the affinity, too? ``p1[state]`` is one number per state.
Measurements of Treloar (1974), as printed by Bates and Watts, "Nonlinear Regression Analysis" (1988).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import exprkit as ek

CONCENTRATION = np.repeat([0.02, 0.06, 0.11, 0.22, 0.56, 1.10], 2)  # ppm
TREATED = [76, 47, 97, 107, 123, 139, 159, 152, 191, 201, 207, 200]  # counts/min^2
UNTREATED = [67, 51, 84, 86, 98, 115, 131, 124, 144, 158, 160]  # counts/min^2
parts = [("treated", TREATED), ("untreated", UNTREATED)]
table = pd.concat([pd.DataFrame({"state": s, "c": CONCENTRATION[: len(v)], "rate": v}) for s, v in parts])

laws = ["p1[state] * c / (p3 + c)", "p1[state] * c / (p2[state] + c)"]
found = ek.fit(laws, table, "rate", loss="gaussian")
print("BIC with one affinity, with two:", found.score("bic").round(1))
law = found[1]
for name, value, error in zip(law.names, law.params, law.standard_errors, strict=True):
    print(f"{name}: {value:.4g} +- {error:.2g}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
c = np.linspace(0, 1.2, 200)
for (state, rows), marker in zip(table.groupby("state"), "os", strict=True):
    (points,) = axes.plot(rows["c"], rows["rate"], marker, label=state)
    axes.plot(c, law(pd.DataFrame({"state": state, "c": c})), color=points.get_color())
axes.set(xlabel="concentration of the substrate (ppm)", ylabel="rate (counts/min$^2$)", ylim=0)
axes.legend(loc="lower right")
