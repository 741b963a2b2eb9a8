"""What the docstring of each kind of public thing holds, and what none of them holds."""

import ast
import doctest
import inspect
import re
from dataclasses import dataclass, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

import widemax
from widemax.heads import Head
from widemax.models import Model
from widemax.sampling import Sampler
from widemax.scoring import Scorer

SOURCE = Path(widemax.__file__).parent
METHOD = ["Formula:", "Shapes:", "Cost:", "Reference:", "Use when:", "Avoid when:"]
SECTIONS = {"method": METHOD, "model": ["Formula:", "Reference:", "Use when:"]}
OBJECTIVE_ARGUMENTS = ["target_scores", "candidate_scores"]
# What models share, which could be made but is not a model of its own.
SHARED = {"HistoryModel", "WordModel"}
WITH_EXAMPLE = {"method", "model", "function", "class"}
EMPTY_SECTION = re.compile(r"\b(Formula|Shapes|Cost|Reference):\s+none\b", re.IGNORECASE)
EMPTY_EXAMPLE = re.compile(r"\b(issubclass|callable)\(")


def public_things():
    """Return (module, name) → thing for all that the package or a room declares as public.

    Of the command line nothing: what it shows its users are verbs.
    """
    found = {}
    for path in sorted(SOURCE.rglob("__init__.py")):
        parts = path.parent.relative_to(SOURCE).parts
        if parts[:1] != ("cli",):
            package = import_module(".".join(["widemax", *parts]))
            for name in getattr(package, "__all__", ()):
                thing = getattr(package, name)
                found[getattr(thing, "__module__", package.__name__), name] = thing
    return found


def kind_of(thing):
    """Return the kind by which a docstring is judged, or None for constants and type aliases.

    A base that cannot be made owes a sentence only: what there is to say of it differs.
    """
    if inspect.isfunction(thing):
        is_objective = list(inspect.signature(thing).parameters)[:2] == OBJECTIVE_ARGUMENTS
        return "method" if is_objective else "function"
    if not inspect.isclass(thing):
        return None
    if issubclass(thing, BaseException):
        return "exception"
    protocol = getattr(thing, "_is_protocol", False)
    if inspect.isabstract(thing) or protocol or thing.__name__ in SHARED:
        return "base"
    if issubclass(thing, Sampler | Scorer | Head):
        return "method"
    if issubclass(thing, Model):
        return "model"
    return "dataclass" if is_dataclass(thing) else "class"


def faults(thing):
    """Return what the docstring of a thing lacks, judged by its kind."""
    kind, text = kind_of(thing), inspect.cleandoc(thing.__doc__ or "")
    if not text or (is_dataclass(thing) and text.startswith(f"{thing.__name__}(")):
        return ["has no docstring"]
    found = []
    if not text.split("\n")[0].endswith("."):
        found.append("does not start with a sentence")
    flat = " ".join(text.split())
    wanted = [section for section in SECTIONS.get(kind, ()) if section in flat]
    found += [f"lacks {section}" for section in SECTIONS.get(kind, ()) if section not in flat]
    if sorted(wanted, key=flat.index) != wanted:
        found.append(f"has its sections out of order: they are {' '.join(wanted)}")
    if kind in WITH_EXAMPLE and not any(it.want for it in examples(text)):
        found.append("lacks an example that prints something")
    if kind == "dataclass":
        found += [f"says nothing below the field {name}" for name in undescribed_fields(thing)]
    return found


def examples(text):
    return doctest.DocTestParser().get_examples(text)


