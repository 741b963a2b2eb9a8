"""The package root: every public name, each imported when it is first asked for."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import widemax

HEAVY = ("torch", "numba", "polars", "numpy")


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed():
    """Return name → module of the stub, which type checkers and the package read."""
    tree = ast.parse(Path(widemax.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"widemax.{node.module}" for node in imports for alias in node.names}


def test_every_listed_name_is_public():
    assert sorted(widemax.__all__) == sorted(listed())
    assert len(widemax.__all__) > 100


@pytest.mark.parametrize("name", widemax.__all__)
def test_every_name_is_that_of_its_module(name):
    assert getattr(widemax, name) is getattr(import_module(listed()[name]), name)
    assert name in dir(widemax)


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
