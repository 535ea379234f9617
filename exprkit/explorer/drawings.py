"""Drawings of the explorer: an expression against the data, its tree, a Pareto front.

In: numbers.  Out: PNG.  Everything is drawn by matplotlib, on nothing and in grey, for light and dark pages.

A curve has to follow a slider, so its figure is kept and only what moves is drawn again: 13 ms of CPU time (medians on
two shared cores, 362 points in six lines; 30 with a band), against 65 for the whole figure, which is drawn anew when
the residuals' axis has to change.

    >>> import exprkit as ek
    >>> from exprkit.explorer import drawings
    >>> points, free = ek.data.rough_pipe(), ek.parse("x1 / 100")[0]
    >>> plot = drawings.CurvePlot(points, drawings.widest(points))
    >>> plot.draw(free(points.X), free(plot.places))[1:4]
    b'PNG'
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import brought_by, shortened
from exprkit.explorer.pages import RED, picture_page
from exprkit.text.listing import nodes
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

with brought_by("notebooks"):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter
    from PIL import Image

# Okabe and Ito's colours, which most people can tell apart; blue is lighter than theirs, for dark pages
BLUE, ORANGE, GREEN, PURPLE, SKY, GREY = "#2B8CC4", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#888888"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, "#B8A500", GREY)
DPI = 100
DRAWN = 2000  # points at the most; of more, evenly many are left out
MOST_GROUPS = 8  # so many values of the other variables make a line each
LARGEST = 1e100  # an axis reaches no further: matplotlib squares lengths
FEW_TICKS = 6
FEW_DECADES = 1, 0.4  # of a logarithmic axis, where numbers between the powers of ten are written
SMOOTH = 200  # places of a line
LONGEST = 40  # characters of a name beside an axis
LINEAR, LOG_X, LOG_BOTH = AXES = "linear", "logarithmic along", "logarithmic both"
PALETTE = 256  # colours of a picture: a PNG of half the time and a third of the bytes, and nobody sees it
Pair = tuple[np.ndarray, np.ndarray]  # tokens and losses


def limits(values: Any, margin: float = 0.05, logarithmic: bool = False) -> tuple[float, float]:
    """The ends of an axis on which all finite values are seen; of a logarithmic one, all that are positive."""
    values = np.asarray(values, np.float64)
    if logarithmic:
        low, high = limits(np.log10(values[_has_logarithm(values) & (values < LARGEST)]), margin)
        return 10.0**low, 10.0**high
    finite = np.clip(values[np.isfinite(values)], -LARGEST, LARGEST)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    free = margin * (high - low) if high - low > 1e-12 * max(abs(low), abs(high)) else 0.5 * max(abs(high), 1.0)
    return low - free, high + free


def _has_logarithm(values: np.ndarray) -> np.ndarray:
    """The values that a logarithmic axis can show."""
    return values > 1 / LARGEST


def _figure(width: float, height: float, dpi: float = DPI) -> Figure:
    """An empty figure of so many pixels at ``DPI``."""
    figure = Figure((width / DPI, height / DPI), dpi=dpi, facecolor="none")
    FigureCanvasAgg(figure)
    return figure


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float, x: str, y: str) -> Any:
    axes = figure.add_axes((left, bottom, width, height), facecolor="none")
    axes.set_xlabel(x, color=GREY, parse_math=False)
    axes.set_ylabel(y, color=GREY, parse_math=False)
    axes.tick_params(colors=GREY, which="both")
    axes.spines[:].set_color(GREY)
    axes.locator_params(nbins=FEW_TICKS)
    return axes


def _png(figure: Figure, *, whole: bool = True) -> bytes:
    """The figure's picture; not ``whole``: as the canvas is."""
    canvas: Any = figure.canvas
    if whole:
        canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba()))
    file = io.BytesIO()
    picture.quantize(PALETTE, Image.Quantize.FASTOCTREE).save(file, "png", compress_level=1)
    return file.getvalue()


# ── an expression beside the data ────────────────────────────────────────────────────


def widest(points: ek.data.Dataset) -> int:
    """The variable with the most different values, which is the one to draw along."""
    return int(np.argmax([len(np.unique(column)) for column in points.X.T]))


