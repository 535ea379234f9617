"""Small drawings as SVG text: charts, and an expression's tree.

The lowest stage of the explorer: numbers in, text of a picture out.  A notebook shows the
text as it is, a mark's title when the mouse is over it; nothing has to be installed or run
in the browser.  Lines and letters have the colour of the page's text.

    >>> from exprkit.explorer import svg
    >>> chart = svg.Chart(svg.Axis([0, 10], "x"), svg.Axis([0, 1], "y"))
    >>> chart.line([0, 10], [0, 1], svg.BLUE)
    >>> chart.svg().startswith("<svg")
    True
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE
from exprkit.text.tree import nodes

if TYPE_CHECKING:
    from exprkit.expressions.expression import Expression

# Okabe and Ito's colours, which most people can tell apart
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#888888",
)  # fmt: skip
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#B8A500", GREY)
FONT = 'font-family="sans-serif" font-size="12" fill="currentColor"'
MOST_DECADES = 290  # that an axis reaches from 1 upwards, and downwards
MOST_NODES = 400  # of a tree that is drawn

LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 40  # around the field of a chart


class Axis:
    """The numbers along one side of a chart.

    Parameters
    ----------
    values : array_like
        What must be visible; only finite numbers count (of a logarithmic axis: positive ones).
    label : str
    logarithmic : bool
    margin : float
        Share of the span that is left free on either side.
    """

    def __init__(self, values: ArrayLike, label: str, *, logarithmic: bool = False, margin: float = 0.05) -> None:
        self.label, self.logarithmic = label, logarithmic
        seen = self._scaled(values)
        seen = seen[np.isfinite(seen)]
        largest = MOST_DECADES if logarithmic else 10.0**MOST_DECADES
        low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
        low, high = max(low, -largest), min(high, largest)
        alone = high - low <= 1e-12 * max(abs(low), abs(high), 10.0**-MOST_DECADES)
        free = (0.5 if logarithmic else max(abs(high), 1.0) * 0.5) if alone else (high - low) * margin
        self.low, self.high = low - free, high + free

    def _scaled(self, values: ArrayLike) -> np.ndarray:
        numbers = np.asarray(values, np.float64).ravel()
        if not self.logarithmic:
            return numbers
        return np.log10(numbers, out=np.full(numbers.shape, np.nan), where=numbers > 0)

    def share(self, values: ArrayLike) -> np.ndarray:
        """Where numbers lie between the ends, 0 to 1; nan for those that have no place."""
        with np.errstate(over="ignore", invalid="ignore"):
            return (self._scaled(values) - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """About five round numbers."""
        if self.logarithmic and self.high - self.low >= 2:
            apart = math.ceil((self.high - self.low) / 6)
            return [10.0**k for k in range(math.ceil(self.low), math.floor(self.high) + 1, apart)]
        if self.logarithmic:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            factors = (1, 2, 5) if self.high - self.low > 0.7 else range(1, 10)
            candidates = (factor * 10.0**k for k in decades for factor in factors)
            return [tick for tick in candidates if 10.0**self.low <= tick <= 10.0**self.high]
        step = _round_step((self.high - self.low) / 6)
        return [k * step for k in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _round_step(about: float) -> float:
    power = 10.0 ** math.floor(math.log10(about))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= about * 0.999)


class Chart:
    """A field between two axes, on which lines, dots and marks are put one over the other.

    Parameters
    ----------
    x, y : Axis
    width, height : int
        In pixels, at which the text has its size.
    """

    def __init__(self, x: Axis, y: Axis, width: int = 760, height: int = 300) -> None:
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._wide, self._high = width - LEFT - RIGHT, height - TOP - BOTTOM
        self._parts: list[str] = []

    def _places(self, x: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of points; what lies far outside the field comes to lie just outside."""
        across = np.clip(self.x.share(x), -1, 2) * self._wide
        down = (1 - np.clip(self.y.share(y), -1, 2)) * self._high
        return across, down

    def dots(self, x: ArrayLike, y: ArrayLike, colour: str, size: float = 4.0) -> None:
        """A dot at every point, all of them in one stroke."""
        across, down = self._places(x, y)
        seen = np.isfinite(across) & np.isfinite(down)
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(across[seen].tolist(), down[seen].tolist(), strict=True))
        style = f'stroke="{colour}" stroke-width="{size}" stroke-linecap="round" fill="none" opacity="0.7"'
        self._parts.append(f'<path d="{path}" {style}/>')

    def line(self, x: ArrayLike, y: ArrayLike, colour: str, width: float = 2.0) -> None:
        """A line through the points, with a gap where one has no place."""
        across, down = self._places(x, y)
        path, pen_up = [], True
        for a, b in zip(across.tolist(), down.tolist(), strict=True):
            if math.isfinite(a) and math.isfinite(b):
                path.append(f"{'ML'[not pen_up]}{a:.1f} {b:.1f}")
            pen_up = not (math.isfinite(a) and math.isfinite(b))
        self._parts.append(f'<path d="{"".join(path)}" stroke="{colour}" stroke-width="{width}" fill="none"/>')

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
        """The area between two lines."""
        (across, below), (_, above) = self._places(x, low), self._places(x, high)
        seen = np.isfinite(across) & np.isfinite(below) & np.isfinite(above)
        there = [f"{a:.1f} {b:.1f}" for a, b in zip(across[seen].tolist(), above[seen].tolist(), strict=True)]
        back = [f"{a:.1f} {b:.1f}" for a, b in zip(across[seen].tolist(), below[seen].tolist(), strict=True)]
        if there:
            self._parts.append(f'<path d="M{"L".join(there + back[::-1])}Z" fill="{colour}" opacity="0.25"/>')

    def whiskers(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, colour: str) -> None:
        """An upright stroke at every point, from one height to another."""
        (across, below), (_, above) = self._places(x, low), self._places(x, high)
        seen = np.isfinite(across) & np.isfinite(below) & np.isfinite(above)
        ends = zip(across[seen].tolist(), below[seen].tolist(), above[seen].tolist(), strict=True)
        path = "".join(f"M{a:.1f} {b:.1f}V{c:.1f}" for a, b, c in ends)
        self._parts.append(f'<path d="{path}" stroke="{colour}" opacity="0.35"/>')

    def marks(self, x: ArrayLike, y: ArrayLike, titles: Sequence[str], colour: str, size: float = 5.0) -> None:
        """Dots that say something when the mouse is over them."""
        across, down = self._places(x, y)
        for a, b, title in zip(across.tolist(), down.tolist(), titles, strict=True):
            if math.isfinite(a) and math.isfinite(b):
                self._parts.append(
                    f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{size}" fill="{colour}" fill-opacity="0.75">'
                    f"<title>{html.escape(title)}</title></circle>"
                )

    def note(self, text: str) -> None:
        """A line of text in the field."""
        self._parts.append(f'<text x="{self._wide / 2}" y="20" text-anchor="middle">{html.escape(text)}</text>')

    def svg(self) -> str:
        """The picture."""
        field = (
            f'<svg x="{LEFT}" y="{TOP}" width="{self._wide}" height="{self._high}" overflow="hidden">'
            f"{''.join(self._parts)}</svg>"
        )
        frame = (
            f'<rect x="{LEFT}" y="{TOP}" width="{self._wide}" height="{self._high}" fill="none" '
            'stroke="currentColor" opacity="0.4"/>'
        )
        inside = frame + field + self._x_axis() + self._y_axis()
        return picture(inside, self.width, self.height)

    def _x_axis(self) -> str:
        ticks = self.x.ticks()
        places = LEFT + self.x.share(ticks) * self._wide
        base = TOP + self._high
        parts = [
            f'<path d="M{place:.1f} {base}v4" stroke="currentColor"/>'
            f'<text x="{place:.1f}" y="{base + 17}" text-anchor="middle">{_tick_text(tick)}</text>'
            for tick, place in zip(ticks, places.tolist(), strict=True)
        ]
        middle = LEFT + self._wide / 2
        label = f'<text x="{middle}" y="{base + 33}" text-anchor="middle">{html.escape(self.x.label)}</text>'
        return "".join(parts) + label

    def _y_axis(self) -> str:
        ticks = self.y.ticks()
        places = TOP + (1 - self.y.share(ticks)) * self._high
        parts = [
            f'<path d="M{LEFT} {place:.1f}h-4" stroke="currentColor"/>'
            f'<text x="{LEFT - 7}" y="{place + 4:.1f}" text-anchor="end">{_tick_text(tick)}</text>'
            for tick, place in zip(ticks, places.tolist(), strict=True)
        ]
        middle = TOP + self._high / 2
        turned = f'transform="translate(13 {middle}) rotate(-90)" text-anchor="middle"'
        return "".join(parts) + f"<text {turned}>{html.escape(self.y.label)}</text>"


