"""The page of ``widemax serve`` in a real browser: what it shows, by mouse, by keyboard, to axe."""

import json
import time
from urllib.parse import quote

import numpy as np
import pytest

from tests.browser.conftest import DESKTOP, PHONE, serious
from tests.browser.shop import EACH, HOSTILE, ITEMS, SECOND

READY = "canvas.points[data-ready]:not([data-ready=''])"
SETTLED = """number => document.querySelectorAll(".had").length === number
  && !document.querySelector("[aria-busy], .bone") && document.querySelector(".row")"""


@pytest.fixture
def url(shop_url):
    return shop_url


def until(page, script, argument=None):
    """Wait until a script says true; the page's own policy keeps Playwright from waiting in it."""
    stop = time.monotonic() + 30
    while not page.evaluate(script, argument):
        assert time.monotonic() < stop, f"never true: {script}"
        page.wait_for_timeout(50)


def settled(page, items):
    """Wait until the history has so many items and what is recommended has come."""
    until(page, SETTLED, items)


def recommended(page, column=0):
    return page.locator(".recommended").nth(column).locator(".row .title").all_inner_texts()


def search(page):
    return page.get_by_role("combobox", name="Add an item")


def suggestion(page, text):
    """Return the first suggestion with a text; it comes when what was typed has been looked up."""
    return page.locator(".options:visible li", has_text=text).first


def to_the_map(page):
    page.get_by_role("link", name="Map").click()
    page.wait_for_selector(READY)
    return page.locator(".stage")


def drawn(page):
    """Return the picture of the points as the browser holds it."""
    return page.evaluate(
        """() => {
          const canvas = document.querySelector("canvas.points");
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [canvas.width, canvas.height];
          const context = copy.getContext("2d", { willReadFrequently: true });
          context.drawImage(canvas, 0, 0);
          const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
          let sum = 0, lit = 0;
          for (let at = 0; at < pixels.length; at += 4) {
            const other = pixels[at] !== pixels[0] || pixels[at + 1] !== pixels[1];
            lit += other;
            if (other) sum = (sum * 31 + at + pixels[at]) >>> 0;
          }
          return [lit, sum];
        }"""
    )


def test_a_misspelt_title_is_answered_with_the_nearest(opened, url):
    page = opened(url)
    search(page).fill("drak aok bowl 7")
    suggestion(page, "Dark oak bowl 7").wait_for()
    said = "Nothing matches “drak aok bowl 7”. Did you mean:"
    assert page.locator(".nothing:visible").inner_text() == said
    search(page).press("Enter")
    settled(page, 1)
    search(page).fill("zzzzzz")
    page.locator(".nothing:visible", has_text="Nothing matches “zzzzzz”.").wait_for()
    assert "Did you mean" not in page.locator(".nothing:visible").inner_text()


def test_what_is_recommended_changes_with_every_click(opened, url):
    page = opened(url)
    search(page).fill("oak")
    suggestion(page, "oak").click()
    settled(page, 1)
    seen = [recommended(page)]
    assert len(seen[0]) == 10
    assert page.locator(".row .note").first.inner_text().startswith("near ")
    for number in (2, 3):
        # Far down the list, so that it says something new.
        page.locator(".row").nth(9).get_by_role("button", name="Add").click()
        settled(page, number)
        seen.append(recommended(page))
    assert len({tuple(each) for each in seen}) == 3
    had = page.locator(".had .title").all_inner_texts()
    assert len(had) == 3
    assert not set(had) & set(seen[2])
    address = page.url
    assert opened.foreign(url) == []
    again = opened(address)
    settled(again, 3)
    assert recommended(again) == seen[2]


def test_titles_are_text(opened, url):
    page = opened(url)
    page.wait_for_selector(".tile")
    shown = page.locator(".tile bdi").all_inner_texts()
    assert HOSTILE[0] in shown
    assert HOSTILE[1] in shown
    assert any("\\x1b[31mred" in each for each in shown)
    assert not any(control in text for text in shown for control in "\x1b\u202e")
    page.locator(".tile", has_text=HOSTILE[0]).click()
    settled(page, 1)
    page.locator(".had .title").click()
    page.wait_for_selector("dialog .row")
    assert page.locator("#item-title").inner_text() == HOSTILE[0]
    page.keyboard.press("Escape")
    to_the_map(page)
    page.get_by_role("link", name="Run").click()
    page.wait_for_selector("figure svg")
    # None of what the titles try has become an element.
    assert page.evaluate("document.querySelectorAll('img[src=x], body script').length") == 0


