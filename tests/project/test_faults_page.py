"""Every line of docs/faults.md has tests that name its number, and no test names another."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "faults.md"
LISTED = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE.read_text("utf-8"), re.M)]


def numbers_of(text):
    """Return the numbers that the names of tests in a file begin with: fault_12, fault_03_04."""
    found = re.findall(r"^def test_fault_(\d+(?:_\d+)*)_[a-z]", text, re.MULTILINE)
    return {int(number) for numbers in found for number in numbers.split("_")}


def test_every_fault_has_a_test_that_names_it():
    assert sorted(LISTED) == list(range(1, 43))
    named = set().union(*(numbers_of(path.read_text("utf-8")) for path in TESTS.rglob("test_*.py")))
    assert set(LISTED) - named == set(), "faults that no test names: test_fault_NUMBER_..."
    assert named - set(LISTED) == set(), (
        "tests that name a fault which docs/faults.md does not list"
    )


def test_numbers_are_found_in_names():
    text = "def test_fault_03_04_two(x):\ndef test_fault_17_one():\ndef test_other_5_():\n"
    assert numbers_of(text) == {3, 4, 17}
