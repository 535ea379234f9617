"""
A supernova's light curve, with an operator of one's own
========================================================

Bazin's function (Astronomy and Astrophysics 534, A43, 2011) describes the light of supernovae that rise in days and
fade in weeks. Defined once as an operator, it is written, fitted, differentiated and exported like any other. The two
filters of one telescope, simulated, share the time of the explosion: ``p3`` is one number, ``p2[filter]`` and the
others one for each filter.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import exprkit as ek

ek.operator("bazin(t, fall, rise) = exp(-t / fall) / (1 + exp(-t / rise))")
random = np.random.default_rng(1)
truth = {"g": (160.0, 17.0, 3.2), "r": (130.0, 28.0, 4.1)}  # flux (µJy), times of fading and of rising (days)
tables = []
for name, (flux, fall, rise) in truth.items():
    t = np.sort(random.uniform(-20, 80, 45))
    light = flux * np.exp(-t / fall) / (1 + np.exp(-t / rise))
    tables.append(pd.DataFrame({"filter": name, "day": t + 30, "light": light + 3 * random.standard_normal(45)}))
table = pd.concat(tables, ignore_index=True)

law = ek.fit("p1[filter] * bazin(day - p3, p2[filter], p4[filter])", table, "light")
for name, value, error in zip(law[0].names, law.params[0], law.standard_errors[0], strict=True):
    print(f"{name:6} {value:7.2f} ± {error:.2f}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
day = np.linspace(10, 110, 300)
for (name, rows), color, mark in zip(table.groupby("filter"), ("C2", "C3"), "os", strict=True):
    axes.plot(rows["day"], rows["light"], mark, color=color, markersize=4, alpha=0.6)
    axes.plot(day, law.predict(pd.DataFrame({"filter": name, "day": day}), 0), color=color, label=f"filter {name}")
axes.set(xlabel="time (days)", ylabel="light (µJy)")
axes.legend()
