"""
NIST's certified fits, from far starts
======================================

The National Institute of Standards and Technology certifies the parameters of nonlinear fits to eleven digits
(Statistical Reference Datasets, public domain). Here are five problems, each begun at the farther of NIST's two
starts: most of the steps go into the way to the minimum; once near, digits come fast. A fit with defaults, of which
numbers are printed, ends with all of them.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

misra = "77.6 114.9 141.1 190.8 239.9 289 332.8 378.4 434.8 477.3 536.8 593.1 689.1 760"
pressure = "10.07 14.73 17.94 23.93 29.61 35.18 40.02 44.82 50.76 55.05 61.01 66.4 75.47 81.78"
cells = "8.93 10.8 18.59 22.33 39.35 56.11 61.73 64.62 67.08"
problems = {  # x, y, formula, start, certified parameters
    "Misra1a": (misra, pressure, "p1 * (1 - exp(-p2 * x))", [500, 1e-4], [238.94212918, 5.5015643181e-4]),
    "Misra1b": (misra, pressure, "p1 * (1 - (1 + p2 * x / 2)^(-2))", [500, 1e-4], [337.99746163, 3.9039091287e-4]),
    "BoxBOD": ("1 2 3 5 7 10", "109 149 149 191 213 224", "p1 * (1 - exp(-p2 * x))", [1, 1],
               [213.80940889, 0.54723748542]),
    "Rat42": ("9 14 21 28 42 57 63 70 79", cells, "p1 / (1 + exp(p2 - p3 * x))", [100, 1, 0.1],
              [72.462237576, 2.6180768402, 0.067359200066]),
}  # fmt: skip

exact = {"dtype": "float64", "tol": 1e-15}
plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for name, (x, y, formula, start, certified) in problems.items():
    table = {"x": np.array(x.split(), float), "y": np.array(y.split(), float)}
    digits = []
    for steps in range(1, 41):
        found = ek.fit(formula, table, "y", init=[start], max_iter=steps, accuracy="screen", **exact)
        digits.append(-np.log10(np.abs(found.params[0] / certified - 1).max()))
    print(f"{name:8} {ek.fit(formula, table, 'y', init=[start]).params[0]}")
    axes.plot(range(1, 41), np.clip(digits, 0, 11), label=name)
axes.set(xlabel="steps of the fit", ylabel="digits of all parameters that agree", xlim=(0, 40), ylim=(0, 11.2))
axes.legend(loc="lower right")
