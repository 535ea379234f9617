"""The explorer in a real browser: JupyterLab, its notebook, and a user who types, drags and clicks.

Needs playwright and Chromium (``.ci/run`` installs both); is skipped, and says so, without.
The pictures stay in pytest's temporary folder; ``EXPRKIT_SCREENSHOT=figures/explore.png`` keeps one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).resolve().parent.parent
TOKEN = "explore"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
LONGEST = 120_000  # milliseconds that a step may take; the first ones compile, on a busy machine


def chromium():
    """The browser's path; the test is skipped where there is none."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    return found


@contextmanager
def jupyter_lab(folder):
    """A server on a free port with folders of its own; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {name: str(folder / name.lower()) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    environment = os.environ | own | {"PYTHONPATH": str(ROOT)}
    command = [
        sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            address = f"http://127.0.0.1:{port}"
            wait_for_server(f"{address}/api/status?token={TOKEN}", server)
            yield address
        finally:
            server.terminate()
            server.wait(30)


def wait_for_server(address, server):
    for _ in range(300):
        assert server.poll() is None, "JupyterLab ended: see server.log"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("JupyterLab did not start within a minute")


@contextmanager
def notebook_page(address, browser_path):
    """The explorer's notebook, open in a browser; and what the browser's console says is wrong."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1500, "height": 1150})
        page.set_default_timeout(LONGEST)
        complaints = []
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}/lab/tree/explore.ipynb?token={TOKEN}&reset")
        yield page, complaints
        browser.close()


def run_all(page):
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # before, JupyterLab asks for a kernel
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator("#jp-mainmenu-run").get_by_text("Run All Cells", exact=True).click()
    page.locator(".widget-text input").first.wait_for()


def tidy(page):
    """Away with the question about news and with the list of files."""
    question = page.get_by_role("button", name="No", exact=True)
    if question.count():
        question.first.click()
    page.keyboard.press("Control+b")


def expression_field(page):
    return page.locator(".widget-text input[placeholder='an expression']")


def open_tab(page, name):
    page.locator(".widget-tab .lm-TabBar-tab", has_text=name).click()


def type_a_wrong_one_then_a_right_one(page):
    expression_field(page).fill("p1 + sine(x2)")
    page.get_by_text("did you mean 'sin'?").wait_for()
    complaint = page.locator("pre", has_text="did you mean 'sin'?").inner_text()
    place = complaint.splitlines()[1].index("sine(")
    assert complaint.splitlines()[2] == " " * place + "^^^^"
    expression_field(page).fill("p1 / log(x1 + p2) + p3 * x1 * exp(-2 * x2) + p4")
    page.locator(".widget-label", has_text="p4").wait_for()
    assert not page.get_by_text("did you mean").count()


def source_of_the_curve(page):
    return page.locator(".widget-tab img.widget-image:visible").first.get_attribute("src")


def drag_a_slider(page):
    before = source_of_the_curve(page)
    handle = page.locator(".noUi-handle").first
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    place = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*place)
    page.mouse.down()
    page.mouse.move(place[0] - 20, place[1], steps=5)
    page.mouse.up()
    page.wait_for_function(
        "before => document.querySelector('.widget-tab img.widget-image').src !== before", arg=before
    )


def type_a_number(page):
    """Of any size: it is kept, and the curve goes out of sight and comes back."""
    page.wait_for_timeout(1000)  # the kernel has heard of all that the slider went through
    number = page.locator(".widget-tab input[type=number]:visible").first
    for text in ("250", "0.5"):
        before = source_of_the_curve(page)
        number.fill(text)
        number.press("Enter")
        page.wait_for_function(
            "before => document.querySelector('.widget-tab img.widget-image').src !== before", arg=before
        )
        page.wait_for_timeout(300)
        assert number.input_value() == text


def work_by_keys_alone(page):
    """Tab reaches the sides' titles and the sliders; arrows and Enter change both."""
    expression_field(page).focus()
    titles, reached = page.locator(".exprkit-tabs .lm-TabBar-tab"), []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.getAttribute('role')"))
        if reached[-1] == "tab":
            page.keyboard.press("ArrowRight")
            page.keyboard.press("Enter")
            page.wait_for_function("document.activeElement.getAttribute('aria-selected') === 'true'")
            assert titles.nth(1).get_attribute("aria-selected") == "true"
            page.keyboard.press("ArrowLeft")
            page.keyboard.press("Enter")
            page.locator(".noUi-handle:visible").first.wait_for()
        elif reached[-1] == "slider":
            before = source_of_the_curve(page)
            page.keyboard.press("ArrowRight")
            page.wait_for_function(
                "before => document.querySelector('.widget-tab img.widget-image').src !== before", arg=before
            )
            return
    raise AssertionError(reached)


def fit(page):
    before = source_of_the_curve(page)
    page.locator(".widget-tab .jupyter-button", has_text="Fit").first.click()
    page.get_by_text("±").locator("visible=true").first.wait_for()
    assert source_of_the_curve(page) != before, "the band"


