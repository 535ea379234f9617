"""Standard models in data of their own: how often a fit without a start ends where one from the truth does.

    python tests/bench_models.py                 # 20 draws of each of the models' parameters, 1 % noise; some minutes
    python tests/bench_models.py 100 0.05 hill   # 100 draws, noise of 5 % of the largest value, one model

The draws are those of ``test_models.py``.  The last column is the median time of both fits.
"""

from __future__ import annotations

import statistics
import sys
import time

from test_models import fits_of, is_recovered

import exprkit as ek


def main(draws: int = 20, noise: float = 0.01, *names: str) -> None:
    print(f"| model | recovered of {draws} | ms |\n|---|---|---|")
    total = 0
    for name in names or ek.models.names():
        count, seconds = 0, []
        for seed in range(draws):
            begin = time.perf_counter()
            found, best = fits_of(name, seed, noise)
            seconds.append(time.perf_counter() - begin)
            count += is_recovered(found, best)
        total += count
        print(f"| {name} | {count} | {1e3 * statistics.median(seconds):.0f} |", flush=True)
    print(f"{total} of {draws * len(names or ek.models.names())}")


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float, *[str] * 99), sys.argv[1:], strict=False)))
