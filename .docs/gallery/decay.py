"""
Counting a decay
================

Counts of a simulated radioactive source above a background, every two seconds. The likelihood of counts, ``poisson``,
takes each row for what it says, counts of 0 too; plain squares weigh all rows alike.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
t = np.arange(0, 120, 2.0)  # s
counts = random.poisson(90 * 0.5 ** (t / 12) + 1.5)
names = ["source", "half_life", "background"]
pop = ek.parse("source * 0.5 ^ (t / half_life) + background", variables=["t"], parameters=names)
positive = {"source": (0, None), "half_life": (0.1, None), "background": (0, None)}
print("truth: half life 12 s, background 1.5 counts")

plt.style.use("exprkit.study.plots")
figure, (top, bottom) = plt.subplots(2, 1, sharex=True, height_ratios=(3, 1), figsize=(6.4, 5))
top.plot(t, counts, "o", color="0.4", label="counts")
for loss, style in (("poisson", "-"), ("squares", "--")):
    law = ek.fit(pop, {"t": t, "n": counts}, "n", loss=loss, bounds=positive)[0]
    numbers = [f"{value:.2f} ± {error:.2f}" for value, error in zip(law.params, law.standard_errors, strict=True)]
    print(loss, dict(zip(law.names, numbers, strict=True)))
    f = law({"t": t})
    top.plot(t, f, style, label=f"{loss}: half life {numbers[1]} s")
    bottom.plot(t, (counts - f) / np.sqrt(f), "." if loss == "poisson" else "x")
bottom.axhline(0, color="0.4", linewidth=1)
top.set_yscale("function", functions=(np.sqrt, np.square))  # on which counts scatter alike everywhere
top.set(ylabel="counts", ylim=(0, 120), yticks=[0, 5, 20, 50, 100])
bottom.set(xlabel="time (s)", ylabel="residual / $\\sqrt{f}$")
top.legend()
