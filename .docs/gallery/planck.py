"""
Planck's law on one curve
=========================

How the radiance of a black body depends on wavelength and temperature, ``ek.reduce`` tells from noisy data alone: it
is the fifth power of the temperature times a function of one product, which is Wien's displacement law. Simulated,
with 1 % noise.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

C1 = 119.1042972  # MW µm^4 / (m^2 sr): 2 h c^2, CODATA 2018
C2 = 14387.76877  # µm K: h c / k, CODATA 2018

random = np.random.default_rng(0)
wavelength, T = random.uniform(1, 4, 200), random.uniform(1000, 3000, 200)  # µm, K
radiance = C1 / wavelength**5 / np.expm1(C2 / (wavelength * T)) * (1 + 0.01 * random.standard_normal(200))
reduction = ek.reduce({"wavelength": wavelength, "T": T, "radiance": radiance}, "radiance")
print(reduction)

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.5))
left.scatter(wavelength, radiance, 9, T, cmap="cividis")
unit = r"MW m$^{-2}$ sr$^{-1}$ µm$^{-1}$"
left.set(xlabel="wavelength (µm)", ylabel=f"radiance ({unit})", title="as measured", yscale="log")
groups, factor = reduction.transform(np.column_stack([wavelength, T]))
points = right.scatter(groups[:, 0] / 1000, radiance / factor / 1e-18, 9, T, cmap="cividis")
right.set(xlabel=f"{reduction.groups[0]} (mm K)", title="reduced")
right.set_ylabel(f"radiance / ({reduction.factor}) (10$^{{-18}}$ {unit} K$^{{-5}}$)")
figure.colorbar(points, ax=right, label="T (K)")
