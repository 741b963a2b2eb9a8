"""The configuration as a file: what is written reads back, and what is refused is named."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings

from tests.config.configurations import configs, has_effect
from tests.fuzzing import EXAMPLES
from widemax.config import Config, read_config, show_config
from widemax.config.fitting import switched_off
from widemax.config.toml import MAX_BYTES, MAX_LINE, read_toml, to_toml, toml_value
from widemax.declarations import declared, names
from widemax.declarations.options import MAX_TEXT

ENDLESS = Path("/dev/zero")


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "config.toml"


@given(configs())
@example(Config())
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_what_is_written_reads_back_equal(shared_path, config):
    shared_path.write_bytes(to_toml(config).encode())
    again = read_config(shared_path, {})
    assert again.config == config
    # What others switch off is neither written nor shown, and has no effect on being equal.
    assert again.given == {name for name in config.options if has_effect(config, name)}
    shared_path.write_bytes(show_config(again).encode())
    assert read_config(shared_path, {}).config == config


@pytest.mark.parametrize("source", ["log", "text"])
@pytest.mark.parametrize("model", names("model"))
def test_what_a_run_writes_reads_back_equal(model, source, tmp_path):
    path = tmp_path / "run.toml"
    config = Config(source=source, model=model)
    path.write_text(to_toml(config))
    assert Config(source=source, **read_toml(path)) == config


@pytest.mark.parametrize("code", [*range(0x300), 0x2028, 0x202E, 0xFEFF, 0xFFFF, 0xE0001, 0x10FFFF])
def test_every_odd_character_reads_back_and_is_harmless_on_screen(code):
    text = f"a{chr(code)}b"
    written = f"x = {toml_value(text)}"
    assert tomllib.loads(written)["x"] == text
    assert written.isprintable()


@pytest.mark.parametrize("model", names("model"))
def test_the_longest_text_of_escapes_still_fits_its_line_and_file(tmp_path, model):
    """Of every text, in the configuration with the most of them that a model can have."""
    config = max(
        (Config(model=model, **settings) for settings in _longest(model)),
        key=lambda each: sum(map(_is_free_text, each.options.values())),
    )
    texts = {
        name: "\U000e0001" * MAX_TEXT
        for name in config.options
        if _is_free_text(config.options[name])
    }
    config = config.changed(**texts)
    path = tmp_path / "config.toml"
    for text in (to_toml(config), show_config(read_config(None, {**config.given}))):
        path.write_text(text)
        assert read_config(path, {}).config == config


def _is_free_text(option):
    return option.kind is str and not option.choices and not option.parts


def _longest(model):
    yield {}
    if "head" in declared("model")[model].slots:
        if model != "two-tower":
            yield {"head": "sampled", "scorer": "table", "sampler": "market"}
        yield {"head": "sampled", "scorer": "tower", "sampler": "market"}


def test_the_longest_mixture_fits_its_line_and_file(tmp_path):
    parts = ", ".join(
        ["learned-unigram=333333.33333333331"]
        + ["unigram(distortion=0.3333333333333333)=0.33333333333333331"] * 15
    )
    config, path = Config(sampler="mixture", mixture=parts), tmp_path / "config.toml"
    for text in (to_toml(config), show_config(read_config(None, {**config.given}))):
        path.write_text(text)
        assert read_config(path, {}).config == config


@pytest.mark.parametrize("model", ["auto", *names("model")])
def test_the_file_explains_every_setting(model):
    config = Config(model=model)
    text = to_toml(config)
    flat = " ".join(text.replace("\n#", " ").split())
    for name, option in config.options.items():
        if switched_off(option, config.values):
            continue
        assert option.help in flat
        if option.parts:
            assert text.count(f"\n[[{name}]]\n") == len(config.mixed) >= 2
            continue
        assert " ".join(option.limits_sentence.split()) in flat
        assert f"\n{name} = " in text
    for group in {option.group for option in config.options.values()}:
        assert text.count(f"# --- {group} ---") == 1
    assert max(map(len, text.splitlines())) <= 100


def test_what_is_switched_off_is_not_written():
    text = to_toml(Config(steps=5, validation_size=0))
    assert "\nsteps = 5\n" in text
    for name in ("epochs", "patience", "metric", "validate_every"):
        assert f"\n{name} = " not in text


MIXTURE = """
sampler = "mixture"
seed = 3
[[mixture]]
sampler = "unigram"
weight = 3
distortion = 0.5
[[mixture]]
sampler = "uniform"
"""


def test_tables_of_a_mixture_are_read_and_written_back(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(MIXTURE)
    config = read_config(path, {}).config
    assert config == Config(sampler="mixture", mixture="unigram(distortion=0.5)=3, uniform", seed=3)
    assert config.mixture == "unigram(distortion=0.5)=3, uniform=1"
    assert [(part.name, part.weight, dict(part.options)) for part, _ in config.mixed] == [
        ("unigram", 3.0, {"distortion": 0.5}),
        ("uniform", 1.0, {}),
    ]
    written = tomllib.loads(to_toml(config))
    assert written["mixture"] == [
        {"sampler": "unigram", "weight": 3.0, "distortion": 0.5},
        {"sampler": "uniform", "weight": 1.0},
    ]
    path.write_text(to_toml(config))
    assert read_config(path, {}).config == config
    path.write_text('sampler = "mixture"\nmixture = "unigram(distortion=0.5)=3,uniform"\nseed = 3')
    assert read_config(path, {}).config == config


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
        ("zzz = 1", "'zzz' is not a setting; widemax train --help-all lists them"),
        ("'' = 1", "'' is not a setting"),
        ("epochs = 3\nepochs = 4", "not valid TOML: a setting stands there twice"),
        ('head = "full"\nnum_samples = 9', "num_samples has no effect with head = 'full'"),
        ("[mixture]\nsampler = 'all'", r"or tables \[\[mixture\]\], got a table"),
        ("mixture = [1, 2]", r"or tables \[\[mixture\]\], got a list"),
        ("mixture = []", "mixture must have 2 to 16 tables, got 0"),
        ("mixture = [" + "{}, " * 17 + "]", "mixture must have 2 to 16 tables, got 17"),
        ("mixture = [{}, {}]", "mixture: sampler must be one of .*, got a value of type NoneType"),
        (MIXTURE + "weight = 0", "mixture: weight must be a number above 0 and below .*, got 0"),
        (MIXTURE + "weight = nan", "mixture: weight must be a number .*, got nan"),
        (MIXTURE + "weight = inf", "mixture: weight must be a number .*, got inf"),
        (MIXTURE + "weight = '2'", "mixture: weight must be a number .*, got the text '2'"),
        (MIXTURE + "weight = true", "mixture: weight must be a number .*, got true"),
        (MIXTURE + "weight = 0x" + "f" * 2000, "mixture: weight must be .* of 8,000 bits"),
        (MIXTURE + "distortion = 2", "mixture: 'distortion' cannot be set for sampler 'uniform'"),
        (MIXTURE + "num_samples = 2", "mixture: 'num_samples' cannot be set for sampler 'uniform'"),
        (MIXTURE.replace("0.5", "-11"), "mixture: distortion must be a number .*, got -11"),
        (MIXTURE.replace("0.5", "{a = 1}"), "mixture: distortion must be .*, got a table"),
        (MIXTURE.replace("uniform", "unifrm"), r"mixture: sampler .* did you mean 'uniform'\?"),
        (MIXTURE.replace("uniform", "all"), "mixture: sampler 'all' cannot be one of several"),
        (
            MIXTURE.replace('"uniform"', '"in-batch"\nqueue_size = 5'),
            "'queue_size' cannot be set .* 'in-batch' alone: it has no settings of its own",
        ),
        (MIXTURE.replace("uniform", "mixture"), "mixture: sampler 'mixture' cannot be one of"),
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
    assert str(raised.value).startswith(str(path))
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
    with pytest.raises(ValueError, match="more than 131,072 bytes"):
        read_toml(path)
    path.write_text("epochs = 3\n#" + "x" * (MAX_LINE - 1))
    assert read_toml(path) == {"epochs": 3}
    path.write_text("epochs = 3\n" + ".".join("a" * MAX_LINE) + " = 1")
    with pytest.raises(ValueError, match=r"line 2: a line may have 4,100 characters, this one has"):
        read_toml(path)


@pytest.mark.skipif(not ENDLESS.exists(), reason="no file without end on this system")
def test_a_file_without_end_is_not_read_to_it():
    with pytest.raises(ValueError, match="is no regular file"):
        read_toml(ENDLESS)


@pytest.mark.parametrize("opening", ["[", "[\n", "{a=", "[{a="])
def test_nesting_without_end_is_refused(tmp_path, opening):
    path = tmp_path / "run.toml"
    lines = opening.count("\n")
    size = MAX_BYTES - 100 if lines else MAX_LINE - 100
    path.write_text("epochs = " + opening * (size // len(opening)))
    with pytest.raises(ValueError, match=r"run\.toml is not"):
        read_toml(path)