def _tick_text(number: float) -> str:
    return f"{number:.4g}" if abs(number) > 1e-300 else "0"


def picture(inside: str, width: float, height: float) -> str:
    """The SVG element around drawn parts; it shrinks with a narrow page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'style="max-width:100%;height:auto" {FONT}>{inside}</svg>'
    )


def bars(rows: Sequence[tuple[str, float, str]], width: int = 640) -> str:
    """Horizontal bars: (name, share of the longest from 0 to 1, what is written behind)."""
    left, height, room = 90, 26, width - 90 - 230
    parts = []
    for place, (name, share, text) in enumerate(rows):
        top = place * height
        long = max(0.0, min(1.0, share)) * room
        parts.append(
            f'<text x="{left - 8}" y="{top + 17}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="{left}" y="{top + 4}" width="{long:.1f}" height="{height - 8}" '
            f'fill="{SERIES[place % len(SERIES)]}"/>'
            f'<text x="{left + long + 6:.1f}" y="{top + 17}">{html.escape(text)}</text>'
        )
    return picture("".join(parts), width, max(1, len(rows)) * height)


# ── trees ────────────────────────────────────────────────────────────────────────────

COLOURS = {OPERATOR: GREY, CONSTANT: ORANGE, VARIABLE: BLUE, PARAMETER: GREEN}
LEVEL = 54  # pixels from an operator to its operands


def tree(expression: Expression) -> str:
    """An expression's tree: operators above their operands, the kind of each leaf by its colour.

    Raises
    ------
    ValueError
        for more than ``MOST_NODES`` tokens, which ``Expression.tree`` shows as text.
    """
    if not 0 < expression.n_tokens <= MOST_NODES:
        raise ValueError(f"{expression.n_tokens:,} tokens: a tree of 1 to {MOST_NODES} is drawn")
    labels, children, _ = nodes(expression)
    across, depth, width = _layout(labels, children)
    kinds = expression.kinds.tolist()
    down = [20 + LEVEL * level for level in depth]
    branches = [
        f'<path d="M{across[node]:.1f} {down[node]}L{across[child]:.1f} {down[child]}" stroke="currentColor" '
        'opacity="0.5"/>'
        for node, own in enumerate(children)
        for child in own
    ]
    heads = [_node(label, COLOURS[kind], a, b) for label, kind, a, b in zip(labels, kinds, across, down, strict=True)]
    return picture("".join(branches + heads), width, max(down) + 24)


def _layout(labels: list[str], children: list[list[int]]) -> tuple[list[float], list[int], float]:
    """(across, depth) of every token, and the width: each over the middle of the room that its subtree takes."""
    room: list[float] = []
    for label, own in zip(labels, children, strict=True):  # postfix: operands come first
        room.append(max(_label_width(label) + 12, sum(room[child] for child in own)))
    across, depth = [room[-1] / 2] * len(labels), [0] * len(labels)
    for node in range(len(labels) - 1, -1, -1):
        left = across[node] - sum(room[child] for child in children[node]) / 2
        for child in children[node]:
            across[child], depth[child] = left + room[child] / 2, depth[node] + 1
            left += room[child]
    return across, depth, room[-1]


def _label_width(label: str) -> float:
    return max(30.0, 7.5 * len(label) + 14)


def _node(label: str, colour: str, across: float, down: float) -> str:
    wide = _label_width(label)
    return (
        f'<rect x="{across - wide / 2:.1f}" y="{down - 14}" width="{wide:.1f}" height="28" rx="14" fill="{colour}"/>'
        f'<text x="{across:.1f}" y="{down + 4.5}" text-anchor="middle" style="fill:white">{html.escape(label)}</text>'
    )
