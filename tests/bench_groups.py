"""One law, many data sets: how many laws with constants per group does a search find, and in what time?

    python tests/bench_groups.py CLASS_SR.csv [seconds of counted work] [noise]

A row of the file is a law with constants ``p1[group]`` (from PhySO's list of such problems), its variables' ranges, and
those of its constants, which are drawn for ten groups of 100 rows each.  A law is found where the selected formula, its
numbers fitted to the same rows without noise, leaves less than 1e-10 of the variance.
"""

import csv
import json
import re
import sys
import time

import numpy as np
import pandas as pd

import exprkit as ek
from exprkit.regression.problem.rows import Rows
from exprkit.regression.skeletons.alternate import TemplateSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.runtime.budget import Budget

GROUPS, POINTS = 10, 100


def drawn(row, random):
    """A table with the column ``group``, and the law's values."""
    variables = json.loads(row["variables"])
    own = {one["name"]: one for one in variables}
    inputs = [one for one in variables if one["role"] == "variable"]
    codes = np.repeat(np.arange(GROUPS), POINTS)
    columns = {f"x{k + 1}": random.uniform(one["low"], one["high"], len(codes)) for k, one in enumerate(inputs)}
    numbers = {}
    for k, name in enumerate(json.loads(row["per_data_set"])):
        numbers[f"c{k + 1}"] = random.uniform(own[name]["low"], own[name]["high"], GROUPS)[codes]
    text = re.sub(r"p(\d)\[group\]", r"c\1", row["formula"])
    law = ek.parse(text, variables=[*columns, *numbers])
    values = ek.Evaluator(law, np.column_stack([*columns.values(), *numbers.values()]), dtype="float64").evaluate()[0]
    return pd.DataFrame(columns | {"group": [f"g{code}" for code in codes]}), values


def is_law(model, table, y):
    """Whether the selected formula's form is exact without noise."""
    front = model._template
    X = table.drop(columns="group").to_numpy()
    indicators = [[word == one for one in front.categories] for word in table["group"]]
    rows = Rows(np.column_stack([X, np.array(indicators, float)]), y)
    search = TemplateSearch(front.skeleton, rows, SearchSettings(), Budget(), by_category=True)
    return search.judge([front.laws[model._index(None)]])[0].loss < 1e-10 * y.var()


def main(path, seconds=60.0, noise=0.01):
    n_found = 0
    with open(path, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file)):
            random = np.random.default_rng(number)
            table, y = drawn(row, random)
            noisy = y + float(noise) * y.std() * random.standard_normal(len(y))
            begin = time.perf_counter()
            limit = {"timeout_in_seconds": float(seconds), "deterministic": True}
            model = ek.SymbolicRegressor(groups="group", random_state=0, **limit).fit(table, noisy)
            n_found += (found := is_law(model, table, y))
            took = f"{time.perf_counter() - begin:.0f} s"
            print(
                f"{row['name']}: {'found' if found else 'not found'}, {took}: {model.get_best().equation}", flush=True
            )
    print(f"{n_found} laws found")


if __name__ == "__main__":
    main(*sys.argv[1:])
