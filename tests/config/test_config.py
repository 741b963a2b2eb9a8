"""The configuration: what is declared, what it accepts, and where its values come from."""

import inspect
import itertools
import json
import math
import pickle
import tomllib

import pytest

from tests.config.configurations import OPTIONS, has_effect
from widemax.config import Config, read_config, resolution, show_config
from widemax.config.run_options import AUTO, HEADINGS, RUN, SLOTS, SOURCES
from widemax.declarations import Option, declared, names
from widemax.declarations.options import MAX_TEXT
from widemax.declarations.shared import UNORDERED
from widemax.declarations.table import load
from widemax.optim import RowAdam
from widemax.validation import MAX_SAMPLES

DECLARATIONS = [each for slot in SLOTS for each in declared(slot).values()]
DECLARED = [
    *(
        (each.name, option)
        for each in (*DECLARATIONS, RUN, *SOURCES.values())
        for option in each.options
    ),
    *(("slot", OPTIONS[name]) for name in SLOTS),
]


def test_choices_are_the_names_that_are_declared():
    for slot in SLOTS:
        assert OPTIONS[slot].choices == (*(("auto",) if slot == "model" else ()), *names(slot))
        assert SLOTS[slot].default in OPTIONS[slot].choices
    assert {"uniform", "mixture", "n-gram"} <= {*OPTIONS["sampler"].choices}
    assert {*AUTO.values()} <= {*names("model")}


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda each: f"{each.kind} {each.name}")
def test_defaults_are_those_of_the_library(declaration):
    """A name means the same from Python as from the command line."""
    # A run draws distinct classes, says none as 0, and knows whether there are features instead.
    differing = {"unique": (True, False), "num_ranks": (0, None), "id_dropout": (0.1, 0.0)}
    parameters = inspect.signature(load(declaration)).parameters
    for option in declaration.options:
        own = getattr(parameters.get(option.name), "default", inspect.Parameter.empty)
        default = declaration.usual.get(option.name, option.default)
        if own is not inspect.Parameter.empty:
            assert (default, own) == differing.get(option.name, (own, own)), option.name


def test_defaults_that_no_constructor_has():
    assert Config().learning_rate == inspect.signature(RowAdam).parameters["lr"].default
    assert OPTIONS["num_samples"].most == MAX_SAMPLES


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda each: f"{each.kind} {each.name}")
def test_every_method_says_what_it_is_and_names_only_what_there_is(declaration):
    assert declaration.help.endswith(".")
    assert {*declaration.slots} <= {*SLOTS}
    settings = [declaration.usual, declaration.fixed, *declaration.usual_with.values()]
    for name, value in (each for values in settings for each in values.items()):
        assert OPTIONS[name].check(name, value) == value
    others = {name for slot in SLOTS for name in names(slot)}
    assert {*declaration.usual_with} <= {*others, UNORDERED}
    for need in declaration.needs:
        assert need.why
        assert any(need.is_met(each) for each in declared(need.slot).values())


def test_what_is_usual_follows_the_order_of_the_data():
    def targets(**given):
        return Config(model="youtube-dnn", **given).targets_per_row

    assert (targets(), targets(source="pairs"), targets(source="lists")) == (1, 1, 8)
    assert targets(source="lists", item_order="kept") == targets(source="text") == 1
    assert targets(source="pairs", item_order="ignored") == targets(item_order="ignored") == 8
    lists = Config(model="youtube-dnn", source="lists")
    assert lists.source == "log"
    assert lists.changed(seed=1).targets_per_row == 8
    assert lists.changed(targets_per_row=2).origins["targets_per_row"] == "given"


@pytest.mark.parametrize(
    "option",
    [option for _, option in DECLARED],
    ids=[f"{owner} {option.name}" for owner, option in DECLARED],
)
def test_every_option_is_whole(option):
    assert option.name.isidentifier()
    assert option.help.endswith(".")
    assert "[" not in option.help, "the terminal would take it for markup"
    assert option.kind in (bool, int, float, str)
    checked = option.check(option.name, option.default)
    assert (checked, type(checked)) == (option.default, option.kind)
    if option.kind in (int, float):
        assert option.least < option.most
        # An int is shown with its digits, a float with its exponent.
        assert option.kind is float or type(option.least) is type(option.most) is int
    else:
        assert option.least == option.most == 0
    if option.choices:
        assert option.default in option.choices
    assert OPTIONS[option.name].group in HEADINGS
    for other in (option.only_with, option.unless):
        assert not other or other in OPTIONS


