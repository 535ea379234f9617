"""
Outliers
========

A straight line through readings of which a sixth are wrong, fitted with four losses. Squares follow the outliers;
Huber's loss and absolute errors do not, and a loss of one's own, Cauchy's, leaves them nearly out. Simulated.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(3)
current = np.linspace(1, 10, 36)  # mA
voltage = 0.47 * current + 0.1 + 0.05 * random.standard_normal(36)  # V
voltage[[20, 24, 27, 30, 33, 35]] -= random.uniform(1, 3, 6)
table = {"current": current, "voltage": voltage}
losses = {
    "squares": "squares",
    "Huber": "huber(f - y, 0.1)",
    "absolute": "mae",
    "Cauchy": "log(1 + ((f - y) / 0.1)^2)",
}

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.plot(current, voltage, "o", color="0.4")
for (name, loss), style in zip(losses.items(), ("-", "--", ":", "-."), strict=True):
    law = ek.fit("p1 * current + p2", table, "voltage", loss=loss)[0]
    print(f"{name:8} {law.params[0]:.3f} kΩ")
    axes.plot(current, law(table), style, label=f"{name}: {law.params[0]:.3f} kΩ")
axes.axline((0, 0.1), slope=0.47, color="black", linewidth=0.8, label="truth: 0.470 kΩ")
axes.set(xlabel="current (mA)", ylabel="voltage (V)", xlim=(0, 10.5), ylim=(0, 5.5))
axes.legend()
