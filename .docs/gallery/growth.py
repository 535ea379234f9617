"""
Growth of yeast
===============

Three laws of growth, fitted to a culture of yeast and ranked by description length: accuracy against the length of a
formula and its numbers. Measurements of Carlson (1913), as printed by Pearl, "The growth of populations" (1927).
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

BIOMASS = [9.6, 18.3, 29.0, 47.2, 71.1, 119.1, 174.6, 257.3, 350.7, 441.0]  # after 0 h, 1 h, ...
BIOMASS += [513.3, 559.7, 594.8, 629.4, 640.8, 651.1, 655.9, 659.6, 661.8]
table = {"t": np.arange(19.0), "biomass": BIOMASS}
names = {
    "p1 / (1 + exp(p2 - p3 * t))": "logistic",
    "p1 * exp(-exp(p2 - p3 * t))": "Gompertz",
    "p1 * (1 + exp(p2 - p3 * t)) ^ -p4": "Richards",
}
ranked = ek.fit(list(names), table, "biomass", loss="gaussian").rank("description_length")
lengths = ranked.score("description_length")

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
left.plot(table["t"], BIOMASS, "o", color="0.4")
right.axhline(0, color="0.4")
t = np.linspace(0, 18, 200)
for law, length, style in zip(ranked, lengths, ("-", "--", ":"), strict=True):
    label = f"{names[str(law.expression)]}, {length - lengths[0]:+.1f} nats"
    left.plot(t, law({"t": t}), style, label=label)
    right.plot(table["t"], BIOMASS - law(table), "o" + style)
left.set(xlabel="time (h)", xticks=range(0, 19, 3), ylabel="biomass (arbitrary units)")
right.set(xlabel="time (h)", xticks=range(0, 19, 3), ylabel="measured - fitted")
left.legend()
