"""The theory page: its picture is there, and what it says of the picture is so."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "theory.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(DOCS / "draw_theory.py"))


def test_the_page_shows_a_picture_of_modest_size():
    (name,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)
    assert (DOCS / name).stat().st_size < 150_000
    assert ElementTree.parse(DOCS / name).getroot().tag.endswith("svg")


def test_the_picture_is_drawn_again_by_the_script_that_the_page_names(script, tmp_path):
    assert "`python docs/draw_theory.py`" in TEXT
    path = tmp_path / "theory.svg"
    script["draw"].__globals__.update(PICTURE=path, SIZES=[8, 16, 32, 64, 128], TRIALS=10)
    script["draw"]()
    assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_errors_fall_like_the_square_root_and_by_the_weights_of_the_proposal():
    """The squared error of S draws is (S / ESS − 1) / S, and so are the page's numbers."""
    script = runpy.run_path(str(DOCS / "draw_theory.py"))
    scores, samplers = script["world"]()
    spread = {}
    for name, sampler in samplers.items():
        spread[name] = 1 / script["effective_share"](scores, sampler) - 1
        expected = [(spread[name] / size) ** 0.5 for size in script["SIZES"]]
        assert script["relative_errors"](scores, sampler) == pytest.approx(expected, rel=0.15)
    assert 100 * spread["uniform"] / spread["by counts"] == pytest.approx(2000, rel=0.1)
    assert 100 * spread["close to P"] / spread["by counts"] == pytest.approx(3, abs=0.5)
    assert "about 2,000" in TEXT
    assert "three that know the context" in TEXT


@pytest.mark.parametrize("words", ["Monte Carlo integration", "Importance weights", "Markov"])
def test_what_readers_look_for_has_a_heading(words):
    assert re.search(rf"^## .*{words}", TEXT, re.MULTILINE)
