"""Reports in a real browser that has no network: no complaint, no request, nothing cut off."""

import pytest
from typer.testing import CliRunner

from tests.browser.conftest import DESKTOP, PHONE, serious
from tests.browser.shop import FIRST
from widemax.cli.app import app

MOST_BYTES = 3_000_000
SMALL = [
    *("--heads=full,sampled", "--objectives=sampled-softmax", "--equal=steps", "--rates=1"),
    *("--seeds=1", "--workers=1", "--dimension=4", "--split=last", "--budget=10m"),
]


def said(arguments):
    called = CliRunner().invoke(app, arguments)
    assert called.exit_code == 0, called.output


@pytest.fixture(scope="module")
def reports(shop_runs, tmp_path_factory):
    """The report of a run with an audit, and that of a comparison of two output layers."""
    folder = tmp_path_factory.mktemp("reports")
    log = shop_runs[0].parent / "log.csv"
    race = folder / "race"
    said(["compare", str(log), "--folder", str(race), *SMALL])
    found = {}
    for source in (shop_runs[0], race):
        found[source.name] = folder / f"{source.name}.html"
        said(["report", str(source), "--out", str(found[source.name])])
    return found


@pytest.mark.parametrize("name", [FIRST, "race"])
def test_a_report_needs_nothing_else(opened, reports, name):
    path = reports[name]
    assert path.stat().st_size < MOST_BYTES
    for scheme in ("light", "dark"):
        for viewport in (DESKTOP, PHONE):
            page = opened(path.as_uri(), viewport=viewport, scheme=scheme, offline=True)
            assert page.locator("svg").count() >= 2
            assert serious(page) == [], (scheme, viewport)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert set(opened.requests) == {path.as_uri()}


def test_a_series_can_be_put_away_by_keyboard(opened, reports):
    page = opened(reports["race"].as_uri(), offline=True)
    button = page.locator(".legend button").first
    lines = page.locator("figure").first.locator("g.s0")
    assert lines.first.is_visible()
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert not lines.first.is_visible()


def test_a_value_is_shown_where_the_mouse_is(opened, reports):
    page = opened(reports["race"].as_uri(), offline=True)
    # The last of a plot lies above all others: the first may be hidden below one of them.
    point = page.locator("svg:has(circle)").first.locator("circle").last
    point.scroll_into_view_if_needed()
    point.hover()
    assert page.locator("#tip").inner_text() == point.get_attribute("data-tip")
