"""Hostile configurations: never evaluated, refused with the nearest right name, never a crash."""

import time
from difflib import get_close_matches

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.config.configurations import OPTIONS, settings_beside
from tests.fuzzing import EXAMPLES
from widemax.config import Config, read_config, show_config
from widemax.config.mixing import parse_parts, parts_text
from widemax.config.toml import to_toml, toml_value


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "run.toml"


def payloads(marker):
    """Return what other readers of configurations have run, each of which would leave a mark."""
    return [
        f"__import__('os').system('touch {marker}')",
        f"!!python/object/apply:os.system ['touch {marker}']",
        f"${{oc.eval:'open({str(marker)!r}, chr(119))'}}",
        f"$(touch {marker})",
        f"{{{{ open({str(marker)!r}, 'w') }}}}",
    ]


def outcome(path, flags=None):
    """Return the configuration, or the one line that says why there is none."""
    try:
        resolved = read_config(path, flags or {})
    except ValueError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message) < 1000
        return message
    assert isinstance(resolved.config, Config)
    assert show_config(resolved).replace("\n", "").isprintable()
    return resolved.config


@pytest.mark.parametrize("number", range(5))
def test_fault_25_code_as_a_value_is_text_or_refused(tmp_path, number):
    marker, path = tmp_path / "ran", tmp_path / "run.toml"
    payload = payloads(marker)[number]
    for name, option in OPTIONS.items():
        free = option.kind is str and not option.choices and not option.parts
        beside = settings_beside(name, "" if free else option.default)
        lines = [f"{other} = {toml_value(value)}" for other, value in beside.items()]
        path.write_text("\n".join([*lines, f'{name} = """{payload}"""']))
        for result in (outcome(path), outcome(None, {name: payload, **beside})):
            if free and len(payload) <= 200:
                assert getattr(result, name) == payload
            else:
                assert f"{name.replace('_', '-')} must" in result.replace("_", "-")
        path.write_text(f"{name} = {payload}")
        assert "is not valid TOML" in outcome(path)
    path.write_text(payload)
    assert "is not valid TOML" in outcome(path)
    path.write_text(f'"""{payload}""" = 1'.replace('"""', '"'))
    assert "is not" in outcome(path)
    assert not marker.exists()


def near(name):
    """Return whether another setting is called nearly the same."""
    return [other for other in get_close_matches(name, OPTIONS, n=2, cutoff=0.8) if other != name]


def misspellings(name):
    yield name[1:]
    yield name[:-1]
    yield name + "s"
    yield name.replace("_", "-") + "x"
    yield name[0] + name[2:3] + name[1:2] + name[3:]
    yield name.capitalize()


@pytest.mark.parametrize("name", OPTIONS)
def test_fault_25_a_misspelt_key_is_refused_and_the_right_one_suggested(path, name):
    for misspelt in misspellings(name):
        if misspelt in OPTIONS:
            continue
        path.write_text(f"{misspelt} = 1")
        message = outcome(path)
        assert f"{misspelt!r} is not a setting" in message
        hints = [f"did you mean {each!r}?" for each in (name, *near(name))]
        assert any(hint in message for hint in hints) or len(name) < 6


@given(st.binary(max_size=400))
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_any_bytes_are_a_configuration_or_a_value_error(path, data):
    path.write_bytes(data)
    outcome(path)


KEYS = st.one_of(
    st.sampled_from(
        [
            *OPTIONS,
            "[[mixture]]\nsampler",
            "weight",
            "learning-rate",
            "[run]",
            "[[run]]",
            "a.b",
            '"',
            "epochs.x",
        ]
    ),
    st.text(max_size=10),
)
VALUES = st.one_of(
    st.sampled_from(
        [
            *("true", "-1", "1e400", "-nan", "inf", "0x" + "f" * 99, "1979-05-27T07:32:00Z"),
            *("[]", "{}", "[" * 1500, "{a=" * 500, '"', "'''", '"""\n', '"\\ud800"', "1__0", ""),
            *(f'"{choice}"' for option in OPTIONS.values() for choice in option.choices),
            *('"unigram(distortion=1)=2, uniform"', "[{sampler='uniform'}, {sampler='all'}]"),
        ]
    ),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=20),
    st.text(max_size=20).map(lambda text: f'"{text}"'),
)
LINES = st.tuples(KEYS, st.sampled_from([" = ", "=", ":", "\n", ""]), VALUES).map("".join)


