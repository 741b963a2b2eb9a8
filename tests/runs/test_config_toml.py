"""The configuration as a file: what is written reads back, and what is refused is named."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.fuzzing import EXAMPLES
from widemax.runs.config.config import EXACT_OBJECTIVES, NOT_DRAWN, STRUCTURED, Config, settings
from widemax.runs.config.presets import KERNEL_MODELS, preset_for
from widemax.runs.config.resolved import read_config
from widemax.runs.config.settings import MAX_TEXT
from widemax.runs.config.toml import MAX_BYTES, MAX_LINE, read_toml, to_toml, toml_value

ENDLESS = Path("/dev/zero")


def values_of(setting):
    if setting.kind is bool:
        return st.booleans()
    if setting.choices:
        return st.sampled_from(setting.choices)
    if setting.kind is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_TEXT)
    numbers = st.integers if setting.kind is int else st.floats
    return numbers(setting.least, setting.most)


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "config.toml"


@st.composite
def configs(draw):
    values = {name: draw(values_of(setting)) for name, setting in settings().items()}
    if values["steps"]:
        values["warmup_steps"] = min(values["steps"], values["warmup_steps"])
    if values["head"] in STRUCTURED:
        values |= {"similarity": "dot", "temperature": 1.0}
    if values["head"] == "importance" and values["sampler"] in NOT_DRAWN:
        values["sampler"] = "unigram"
    if values["head"] == "sampled" and values["objective"] in EXACT_OBJECTIVES:
        values["sampler"] = "all"
    if values["trainer"] == "kernel":
        # It knows a few heads only: those of the command line's defaults for its models.
        model = draw(st.sampled_from(KERNEL_MODELS))
        values |= {"model": model, **preset_for({"model": model})}
        values |= {"head": draw(st.sampled_from(("sampled", "hierarchical"))), "bias": False}
        values |= {"similarity": "dot", "temperature": 1.0}
    return Config(**values)


@given(configs())
@example(Config())
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_written_reads_back_equal(shared_path, config):
    shared_path.write_bytes(to_toml(config).encode())
    assert read_config(shared_path, {}).config == config


@pytest.mark.parametrize("code", [*range(0x300), 0x2028, 0x202E, 0xFEFF, 0xFFFF, 0xE0001, 0x10FFFF])
def test_every_odd_character_reads_back_and_is_harmless_on_screen(code):
    text = f"a{chr(code)}b"
    written = f"x = {toml_value(text)}"
    assert tomllib.loads(written)["x"] == text
    assert written.isprintable()


def test_the_longest_text_of_escapes_still_fits_its_line_and_file(tmp_path):
    text = "\U000e0001" * MAX_TEXT
    config = Config(user_column=text, item_column=text, time_column=text)
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert read_config(path, {}).config == config


def test_the_file_explains_every_setting():
    text = to_toml(Config())
    flat = " ".join(text.replace("\n#", " ").split())
    for name, setting in settings().items():
        assert f"# {setting.help}\n" in text
        assert " ".join(setting.limits_sentence.split()) in flat
        assert f"\n{name} = " in text
    for group in {setting.group for setting in settings().values()}:
        assert text.count(f"# --- {group} ---") == 1
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('learning_rate = "0.1"', "learning_rate must be a number .*, got the text '0.1'"),
        ("epochs = 3.0", "epochs must be a whole number .*, got 3.0"),
        ("epochs = true", "epochs must be a whole number .*, got true"),
        ("bias = 0", "bias must be true or false, got 0"),
        ("learning_rate = nan", "learning_rate must be a number .*, got nan"),
        ("time_budget = -inf", "time_budget must be a number .*, got -inf"),
        ("seed = 0x" + "f" * 2000, "seed must be .*, got a number of 8,000 bits"),
        ("seed = " + "9" * 2000, "seed must be .*, got a number of 6,644 bits"),
        ("model = 3", "model must be one of auto.*, got 3"),
        ("user_column = ['a']", "user_column must be .*, got a list"),
        ("user_column = 2024-01-01", "user_column must be .*, got a value of type date"),
        ("[training]\nepochs = 3", "'training' is a table; write its settings at the top level"),
        ("epochs.number = 3", "'epochs' is a table"),
        ("epochs = {number = 3}", "'epochs' is a table"),
        ("[[run]]\nepochs = 3", "'run' is not a setting"),
        ("learnig_rate = 1", r"'learnig_rate' is not a setting; did you mean 'learning_rate'\?"),
        ("learning-rate = 1", r"did you mean 'learning_rate'\?"),
        ("zzz = 1", "'zzz' is not a setting; --print-config lists them all"),
        ("'' = 1", "'' is not a setting"),
        ("epochs = 3\nepochs = 4", "not valid TOML: a setting stands there twice"),
        ("epochs: 3", "not valid TOML: .*line 1"),
        ("x = '''" + "9\n" * 500, "not valid TOML"),
        ("steps = 5\nwarmup_steps = 6", "warmup_steps must be at most steps = 5, got 6"),
    ],
)
def test_a_wrong_file_is_refused_by_name_key_and_value(tmp_path, text, message):
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        read_config(path, {})
    assert str(raised.value).startswith(str(path)) or "warmup_steps" in message
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"absent\.toml cannot be read: No such file"):
        read_toml(tmp_path / "absent.toml")
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read_toml(tmp_path)
    path = tmp_path / "run.toml"
    path.write_bytes(b"epochs = 3\nuser_column = '\xff'")
    with pytest.raises(ValueError, match=r"run\.toml, line 2: not UTF-8"):
        read_toml(path)


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbfepochs = 3\r\nseed = 4\r\n")
    assert read_toml(path) == {"epochs": 3, "seed": 4}


def test_size_and_lines_are_bounded(tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(b"#\n" * (MAX_BYTES // 2))
    assert read_toml(path) == {}
    path.write_bytes(b"#\n" * (MAX_BYTES // 2) + b"#")
    with pytest.raises(ValueError, match="more than 32,768 bytes"):
        read_toml(path)
    path.write_text("epochs = 3\n#" + "x" * (MAX_LINE - 1))
    assert read_toml(path) == {"epochs": 3}
    path.write_text("epochs = 3\n" + ".".join("a" * MAX_LINE) + " = 1")
    with pytest.raises(ValueError, match=r"line 2: a line may have 2,100 characters, this one has"):
        read_toml(path)


@pytest.mark.skipif(not ENDLESS.exists(), reason="no file without end on this system")
def test_a_file_without_end_is_not_read_to_it():
    with pytest.raises(ValueError, match="more than 32,768 bytes"):
        read_toml(ENDLESS)


@pytest.mark.parametrize("opening", ["[", "[\n", "{a=", "[{a="])
def test_nesting_without_end_is_refused(tmp_path, opening):
    path = tmp_path / "run.toml"
    lines = opening.count("\n")
    size = MAX_BYTES - 100 if lines else MAX_LINE - 100
    path.write_text("epochs = " + opening * (size // len(opening)))
    with pytest.raises(ValueError, match=r"run\.toml is not"):
        read_toml(path)
