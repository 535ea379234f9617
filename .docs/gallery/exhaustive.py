"""
Every formula up to a size
==========================

An exhaustive search fits every function of up to six nodes and leaves none out, then ranks them by description length,
which counts the loss and the length of the formula with its numbers. Simulated: the speed of a falling paper cone, with
air resistance.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
t = np.linspace(0.02, 1.5, 30)  # s
speed = 1.9 * np.tanh(9.81 / 1.9 * t) + 0.03 * random.standard_normal(30)  # m/s
found = ek.exhaustive_search(
    {"t": t}, speed, max_nodes=6, operators=["+", "*", "exp", "tanh"], sigma=0.03, restarts=31, progress=False
)
print(f"{found.counts[:, 1].sum():,} trees are {found.n_functions:,} functions; the best:")
print(found[0].latex(errors=True))

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
table = found.equations
left.plot(table["size"], table["total"] - table["total"].min() + 1, ".", color="0.6", label="a function")
left.plot(table["size"][:1], [1], "*", color="C1", markersize=14, label="the best")
left.set(xlabel="nodes", ylabel="description length over the least (nats)", yscale="log", ylim=(0.5, 1e7))
left.legend()
right.plot(t, speed, "o", color="0.5", label="simulated")
fine = np.linspace(0, 1.5, 200)
for i in range(3):
    right.plot(fine, found[i]({"t": fine}), label=f"${found[i].latex()}$")
right.set(xlabel="time (s)", ylabel="speed (m/s)")
right.legend()