def undescribed_fields(thing):
    """Return the public fields of a dataclass's own without a string on the line below them."""
    (tree,) = ast.parse(dedent(inspect.getsource(thing))).body
    described = {
        node.target.id
        for node, below in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(node, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
    own = inspect.get_annotations(thing)
    names = [it.name for it in fields(thing) if it.name in own and not it.name.startswith("_")]
    return [name for name in names if name not in described]


def docstrings(text):
    """Yield line and text of each docstring in a source, and of strings below a field."""
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.lineno, node.value.value


def empty_words(text):
    """Return the sections that say "none" and the examples that show nothing, with their lines."""
    found = []
    for line, words in docstrings(text):
        found += [f"line {line}: {match[0]}" for match in EMPTY_SECTION.finditer(words)]
        found += [
            f"line {line}: >>> {it.source.strip()}"
            for it in examples(words)
            if EMPTY_EXAMPLE.search(it.source)
        ]
    return found


THINGS = [
    pytest.param(thing, id=f"{module.removeprefix('widemax.')}.{name}")
    for (module, name), thing in public_things().items()
    if kind_of(thing)
]


@pytest.mark.parametrize("thing", THINGS)
def test_docstrings_by_kind(thing):
    found = faults(thing)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_no_section_says_none_and_no_example_shows_nothing(path):
    found = empty_words(path.read_text(encoding="utf-8"))
    assert not found, "\n".join(found)


def test_the_kinds_of_public_things():
    things = {name: thing for (_, name), thing in public_things().items()}
    for name, kind in {
        "LogUniformSampler": "method",
        "TableScorer": "method",
        "SampledHead": "method",
        "sampled_softmax": "method",
        "Sampler": "base",
        "DrawnSampler": "base",
        "Objective": "base",
        "SASRec": "model",
        "Baseline": "base",
        "Vocabulary": "dataclass",
        "KeyedVectors": "class",
        "read_source": "function",
        "NonFiniteError": "exception",
        "AnalogyMethod": None,
    }.items():
        assert kind_of(things[name]) == kind, name


class RightSampler(Sampler):
    """Draws what it likes.

    Formula: p(y) = 1.

    Shapes: [S].

    Cost: O(S).

    Reference: a book.

    Use when: testing. Avoid when: anything else.

    >>> 1 + 1
    2
    """

    # All that is abstract in a sampler, so that this one is not.
    locals().update(dict.fromkeys(Sampler.__abstractmethods__))


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("likes.", "likes", "does not start with a sentence"),
        ("Formula: p(y) = 1.", "", "lacks Formula:"),
        ("Shapes: [S].", "", "lacks Shapes:"),
        ("Cost: O(S).", "", "lacks Cost:"),
        ("Reference: a book.", "", "lacks Reference:"),
        ("Avoid when", "Not when", "lacks Avoid when:"),
        ("    2\n", "", "lacks an example that prints something"),
    ],
)
def test_a_method_that_lacks_something(old, new, fault, monkeypatch):
    assert faults(RightSampler) == []
    assert old in RightSampler.__doc__
    monkeypatch.setattr(RightSampler, "__doc__", RightSampler.__doc__.replace(old, new))
    assert faults(RightSampler) == [fault]


def test_sections_out_of_order(monkeypatch):
    swapped = RightSampler.__doc__.replace("Cost", "X").replace("Formula", "Cost")
    monkeypatch.setattr(RightSampler, "__doc__", swapped.replace("X", "Formula"))
    assert faults(RightSampler) == [f"has its sections out of order: they are {' '.join(METHOD)}"]


def test_a_docstring_is_not_inherited():
    class Silent(RightSampler):
        pass

    assert faults(Silent) == ["has no docstring"]


@dataclass
class Described:
    """Two numbers."""

    first: int
    """The first one."""
    second: int = 0
    _hidden: int = 0


@dataclass
class Undescribed:
    first: int


def test_a_dataclass_describes_its_fields():
    assert faults(Described) == ["says nothing below the field second"]
    assert faults(Undescribed) == ["has no docstring"]


def test_a_function_shows_an_example():
    def shown():
        """Return 2.

        >>> 1 + 1
        2
        """

    def told():
        """Return 2."""

    assert faults(shown) == []
    assert faults(told) == ["lacks an example that prints something"]


def test_an_exception_is_a_sentence():
    class Wrong(Exception):
        """What was wrong"""

    assert faults(Wrong) == ["does not start with a sentence"]


@pytest.mark.parametrize("section", ["Formula: none.", "Shapes: none", "Cost:\n    none; or so"])
def test_a_section_that_says_none_is_found(section):
    assert len(empty_words(f'class A:\n    """A.\n\n    {section}\n    """\n')) == 1
    assert empty_words(f'"""{section.replace("none", "nonetheless O(1)")}"""') == []


@pytest.mark.parametrize("example", ["issubclass(int, object)", "callable(print)"])
def test_an_example_that_shows_nothing_is_found(example):
    text = f'def f():\n    """F.\n\n    >>> {example}\n    True\n    """\n'
    assert empty_words(text) == [f"line 2: >>> {example}"]
    assert empty_words(text.replace(example, "1 == 1")) == []
