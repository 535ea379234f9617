"""
Random expressions, and what they share
=======================================

A hundred thousand random expressions, as a genetic program makes them: some are the same once operands may change
places (``unique``), more once numbers are left out (``structures``). The GPU's transpiler compiles each structure
once, and numbers become data, so that short expressions cost hardly any compiling.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

pop = ek.generate.random(100_000, (1, 15), ["+", "-", "*", "/", "exp"], n_vars=3, n_params=0, constant_share=0.3)
for i in range(5, 10):
    print(pop[i])

sizes = np.arange(1, 16)
counts = {name: np.bincount(pop.n_tokens[rows], minlength=16)[1:] for name, rows in {
    "expressions": slice(None),
    "equal but for the order of operands": pop.unique()[0],
    "equal but for numbers": pop.structures()[0],
}.items()}  # fmt: skip
for name, count in counts.items():
    print(f"{name:36} {count.sum():7,}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for (name, count), mark in zip(counts.items(), "os^", strict=True):
    axes.semilogy(sizes, count, mark + "-", label=name if name == "expressions" else f"counted once if {name}")
axes.set(xlabel="size (tokens)", ylabel="number", ylim=(1, 2e4))
axes.legend(loc="lower right")
