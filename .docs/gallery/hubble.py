"""
Hubble's law, and three ways to its uncertainty
===============================================

The data are Hubble's own: 24 galaxies (Proceedings of the National Academy of Sciences 15, 168, 1929). A standard
error and a profile of the loss take errors of one size for granted; a bootstrap that draws galaxies does not. His
distances were seven times too short, and so his constant too large: today it is near 70 km/s/Mpc.
"""

import matplotlib.pyplot as plt

import exprkit as ek

distance = [0.032, 0.034, 0.214, 0.263, 0.275, 0.275, 0.45, 0.5, 0.5, 0.63, 0.8, 0.9,
            0.9, 0.9, 0.9, 1, 1.1, 1.1, 1.4, 1.7, 2, 2, 2, 2]  # fmt: skip
velocity = [170, 290, -130, -70, -185, -220, 200, 290, 270, 200, 300, -30,
            650, 150, 500, 920, 450, 500, 500, 960, 500, 850, 800, 1090]  # fmt: skip
table = {"distance": distance, "velocity": velocity}  # Mpc, km/s
found = ek.fit("p1 * distance", table, "velocity")
H, robust = found.params[0, 0], found.robust_errors[0, 0]
intervals = {
    "standard error": found[0].intervals(),
    "profile": found[0].intervals(method="profile"),
    "bootstrap of galaxies": found[0].intervals(method="bootstrap", resample="pairs", n=1000),
}
for name, table_of in intervals.items():
    print(f"{name:22} {table_of.loc['p1', 'lower']:.0f} to {table_of.loc['p1', 'upper']:.0f} km/s/Mpc")
print(f"H = {H:.0f} ± {found.standard_errors[0, 0]:.0f}, by the sandwich ± {robust:.0f} km/s/Mpc")

plt.style.use("exprkit.study.plots")
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), width_ratios=(3, 2))
left.plot(distance, velocity, "o", markersize=5, color="gray")
left.plot([0, 2.1], found.predict({"distance": [0, 2.1]}, 0), label=f"{H:.0f} km/s/Mpc")
left.set(xlabel="distance as Hubble had it (Mpc)", ylabel="velocity (km/s)")
left.legend(loc="upper left")
for row, one in enumerate(intervals.values()):
    low, high = one.loc["p1", ["lower", "upper"]]
    right.errorbar(H, row, xerr=[[H - low], [high - H]], fmt="o", color="C0", capsize=4)
right.set_yticks(range(3), intervals)
right.set(xlabel="Hubble's constant (km/s/Mpc)", title="intervals of 95 %", ylim=(-0.5, 2.5))
