"""The table of methods: what is stored is what the code says, and no name means two things."""

import inspect
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests import forked
from widemax.cli import main
from widemax.cli.train import train
from widemax.config import Config
from widemax.config.run_options import SLOTS, TRAIN_ARGUMENTS
from widemax.config.settings import all_options
from widemax.declarations import (
    Declaration,
    Need,
    Option,
    Setup,
    declare,
    find,
    load_plugin,
    names,
    table,
)
from widemax.declarations.__main__ import generated
from widemax.declarations.setup import FACTS
from widemax.declarations.table import FILE, load, own_declarations
from widemax.models.automatic import with_numbers
from widemax.training.steps import EPOCHS

KINDS = (*SLOTS, "format", "export")


@pytest.fixture
def own_table(monkeypatch):
    """Leave the table as it was, whatever the test declares."""
    before = set(sys.modules)
    monkeypatch.setattr(table, "_live", dict(table._live))
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("widemax_plugin_", "shop_")):
            del sys.modules[name]


def test_the_stored_declarations_are_what_the_code_says():
    assert FILE.read_text(encoding="utf-8") == generated(), (
        f"{FILE.name} is out of date: run python -m widemax.declarations"
    )


def test_stored_declarations_are_whole():
    generated()
    for each in own_declarations():
        assert Declaration.from_json(json.loads(json.dumps(each.to_json()))) == each
        assert find(each.kind, each.name) == each
        assert load(each) is not None
        assert each.help.endswith(".")
    assert {each.kind for each in own_declarations()} <= {*KINDS}


