"""The reference page is what the methods declare."""

import importlib.util
from pathlib import Path

import pytest

from widemax.declarations import declared

DOCS = Path(__file__).parents[2] / "docs"


def generator():
    spec = importlib.util.spec_from_file_location("reference", DOCS / "generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date():
    assert (DOCS / "reference.md").read_text() == generator().page(), (
        "docs/reference.md is not what the methods declare: run python docs/generate_reference.py"
    )


def part(heading):
    """Return what stands below a heading, up to the next one."""
    return generator().page().partition(f"\n{heading}\n")[2].partition("\n#")[0]


@pytest.mark.parametrize(
    ("method", "row"),
    [
        ("item2vec", "| `window` | `20` |"),
        ("kernel", "| `learning_rate` | `0.05` |"),
        ("infrequent", "| `alpha` | `10.0` |"),
        ("ease", "| `regularisation` | `500.0` |"),
        ("ials", "| `regularisation` | `0.005` |"),
    ],
)
def test_a_default_is_that_of_the_method(method, row):
    text = part(f"### `{method}`")
    assert row in text
    usually = text.partition("Usually with")[2].partition("\n")[0]
    assert f"{row.split('`')[1]} =" not in usually, "its own settings stand in the table"


def test_what_a_slot_is_by_default():
    assert "Default: `auto`.\n" in part("## Models")
    assert "Default: `torch`, unless the model is usually used with another.\n" in part(
        "## Trainers"
    )
    assert "Built from: scorer, sampler, objective.\n" in part("### `sampled`")


def test_no_method_and_no_option_is_left_out():
    text = (DOCS / "reference.md").read_text()
    for kind in generator().KINDS:
        for method in declared(kind).values():
            assert f"### `{method.name}`" in text
            for option in method.options:
                assert f"| `{option.name}` |" in text
