"""
Vapour pressure, and what its formula knows about heat
======================================================

Antoine's equation is fitted to the vapour pressure of water (International Association for the Properties of Water
and Steam, formulation of 1995, rounded). As a SymPy expression it can be differentiated: Clausius and Clapeyron's
equation then gives the heat of vaporisation, R T² d(log p)/dT for an ideal gas, some 2 % too much for steam.
"""

import matplotlib.pyplot as plt
import numpy as np
import sympy

import exprkit as ek

R = 8.314462618e-3  # kJ / (mol K), gas constant, CODATA 2018
ZERO = 273.15  # K, of the Celsius scale

celsius = [0.01, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
pressure = [0.61165, 1.2282, 2.3393, 4.2470, 7.3849, 12.352, 19.946, 31.201, 47.414, 70.182, 101.42]  # kPa
antoine = "10^(p1 - p2 / (p3 + T))"
law = ek.fit(antoine, {"T": celsius, "p": pressure}, "p", loss="(log(f) - log(y))^2", init=[[6, 1500, 230]])[0]
print(law.latex(errors=True))

T = sympy.Symbol("T")
heat = R * (T + ZERO) ** 2 * sympy.diff(sympy.log(law.sympy()), T)
at_boiling = float(heat.subs(T, 100))
print(f"heat of vaporisation at 100 °C: {at_boiling:.1f} kJ/mol (measured: 40.7)")

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
grid = np.linspace(0, 105, 100)
left.semilogy(grid, law({"T": grid}), label="Antoine's equation")
left.semilogy(celsius, pressure, "o", color="0.3", label="reference values")
left.set(xlabel="temperature (°C)", ylabel="vapour pressure (kPa)")
left.legend()
right.plot(grid, sympy.lambdify(T, heat)(grid))
right.plot(100, 40.7, "s", color="C1", markersize=7)
right.annotate("measured", (100, 40.7), (-6, 0), textcoords="offset points", ha="right", va="center")
right.set(xlabel="temperature (°C)", ylabel="heat of vaporisation (kJ/mol)")
