"""
Candidates in cross-validation: the progression of diabetes
===========================================================

Given formulas are an estimator of scikit-learn with ``ek.ExpressionRegressor``, and its tools then compare them. The
data are measurements of 442 patients, with the progression of their disease a year later (Efron et al., Annals of
Statistics 32, 2004; shipped with scikit-learn): a product of powers of three columns explains nearly as much as a
linear regression on all ten.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_score

import exprkit as ek

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)  # bmi: body mass index, bp: blood pressure
formulas = [
    "p1 + p2 * bmi",
    "p1 * bmi^p2",
    "p1 + p2 * bmi + p3 * s5",  # s5: logarithm of triglycerides
    "p1 * bmi^p2 * s5^p3",
    "p1 * bmi^p2 * s5^p3 * bp^p4",
]
models = {formula: ek.ExpressionRegressor([formula]) for formula in formulas}
models["linear regression, ten columns"] = LinearRegression()
folds = KFold(n_splits=5, shuffle=True, random_state=0)
scores = {name: cross_val_score(model, X, y, cv=folds) for name, model in models.items()}

plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots(figsize=(8, 3.6))
for row, (name, score) in enumerate(scores.items()):
    print(f"{score.mean():.3f}  {name}")
    axes.plot(score, [row] * len(score), "|", color="C0", alpha=0.5, markersize=12)
    axes.plot(score.mean(), row, "o", color="C0")
axes.set_yticks(range(len(scores)), scores, family="monospace")
axes.set(xlabel="R² of patients left out (dots: means of five folds)", xlim=(0, 0.7))