def test_names_are_found_without_importing_what_they_name():
    program = (
        "import sys\n"
        "from widemax.declarations import names\n"
        "print(*names('sampler'))\n"
        "print(*{'torch', 'numpy', 'polars', 'widemax.sampling'} & set(sys.modules))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [" ".join(names("sampler")), ""]


def test_a_declaration_that_is_stored_otherwise_is_not_used(monkeypatch):
    current = find("sampler", "uniform")
    assert load(current).__name__ == "UniformSampler"
    stale = replace(current, help="As it was.")
    monkeypatch.setattr(table, "_stored", lambda: {("sampler", "uniform"): stale})
    with pytest.raises(ValueError, match=r"declared otherwise in .*: run python -m widemax.decl"):
        load(current)


def test_a_method_declares_itself_and_is_offered(own_table):
    @declare.sampler(
        "by-day",
        options=[Option("days", 7, "How many days.", least=1, most=9)],
        traits=["draws"],
        needs=[Need("objective", names=("nce",), why="is for nce")],
        usual={"objective": "nce"},
    )
    class ByDay:
        """Draws by day.

        And says more below.
        """

    found = find("sampler", "by-day")
    assert (found.help, found.lives) == ("Draws by day.", f"{__name__}:{ByDay.__qualname__}")
    assert load(found) is ByDay
    assert "by-day" in all_options()["sampler"].choices
    assert list(names("sampler")) == sorted(names("sampler"))
    config = Config(sampler="by-day", objective="nce", days=3)
    assert (config.days, config.options["days"].group) == (3, "Sampling")
    with pytest.raises(ValueError, match="'by-day' is for nce: objective must be nce, got"):
        Config(sampler="by-day", objective="info-nce")
    with pytest.raises(ValueError, match=r"days has no effect .*: it needs sampler = by-day"):
        Config(days=3)


@pytest.mark.parametrize(("word", "epochs"), [("", 10), ("auto", "auto")])
def test_a_word_is_usual_where_a_method_takes_it(own_table, word, epochs):
    others = [each for each in find("trainer", "torch").options if each.name != "epochs"]
    mine = [*others, replace(EPOCHS, word=word)]
    declare.trainer("mine", help="Mine.", options=mine)(type("Mine", (), {}))
    config = Config(source="log", model="youtube-dnn", trainer="mine")
    assert config.epochs == epochs
    assert with_numbers(config, 250_000).epochs == (40 if word else 10)


def test_two_methods_cannot_claim_one_name(own_table):
    def declared_here(name):
        declare.sampler(name, help="Mine.")(type("Mine", (), {}))

    with pytest.raises(
        ValueError, match=r"sampler 'uniform' of .*:Mine is declared by widemax\..*: cho"
    ):
        declared_here("uniform")
    assert find("sampler", "uniform").lives.startswith("widemax.")
    declared_here("mine")
    # The same once more, as when a cell of a notebook is run again.
    declared_here("mine")
    with pytest.raises(
        ValueError, match=r"sampler 'mine' of .*:Other is declared by .*:Mine already"
    ):
        declare.sampler("mine", help="Another.")(type("Other", (), {}))
    # Of another kind it is another name.
    declare.objective("mine", help="Mine.")(type("Mine", (), {}))


@pytest.mark.parametrize(
    "option",
    [
        Option("distortion", 1, "Whole.", most=10),
        Option("distortion", 0.75, "Other limits.", most=11.0),
        Option("distortion", "", "A text."),
        Option("optimizer", "sgd", "Other choices.", choices=("sgd", "mine")),
        Option("seed", "", "What every run has."),
        Option("core", False, "What a log has."),
        Option("phrases", 1.0, "What a text has.", most=1.0),
        Option("mixture", "", "No list of samplers."),
    ],
    ids=lambda option: f"{option.name} {option.help}",
)
def test_one_option_name_cannot_mean_two_things(own_table, option):
    with pytest.raises(
        ValueError, match=rf"sampler 'mine' declares {option.name!r} otherwise than .*: share"
    ):
        declare.sampler("mine", help="Mine.", options=[option])(type("Mine", (), {}))
    assert "mine" not in names("sampler")


@pytest.mark.parametrize("slot", SLOTS)
def test_no_option_can_be_called_as_what_names_a_method(own_table, slot):
    for option in (Option(slot, "mine", "A text."), all_options()[slot]):
        with pytest.raises(
            ValueError, match=r"'mine' declares .* that name is taken by the command"
        ):
            declare.sampler("mine", help="Mine.", options=[option])(type("Mine", (), {}))
    assert "mine" not in names("sampler")


def test_what_a_constructor_gets_is_part_of_the_setup():
    for name in FACTS:
        assert name in Setup.__annotations__ or isinstance(vars(Setup)[name], property)


def test_an_option_may_be_shared_and_have_a_default_of_its_own(own_table):
    option = find("sampler", "unigram").options[-1]
    mine = Option(option.name, 0.5, "In other words.", option.least, option.most, option.choices)
    declare.sampler("mine", help="Mine.", options=[mine])(type("Mine", (), {}))
    assert Config(sampler="mine").values[option.name] == 0.5
    assert Config(sampler="unigram").values[option.name] == option.default


PLUGIN = '''
from widemax.declarations import Option, declare
from widemax.sampling import UniformSampler


@declare.sampler("mine", options=[Option("days", 7, "How many days.", most=9, group="Mine")])
class MySampler(UniformSampler):
    """Draws as I like."""
'''


def test_a_plug_in_is_a_file_or_a_module(own_table, tmp_path, monkeypatch):
    (tmp_path / "plug.py").write_text(PLUGIN)
    load_plugin(str(tmp_path / "plug.py"))
    # Asked for twice, it is run once.
    load_plugin(str(tmp_path / "plug.py"))
    assert load(find("sampler", "mine")).__name__ == "MySampler"
    (tmp_path / "shop_plugin.py").write_text(PLUGIN.replace("mine", "theirs"))
    monkeypatch.syspath_prepend(tmp_path)
    load_plugin("shop_plugin")
    assert {"mine", "theirs"} <= {*names("sampler")}


def test_two_plug_ins_of_one_name_do_not_hide_each_other(own_table, tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "plug.py").write_text(PLUGIN.replace("mine", folder))
        load_plugin(str(tmp_path / folder / "plug.py"))
    assert {"one", "other"} <= {*names("sampler")}
    (tmp_path / "plug.py").write_text(PLUGIN.replace("mine", "one"))
    with pytest.raises(ValueError, match=r"sampler 'one' of .* is declared by .* already"):
        load_plugin(str(tmp_path / "plug.py"))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("def", "invalid syntax in line 1"),
        ("1 / 0", "ZeroDivisionError"),
        ("import no_such_thing", "No module named 'no_such_thing'"),
        ("from widemax.declarations import nothing", "cannot import name 'nothing'"),
        ("raise ValueError('as it says')", "as it says"),
        (PLUGIN.replace("mine", "uniform"), "'uniform' of .* is declared by .* already"),
        (PLUGIN.replace("days", "seed"), "declares 'seed' otherwise than run 'run'"),
        (PLUGIN.replace("most=9", "mots=9"), "TypeError.*mots"),
    ],
)
def test_a_plug_in_that_fails_is_named_and_leaves_nothing(own_table, tmp_path, text, named):
    path = tmp_path / "plug.py"
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=rf"^plug-in '.*plug.py' cannot be imported: .*{named}"
        ):
            load_plugin(str(path))
    path.write_text(PLUGIN)
    load_plugin(str(path))
    assert "mine" in names("sampler")


@pytest.mark.parametrize(
    "name", ["absent.py", ".", "", ".relative", "a\x00.py", "folder.py", "\ud800.py"]
)
def test_a_plug_in_that_is_not_there_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(ValueError, match=r"^plug-in '.*' cannot be imported: ."):
        load_plugin(name)


