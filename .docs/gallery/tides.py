"""
Tides: two periods close to each other, and a gap in the record
===============================================================

A tide gauge in a month, simulated: the Moon's tide and the Sun's, whose beat makes spring and neap tides. For nine
days the gauge failed: ``missing="drop"`` leaves those hours out. No start is needed, as a fit looks for the
frequencies of the data. Hourly values do not tell a wave from one that turns once more an hour: ``bounds`` say that
it is the slow one.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

MOON = 12.4206  # h, period of the tide M2
SUN = 12.0  # h, period of the tide S2

hours = np.arange(0.0, 30 * 24)
level = 2.1 + 1.2 * np.sin(2 * np.pi * hours / MOON + 0.5) + 0.45 * np.sin(2 * np.pi * hours / SUN - 1.1)
level += 0.08 * np.random.default_rng(0).standard_normal(len(hours))
measured = np.where((hours > 240) & (hours < 456), np.nan, level)

waves = "p1 + p2 * sin(p3 * t + p4) + p5 * sin(p6 * t + p7)"
slow = {"p3": (0, 1), "p6": (0, 1)}
tide = ek.fit(waves, {"t": hours, "level": measured}, "level", missing="drop", bounds=slow)[0]
for i in (2, 5):
    period = 2 * np.pi / tide.params[i]
    error = period * tide.standard_errors[i] / tide.params[i]
    print(f"amplitude {abs(tide.params[i - 1]):.2f} m, period {period:.3f} ± {error:.3f} h")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots(figsize=(8, 3.6))
axes.plot(hours / 24, tide({"t": hours}), linewidth=0.8, label="fit")
axes.plot(hours / 24, measured, ".", color="0.3", markersize=3, label="simulated hours")
axes.axvspan(10, 19, color="C1", alpha=0.12, linewidth=0)
axes.text(14.5, 4.15, "no record", ha="center")
axes.set(xlabel="time (days)", ylabel="water level (m)", xlim=(0, 30), ylim=(0, 4.5))
axes.legend(loc="upper right", ncols=2)
