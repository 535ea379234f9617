"""
No law, only an approximation: Friedman's first problem
=======================================================

A function of five columns, y = 10 sin(π x1 x2) + 20 (x3 - 1/2)² + 10 x4 + 5 x5, with noise, and five columns more
that do not matter; simulated by scikit-learn. A short search gives a front: for each size the formula of least loss.
As long as the error at other rows falls with it, structure is found; a longer search comes nearer to the noise.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

import exprkit as ek

X, y = make_friedman1(n_samples=600, noise=1.0, random_state=0)
limits = {"pool_size": 3000, "timeout_in_seconds": 1.5, "deterministic": True}
model = ek.SymbolicRegressor(**limits, random_state=0, progress=False).fit(X[:300], y[:300])
print(model)

front = model.equations_
errors = np.array([np.mean((model.predict(X[300:], i) - y[300:]) ** 2) for i in range(len(front))])
selected = front["selected"].to_numpy()
size = front["complexity"].to_numpy()

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
axes.plot(size, front["loss"], "o-", label="300 rows of the search")
axes.plot(size, errors, "s--", label="300 other rows")
axes.plot(size[selected], errors[selected], "o", color="C3", fillstyle="none", markersize=12, label="selected")
axes.axhline(1, color="0.4", linestyle=":", linewidth=1)
axes.text(1, 1.1, "variance of the noise")
axes.set(xlabel="size of the formula (tokens)", ylabel="mean squared error", yscale="log", ylim=(0.8, 40))
axes.set_yticks((1, 3, 10, 30), ("1", "3", "10", "30"))
axes.legend()
