"""The house rules that a reader would otherwise have to hold by hand."""

import ast
import inspect
import sys
from pathlib import Path

import pytest

import widemax

SOURCE = Path(widemax.__file__).parent

# The pipeline: a room may import the rooms before it. Kernels serve everyone.
ROOMS = [
    "validation",
    "extras",
    "storage",
    "vocabulary",
    "vectors",
    "candidates",
    "data",
    "ngrams",
    "sampling",
    "objectives",
    "scoring",
    "heads",
    "encoders",
    "optim",
    "training",
    "models",
    "evaluation",
    "index",
    "auditing",
    "registry",
    "contracts",
    "runs",
    "cli",
]
FREE = {"kernels"}
SECTIONS = ["Formula:", "Shapes:", "Cost:", "Reference:", "Use when:", "Avoid when:", ">>> "]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module


FILES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_up_the_pipeline(path):
    here = room_of(path)
    assert here in ROOMS or here in FREE, f"{here} is not a room: list it in its place"
    for module in imported_modules(path):
        if module == "widemax":
            pytest.fail(f"{path.name} imports the package itself: import the room")
        if not module.startswith("widemax."):
            continue
        room = module.split(".")[1]
        if room in FREE or room == here:
            continue
        assert here not in FREE, f"kernels import no room, {path.name} imports {room}"
        assert ROOMS.index(room) < ROOMS.index(here), f"{here} must not import {room}"


def test_objectives_import_torch_only():
    """Beside what comes with Python, and the kernels, which are NumPy's."""
    for path in (SOURCE / "objectives").glob("*.py"):
        for module in imported_modules(path):
            top = module.split(".")[0]
            assert top in {"torch", "widemax"} | sys.stdlib_module_names, (path, module)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_loaded_can_execute(path):
    """No pickle, no eval, no torch.load: not even behind a flag."""
    text = path.read_text()
    tree = ast.parse(text)
    called = {
        ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)
    }  # fmt: skip
    assert not called & {"eval", "exec", "torch.load", "torch.save", "np.load", "pickle.load"}
    assert "pickle" not in set(imported_modules(path))


@pytest.mark.parametrize("name", widemax.__all__)
def test_public_docstrings_follow_the_fixed_order(name):
    thing = getattr(widemax, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        pytest.skip("a constant")
    text = inspect.getdoc(thing)
    assert text, f"{name} has no docstring"
    assert text.split("\n")[0].endswith("."), f"{name}: the first line is one sentence"
    flat = " ".join(text.split())
    places = [flat.find(section) for section in SECTIONS]
    assert -1 not in places, f"{name} lacks {SECTIONS[places.index(-1)]}"
    assert places == sorted(places), f"{name}: sections out of order"


def test_everything_registered_is_public():
    from widemax import registry

    for table in (registry.SAMPLERS, registry.OBJECTIVES, registry.SCORERS, registry.HEADS):
        for name, thing in table.items():
            assert thing.__name__ in widemax.__all__, name