def look_at_every_side(page):
    for name, wanted in (
        ("Tree", "img"), ("Postfix", "pre:has-text('operator')"), ("Program", "pre:has-text('out =')"),
        ("Bytecode", "pre:has-text('case')"), ("Derivatives", "mjx-container"),
    ):  # fmt: skip
        open_tab(page, name)
        page.locator(".widget-tab").locator(f"{wanted}:visible").first.wait_for()


def choose_from_the_population(page):
    open_tab(page, "Population")
    rows = page.locator(".exprkit-rows select:visible")
    rows.locator("option").nth(2).wait_for(state="attached")
    text = rows.locator("option").nth(2).inner_text().replace("\u00a0", " ").split(": ", 1)[1].split("  ")[0]
    rows.select_option(index=2)
    page.wait_for_function(
        "text => document.querySelector(\"input[placeholder='an expression']\").value === text", arg=text
    )
    page.locator(".widget-tab img.widget-image:visible").first.wait_for()  # its curve
    open_tab(page, "Population")
    assert page.locator(".exprkit-rows button").count() == 5
    assert page.locator(".widget-tab span[title]").count() >= 2, "the front says what its marks are"
    page.locator(".jupyter-button", has_text="Fit all").click()
    page.get_by_text("fitting: done after").wait_for()


def search(page):
    open_tab(page, "Search")
    page.locator(".widget-tab input[type=number]:visible").first.fill("300")
    page.keyboard.press("Enter")
    page.locator(".widget-tab .jupyter-button:visible", has_text="Search").click()
    rows = page.locator(".exprkit-rows select:visible")
    rows.locator("option").nth(2).wait_for(state="attached")  # the front grows while it is looked for
    page.locator(".jupyter-button", has_text="Stop").click()
    page.get_by_text("searching: stopped after").wait_for()
    rows.select_option(index=1)
    page.wait_for_function("() => document.querySelector(\"input[placeholder='an expression']\").value.includes('p1')")
    open_tab(page, "Curve")
    page.get_by_text("R2").locator("visible=true").wait_for()
    assert float(page.locator("tr:visible", has_text="R2").inner_text().split()[-1]) > 0.3


def titles_and_fields_are_whole(page):
    for width in (1500, 640):
        page.set_viewport_size({"width": width, "height": 1150})
        for title in page.locator(".exprkit-tabs .lm-TabBar-tabLabel").all():
            assert title.evaluate("label => label.scrollWidth <= label.clientWidth + 1"), (width, title.inner_text())
        for name in ("Curve", "Population", "Search", "Race"):
            open_tab(page, name)
            for button in page.locator(".exprkit-tabs .jupyter-button:visible").all():
                whole = button.evaluate("button => button.scrollWidth <= button.clientWidth + 1")
                assert whole, (width, button.inner_text())
            if name in ("Population", "Search"):  # their rows are wider, and scroll
                continue
            edge = page.locator(".exprkit-tabs").evaluate("tabs => tabs.getBoundingClientRect().right")
            for field in page.locator(".exprkit-tabs").locator("select:visible, input:visible").all():
                box = field.bounding_box()
                assert box["x"] + box["width"] <= edge and box["width"] > 80, (width, name, box)
    page.set_viewport_size({"width": 1500, "height": 1150})


def race(page):
    open_tab(page, "Race")
    page.locator(".jupyter-button", has_text="Race").last.click()
    page.get_by_text("race: done after").wait_for()
    assert page.get_by_text("auto takes").count() == 1
    assert page.locator(".widget-tab td:visible", has_text="numpy").count() == 1, "the standings"


def test_a_user_s_way_through_the_explorer(tmp_path):
    browser = chromium()
    shutil.copy(ROOT / "notebooks" / "explore.ipynb", tmp_path)
    with jupyter_lab(tmp_path) as address, notebook_page(address, browser) as (page, complaints):
        run_all(page)
        tidy(page)
        type_a_wrong_one_then_a_right_one(page)
        drag_a_slider(page)
        type_a_number(page)
        work_by_keys_alone(page)
        fit(page)
        picture(page, tmp_path / "fit.png")
        keep(tmp_path / "fit.png")
        look_at_every_side(page)
        choose_from_the_population(page)
        picture(page, tmp_path / "population.png")
        search(page)
        titles_and_fields_are_whole(page)
        race(page)
        picture(page, tmp_path / "race.png")
        assert not complaints, complaints


def picture(page, path):
    """A picture of the explorer alone."""
    page.mouse.move(0, 0)
    page.locator(".jp-OutputArea-output > .widget-vbox").first.screenshot(path=path)


def keep(path):
    """Copy a picture to where the user wants it."""
    wanted = os.environ.get("EXPRKIT_SCREENSHOT")
    if wanted:
        shutil.copy(path, ROOT / wanted)
