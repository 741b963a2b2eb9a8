"""The package root: every public name, each imported when it is first asked for."""

import subprocess
import sys
from importlib import import_module

import pytest

import widemax
from widemax.declarations.__main__ import STUB, generated_stub
from widemax.declarations.public import PUBLIC, ROOMS

HEAVY = ("torch", "numba", "polars", "numpy")


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_root_is_small():
    """What most people need; the rest is in its room."""
    names = [name for names in PUBLIC.values() for name in names]
    assert 35 <= len(names) == len(set(names)) <= 48
    assert sorted(widemax.__all__) == sorted([*names, *ROOMS])


def test_the_stub_for_type_checkers_is_up_to_date():
    assert STUB.read_text() == generated_stub(), "run python -m widemax.declarations"


@pytest.mark.parametrize(
    ("room", "name"), [(room, name) for room in PUBLIC for name in PUBLIC[room]]
)
def test_every_name_is_that_of_its_room(room, name):
    assert getattr(widemax, name) is getattr(import_module(f"widemax.{room}"), name)
    assert name in dir(widemax)


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_an_attribute(room):
    assert getattr(widemax, room) is import_module(f"widemax.{room}")


def test_the_package_loads_nothing_heavy():
    program = f"import sys, widemax; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run(program) == "[]\n"


def test_the_compiler_of_torch_is_not_loaded(tmp_path):
    """It takes two seconds, and nothing that the program does is compiled by it."""
    log = tmp_path / "log.csv"
    log.write_text("user,item\n" + "ann,tea\nann,rum\nbob,tea\n" * 9)
    folder = str(tmp_path / "run")
    program = f"""
import sys
from contextlib import suppress
from widemax.cli import main
for verb in (["train", {str(log)!r}, "--folder", {folder!r}, "--epochs", "1"],
             ["train", {str(log)!r}, "--folder", {folder!r}, "--epochs", "2", "--resume"],
             ["similar", {folder!r}, "tea"], ["recommend", {folder!r}, "--user", "ann"]):
    with suppress(SystemExit):
        main(verb)
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""
    assert run(program).splitlines()[-1] == "True False"


def test_a_text_is_read_without_torch(tmp_path):
    """It is read while torch is loaded."""
    path = tmp_path / "text"
    path.write_text("rum and tea\n")
    program = f"""
import sys
from widemax.data.reading.ahead import codes_of
print(codes_of({str(path)!r}, None, None)[0], "torch" in sys.modules)
"""
    assert run(program) == "[0 1 2] False\n"


def loaded_by(verb, modules, code=0):
    """Return which modules the program loads for a verb that ends with this exit code."""
    program = f"""
import sys
from widemax.cli import main
try:
    main({[str(word) for word in verb]!r})
except SystemExit as stopped:
    assert (stopped.code or 0) == {code}, stopped.code
print([name for name in {modules!r} if name in sys.modules])
"""
    return run(program).splitlines()[-1]


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    """A text and a log that were trained on, each in a run of its own."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text").write_text("tea and rum\nrum and gin\n" * 9)
    (folder / "log.csv").write_text("user,item\n" + "ann,tea\nann,rum\nbob,tea\n" * 9)
    widemax.train(
        folder / "text",
        widemax.Config(epochs=1, dimension=4, model="skip-gram"),
        folder=folder / "words",
    )
    widemax.train(
        folder / "log.csv",
        widemax.Config(epochs=1, dimension=4, model="two-tower"),
        folder=folder / "towers",
    )
    widemax.train(
        folder / "log.csv",
        widemax.Config(epochs=1, dimension=4, model="item2vec"),
        folder=folder / "items",
    )
    return folder


def test_tables_recommend_without_torch(answering):
    verb = ["recommend", answering / "items", "--user", "ann"]
    assert loaded_by(verb, ("torch", "numba")) == "[]"


@pytest.mark.parametrize("form", ["word2vec", "word2vec-binary", "numpy", "safetensors"])
def test_vectors_are_exported_without_torch(form, answering, tmp_path):
    verb = ["export", answering / "words", tmp_path / "ours", "--to", form]
    assert loaded_by(verb, ("torch", "numba")) == "[]"
    widemax.load(answering / "words").export(tmp_path / "theirs", to=form)
    ours, theirs = (
        [path.read_bytes() for path in sorted([root, *root.rglob("*")]) if path.is_file()]
        for root in (tmp_path / "ours", tmp_path / "theirs")
    )
    assert ours == theirs


@pytest.mark.parametrize(
    "verb",
    [["similar", "words", "tea", "rum"], ["analogy", "words", "tea", "rum", "gin"], ["runs"]],
)
def test_what_reads_vectors_loads_numpy_alone(verb, answering):
    """A person waits for the answer: each of these packages would take longer than it does."""
    name, *words = verb
    verb = [name, answering / words[0], *words[1:]] if words else [name, answering]
    assert loaded_by(verb, ("torch", "numba", "polars", "rich.progress")) == "[]"


@pytest.mark.parametrize(
    "verb",
    [
        ["train", "absent.csv", "--folder", "run"],
        ["evaluate", "absent"],
        ["audit", "absent"],
        ["recommend", "absent", "--user", "ann"],
        ["generate", "absent"],
    ],
)
def test_a_misspelt_path_is_answered_before_torch_is_loaded(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert loaded_by(verb, ("torch", "numba"), code=2) == "[]"


def test_a_network_answers_without_the_compiler_of_kernels(answering):
    verb = ["recommend", answering / "towers", "--user", "ann"]
    assert loaded_by(verb, ("torch", "numba", "widemax.models.embeddings")) == "['torch']"


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="No widemax attribute SampledHed"):
        _ = widemax.SampledHed
    with pytest.raises(ImportError, match="SampledHed"):
        from widemax import SampledHed  # noqa: F401


def test_a_star_imports_everything():
    program = "from widemax import *; import widemax; print(set(widemax.__all__) <= set(globals()))"
    assert run(program) == "True\n"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments):
    program = (
        f"import sys; sys.argv = ['widemax', *{arguments!r}]\n"
        "from widemax.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stopped:\n    assert not stopped.code\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    assert run(program).splitlines()[-1] == "loaded: []"