def called(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped:
        main([*map(str, arguments)])
    return stopped.value.code or 0, capsys.readouterr()


def test_the_program_takes_plug_ins_before_the_verb(tmp_path):
    """In a process of its own: the flags of a program are made once."""
    (tmp_path / "plug.py").write_text(PLUGIN)
    (tmp_path / "log.csv").write_text("user,item\nann,tea\nann,rum\nbob,tea\n")

    def run(*words):
        command = ["-c", "from widemax.cli import main; main()", *words]
        return forked.run(command, cwd=tmp_path, env={"COLUMNS": "200"})

    for flag in (["--plugin", "plug.py"], ["--plugin=plug.py"]):
        shown = run(*flag, "train", "--sampler", "mine", "--help").stdout
        assert "--days " in shown
        assert "─ Mine ─" in shown
        assert "--distortion " not in shown
        printed = run(
            *flag, "train", "log.csv", "--sampler", "mine", "--days", "3", "--print-config"
        )
        assert printed.returncode == 0, printed.stderr
        assert [
            line.split() for line in printed.stdout.splitlines() if line.startswith("days")
        ] == [["days", "=", "3", "#", "flag"]]
    without = run("train", "log.csv", "--sampler", "mine", "--print-config")
    assert without.returncode == 2
    assert without.stderr.startswith("widemax: --sampler must be one of adaptive-n-gram, all, ")


def test_a_wrong_plug_in_is_one_line_and_exit_code_2(own_table, tmp_path, capsys):
    (tmp_path / "plug.py").write_text("1 / 0")
    for flag in (["--plugin", tmp_path / "plug.py"], [f"--plugin={tmp_path / 'plug.py'}"]):
        code, printed = called(capsys, *flag, "train", "--help")
        assert (code, printed.out) == (2, "")
        assert printed.err.count("\n") == 1
        assert printed.err.startswith("widemax: plug-in ")
        assert "ZeroDivisionError" in printed.err
        code, printed = called(capsys, "--debug", *flag, "train", "--help")
        assert code == 2
        assert printed.err.startswith("Traceback")
    # Behind the verb it is none of its options; without a name, the parser says so.
    assert called(capsys, "train", "x", "--plugin", "absent.py")[0] == 2
    code, printed = called(capsys, "--plugin")
    assert code == 2
    assert "requires an argument" in printed.err


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (Option("margin", 0.5, "A margin."), "its default does not keep to its limits"),
        (Option("margin", 7, "A margin.", least=0, most=5), "between 0 and 5, got 7"),
        (Option("margin", float("nan"), "A margin.", most=1.0), "its default does not keep"),
        (Option("margin", None, "A margin."), "its default must be true or false, a number or a"),
        (Option("margin", "c", "A margin.", choices=("a", "b")), "must be one of a, b"),
        (Option("folder", "", "A folder."), "taken by the command line"),
        (Option("sampler", "", "A sampler."), "taken by the command line"),
        (Option("class", "", "A class."), "a word of Python"),
        (Option("Foo-Bar", "", "A bar."), "small letters, digits and underscores"),
        (Option("", "", "Nothing."), "small letters, digits and underscores"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_set_is_refused_where_it_is_declared(option, named, own_table):
    with pytest.raises(ValueError, match=rf"sampler 'own' declares .* as an option: .*{named}"):
        declare.sampler("own", options=[option])(type("Own", (), {"__doc__": "Own."}))


def test_an_option_is_declared_once(own_table):
    twice = [Option("margin", True, "A margin.")] * 2
    with pytest.raises(ValueError, match="'margin' as an option: it is declared twice"):
        declare.sampler("own", options=twice)(type("Own", (), {"__doc__": "Own."}))


@pytest.mark.parametrize("name", ["", "My Own", "own=1", "own,2", "-own", "own\n", 7, None])
def test_a_name_can_be_typed(name, own_table):
    with pytest.raises(ValueError, match="the name of a sampler must be small letters and digits"):
        declare.sampler(name)(type("Own", (), {"__doc__": "Own."}))


def test_train_takes_no_argument_that_a_method_may_declare():
    own = set(inspect.signature(train).parameters) - set(all_options())
    assert own | {"help"} == set(TRAIN_ARGUMENTS)


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("", "declares no method"),
        ("import sys; sys.exit(3)", "it ends with SystemExit: 3"),
        ("raise KeyError('x')", "it ends with KeyError: 'x'"),
        ("a = 1\nb = = 2", "invalid syntax in line 2"),
    ],
)
def test_a_plugin_that_is_none(code, named, tmp_path, own_table):
    (tmp_path / "own.py").write_text(code)
    with pytest.raises(ValueError, match=named):
        load_plugin(str(tmp_path / "own.py"))


def test_what_a_method_is_usually_trained_with_must_exist(own_table):
    own = type("Own", (), {"__doc__": "Own."})
    declare.model("own", usual={"epochz": 3})(own)
    with pytest.raises(ValueError, match="'epochz', usual with model own, is not a setting"):
        Config(model="own")
    declare.model("owned", usual={"epochs": 0})(own)
    with pytest.raises(ValueError, match="epochs must be a whole number between 1 and"):
        Config(model="owned")


def test_a_method_that_is_not_known_may_be_in_a_plugin():
    with pytest.raises(ValueError, match="a method of your own is made known by --plugin FILE"):
        Config(sampler="qqq")
