"""
Leavitt's law, and galaxies' distances from it
==============================================

The longer a Cepheid's period, the brighter it is. The luminosity is a power of the period, but catalogues give
magnitudes: a ``link`` compares -2.5 log10 of the formula with them. Of two hundred Cepheids in three galaxies,
simulated, all have the power ``p2``; the brightness ``p1[galaxy]`` tells how much farther one is than another.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import exprkit as ek

random = np.random.default_rng(0)
galaxy = np.repeat(["near", "middle", "far"], (90, 70, 40))
period = 10 ** random.uniform(0.5, 1.9, 200)  # days
distance = pd.Series(galaxy).map({"near": 1.0, "middle": 3.0, "far": 8.0}).to_numpy()  # Mpc
magnitude = 23.5 - 2.5 * np.log10(period**1.3 / distance**2) + 0.12 * random.standard_normal(200)
table = pd.DataFrame({"galaxy": galaxy, "period": period, "magnitude": magnitude})

law = ek.fit("p1[galaxy] * period^p2", table, "magnitude", link="25 - 2.5 * log10(f)")
values = dict(zip(law[0].names, law.params[0], strict=True))
errors = dict(zip(law[0].names, law.standard_errors[0], strict=True))
print(f"magnitudes for ten times the period: {-2.5 * values['p2']:.3f} ± {2.5 * errors['p2']:.3f}")
for name in ("middle", "far"):
    print(f"{name}: {np.sqrt(values['p1[near]'] / values[f'p1[{name}]']):.2f} times as far as the near one")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
grid = np.geomspace(3, 80, 50)
for (name, rows), mark in zip(table.groupby("galaxy", sort=False), "os^", strict=True):
    (points,) = axes.semilogx(rows["period"], rows["magnitude"], mark, markersize=4, alpha=0.6, label=name)
    light = law.predict(pd.DataFrame({"galaxy": name, "period": grid}), 0)
    axes.plot(grid, 25 - 2.5 * np.log10(light), color=points.get_color())
axes.invert_yaxis()
axes.set(xlabel="period (days)", ylabel="magnitude (bright above)")
axes.set_xticks((3, 10, 30, 80), ("3", "10", "30", "80"))
axes.legend(title="galaxy")
