"""Draw docs/page.png: the page of a server with the demo's run, as Chromium shows it.

Run ``widemax demo --serve`` first, then ``python docs/draw_page.py http://127.0.0.1:8000/``.
"""

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE, GAP = {"width": 1060, "height": 800}, 24
USER, WORD = "u0017", "linen"
# A system without a typeface of its own shows the nearest thing to one.
FONT = "body, button, input, select { font-family: Inter, system-ui, sans-serif }"


def pictures(url):
    """Return what somebody sees of a user, and of the map."""
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        # The page's policy forbids styles from elsewhere.
        context = browser.new_context(viewport=SIZE, bypass_csp=True, reduced_motion="reduce")
        page = context.new_page()
        page.goto(url)
        page.add_style_tag(content=FONT)
        page.get_by_role("combobox", name="user of the log").fill(USER)
        page.locator(".options:visible li", has_text=USER).click()
        page.wait_for_selector(".row")
        page.wait_for_selector("[aria-busy], .bone", state="detached")
        page.mouse.move(0, 0)
        yield page.screenshot()
        page.get_by_role("link", name="Map").click()
        page.wait_for_selector("canvas[data-ready]:not([data-ready=''])")
        page.get_by_role("combobox", name="Find on the map").fill(WORD)
        page.locator(".options:visible li", has_text=WORD).first.wait_for()
        page.wait_for_timeout(500)
        page.keyboard.press("Escape")
        page.wait_for_timeout(500)
        yield page.screenshot()
        browser.close()


def main():
    """Put the pictures side by side, in few colours, as they are read on a README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "page.png")
    given = parser.parse_args()
    shown = [Image.open(io.BytesIO(each)).convert("RGB") for each in pictures(given.url)]
    whole = Image.new("RGB", (2 * SIZE["width"] + GAP, SIZE["height"]), "white")
    for number, each in enumerate(shown):
        whole.paste(each, (number * (SIZE["width"] + GAP), 0))
    whole.quantize(96, dither=Image.Dither.NONE).save(given.out, optimize=True)
    print(f"wrote {given.out}, {given.out.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
