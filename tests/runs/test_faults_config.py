"""Hostile configurations: never evaluated, refused with the nearest right name, never a crash."""

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.fuzzing import EXAMPLES
from widemax.runs.config.config import Config, settings
from widemax.runs.config.resolved import read_config, show
from widemax.runs.config.toml import to_toml
from widemax.runs.config.unused import NEEDS


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
    assert show(resolved).replace("\n", "").isprintable()
    return resolved.config


@pytest.mark.parametrize("number", range(5))
def test_fault_25_code_as_a_value_is_text_or_refused(tmp_path, number):
    marker, path = tmp_path / "ran", tmp_path / "run.toml"
    payload = payloads(marker)[number]
    for name, setting in settings().items():
        path.write_text(f'{name} = """{payload}"""')
        unmet = [need for need in NEEDS.get(name, ()) if not need.is_met(Config())]
        needed = {need.setting: need.values[0] for need in unmet}
        for result in (outcome(path), outcome(None, {name: payload, **needed})):
            if setting.kind is str and not setting.choices and len(payload) <= 200:
                assert getattr(result, name) == payload
            else:
                assert f"{name.replace('_', '-')} must be" in result.replace("_", "-")
        path.write_text(f"{name} = {payload}")
        assert "is not valid TOML" in outcome(path)
    path.write_text(payload)
    assert "is not valid TOML" in outcome(path)
    path.write_text(f'"""{payload}""" = 1'.replace('"""', '"'))
    assert "is not" in outcome(path)
    assert not marker.exists()


def misspellings(name):
    yield name[1:]
    yield name[:-1]
    yield name + "s"
    yield name.replace("_", "-") + "x"
    yield name[0] + name[2:3] + name[1:2] + name[3:]
    yield name.capitalize()


@pytest.mark.parametrize("name", settings())
def test_fault_25_a_misspelt_key_is_refused_and_the_right_one_suggested(path, name):
    for misspelt in misspellings(name):
        if misspelt in settings():
            continue
        path.write_text(f"{misspelt} = 1")
        message = outcome(path)
        assert f"{misspelt!r} is not a setting" in message
        assert f"did you mean {name!r}?" in message or len(name) < 6


@given(st.binary(max_size=400))
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_any_bytes_are_a_configuration_or_a_value_error(path, data):
    path.write_bytes(data)
    outcome(path)


KEYS = st.one_of(
    st.sampled_from([*settings(), "learning-rate", "[run]", "[[run]]", "a.b", '"', "epochs.x"]),
    st.text(max_size=10),
)
VALUES = st.one_of(
    st.sampled_from(
        [
            *("true", "-1", "1e400", "-nan", "inf", "0x" + "f" * 99, "1979-05-27T07:32:00Z"),
            *("[]", "{}", "[" * 1500, "{a=" * 500, '"', "'''", '"""\n', '"\\ud800"', "1__0", ""),
            *(f'"{choice}"' for setting in settings().values() for choice in setting.choices),
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


WRITTEN = to_toml(Config(user_column="ü\x00")).encode()


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
    assert outcome(path) == Config(user_column="ü\x00")


@given(
    st.dictionaries(
        st.sampled_from([*settings(), "sede", ""]),
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.none())
        ),
        max_size=4,
    )
)
@hypothesis_settings(max_examples=EXAMPLES, deadline=None)
def test_any_flags_are_a_configuration_or_a_value_error(flags):
    outcome(None, flags)
