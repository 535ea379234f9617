"""Progress: what a search shows of itself while it runs.

In: the search, again and again.  Out: a bar of tqdm; in a notebook the front, as a table and a figure.

    >>> from exprkit.regression.estimator.progress import Showing
    >>> with Showing(False, 100, None) as shown:
    ...     shown.alive()
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from exprkit.errors import brought_by
from exprkit.expressions.expression import Expression

if TYPE_CHECKING:
    from exprkit.regression.discovery import Discovery

EVERY = 0.5  # seconds between two looks


class Showing:
    """Shows a search, if that is wanted."""

    def __init__(self, wanted: bool, n_iterations: int, names: tuple[str, ...] | None) -> None:
        self._wanted, self._n, self._names = bool(wanted), n_iterations, names
        self._bar: Any = None
        self._display: Any = None
        self._last = 0.0

    def __enter__(self) -> Showing:
        if self._wanted:
            with brought_by("search"):
                from tqdm.auto import tqdm
            self._bar = tqdm(total=self._n, leave=False)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def alive(self) -> None:
        """The search goes on: an interrupt is seen here, and the bar's clock moves."""
        if self._bar is not None and time.perf_counter() - self._last > EVERY:
            self._last = time.perf_counter()
            self._bar.refresh()

    def update(self, search: Discovery) -> None:
        """A stage, or a generation, has ended."""
        if self._bar is None:
            return
        self._bar.set_description_str(f"{search.stage}, loss {search.front.least:.3g}", refresh=False)
        if search.stage.startswith("generation"):
            self._bar.update(1)
        if in_notebook():
            self._draw(search)

    def _draw(self, search: Discovery) -> None:
        import pandas as pd
        from IPython.display import display

        entries = search.front.entries()
        texts = [str(Expression(e.expression.kinds, e.expression.values, self._names)) for e in entries]
        table = pd.DataFrame({"complexity": [e.size for e in entries], "loss": [e.loss for e in entries],
                              "equation": texts})  # fmt: skip
        if self._display is None:
            self._display = display(table, display_id=True)
        else:
            self._display.update(table)


def in_notebook() -> bool:
    """Whether Jupyter shows what is displayed."""
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return "IPKernelApp" in getattr(get_ipython(), "config", {})