def _groups(X: np.ndarray, along: int) -> Iterator[np.ndarray]:
    """Rows that share the values of all variables but one, sorted by that one; all rows where there are too many."""
    others = np.delete(X, along, axis=1)
    which = np.unique(others, axis=0, return_inverse=True)[1].ravel()
    if which.max(initial=0) >= MOST_GROUPS:
        which[:] = 0
    for group in range(which.max(initial=0) + 1):
        rows = np.flatnonzero(which == group)
        yield rows[np.argsort(X[rows, along], kind="stable")]


class CurvePlot:
    """The data as dots, an expression's values as lines, and its residuals, along one variable.

    Where the other variables have up to eight values between them, each has its own line and
    colour, through ``SMOOTH`` places; where they have more, the expression's values are dots too.

    Attributes
    ----------
    places : float64 array, (n_places, n_vars)
        Where the expression is drawn; the data points where it has no lines.
    """

    def __init__(self, points: ek.data.Dataset, along: int = 0, axes: str = LINEAR) -> None:
        self._rows = slice(None, None, -(-len(points) // DRAWN) or 1)
        X, self._y = points.X[self._rows], points.y[self._rows]
        self._along, self._x, self._groups = along, X[:, along], list(_groups(X, along))
        self._as_lines = len(self._groups) > 1 or X.shape[1] == 1
        log_x = axes != LINEAR and bool(_has_logarithm(self._x).any())
        log_y = axes == LOG_BOTH and bool(_has_logarithm(self._y).any())
        self.places, self._parts = self._drawn_at(X, along, log_x)
        self.figure = _figure(760, 470)
        name, target = (shortened(word, LONGEST) for word in (points.variables[along], points.target))
        drawn = target if self._as_lines else f"{target} (grey), expression"
        self._top = _axes(self.figure, 0.11, 0.46, 0.87, 0.49, "", drawn)
        self._left = _axes(self.figure, 0.11, 0.1, 0.87, 0.29, name, "residual")
        for part in (self._top, self._left):
            part.set_xscale("log" if log_x else "linear")
            part.set_xlim(limits(self._x, logarithmic=log_x))
        self._top.set_yscale("log" if log_y else "linear")
        self._top.set_ylim(limits(self._y, 0.15, log_y))
        self._left.axhline(0.0, color=GREY, linewidth=1)
        self._left.set_ylim(limits(0.0))
        colours = [SERIES[place % len(SERIES)] for place in range(len(self._groups))]
        dots = [
            self._dots(self._top, self._x[group], self._y[group], colour if len(colours) > 1 else GREY)
            for group, colour in zip(self._groups, colours, strict=True)
        ]
        if len(self._groups) > 1:
            self._name_groups(dots, X, along, points.variables)
        if self._as_lines:
            self.curves = [self._top.plot([], [], color=colour, linewidth=2, animated=True)[0] for colour in colours]
        else:
            self.curves = [self._dots(self._top, [], [], colour, animated=True) for colour in colours]
        self._residuals = [self._dots(self._left, [], [], colour, animated=True) for colour in colours]
        self.bands: list[Any] = []  # of the last drawing
        self.note = self._top.text(0.5, 0.93, "", color=GREY, ha="center", transform=self._top.transAxes, animated=True)
        self._still: Any = None  # all that does not move, as it was drawn

    def _drawn_at(self, X: np.ndarray, along: int, log_x: bool) -> tuple[np.ndarray, list[slice | np.ndarray]]:
        """The places where the expression is drawn, and which of them belong to each group."""
        if not self._as_lines:
            return X, list(self._groups)
        places = []
        for group in self._groups:
            x = self._x[group]
            x = x[_has_logarithm(x)] if log_x else x
            low, high = np.clip((x[0], x[-1]) if len(x) else (1.0, 1.0), -LARGEST, LARGEST).tolist()
            line = np.repeat(X[group[:1]], SMOOTH, axis=0)
            line[:, along] = (np.geomspace if log_x else np.linspace)(low, high, SMOOTH)
            places.append(line)
        return np.concatenate(places), [slice(k * SMOOTH, (k + 1) * SMOOTH) for k in range(len(places))]

    def _name_groups(self, dots: list[Any], X: np.ndarray, along: int, variables: Sequence[str]) -> None:
        """Above the picture, which colour stands for which values of the other variables."""
        others = [place for place in range(X.shape[1]) if place != along]
        values = [", ".join(f"{value:.4g}" for value in X[group[0], others]) for group in self._groups]
        handles, words = [self._dots(self._top, [], [], "none"), *dots], ", ".join(variables[k] for k in others)
        legend = self.figure.legend(
            handles,
            [f"{words}:", *values],
            loc="upper center",
            ncols=len(handles),
            fontsize=9,
            frameon=False,
            labelcolor=GREY,
            borderpad=0,
            handletextpad=0,
            columnspacing=1,
            markerscale=1.6,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)

    @staticmethod
    def _dots(axes: Any, x: Any, y: Any, colour: str, **options: Any) -> Any:
        return axes.plot(x, y, "o", color=colour, markersize=3.5, markeredgewidth=0, alpha=0.7, **options)[0]

    def draw(self, values: np.ndarray, drawn: np.ndarray, half_band: np.ndarray | None = None) -> bytes:
        """The picture for the expression's values at all data points, and at ``places``; PNG.

        With ``half_band`` at ``places``, a band of so much on either side.
        """
        values, drawn = np.asarray(values, np.float64)[self._rows], np.asarray(drawn, np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            residuals = self._y - values
        self._scale_residuals(residuals)
        self.note.set_text(self._out_of_sight(values))
        for group, dots in zip(self._groups, self._residuals, strict=True):
            dots.set_data(self._x[group], _near(self._left, residuals[group]))
        for x, part, curve in self._curves():
            curve.set_data(x, _near(self._top, drawn[part]))
        self.bands = [] if half_band is None else self._bands(drawn, half_band)
        canvas: Any = self.figure.canvas
        if self._still is None:
            canvas.draw()
            self._still = canvas.copy_from_bbox(self.figure.bbox)
        canvas.restore_region(self._still)
        for artist in (*self.bands, *self.curves, *self._residuals, self.note):
            artist.axes.draw_artist(artist)
        for band in self.bands:
            band.remove()
        return _png(self.figure, whole=False)

    def _curves(self) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Each group's x, its part of ``places``, its line."""
        for part, curve in zip(self._parts, self.curves, strict=True):
            yield self.places[part, self._along], part, curve

    def _scale_residuals(self, residuals: np.ndarray) -> None:
        """New ends of the residuals' axis where they leave it, or take less than half of it."""
        low, high = limits(np.append(residuals, 0.0))
        bottom, top = self._left.get_ylim()
        if low < bottom or high > top or high - low < 0.5 * (top - bottom):
            self._left.set_ylim(low, high)
            self._still = None

    def _out_of_sight(self, values: np.ndarray) -> str:
        finite = values[np.isfinite(values)]
        if not len(finite):
            return "the expression is not finite at any point"
        low, high = self._top.get_ylim()
        unseen = finite.min() > high or finite.max() < low
        return f"the expression is out of sight: {finite.min():.4g} to {finite.max():.4g}" if unseen else ""

    def _bands(self, drawn: np.ndarray, half: np.ndarray) -> list[Any]:
        """The area between two lines; where there are no lines, an upright stroke at every point."""
        draw = self._top.fill_between if self._as_lines else self._top.vlines
        with np.errstate(invalid="ignore", over="ignore"):
            below, above = _near(self._top, drawn - half), _near(self._top, drawn + half)
        return [
            draw(x, below[part], above[part], color=curve.get_color(), alpha=0.25, animated=True)
            for x, part, curve in self._curves()
        ]


def _near(axes: Any, values: np.ndarray) -> np.ndarray:
    """Values; what lies far outside the axes comes to lie just outside."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        return np.clip(values, low * low / high, high * high / low)
    return np.clip(values, low - (high - low), high + (high - low))


# ── a front ────────────────────────────────────────────────────────────────────────


def front_page(cloud: Pair, front: Pair, selected: Pair, titles: Sequence[str]) -> str:
    """HTML of ``front_picture``, with a title for each mark: of the front, then of the selected ones."""
    png, places = front_picture(cloud, front, selected)
    losses = np.concatenate([front[1], selected[1]])
    sizes = np.concatenate([front[0], selected[0]])
    words = [
        f"{title}\n{size:.0f} tokens, loss (rmse) {loss:.4g}"
        for title, size, loss in zip(titles, sizes, losses, strict=True)
    ]
    return picture_page(png, places.tolist(), words, alt="loss over the number of tokens; the marks are the front")


def front_picture(cloud: Pair, front: Pair, selected: Pair) -> tuple[bytes, np.ndarray]:
    """PNG of (tokens, losses): all as dots, the front as a line with marks, the selected ones in red.

    Also returns where the marks of the front and then the selected ones are, (n, 2): shares of the width, from the
    left, and of the height, from the top.
    """
    figure = _figure(760, 260)
    axes = _axes(figure, 0.14, 0.18, 0.84, 0.78, "tokens", "loss (rmse)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    losses = np.concatenate([cloud[1], front[1], selected[1]])
    positive = len(losses) > 0 and bool((losses > 0).all())
    ends = 1 / LARGEST if positive else -LARGEST, LARGEST
    cloud, front, selected = ((tokens, np.clip(loss, *ends)) for tokens, loss in (cloud, front, selected))
    # the bad ones would press the front flat
    seen = np.minimum(np.clip(losses, *ends), 10 * front[1].max(initial=0.0))
    axes.set_xlim(limits(np.concatenate([cloud[0], front[0]])))
    if positive:
        axes.semilogy()
        axes.yaxis.set_major_formatter(LogFormatter())
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=FEW_DECADES))
    axes.set_ylim(limits(seen, 0.1, logarithmic=positive))
    inside = cloud[1] <= axes.get_ylim()[1]  # far outside, matplotlib would have to clip them
    axes.plot(cloud[0][inside], cloud[1][inside], "o", color=GREY, markersize=2.5, markeredgewidth=0, alpha=0.7)
    axes.plot(*front, "o-", color=BLUE, markersize=7, linewidth=1, alpha=0.75)
    axes.plot(*selected, "o", color=RED, markersize=9, alpha=0.75)
    png = _png(figure)
    marks = np.column_stack([np.concatenate(parts) for parts in zip(front, selected, strict=True)])
    places = axes.transData.transform(marks) / figure.bbox.size
    return png, np.column_stack([places[:, 0], 1 - places[:, 1]])


# ── trees ────────────────────────────────────────────────────────────────────────────

MOST_NODES = 400  # of a tree that is drawn
MOST_PIXELS = 2e7  # a larger tree is drawn smaller
LEVEL = 54  # pixels from an operator to its operands
COLOURS = {OPERATOR: GREY, CONSTANT: ORANGE, VARIABLE: BLUE, PARAMETER: GREEN}


def tree(expression: ek.Expression) -> bytes:
    """An expression's tree: operators above their operands, the kind of each leaf by its colour; PNG.

    Raises
    ------
    ValueError
        for more than ``MOST_NODES`` tokens, which ``Expression.tree`` shows as text.
    """
    if not 0 < expression.n_tokens <= MOST_NODES:
        raise ValueError(f"{expression.n_tokens:,} tokens: a tree of 1 to {MOST_NODES} is drawn")
    labels, children, _ = nodes(expression)
    across, depth, width = tree_layout(labels, children)
    height = LEVEL * (max(depth) + 1)
    figure = _figure(width, height, DPI * min(1.0, (MOST_PIXELS / (width * height)) ** 0.5))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0), xlim=(0, width), ylim=(max(depth) + 0.5, -0.5))
    axes.set_axis_off()
    for node, own in enumerate(children):
        for child in own:
            axes.plot([across[node], across[child]], [depth[node], depth[child]], color=GREY, linewidth=1)
    for label, kind, x, y in zip(labels, expression.kinds.tolist(), across, depth, strict=True):
        box = {"boxstyle": "round,pad=0.5,rounding_size=0.7", "color": COLOURS[kind]}
        axes.text(x, y, label, color="white", fontsize=9, ha="center", va="center", bbox=box, parse_math=False)
    return _png(figure)


def tree_layout(labels: list[str], children: list[list[int]]) -> tuple[list[float], list[int], float]:
    """(across, depth) of every token, and the width: each over the middle of the room that its subtree takes."""
    room: list[float] = []
    for label, own in zip(labels, children, strict=True):  # postfix: operands come first
        room.append(max(label_width(label) + 12, sum(room[child] for child in own)))
    across, depth = [room[-1] / 2] * len(labels), [0] * len(labels)
    for node in range(len(labels) - 1, -1, -1):
        left = across[node] - sum(room[child] for child in children[node]) / 2
        for child in children[node]:
            across[child], depth[child] = left + room[child] / 2, depth[node] + 1
            left += room[child]
    return across, depth, room[-1]


def label_width(label: str) -> float:
    """Pixels of a node."""
    return max(30.0, 8 * len(label) + 16)