@given(st.lists(LINES, max_size=8))
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_text_that_looks_like_toml_is_a_configuration_or_a_value_error(path, lines):
    path.write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    outcome(path)


ODD = Config(user_column="ü\x00", sampler="mixture", mixture="unigram(distortion=0.5)=3, uniform")
WRITTEN = to_toml(ODD).encode()


@given(st.data())
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_a_damaged_file_is_a_configuration_or_a_value_error(path, data):
    damaged = bytearray(WRITTEN)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    path.write_bytes(damaged)
    outcome(path)


def test_the_fuzzers_can_find_a_configuration(path):
    """Otherwise they would only ever try the refusals."""
    path.write_bytes(WRITTEN)
    assert outcome(path) == ODD


@given(
    st.dictionaries(
        st.sampled_from([*OPTIONS, "sede", ""]),
        st.one_of(
            st.sampled_from([each for option in OPTIONS.values() for each in option.choices]),
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(),
            st.lists(st.none()),
        ),
        max_size=4,
    )
)
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_any_flags_are_a_configuration_or_a_value_error(flags):
    outcome(None, flags)


@pytest.mark.parametrize("number", range(5))
def test_code_in_a_mixture_is_refused(tmp_path, number):
    marker = tmp_path / "ran"
    payload = payloads(marker)[number]
    for text in (
        payload,
        f"{payload}, uniform",
        f"uniform={payload}",
        f"unigram(distortion={payload}), uniform",
    ):
        with pytest.raises(ValueError, match=r"^mixture"):
            Config(sampler="mixture", mixture=text)
    assert not marker.exists()


PIECES = st.one_of(
    st.sampled_from(
        [
            *(*OPTIONS["sampler"].choices, "distortion", "queue_size", "weight"),
            *("0.5", "true", "1e400", "nan", "-1", "9" * 5000, "1_0", "²", *"(),= \t\n\ud800é\x00"),
        ]
    ),
    st.text(max_size=4),
)


def mixture_or_refusal(read, value):
    """Return what is read, None where it is refused by name."""
    try:
        return read("sampler", "mixture", value)
    except ValueError as error:
        message = str(error)
    assert message.startswith("mixture")
    assert len(message) < 500
    return None


@given(st.lists(PIECES, max_size=30).map("".join))
@example("unigram(distortion=0.5)=3, uniform")
@hypothesis_settings(max_examples=5 * EXAMPLES, deadline=None)
def test_any_text_is_a_mixture_or_a_value_error(text):
    parts = mixture_or_refusal(parse_parts, text)
    if parts is None:
        return
    # What it prints reads back as the same.
    printed = ", ".join(map(str, parts))
    assert parse_parts("sampler", "mixture", printed) == parts
    assert ", ".join(map(str, parse_parts("sampler", "mixture", printed))) == printed


FOUND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just(10**400),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
TABLES = st.lists(
    st.dictionaries(
        st.sampled_from(["sampler", "weight", "distortion", "queue_size", "unique", ""]),
        FOUND | st.sampled_from(OPTIONS["sampler"].choices),
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)


@given(FOUND | TABLES)
@example([{"sampler": "unigram", "distortion": 1}, {"sampler": "uniform", "weight": 0.1}])
@hypothesis_settings(max_examples=5 * EXAMPLES, deadline=None)
def test_any_tables_are_a_mixture_or_a_value_error(tables):
    text = mixture_or_refusal(parts_text, tables)
    if text is not None:
        assert ", ".join(map(str, parse_parts("sampler", "mixture", text))) == text


@pytest.mark.parametrize(
    "piece", [" ", ",", "(", ")", "=", "a ", "a(", "a(=", "uniform, ", "\n", "()"]
)
def test_no_mixture_takes_long_to_be_refused(piece):
    started = time.perf_counter()
    with pytest.raises(ValueError, match=r"^mixture"):
        Config(sampler="mixture", mixture=("a" + piece * 1500)[:1499] + "!")
    # Several times that, if the pattern tried every way to share out the blanks.
    assert time.perf_counter() - started < 1
