"""HTML of the explorer's panels, and its small widgets: selection fields, buttons, rows, pictures, code."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from exprkit.errors import ExprkitError, brought_by

with brought_by("notebooks"):
    import ipywidgets as widgets
    import pandas as pd
    import traitlets

MOST_CHARACTERS = 100_000  # of a text on a page
ROWS = 12  # of a table that are seen at once
CLASS = "exprkit-rows"
FONT = f"<style>.{CLASS} select, .{CLASS} button {{ font: 13px monospace; text-align: left; padding: 0 }}</style>"
EDGE = "#9E9E9E"  # 7 : 1 on JupyterLab's dark pages; its own borders and arrows have 3 : 1 and 2 : 1
ARROW = (
    "url(\"data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 18 18'%3E"
    f"%3Cpath d='M5 7l4 4 4-4' fill='none' stroke='{EDGE.replace('#', '%23')}' stroke-width='2'/%3E%3C/svg%3E\")"
)
WHOLE, TABS, STALE = "exprkit", "exprkit-tabs", "exprkit-stale"  # titles in full; out of date
DARK = f"[data-jp-theme-light=false] .{WHOLE}"
LOOK = (
    f"<style>.{TABS} > .lm-TabBar {{ max-height: none }}"
    f" .{TABS} > .lm-TabBar > .lm-TabBar-content {{ flex-wrap: wrap }}"
    f" .{TABS} > .lm-TabBar .lm-TabBar-tab {{ flex: 0 0 auto !important; padding-right: 10px }}"
    f" .{STALE} {{ opacity: 0.35 }}"
    f" {DARK} {{ --jp-widgets-input-border-color: {EDGE}; --jp-border-color1: {EDGE} }}"
    f" {DARK} select {{ color-scheme: dark }}"  # the browser's own arrows and bars
    f" {DARK} .widget-dropdown > select {{ background-image: {ARROW} }}</style>"
)
RED = "#D55E00"
MARK = "position:absolute;width:14px;height:14px;border-radius:50%;transform:translate(-50%,-50%)"


def choice(description: str, options: Sequence[Any], value: Any = None, width: str = "190px", **own: Any) -> Any:
    """A field to select one of the options; the first one unless another is given."""
    own |= {"value": options[0] if value is None else value, "layout": widgets.Layout(width=width)}
    return widgets.Dropdown(options=options, description=description, **own)


def button(description: str, clicked: Callable[[], object], width: str = "80px", **options: Any) -> Any:
    """A button that calls ``clicked``."""
    widget = widgets.Button(description=description, layout=widgets.Layout(width=width), **options)
    widget.on_click(lambda _: clicked())
    return widget


def line(*fields: Any) -> Any:
    """Widgets side by side, on several lines where the page is narrow."""
    return widgets.HBox(fields, layout=widgets.Layout(flex_flow="row wrap"))


def show_if(widget: Any, visible: bool) -> None:
    """Show or hide a widget."""
    widget.layout.display = None if visible else "none"


class RowList(widgets.Select):
    """Lines of text to select from, of which ``ROWS`` are seen; ``selected(place)`` is called when the user does so."""

    def __init__(self, selected: Callable[[int], object], min_width: str) -> None:
        layout = widgets.Layout(width="calc(100% - 4px)", min_width=min_width)  # with its borders
        super().__init__(rows=ROWS, layout=layout, tooltip="formulas, best first or as sorted")
        self._selected = selected
        self.observe(self._select, "index")

    def show(self, lines: Sequence[str], place: int | None = None) -> None:
        """Show other lines, one of them selected."""
        self.unobserve(self._select, "index")
        self.options = lines
        self.index = place
        self.observe(self._select, "index")

    def _select(self, change: Any) -> None:
        if change["new"] is not None:
            self._selected(change["new"])


def under_heads(heads: Any, rows: RowList) -> Any:
    """A table of rows in a fixed-width font, which scrolls to the side."""
    table = widgets.VBox([widgets.HTML(FONT), heads, rows], layout=widgets.Layout(overflow="auto"))
    table.add_class(CLASS)
    return table


class Picture(widgets.Image):
    """An image whose ``tooltip`` says what it shows, to screen readers too.

    ipywidgets 8 shows the tooltip of what has a description alone, and fails for an ``Image``.
    """

    description = traitlets.Unicode("").tag(sync=True)


def text_page(text: str, colour: str = "inherit") -> str:
    """A text, escaped and cut where it is long."""
    left = len(text) - MOST_CHARACTERS
    more = f"\n… {left:,} more characters, which the code below prints" if left > 0 else ""
    style = f"color:{colour};line-height:1.25;overflow-x:auto;margin:4px 0"
    return f'<pre style="{style}">{html.escape(text[:MOST_CHARACTERS] + more)}</pre>'


def error_page(error: Exception) -> str:
    """An error in red: exprkit's own as it is, with the caret, others with their type."""
    return text_page(str(error) if isinstance(error, ExprkitError) else f"{type(error).__name__}: {error}", RED)


def formula_page(lines: Iterable[str]) -> str:
    """LaTeX, each line by itself."""
    rows = (f"<div style='padding:6px 0'>${html.escape(line)}$</div>" for line in lines)
    return f'<div style="font-size:125%;overflow-x:auto">{"".join(rows)}</div>'


def picture_page(png: bytes, places: Iterable[Sequence[float]] = (), titles: Iterable[str] = (), alt: str = "") -> str:
    """A picture with a text in its place, and titles at places in it (shares of its size) under the mouse."""
    marks = (
        f'<span title="{html.escape(title)}" style="{MARK};left:{x:.2%};top:{y:.2%}"></span>'
        for (x, y), title in zip(places, titles, strict=True)
    )
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = f'<img src="{source}" alt="{html.escape(alt)}" style="max-width:100%">'
    return f'<div style="position:relative;display:inline-block;max-width:100%">{image}{"".join(marks)}</div>'


def table_page(rows: dict[str, Any]) -> str:
    """Names and their values, a line each."""
    frame = pd.Series(rows, dtype=object).to_frame()
    return str(frame.to_html(header=False, border=0, float_format="{:.6g}".format))


class CodeView(widgets.VBox):
    """Code under a button that shows it, one click on which selects all; ``value`` is its HTML."""

    def __init__(self) -> None:
        self.button = widgets.ToggleButton(False, description="as code", layout=widgets.Layout(width="90px"))
        self.page = widgets.HTML(layout=widgets.Layout(display="none"))
        self.button.observe(lambda change: show_if(self.page, change["new"]), "value")
        super().__init__([self.button, self.page])

    @property
    def value(self) -> str:
        return str(self.page.value)

    def show(self, code: str) -> None:
        """Other code."""
        style = "user-select:all;line-height:1.3;padding:6px;border:1px solid #8888;overflow-x:auto"
        self.page.value = f'<pre style="{style}">{html.escape(code)}</pre>'


def red_page(texts: Iterable[str]) -> str:
    """Warnings in red, a line each."""
    return "".join(f'<div style="color:{RED};line-height:1.4">{html.escape(text)}</div>' for text in texts)
