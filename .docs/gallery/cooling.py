"""
A cooling cup, with its uncertainty
===================================

Newton's law of cooling, fitted to ten minutes of simulated readings and extrapolated to an hour. The band is what the
covariance of the parameters and the derivatives by them (``jacobian``) say; a prior, the room's temperature as
a thermometer shows it, makes it narrow.
"""

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

random = np.random.default_rng(0)
t = np.linspace(0, 10, 21)  # min
table = {"t": t, "T": 21 + 60 * np.exp(-t / 18) + 0.3 * random.standard_normal(t.size)}  # °C
law = "room + excess * exp(-t / tau)"
pop = ek.parse(law, variables=["t"], parameters=["room", "excess", "tau"])
new = {"t": np.linspace(0, 60, 200)}

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for name, prior in (("without a prior", None), ("room = 21.0 ± 0.5 °C", {"room": (21.0, 0.5)})):
    found = ek.fit(pop, table, "T", weights=np.full(t.size, 1 / 0.3**2), loss="gaussian", prior=prior)
    J = ek.Evaluator(pop, new, dtype="float64").jacobian(found.params)[0]  # (points, parameters)
    band = 1.96 * np.sqrt(np.einsum("ip,pq,iq->i", J, found.covariance[0], J))
    f = found.predict(new, 0)
    (line,) = axes.plot(new["t"], f, label=name)
    axes.fill_between(new["t"], f - band, f + band, color=line.get_color(), alpha=0.25, linewidth=0)
    print(name, dict(zip(found[0].names, found[0].params.round(1).tolist(), strict=True)))
axes.plot(t, table["T"], ".", color="black", label="readings")
axes.set(xlabel="time (min)", ylabel="temperature (°C)", ylim=(0, 85))
axes.legend()
