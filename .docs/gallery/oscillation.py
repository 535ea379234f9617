"""
A damped oscillation and its velocity
=====================================

The least squares of a sine have many minima in its frequency; without ``init``, a fit looks for the frequencies of the
data and starts there. ``diff`` then gives the velocity as a formula with the same parameters, for the picture in phase
space. Simulated.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
t = np.linspace(0, 12, 120)  # s
x = 4 * np.exp(-0.25 * t) * np.cos(5.3 * t + 0.6) + 0.25 * random.standard_normal(t.size)  # cm
position = ek.parse("p1 * exp(-p2 * t) * cos(p3 * t + p4)", variables=["t"])
found = ek.fit(position, {"t": t, "x": x}, "x")
velocity = position.diff("t")
print("position", position[0])
print("velocity", velocity[0])
print("parameters", found.params[0].round(3), "+-", found.standard_errors[0].round(3))

fine = {"t": np.linspace(0, 12, 1000)}
f, v = (ek.Evaluator(pop, fine, dtype="float64").evaluate(found.params)[0] for pop in (position, velocity))

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
left.plot(t, x, ".", color="0.4", label="simulated")
left.plot(fine["t"], f, label="fitted")
left.set(xlabel="time (s)", ylabel="position (cm)")
left.legend()
right.plot(f, v, linewidth=1)
right.set(xlabel="position (cm)", ylabel="velocity (cm/s)")