def test_a_setting_is_no_attribute_that_every_configuration_has():
    assert not {*OPTIONS} & {*dir(Config), *vars(Config())}


@pytest.mark.parametrize("declaration", DECLARATIONS, ids=lambda each: f"{each.kind} {each.name}")
def test_what_switches_an_option_is_set_beside_it(declaration):
    beside = {option.name for option in (*declaration.options, *RUN.options)}
    for option in declaration.options:
        assert {option.only_with, option.unless} - {""} <= beside


@pytest.mark.parametrize("name", [name for name, each in OPTIONS.items() if each.most])
def test_both_limits_belong_to_the_range_and_their_neighbours_do_not(name):
    option = OPTIONS[name]
    if option.kind is int:
        outside = option.least - 1, option.most + 1
    else:
        outside = math.nextafter(option.least, -math.inf), math.nextafter(option.most, math.inf)
    for value in (option.least, option.most):
        assert option.check(name, value) == value
    for value in outside:
        with pytest.raises(ValueError, match=rf"^{name} must be a .*number between"):
            option.check(name, value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dimension": 0}, "dimension must be a whole number between 1 and 65,536, got 0"),
        ({"dimension": 64.0}, "dimension must be a whole number .*, got 64.0"),
        ({"dimension": True}, "dimension must be a whole number .*, got true"),
        ({"dimension": "64"}, "dimension must be a whole number .*, got the text '64'"),
        ({"seed": -1}, "seed must be .*, got -1"),
        ({"seed": 1 << 20_000}, "seed must be .*, got a number of 20,001 bits"),
        ({"learning_rate": math.nan}, "learning_rate must be a number .*, got nan"),
        ({"time_budget": math.inf}, "time_budget must be a number .*, got inf"),
        ({"clip_norm": -math.inf}, "clip_norm must be a number .*, got -inf"),
        ({"clip_norm": 10**400}, "clip_norm must be a number .*, got a number of 1,329 bits"),
        ({"learning_rate": False}, "learning_rate must be a number .*, got false"),
        ({"learning_rate": None}, "learning_rate must be .*, got a value of type NoneType"),
        ({"bias": 1}, "bias must be true or false, got 1"),
        ({"bias": "true"}, "bias must be true or false, got the text 'true'"),
        ({"similarity": "cosin"}, r"one of dot, cosine, got .*; did you mean 'cosine'\?"),
        ({"similarity": 3}, "similarity must be one of dot, cosine, got 3$"),
        ({"head": "zzzz"}, "head must be one of adaptive, .*, got the text 'zzzz'; a method of"),
        ({"head": None}, "head must be one of .*, got a value of type NoneType"),
        ({"head": ["full"]}, "head must be one of .*, got a list"),
        ({"model": "mnd"}, r"model must be one of auto, .*, got .*; did you mean 'mind'\?"),
        ({"model": 3}, "model must be one of auto, .*, got 3"),
        ({"model": []}, "model must be one of auto, .*, got a list"),
        ({"user_column": "u" * (MAX_TEXT + 1)}, "user_column must be a text of at most 400"),
        ({"user_column": "\ud800"}, r"user_column must be .*, got the text '\\ud800'"),
        ({"user_column": ["a"]}, "user_column must be .*, got a list"),
        ({"learning_rte": 1}, r"'learning_rte' is not a setting; did you mean 'learning_rate'\?"),
        ({"zzz": 1}, "'zzz' is not a setting; widemax train --help-all lists them"),
        ({"source": "speech"}, "source must be log or text, got the text 'speech'"),
        ({"steps": 10, "warmup_steps": 11}, "warmup_steps must be at most steps = 10, got 11"),
        ({"head": "adaptive", "temperature": 2}, "temperature has no effect with head = 'adapt"),
        ({"head": "hierarchical", "similarity": "cosine"}, "which has no scorer: it needs head = "),
        ({"head": "importance", "sampler": "in-batch"}, "head = 'importance' draws"),
        ({"head": "importance", "unique": True}, "'importance' needs unique = False, got True"),
        ({"objective": "full-softmax"}, "sampler must be all, got 'log-uniform'"),
        ({"sampler": "hard-negatives"}, "objective must be gbce, .*, got 'sampled-softmax'"),
        ({"model": "mind", "trainer": "kernel"}, "model must be cbow, item2vec or skip-gram"),
        ({"model": "two-tower", "scorer": "table"}, "scorer must be tower, got 'table'"),
        ({"model": "lstm", "sampler": "partition"}, "model must be cbow, .*, got 'lstm'"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_what_it_must_be(values, message):
    with pytest.raises(ValueError, match=message):
        Config(**values)


@pytest.mark.parametrize("name", [*SLOTS, "mixture", "x" * 1_000_000])
def test_a_long_wrong_value_does_not_flood_the_message(name):
    settings = {"sampler": "mixture"} if name == "mixture" else {}
    with pytest.raises(ValueError, match=r"must be|is not a setting") as raised:
        Config(**settings, **{name: "x" * 1_000_000})
    assert len(str(raised.value)) < 400


def test_a_configuration_is_frozen_and_holds_its_declared_types():
    config = Config(learning_rate=1, warmup_steps=11)
    assert type(config.learning_rate) is float
    for name, option in config.options.items():
        assert type(getattr(config, name)) is type(config.values[name]) is option.kind
    with pytest.raises(AttributeError, match=r"frozen: use changed\(seed=...\)"):
        config.seed = 1
    with pytest.raises(TypeError):
        config.values["seed"] = 1
    with pytest.raises(ValueError, match="epochs must be"):
        config.changed(epochs=0)
    with pytest.raises(TypeError):
        Config("auto")
    assert pickle.loads(pickle.dumps(config)) == config
    assert hash(config) == hash(Config(learning_rate=1.0, warmup_steps=11))
    assert config != Config(learning_rate=1)


def test_a_setting_of_another_method_is_no_attribute():
    with pytest.raises(AttributeError, match="'num_samples' is not a setting of this"):
        _ = Config(head="full").num_samples
    assert Config(head="full").get("num_samples", 5) == 5
    assert not Config(head="full").has("num_samples")


@pytest.mark.parametrize("model", names("model"))
def test_a_model_brings_what_is_usual_with_it(model):
    config, declaration = Config(model=model), declared("model")[model]
    for name, value in declaration.usual.items():
        if config.has(name):
            assert config.values[name] == value
            assert config.origins[name] == f"usual with model {model}"
    given = {"min_count": 7, "seed": 3}
    assert {name: Config(model=model, **given).values[name] for name in given} == given


def test_what_is_usual_gives_way_to_what_is_asked_for():
    assert Config(model="skip-gram").trainer == "kernel"
    assert Config(model="skip-gram").learning_rate == 0.025
    # Asks for what the kernel cannot do.
    assert Config(model="skip-gram", optimizer="sgd").trainer == "torch"
    assert Config(model="skip-gram", objective="nce").learning_rate == 0.001
    with pytest.raises(ValueError, match="it needs trainer = torch"):
        Config(model="skip-gram", trainer="kernel", optimizer="sgd")


def test_what_is_usual_does_not_take_the_effect_of_what_is_given():
    assert Config(model="sasrec").steps > 0
    asked = Config(model="sasrec", epochs=3)
    assert (asked.epochs, asked.steps) == (3, 0)
    with pytest.raises(ValueError, match="epochs has no effect with steps = 5"):
        Config(model="sasrec", epochs=3, steps=5)


def test_a_method_that_is_given_may_bring_others_that_are_usual_with_it():
    assert Config(model="sasrec").sampler == "unigram"
    assert Config(model="sasrec", objective="gbce").sampler == "uniform"
    assert Config(model="sasrec", objective="gbce").bias
    assert Config(model="sasrec").similarity == "cosine"
    assert Config(model="sasrec", objective="gbce").similarity == "dot"
    assert Config(model="sasrec", objective="gbce", sampler="unigram").sampler == "unigram"


@pytest.mark.parametrize("model", ["cbow", "item2vec", "skip-gram"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"unique": True}, "kernel needs unique = false"),
        ({"temperature": 0.5}, "kernel needs temperature = 1.0"),
        ({"sampler": "in-batch"}, "kernel needs sampler = log-uniform, uniform or unigram"),
        ({"head": "full"}, "kernel needs head = hierarchical or sampled"),
        ({"batch_size": 4}, "kernel has no batch_size"),
    ],
)
def test_another_trainer_than_the_usual_one_has_a_reason(model, given, reason):
    config = Config(model=model, **given)
    assert (config.trainer, config.origins["trainer"]) == ("torch", f"because {reason}")
    assert f"# because {reason}\n" in show_config(read_config(None, {"model": model, **given}))
    if "head" not in given:
        assert config.objective == "negative-sampling"
        assert config.sampler == given.get("sampler", "unigram")
    # Given by hand, it is neither replaced nor explained.
    assert Config(model=model, **given, trainer="torch").origins["trainer"] == "given"


