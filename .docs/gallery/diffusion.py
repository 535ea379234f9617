"""
Diffusion: a fitted formula solves its equation
===============================================

Salt diffuses into a gel from its surface; simulated concentrations at depths x and times t. The solution of the
diffusion equation, c = c0 erfc(x / sqrt(4 D t)), is fitted to all of them at once; ``diff`` then gives its
derivatives as expressions, which confirm that dc/dt - D d²c/dx² is 0 up to rounding.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
x, t = (grid.ravel() for grid in np.meshgrid(np.linspace(0.2, 12, 25), [1.0, 4.0, 16.0]))  # mm, h
truth = ek.Evaluator("p1 * erfc(x / sqrt(4 * p2 * t))", {"x": x, "t": t}, dtype="float64")
table = {"x": x, "t": t, "c": truth.evaluate([[50, 1.4]])[0] + 0.8 * random.standard_normal(len(x))}
law = ek.fit("p1 * erfc(x / sqrt(4 * p2 * t))", table, "c")
print(law[0].latex(errors=True))

slope = law.pop.diff("t")  # dc/dt
curvature = law.pop.diff("x").diff("x")  # d2c/dx2
sides = ek.Evaluator(slope + curvature, table, dtype="float64").evaluate([*law.params, *law.params])
print("largest |dc/dt - D d²c/dx²|:", f"{np.abs(sides[0] - law.params[0, 1] * sides[1]).max():.1e}")

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
depth = np.linspace(0, 12, 200)
for hours in (1.0, 4.0, 16.0):
    rows = t == hours
    (line,) = axes.plot(depth, law[0]({"x": depth, "t": np.full(200, hours)}), label=f"after {hours:.0f} h")
    axes.plot(x[rows], table["c"][rows], "o", color=line.get_color(), markersize=4, alpha=0.6)
axes.set(xlabel="depth (mm)", ylabel="concentration (g/l)", xlim=(0, 12))
axes.legend()
