"""The reference page is what the methods declare."""

import importlib.util
from pathlib import Path

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


def test_no_method_and_no_option_is_left_out():
    text = (DOCS / "reference.md").read_text()
    for kind in generator().KINDS:
        for method in declared(kind).values():
            assert f"### `{method.name}`" in text
            for option in method.options:
                assert f"| `{option.name}` |" in text
