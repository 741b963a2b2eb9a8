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
from widemax.cli.config_options import with_config_options
from widemax.runs.config.config import Config, settings
from widemax.runs.config.resolved import ResolvedConfig, flag_of
from widemax.runs.config.unused import NEEDS

WIDE = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}


@pytest.fixture
def run():
    """Call a small command with arguments; return its result, and what it was called with."""
    app = typer.Typer(pretty_exceptions_enable=False)
    calls = []

    @app.command()
    @with_config_options
    def train(
        data: Annotated[str, typer.Argument(help="The data.")],
        *,
        resolved: ResolvedConfig,
        resume: Annotated[bool, typer.Option(help="Go on.")] = False,
    ) -> None:
        """Train something."""
        calls.append((data, resume, resolved))

    def call(*arguments):
        calls.clear()
        return CliRunner(env=WIDE).invoke(app, [*arguments]), calls

    return call


def test_without_flags_all_is_default(run):
    result, [(data, resume, resolved)] = run("clicks.csv")
    assert (result.exit_code, data, resume) == (0, "clicks.csv", False)
    assert resolved.config == Config()
    assert set(resolved.origins.values()) == {"default"}


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


@pytest.mark.parametrize("name", settings())
def test_every_setting_can_be_given_as_a_flag(run, name):
    setting = settings()[name]
    if setting.kind is bool:
        arguments, value = [flag_of(name)], True
    else:
        value = setting.choices[-1] if setting.choices else setting.kind(setting.most)
        arguments = [flag_of(name), str(value)]
    # What the setting needs besides to have an effect.
    needed = {"trainer": {"model": "cbow"}}.get(name, {}) | {
        need.setting: need.values[0] for need in NEEDS.get(name, ()) if not need.is_met(Config())
    }
    arguments += [part for each in needed for part in (flag_of(each), needed[each])]
    result, calls = run("d", *arguments)
    assert result.exit_code == 0, result.output
    wanted = {name: value, **needed}
    made = Config.for_model if "model" in wanted else Config
    assert calls[0][2].config == made(**wanted)
    assert calls[0][2].origins[name] == "flag"


def test_help_names_every_flag_its_choices_and_its_default(run):
    result, calls = run("--help")
    assert not calls
    text = " ".join(result.output.replace("│", " ").split())
    assert "Train something." in text
    for name, setting in settings().items():
        assert flag_of(name) in text
        assert setting.help in text
        assert setting.group in text
        if setting.choices:
            assert setting.limits_sentence in text
        if setting.default != "":
            assert f"Default: {setting.default}." in text
    for flag in ("--config", "--print-config", "--no-bias", "--resume"):
        assert flag in text


def test_print_config_shows_and_does_not_run(run):
    result, calls = run("d", "--seed", "9", "--print-config")
    assert (result.exit_code, calls) == (0, [])
    [line] = [line for line in result.output.splitlines() if line.startswith("seed ")]
    assert line.split() == ["seed", "=", "9", "#", "flag"]
    result, calls = run("d", "--seed", "9", "--print-config", "--json")
    assert json.loads(result.output)["seed"] == {"value": 9, "origin": "flag"}
    assert not calls


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "--epochs must be a whole number between 1 and 1,000,000, got 0"),
        (["--learning-rate", "nan"], "--learning-rate must be a number .*, got nan"),
        (["--sampler", "unigramm"], r"--sampler must be one of .*; did you mean 'unigram'\?"),
        (["--config", "absent.toml"], "absent.toml cannot be read"),
        (["--json"], "--json says how --print-config prints"),
        (["--print-config", "--epochs", "0"], "--epochs must be"),
    ],
)
def test_a_mistake_is_a_value_error_for_main_to_show(run, arguments, message):
    result, calls = run("d", *arguments)
    assert not calls
    assert isinstance(result.exception, ValueError)
    with pytest.raises(ValueError, match=message):
        raise result.exception


@pytest.mark.parametrize("arguments", [["--epochs", "many"], ["--epoch", "3"], ["--bias", "yes"]])
def test_what_is_no_option_or_number_is_a_usage_error(run, arguments):
    result, calls = run("d", *arguments)
    assert (result.exit_code, calls) == (2, [])


def test_a_verb_that_does_not_fit_is_refused_when_it_is_written():
    def no_place_for_it(data: str) -> None: ...

    def takes_a_setting(seed: int, resolved: ResolvedConfig) -> None: ...

    with pytest.raises(ValueError, match="no_place_for_it must have a parameter named 'resolved'"):
        with_config_options(no_place_for_it)
    with pytest.raises(ValueError, match="takes_a_setting must not declare 'seed'"):
        with_config_options(takes_a_setting)


def test_the_options_and_their_choices_cost_no_heavy_import():
    """The rooms below the package's own ``__init__``, which decides for itself what it imports."""
    program = (
        "import sys, types\n"
        "package = types.ModuleType('widemax'); package.__path__ = [sys.argv[1]]\n"
        "sys.modules['widemax'] = package\n"
        "from widemax.cli.config_options import with_config_options\n"
        "with_config_options(lambda resolved: None)()\n"
        "print(*sorted({'torch', 'numpy', 'numba', 'polars'} & set(sys.modules)))\n"
    )
    folder = str(Path(widemax.__file__).parent)
    run = subprocess.run(
        [sys.executable, "-c", program, folder], capture_output=True, text=True, check=False
    )
    assert (run.stdout.strip(), run.stderr) == ("", "")