def test_with_torch_words_are_learned_from_a_few_negatives_unless_the_objective_is_another():
    config = Config(model="skip-gram", trainer="torch")
    assert (config.sampler, config.objective) == ("unigram", "negative-sampling")
    assert (config.num_samples, config.unique, config.per_example) == (5, False, True)
    assert Config(model="skip-gram", objective="sampled-softmax").num_samples == 1024


def test_a_number_out_of_range_does_not_change_the_trainer(monkeypatch):
    found = []
    monkeypatch.setattr(
        resolution, "_resolved", lambda given, model, source: found.append(model.usual["trainer"])
    )
    resolution.resolve({"model": "skip-gram", "dimension": 0}, None)
    assert found == ["kernel"]


def test_settings_stand_heading_by_heading():
    for options in (Config(model="two-tower").options, resolution.all_options()):
        groups = [option.group for option in options.values()]
        assert [group for group, _ in itertools.groupby(groups)] == [
            heading for heading in HEADINGS if heading in groups
        ]


def test_the_data_decide_on_the_model_and_its_settings():
    config = Config(window=3)
    assert (config.model, config.has("core"), config.has("phrases")) == ("auto", True, True)
    text = config.for_source("text")
    assert (text.model, text.window, text.trainer) == ("cbow", 3, "kernel")
    assert not text.has("core")
    assert text.changed(seed=1).for_source("text") == Config(source="text", window=3, seed=1)
    with pytest.raises(ValueError, match="window has no effect with model = 'youtube-dnn'"):
        config.for_source("log")
    with pytest.raises(ValueError, match="core is for a log, and this is a text"):
        Config(core=2).for_source("text")


