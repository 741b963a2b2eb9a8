"""The house rules that a reader would otherwise have to hold by hand."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

import widemax
from widemax.declarations import declared

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

import generate_architecture as architecture
from generate_architecture import ARROWS, find_arrows, find_cycle, imported_modules

SOURCE = Path(widemax.__file__).parent
FILES = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
each_file = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: str(path.relative_to(SOURCE))
)  # fmt: skip


def forbidden_arrows(source, allowed):
    """Return what is imported without being allowed, with the files that do."""
    return [
        f"{room} must not import {other}, {path.relative_to(source)} does"
        for (room, other), paths in sorted(find_arrows(source).items())
        for path in sorted(paths)
        if other not in allowed.get(room, ())
    ]


def unused_arrows(source, allowed):
    """Return what is allowed without being used, so that the declaration says what is."""
    used = find_arrows(source)
    return [
        f"{room} imports {other} no longer: delete that arrow"
        for room, others in allowed.items()
        for other in sorted(others)
        if (room, other) not in used
    ]


def rooms_without_a_sentence(source):
    """Return the rooms, and rooms inside them, whose docstring does not start with a sentence."""
    paths = [
        *architecture.rooms(source).values(),
        *(it.parent for it in source.rglob("*/*/__init__.py")),
    ]
    return [
        str(it.relative_to(source)) for it in paths if not architecture.sentence(it).endswith(".")
    ]


def test_rooms_are_those_that_are_declared():
    there = architecture.rooms(SOURCE).keys()
    assert there - ARROWS.keys() == set(), (
        "a room without a row in ARROWS of docs/generate_architecture.py"
    )
    assert ARROWS.keys() - there == set(), "a row of ARROWS without a room"


def test_imports_are_allowed_arrows():
    found = forbidden_arrows(SOURCE, ARROWS)
    assert not found, "\n".join(found)


def test_allowed_arrows_are_used():
    found = unused_arrows(SOURCE, ARROWS)
    assert not found, "\n".join(found)


def test_rooms_make_no_cycle():
    assert find_cycle(ARROWS) == []
    assert find_cycle(architecture.imports(SOURCE)) == []


def test_rooms_inside_a_room_make_no_cycle():
    inside = architecture.sub_rooms(SOURCE)
    assert {"data", "heads", "runs"} <= inside.keys()
    assert {room: cycle for room, graph in inside.items() if (cycle := find_cycle(graph))} == {}


@pytest.mark.parametrize("room", ["declarations", "extras", "kernels", "limits", "storage"])
def test_foundations_import_no_room(room):
    assert ARROWS[room] == set()


def test_nothing_imports_what_stands_above_it():
    assert {room for room, others in ARROWS.items() if "cli" in others} == set()
    assert {room for room, others in ARROWS.items() if "runs" in others} == {
        "advising",
        "cli",
        "comparison",
        "reporting",
        "serving",
    }
    assert "training" not in ARROWS["index"]


def test_every_room_says_what_it_is_for():
    assert rooms_without_a_sentence(SOURCE) == []


def test_the_page_is_what_the_source_says():
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert architecture.with_generated(page, architecture.generated()) == page, (
        "docs/architecture.md is out of date, renew it with: python docs/generate_architecture.py"
    )


def test_the_page_names_rooms_that_are_there():
    page = architecture.PAGE.read_text(encoding="utf-8").partition(architecture.BEGIN)[0]
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*)`", page))
    assert len(named) > 10
    places = {name for name in named if "/" in name or name in ARROWS}
    assert {name for name in places if not list(SOURCE.glob(f"{name}*"))} == set()
    assert named - places == set(), "a lower-case word that is no room"


@pytest.fixture
def house(tmp_path):
    """Return a small package in which everything is right: b imports a."""
    source = tmp_path / "widemax"
    for name, text in {
        "a.py": '"""A."""\n',
        "b/__init__.py": '"""B."""\nfrom widemax import a\n',
        "b/c/__init__.py": '"""C."""\n',
        "b/d/__init__.py": '"""D."""\nimport widemax.b.c\n',
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    return source


ALLOWED = {"a": set(), "b": {"a"}}


def test_a_house_in_order_has_no_faults(house):
    assert forbidden_arrows(house, ALLOWED) == unused_arrows(house, ALLOWED) == []
    assert rooms_without_a_sentence(house) == []
    assert find_cycle(architecture.imports(house)) == []
    assert architecture.sub_rooms(house) == {"b": {"c": set(), "d": {"c"}}}


def test_a_forbidden_arrow_is_found_even_inside_a_function(house):
    (house / "a.py").write_text('"""A."""\ndef f():\n    from widemax.b.c import g\n')
    assert forbidden_arrows(house, ALLOWED) == ["a must not import b, a.py does"]
    assert sorted(set(find_cycle(architecture.imports(house)))) == ["a", "b"]


def test_an_arrow_that_nothing_uses_is_found(house):
    (house / "b" / "__init__.py").write_text('"""B."""\n')
    assert unused_arrows(house, ALLOWED) == ["b imports a no longer: delete that arrow"]


def test_a_cycle_inside_a_room_is_found(house):
    (house / "b" / "c" / "deep.py").write_text("from widemax.b.d import e\n")
    assert sorted(set(find_cycle(architecture.imports(house, "b")))) == ["c", "d"]


@pytest.mark.parametrize("room", ["a.py", "b/__init__.py", "b/c/__init__.py"])
@pytest.mark.parametrize("text", ["", '"""No full stop"""'])
def test_a_room_that_does_not_say_what_it_is_for_is_found(house, room, text):
    (house / room).write_text(text)
    assert rooms_without_a_sentence(house) == [room.removesuffix("/__init__.py")]


@pytest.mark.parametrize(
    ("file", "text"),
    [("a.py", '"""A, but else."""\n'), ("b/__init__.py", '"""B."""\n'), ("c.py", '"""C."""\n')],
)
def test_the_page_changes_with_sentences_arrows_and_rooms(house, file, text):
    before = architecture.generated(house)
    (house / "a.py").write_text('"""A."""\nthis, is_longer = 1, 2\n')
    assert architecture.generated(house) == before
    (house / file).write_text(text)
    assert architecture.generated(house) != before
    page = f"by hand\n{before}\nby hand too\n"
    renewed = architecture.with_generated(page, architecture.generated(house))
    assert renewed == f"by hand\n{architecture.generated(house)}\nby hand too\n"


@each_file
def test_imports_are_absolute_and_name_a_room(path):
    for module in imported_modules(path):
        assert not module.startswith("."), f"{path.name}: imports are absolute"
        assert module != "widemax", f"{path.name} imports the package itself: import the room"
        if module.startswith("widemax."):
            room = module.split(".")[1]
            assert room in ARROWS, f"{path.name} imports {room} of the package: import the room"


def test_objectives_import_torch_only():
    """Beside what comes with Python, and the kernels, which are NumPy's."""
    for path in (SOURCE / "objectives").glob("*.py"):
        for module in imported_modules(path):
            top = module.split(".")[0]
            assert top in {"torch", "widemax"} | sys.stdlib_module_names, (path, module)


@each_file
def test_nothing_loaded_can_execute(path):
    """No pickle, no eval, no torch.load: not even behind a flag."""
    tree = ast.parse(path.read_text())
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not called & {"eval", "exec", "torch.load", "torch.save", "np.load", "pickle.load"}
    assert "pickle" not in {module.split(".")[0] for module in imported_modules(path)}


@pytest.mark.parametrize(
    ("kind", "room"),
    [
        ("sampler", "sampling"),
        ("objective", "objectives"),
        ("scorer", "scoring"),
        ("head", "heads"),
        ("model", "models"),
    ],
)
def test_every_declared_method_is_public_in_its_room(kind, room):
    public = import_module(f"widemax.{room}").__all__
    homes = [method.lives.split(":") for method in declared(kind).values()]
    assert len(homes) > 2
    for module, name in homes:
        if module.startswith("widemax."):  # not one that another test declared
            assert module.startswith(f"widemax.{room}."), f"{kind} {name} lives in {module}"
            assert name in public, f"{room} does not export {name}"
