"""A real browser, which may ask nobody but the server under test."""

import os
import shutil
from urllib.parse import urlsplit

import pytest

from tests.browser.shop import Served, make_runs

FLAGS = [
    "--no-sandbox",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # WebGL by the processor, wherever this runs.
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


def chromium():
    """Return where the browser is, or None."""
    names = (os.environ.get("WIDEMAX_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if name and (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium()
    if path is None:
        pytest.skip("there is no Chromium here: make browser installs Debian's")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def shop_runs(browser, tmp_path_factory):
    """The folders of two runs; without a browser none is trained."""
    return make_runs(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="session")
def shop_url(shop_runs):
    served = Served(shop_runs)
    yield served.url
    served.stop()


class Opener:
    """Opens pages and keeps what went wrong in them."""

    def __init__(self, browser):
        self.browser, self.contexts = browser, []
        self.complaints, self.requests = [], []

    def __call__(
        self, url, *, viewport=DESKTOP, scheme="light", routes=None, offline=False, script=""
    ):
        context = self.browser.new_context(
            viewport=viewport, color_scheme=scheme, offline=offline, reduced_motion="reduce"
        )
        self.contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        if script:
            page.add_init_script(script)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.requests.append(request.url))
        for pattern, answer in (routes or {}).items():
            page.route(pattern, answer)
        page.goto(url)
        return page

    def _hear(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def foreign(self, url):
        """Return the requests to anybody but the server of ``url``."""
        origin = urlsplit(url)[:2]
        return [each for each in self.requests if urlsplit(each)[:2] != origin]


@pytest.fixture
def opened(browser):
    """Open pages; at the end none of them may have complained."""
    opener = Opener(browser)
    yield opener
    for context in opener.contexts:
        context.close()
    assert opener.complaints == []


def serious(page):
    """Return the serious faults that axe finds, in a line each."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