def test_flags_win_over_the_file_the_file_over_what_is_usual_and_that_over_defaults(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model = "lstm"\nepochs = 3\nseed = 5\nlearning_rate = 1\nend = "."')
    resolved = read_config(path, {"seed": 7, "bias": False, "head": None})
    assert resolved.config == Config(
        model="lstm", epochs=3, seed=7, learning_rate=1.0, bias=False, end="."
    )
    others = {
        name: origin
        for name, origin in resolved.origins.items()
        if origin not in ("default", "usual with model lstm")
    }
    file = dict.fromkeys(["model", "epochs", "learning_rate", "end"], f"file {path}")
    assert others == file | dict.fromkeys(["seed", "bias"], "flag")
    assert resolved.given == {*others}
    usual = declared("model")["lstm"].usual
    wanted = {name: value for name, value in usual.items() if name not in others}
    assert {
        name: resolved.config.values[name]
        for name, origin in resolved.origins.items()
        if origin == "usual with model lstm"
    } == wanted
    assert "min_count" in wanted
    assert list(resolved.origins) == list(resolved.config.options)


@pytest.mark.parametrize(
    ("in_file", "flags"), [("epochs = 3", {"steps": 5}), ("steps = 500", {"epochs": 2})]
)
def test_a_length_by_flag_wins_over_another_one_in_the_file(tmp_path, in_file, flags):
    path = tmp_path / "run.toml"
    path.write_text(f"{in_file}\nseed = 5")
    resolved = read_config(path, flags)
    assert resolved.config == Config(seed=5, **flags)
    assert resolved.given == {"seed", *flags}


def test_a_wrong_flag_is_named_as_it_was_typed(tmp_path):
    with pytest.raises(ValueError, match=r"^--learning-rate must be .*, got 0"):
        read_config(None, {"learning_rate": 0})
    with pytest.raises(ValueError, match=r"'learning_rte' is not .* mean 'learning_rate'\?"):
        read_config(None, {"learning_rte": 0.1})
    with pytest.raises(ValueError, match=r"^--mixture: sampler must be .* mean 'unigram'\?"):
        read_config(None, {"sampler": "mixture", "mixture": "unigrm, uniform"})
    with pytest.raises(ValueError, match=r"^--objective = 'full-softmax' is over every class"):
        read_config(None, {"objective": "full-softmax"})
    path = tmp_path / "run.toml"
    path.write_text("steps = 5")
    with pytest.raises(ValueError, match=r"^--warmup-steps must be at most steps = 5, got 6"):
        read_config(path, {"warmup_steps": 6})


@pytest.mark.parametrize("flags", [{}, {"model": "airbnb"}, {"model": "n-gram"}, {"steps": 5}])
def test_what_is_shown_is_itself_a_configuration_file(tmp_path, flags):
    path = tmp_path / 'odd\x1b[31m\n"name".toml'
    path.write_text("min_count = 3")
    resolved = read_config(path, {**flags, "user_column": '\x1b]0;title\x07 #"\\'})
    text = show_config(resolved)
    assert Config(**tomllib.loads(text)) == resolved.config
    shown = [line.split()[0] for line in text.splitlines()]
    assert {*shown} == {
        each for each in resolved.config.options if has_effect(resolved.config, each)
    }
    assert len(shown) == len({*shown})
    assert text.replace("\n", "").isprintable(), "a file's name must not command the terminal"
    starts = {line.index(" # ") for line in text.splitlines()}
    assert len(starts) == 1


def test_what_is_shown_as_json_holds_every_value_and_its_origin():
    entries = json.loads(show_config(read_config(None, {"seed": 4}), as_json=True))
    config = Config(seed=4)
    shown = {name: value for name, value in config.values.items() if has_effect(config, name)}
    assert {name: entry["value"] for name, entry in entries.items()} == shown
    assert {name for name, entry in entries.items() if entry["origin"] == "flag"} == {"seed"}


class Whole(int):
    """A number that prints as something else."""

    def __str__(self):
        return "; rm -rf"


@pytest.mark.parametrize(
    ("default", "wrong", "named"),
    [
        (1, True, "got true"),
        (1, 1.0, "got 1.0"),
        (1, Whole(1), "must be a whole number between 0 and 9"),
        (1, 10**5000, "got a number of 16,610 bits"),
        (1, -(10**5000), "got a number of 16,610 bits"),
        (1.0, 10**5000, "got a number of 16,610 bits"),
        (1.0, math.nan, "got nan"),
        (1.0, -math.inf, "got -inf"),
        (1.0, 1 + 0j, "got a value of type complex"),
        (1.0, "1", "got the text '1'"),
        (True, 1, "must be true or false, got 1"),
        (True, None, "got a value of type NoneType"),
        ("", b"x", "got a value of type bytes"),
        ("", "\udfff", r"got the text '\\udfff'"),
        ("", "\U0001f600" * (MAX_TEXT + 1), "a text of at most 400 characters"),
        ("", {"a": 1}, "got a table"),
    ],
    ids=itertools.count(),
)
def test_an_option_takes_exactly_its_type(default, wrong, named):
    option = Option("it", default, "Something.", most=9)
    with pytest.raises(ValueError, match=named) as raised:
        option.check("it", wrong)
    assert str(raised.value).startswith("it must be ")
    assert len(str(raised.value)) < 200
