"""Configuration of the documentation site, built by ``make docs``: its source folder is the checkout itself."""

import json
import shutil
from html import escape
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

from exprkit.study import measured, records
from exprkit.version import __version__

project = "exprkit"
release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
include_patterns = [
    ".docs/**.md", "*.md", "exprkit/**.md", "data/**.md", "figures/*.md", "notebooks/*.ipynb",
    "build/gallery/*.rst",
]  # fmt: skip
exclude_patterns = [".docs/paper.md", ".venv", "build/docs", "results", "tests"]
root_doc = ".docs/index"

myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
nb_execution_mode = "off"  # notebooks are run by tests, and measure for minutes
sphinx_gallery_conf = {
    "examples_dirs": ".docs/gallery",
    "gallery_dirs": "build/gallery",  # pages and figures of the scripts; a script runs again when it has changed
    "filename_pattern": "",  # every script is run
    "within_subsection_order": "ExampleTitleSortKey",
    "capture_repr": (),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": float("inf"),  # seconds: no page says how long its script took here
}
autodoc_default_options = {
    "members": True,
    "exclude-members": "set_fit_request, set_predict_request, set_score_request",  # of scikit-learn
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say it, in words
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"exprkit {release}"
html_extra_path = ["index.html"]
MERMAID = Path(find_spec("mermaidx").origin).parent / "assets" / "mermaid.js"  # the package is not imported
html_show_copyright = False
html_static_path = ["_static", str(MERMAID)]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("_static") / "scorer.js")

CHOICES = {  # columns of the explorer of results that one chooses from
    "searches": ("list", "program", "noise", "units", "card", "limit_s", "found", "file"),
    "timings": ("benchmark", "card", "protocol", "backend", "steps"),
}


def tables_of(folder):
    """The explorer's tables, for JSON: columns, rows, and the values of each column that one chooses from."""
    tables = {}
    frames = {"searches": measured.searches(), "timings": measured.timings(measured.read_results(folder))}
    for name, frame in frames.items():
        tables[name] = json.loads(frame.to_json(orient="split", index=False, double_precision=12))
        tables[name]["filters"] = {column: sorted(frame[column].dropna().unique().tolist()) for column in CHOICES[name]}
    return tables


def write_results(app, error):
    """The files of results, and what the explorer's page shows of them, beside their pages."""
    if error is None and app.builder.format == "html":
        folder, target = records.published_folder(), Path(app.outdir, "data", "results")
        text = f"const RESULTS = {json.dumps(tables_of(folder))};\n"
        (target / "explorer.js").write_text(text, encoding="utf-8")
        for path in (*folder.glob("*.csv"), *folder.glob("*.parquet")):
            shutil.copy(path, target)


class Diagram(Directive):
    """A fence of Mermaid, drawn by ``_static/diagrams.js`` in the reader's browser."""

    has_content = True

    def run(self):
        text = escape("\n".join(self.content))
        return [nodes.raw("", f'<div class="mermaid" tabindex="0">{text}</div>', format="html")]


def load_mermaid(app, page, template, context, doctree):
    """The scripts that draw, where there is something to draw."""
    if '<div class="mermaid"' in context.get("body", ""):
        app.add_css_file("wide.css")
        for name in (MERMAID.name, "diagrams.js"):
            app.add_js_file(name)


def setup(app):
    app.add_directive("mermaid", Diagram)
    app.connect("html-page-context", load_mermaid)
    app.connect("build-finished", write_results)