def test_an_item_shows_its_neighbours_and_score(opened, url):
    page = opened(url)
    page.locator(".tile").nth(6).click()
    settled(page, 1)
    page.locator(".row .title").nth(1).click()
    page.wait_for_selector("dialog .row")
    first = page.locator("#item-title").inner_text()
    assert f"of {ITEMS}" in page.locator("dialog .facts").inner_text()
    page.wait_for_selector("#item-score:not([hidden])")
    assert "score " in page.locator("#item-score").inner_text()
    page.locator("dialog .row .title").first.click()
    until(page, "title => document.querySelector('#item-title').innerText !== title", first)
    page.get_by_role("button", name="Back").click()
    assert page.locator("#item-title").inner_text() == first
    page.get_by_role("button", name="Add to the history").click()
    settled(page, 2)
    page.get_by_role("button", name="Show on the map").click()
    page.wait_for_selector(READY)
    assert page.locator("dialog[open]").count() == 0


def test_everything_by_keyboard(opened, url):
    page = opened(url)
    page.wait_for_selector(".tile")
    press = page.keyboard.press

    def tab_to(selector):
        for _ in range(80):
            press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}")

    press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    press("Enter")
    tab_to("input[role=combobox]")
    page.keyboard.type("ash")
    # Those of the empty field come first.
    until(
        page,
        """() => {
          const rows = [...document.querySelectorAll(".popup:not([hidden]) [role=option]")];
          return rows.length && rows.every((row) => row.innerText.includes("ash"));
        }""",
    )
    press("ArrowDown")
    marked = page.locator("[role=option][aria-selected=true]")
    assert marked.get_attribute("id") == search(page).get_attribute("aria-activedescendant")
    press("Enter")
    settled(page, 1)
    for number in (2, 3):
        tab_to(".row .icon-button")
        press("Enter")
        settled(page, number)
        # What was added has left the list, and the keyboard is still in it.
        assert page.evaluate("document.activeElement.matches('.row .icon-button')")
    tab_to(".row .title")
    press("Enter")
    page.wait_for_selector("dialog[open] .row")
    press("Escape")
    assert page.evaluate("document.activeElement.matches('.row .title')")
    page.get_by_role("link", name="Map").focus()
    press("Enter")
    page.wait_for_selector(READY)
    tab_to(".stage")
    before = drawn(page)
    press("+")
    press("ArrowRight")
    for _ in range(100):
        if drawn(page) != before:
            break
        page.wait_for_timeout(100)
    else:
        raise AssertionError("the map does not move")
    press("0")
    until(page, "document.querySelector('#map > [role=status]').innerText !== ''")
    press("Enter")
    page.wait_for_selector("dialog[open] .row")


def test_two_runs_stand_side_by_side(opened, url):
    page = opened(url)
    page.locator(".tile").nth(7).click()
    settled(page, 1)
    page.get_by_label("Compare with").select_option(SECOND)
    until(page, "document.querySelectorAll('.recommended .under').length === 20")
    left, right = recommended(page, 0), recommended(page, 1)
    both = len(set(left) & set(right))
    assert f"{both} of 10 also in {SECOND}" in page.locator(".recommended").first.inner_text()
    page.get_by_role("link", name="Run").click()
    page.wait_for_selector("figure svg polyline")
    assert page.locator("figure").first.locator("polyline").count() == 2


def test_a_user_of_the_log(opened, url):
    page = opened(url)
    users = page.get_by_role("combobox", name="user of the log")
    users.fill("0017")
    suggestion(page, "u0017").click()
    settled(page, EACH)
    assert f"u0017 · {EACH} items" in page.locator(".person").inner_text()
    page.get_by_role("button", name="Clear").click()
    page.wait_for_selector(".tile")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "combobox"


def test_a_filter_holds(opened, url):
    page = opened(url)
    page.locator(".tile").nth(5).click()
    settled(page, 1)
    with page.expect_response("**/recommend") as answer:
        page.get_by_label("kind").select_option("office")
    settled(page, 1)
    items = answer.value.json()["items"]
    assert {item["features"]["kind"] for item in items} == {"office"}
    # A page joins the spaces of a title, and has none at its ends.
    assert recommended(page) == [" ".join(item["title"].split()) for item in items]


def test_somebody_new_is_asked_for_by_what_is_known_of_them(opened, url):
    page = opened(url)
    page.wait_for_selector(".tile")
    with page.expect_response("**/recommend") as answer:
        page.get_by_label("age").select_option("old")
    assert json.loads(answer.value.request.post_data)["features"] == {"age": "old"}
    settled(page, 0)
    assert len(recommended(page)) == 10


