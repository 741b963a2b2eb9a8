"""The configuration as options of a command."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import widemax
from tests.config.configurations import OPTIONS, has_effect, settings_beside
from widemax.cli.app import app as program
from widemax.cli.config_options import FIRST, ConfigCommand, Settings, with_config_options
from widemax.config import Config, read_config
from widemax.config.settings import varying_defaults
from widemax.declarations import declared, names

WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}


@pytest.fixture(scope="module")
def run():
    """Call a small command with arguments; return its result, and what it was called with."""
    app = typer.Typer(pretty_exceptions_enable=False)
    calls = []

    @app.command(cls=ConfigCommand)
    @with_config_options
    def train(
        data: Annotated[str, typer.Argument(help="The data.")],
        *,
        settings: Settings,
        resume: Annotated[bool, typer.Option(help="Go on.")] = False,
    ) -> None:
        """Train something."""
        calls.append((data, resume, settings.resolved(None)))

    def call(*arguments):
        calls.clear()
        return CliRunner(env=WIDE).invoke(app, [*arguments]), calls

    return call


def test_without_flags_all_is_default(run):
    result, [(data, resume, resolved)] = run("clicks.csv")
    assert (result.exit_code, data, resume) == (0, "clicks.csv", False)
    assert resolved.config == Config()
    assert set(resolved.origins.values()) == {"default"}


@pytest.mark.parametrize(("typed", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("0", 0)])
def test_a_time_budget_is_seconds_or_a_time_with_its_unit(run, typed, seconds):
    _, [(_, _, resolved)] = run("clicks.csv", "--time-budget", typed)
    assert resolved.config.time_budget == seconds


def test_flags_and_file_meet(run, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("epochs = 3\nbias = true\nseed = 5")
    result, [(_, resume, resolved)] = run(
        "d", "--config", str(path), "--learning-rate", "2", "--no-bias", "--resume"
    )
    assert result.exit_code == 0, result.output
    assert resume
    assert resolved.config == Config(epochs=3, seed=5, learning_rate=2.0, bias=False)
    assert resolved.origins["bias"] == resolved.origins["learning_rate"] == "flag"
    assert resolved.origins["seed"] == f"file {path}"


@pytest.mark.parametrize("name", OPTIONS)
def test_every_setting_can_be_given_as_a_flag(run, name):
    option = OPTIONS[name]
    if option.kind is bool:
        arguments, value = [option.flag], True
    else:
        value = option.choices[-1] if option.choices else option.kind(option.most)
        value = option.default if option.parts else value
        arguments = [option.flag, str(value)]
    # What the setting needs besides to have an effect.
    beside = settings_beside(name, value)
    for each in beside:
        arguments += [OPTIONS[each].flag, *([] if beside[each] is True else [str(beside[each])])]
    result, calls = run("d", *arguments)
    assert result.exit_code == 0, result.output
    assert calls[0][2].config == Config(**{name: value, **beside})
    assert calls[0][2].origins[name] == "flag"


def words_of(result):
    """Return what was printed as one line, without the frames around it."""
    return " ".join(result.output.replace("│", " ").split())


def test_help_names_every_flag_its_choices_and_its_default(run):
    result, calls = run("--help-all")
    assert (result.exit_code, calls) == (0, [])
    text = words_of(result)
    assert "Train something." in text
    for option in OPTIONS.values():
        assert f"{option.flag} " in text
        assert option.help in text
        assert option.group in text
        if option.choices:
            assert option.limits_sentence in text
        line = text[text.index(option.help) :].removeprefix(option.help)
        if option.name in varying_defaults():
            assert line.partition("--")[0].count("Default: depends on the model.") == 1
        elif option.default != "":
            default = str(option.default).lower() if option.kind is bool else option.default
            assert f"Default: {default}." in line.partition("--")[0]
    for flag in ("--config", "--no-bias", "--resume"):
        assert flag in text


def test_help_has_no_default_of_one_method_for_all(run):
    """Of EASE it is 500, of iALS 1."""
    assert "L2 penalty. Default: depends on the model." in words_of(run("--help-all")[0])
    assert "L2 penalty. Default: 500.0." in words_of(run("--model=ease", "--help")[0])
    assert "L2 penalty. Default: 0.005." in words_of(run("--model=ials", "--help")[0])


@pytest.mark.parametrize("model", names("model"))
def test_help_with_a_model_shows_what_concerns_it_with_its_defaults(run, model):
    config = Config(model=model)
    for arguments in (["--model", model, "--help"], ["--help", f"--model={model}"]):
        result, calls = run(*arguments)
        assert (result.exit_code, calls) == (0, [])
        text = words_of(result)
        for name, option in OPTIONS.items():
            assert (f"{option.flag} " in text) == config.has(name), name
            if not config.has(name):
                continue
            line = text[text.index(option.help) :].removeprefix(option.help)
            if option.choices:
                assert line.startswith(f" {option.limits_sentence}")
                line = line[len(option.limits_sentence) + 1 :]
            value = config.values[name]
            if value != "":
                value = str(value).lower() if option.kind is bool else value
                assert line.startswith(f" Default: {value}."), name
            else:
                assert not line.startswith(" Default:")
    assert "--config" in text


def test_help_follows_every_method_that_is_named(run):
    text = words_of(run("--head", "sampled", "--sampler=mixture", "--help")[0])
    assert "--mixture " in text
    assert "--distortion " in text
    assert "--queue-size " not in text
    assert "--alpha " in words_of(run("--head", "infrequent", "--help")[0])
    # Without a method after one with: all are shown again.
    assert "--queue-size " in words_of(run("--help-all")[0])


def test_help_without_a_model_shows_the_most_usual_settings_alone(run):
    result, _ = run("--help")
    text = words_of(result)
    assert OPTIONS.keys() > FIRST
    for name, option in OPTIONS.items():
        assert (f"{option.flag} " in text) == (name in FIRST), name
    assert "--help-all" in text
    assert len(result.output.splitlines()) < 150


@pytest.mark.parametrize(
    ("verb", "wrong", "meant"),
    [
        ("train", "--user", "--user-features or --user-column"),
        ("train", "--foldr", "--folder"),
        ("recommend", "--users", "--all-users or --user"),
    ],
)
def test_a_wrong_option_is_answered_with_what_was_likely_meant(verb, wrong, meant):
    result = CliRunner(env=WIDE).invoke(program, [verb, "x", wrong, "y"])
    assert result.exit_code == 2
    assert f"No such option: {wrong}; did you mean {meant}?" in words_of(result)


def test_a_wrong_option_that_is_like_none_is_named_alone():
    result = CliRunner(env=WIDE).invoke(program, ["evaluate", "x", "--zzz"])
    assert "No such option: --zzz " in words_of(result)
    assert "mean" not in result.output


@pytest.mark.parametrize(
    "arguments", [["--model", "--help"], ["--help", "--model"], ["--model=", "--help"]]
)
def test_help_with_a_misspelt_model_names_the_models(run, arguments):
    result, calls = run(*arguments)
    assert not calls
    assert isinstance(result.exception, ValueError)
    assert "model must be one of auto, airbnb" in str(result.exception)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A log and a text."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "log.csv").write_text("user,item\nann,tea\nann,rum\nbob,tea\n")
    (folder / "text.txt").write_text("the cat sat on the mat\n")
    return folder


def printed(source, *arguments):
    result = CliRunner(env=WIDE).invoke(
        program, ["train", str(source), "--print-config", *arguments]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_print_config_shows_and_does_not_run(sources):
    text = printed(sources / "log.csv", "--seed", "9")
    [line] = [line for line in text.splitlines() if line.startswith("seed ")]
    assert line.split() == ["seed", "=", "9", "#", "flag"]
    text = printed(sources / "log.csv", "--seed", "9", "--json", "--folder", str(sources / "run"))
    assert json.loads(text)["seed"] == {"value": 9, "origin": "flag"}
    assert not (sources / "run").exists()


@pytest.mark.parametrize(("name", "source"), [("log.csv", "log"), ("text.txt", "text")])
@pytest.mark.parametrize("model", ["auto", *names("model")])
def test_what_print_config_shows_is_read_again_and_shows_the_same(
    sources, tmp_path, model, name, source
):
    flags = ["--model", model, "--min-count", "3"]
    text = printed(sources / name, *flags)
    config = Config(source=source, model=model, min_count=3)
    assert config.model in declared("model")
    path = tmp_path / "run.toml"
    path.write_text(text)
    again = read_config(path, {}, source=source)
    assert again.config == config
    assert again.given == {each for each in config.options if has_effect(config, each)}
    values = {
        each: row["value"]
        for each, row in json.loads(printed(sources / name, "--json", *flags)).items()
    }
    assert values == {each: config.values[each] for each in again.given}
    shown = printed(sources / name, "--config", str(path))
    assert [line.partition(" # ")[0] for line in shown.splitlines()] == [
        line.partition(" # ")[0] for line in text.splitlines()
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--epochs", "0"],
            "--epochs must be a whole number between 1 and 1,000,000, or auto, got 0",
        ),
        (["--learning-rate", "nan"], "--learning-rate must be a number .*, got nan"),
        (["--sampler", "unigramm"], r"--sampler must be one of .*; did you mean 'unigram'\?"),
        (["--config", "absent.toml"], "absent.toml cannot be read"),
        (
            ["--head", "full", "--num-samples", "9"],
            "--num-samples has no effect with head = 'full'",
        ),
        (["--model", "sdm", "--num-interests", "9"], "it needs model = mind"),
        (["--sampler", "mixture", "--mixture", "a=1"], "--mixture: sampler must be one of"),
    ],
)
def test_a_mistake_is_a_value_error_for_main_to_show(run, arguments, message):
    result, calls = run("d", *arguments)
    assert not calls
    assert isinstance(result.exception, ValueError)
    with pytest.raises(ValueError, match=message):
        raise result.exception


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "--json says how --print-config prints: give both"),
        ([], "give --folder: where the run is kept"),
        (["--print-config", "--epochs", "0"], "--epochs must be"),
        # Before the source is looked for.
        (["--print-config", "--head", "full", "--num-samples", "9"], "--num-samples has no effect"),
        (["--print-config"], "absent"),
    ],
)
def test_a_mistake_of_train_is_told_before_anything_is_read(arguments, message):
    result = CliRunner().invoke(program, ["train", "absent", *arguments])
    assert isinstance(result.exception, ValueError)
    with pytest.raises(ValueError, match=message):
        raise result.exception


def test_a_setting_of_the_other_kind_of_data_is_refused(sources):
    for name, flag, message in (
        ("log.csv", "--phrases", "--phrases is for a text, and this is a log"),
        ("text.txt", "--core", "--core is for a log, and this is a text"),
        ("log.csv", "--window", "--window has no effect with model = 'youtube-dnn'"),
    ):
        arguments = ["train", str(sources / name), "--print-config", flag, "3"]
        result = CliRunner().invoke(program, arguments)
        assert isinstance(result.exception, ValueError)
        assert str(result.exception).startswith(message)


@pytest.mark.parametrize("arguments", [["--seed", "many"], ["--epoch", "3"], ["--bias", "yes"]])
def test_what_is_no_option_or_number_is_a_usage_error(run, arguments):
    result, calls = run("d", *arguments)
    assert (result.exit_code, calls) == (2, [])


def test_a_verb_that_does_not_fit_is_refused_when_it_is_written():
    def no_place_for_it(data: str) -> None: ...

    def takes_a_setting(seed: int, settings: object) -> None: ...

    with pytest.raises(ValueError, match="no_place_for_it must have a parameter named 'settings'"):
        with_config_options(no_place_for_it)
    with pytest.raises(ValueError, match="takes_a_setting must not declare 'seed'"):
        with_config_options(takes_a_setting)


def loaded(*arguments):
    """Return which heavy modules a command line has imported when it is over."""
    program = (
        "import sys\n"
        "from widemax.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit as stopped: assert not stopped.code, stopped.code\n"
        "heavy = {'torch', 'numpy', 'numba', 'polars', 'scipy'} & set(sys.modules)\n"
        "print(*sorted(heavy), file=sys.stderr)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Usage: " in run.stdout
    return run.stderr.split()


VERBS = [command.name or command.callback.__name__ for command in program.registered_commands]


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_costs_no_heavy_import(verb):
    assert loaded(verb, "--help") == []


def test_the_help_of_the_program_and_of_a_model_cost_no_heavy_import():
    assert len(VERBS) == len({*VERBS}) > 10
    assert loaded("--help") == []
    assert loaded("train", "--model", "mind", "--help") == []


def test_the_options_and_their_choices_cost_no_heavy_import():
    """The rooms below the package's own ``__init__``, which decides for itself what it imports."""
    program = (
        "import sys, types\n"
        "package = types.ModuleType('widemax'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['widemax'] = package\n"
        "from widemax.cli.config_options import with_config_options\n"
        "with_config_options(lambda settings: None)()\n"
        "print(*sorted({'torch', 'numpy', 'numba', 'polars'} & set(sys.modules)))\n"
    )
    folder = str(Path(widemax.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
    )
    assert (run.stdout.strip(), run.stderr) == ("", "")