def test_a_refusal_is_said_and_can_be_tried_again(browser, opened, url):
    answers = iter([503])

    def refuse(route):
        if next(answers, None):
            body = {"detail": "run 'shop' is busy: <b>16</b> requests at a time"}
            return route.fulfill(status=503, json=body)
        return route.continue_()

    page = opened(url, routes={"**/recommend": refuse})
    page.locator(".tile").nth(5).click()
    alert = page.get_by_role("alert")
    alert.wait_for()
    assert "<b>16</b> requests" in alert.inner_text()
    page.get_by_role("button", name="Try again").click()
    settled(page, 1)
    # The browser itself writes a line for the 503 that was asked for.
    (complaint,) = opened.complaints
    assert "503" in complaint
    opened.complaints.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_serious_fault(opened, url, scheme, viewport):
    page = opened(url, scheme=scheme, viewport=viewport)

    def fits(where):
        assert serious(page) == [], where
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), where

    page.wait_for_selector(".tile")
    fits("start")
    page.locator(".tile").nth(5).click()
    settled(page, 1)
    page.get_by_label("Compare with").select_option(SECOND)
    until(page, "document.querySelectorAll('.recommended .under').length === 20")
    search(page).fill("oak")
    suggestion(page, "oak").wait_for()
    page.keyboard.press("ArrowDown")
    fits("recommended, with suggestions open")
    page.keyboard.press("Escape")
    page.locator(".row .title").first.click()
    page.wait_for_selector("dialog .row")
    fits("item")
    page.keyboard.press("Escape")
    to_the_map(page)
    fits("map")
    page.get_by_role("link", name="Run").click()
    page.wait_for_selector("figure svg")
    fits("run")


def test_a_graphics_card_draws_the_same_picture(opened, url):
    plain = opened(f"{url}#/map", routes=big_map(2_000))
    plain.wait_for_selector(f"{READY}[data-painter='2d']")
    # The processor plays a graphics card under another name.
    script = """
      const asked = WebGL2RenderingContext.prototype.getParameter;
      WebGL2RenderingContext.prototype.getParameter = function (name) {
        const found = asked.call(this, name);
        return typeof found === "string" && /swiftshader/i.test(found) ? "a card" : found;
      };"""
    card = opened(f"{url}#/map", routes=big_map(2_000), script=script)
    card.wait_for_selector(f"{READY}[data-painter='webgl2']")
    lit = [drawn(page)[0] for page in (plain, card)]
    assert lit[0] == pytest.approx(lit[1], rel=0.15)
    assert min(lit) > 5_000
    before = drawn(card)
    card.get_by_role("button", name="Zoom in").click()
    for _ in range(100):
        if drawn(card) != before:
            break
        card.wait_for_timeout(100)
    else:
        raise AssertionError("the map does not zoom")


def big_map(num_items):
    """Answer for a catalogue of so many items, whatever the server has."""
    rng = np.random.default_rng(0)
    points = np.clip(rng.normal(size=(num_items, 2)) * 0.3, -1, 1).astype("<f4")
    codes = rng.integers(0, 3, num_items).astype("u1")
    names = quote(json.dumps(["head", "torso", "tail"]))

    def about(route):
        found = route.fetch().json()
        found["runs"][0] |= {"num_items": num_items}
        route.fulfill(json=found)

    return {
        "**/run": about,
        "**/map?*": lambda route: route.fulfill(body=points.tobytes()),
        "**/map/colour?*": lambda route: route.fulfill(
            body=codes.tobytes(), headers={"x-names": names}
        ),
    }


def test_a_million_points_are_drawn(opened, url):
    page = opened(f"{url}#/map", routes=big_map(1_000_000))
    page.wait_for_selector(READY)
    assert page.get_by_text("1,000,000 items").count() == 1
    lit, _ = drawn(page)
    # Points of a bell fill most of the picture.
    assert lit > 50_000
    box = page.locator(".stage").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    until(page, "document.querySelector('.stage').matches(':hover')")


ZOOM = """async () => {
  const stage = document.querySelector(".stage"), canvas = document.querySelector("canvas.points");
  const box = stage.getBoundingClientRect();
  const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const times = [];
  for (let number = 0; number < 7; number++) {
    await frame();
    const start = performance.now();
    stage.dispatchEvent(new WheelEvent("wheel", {
      deltaY: number % 2 ? 120 : -120, cancelable: true,
      clientX: box.x + box.width / 2, clientY: box.y + box.height / 2,
    }));
    await frame();
    await frame();
    // Reading a pixel back waits until everything before it has been drawn.
    copy.drawImage(canvas, 0, 0);
    copy.getImageData(0, 0, 1, 1);
    times.push(performance.now() - start);
  }
  return times.sort((one, two) => one - two);
}"""


def test_a_zoom_of_a_hundred_thousand_points_is_redrawn_at_once(opened, url):
    page = opened(f"{url}#/map", routes=big_map(100_000))
    page.wait_for_selector(READY)
    session = page.context.new_cdp_session(page)
    # Time of the processor: what else the machine does is not the page's.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent():
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in metrics if each["name"] == "TaskDuration")

    before = spent()
    times = page.evaluate(ZOOM)
    each = (spent() - before) / len(times)
    print(f"a zoom of 100,000 points: {1000 * each:.0f} ms of the processor, {times[3]:.0f} ms")
    assert each < 0.3
