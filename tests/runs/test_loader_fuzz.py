"""Damaged and forged run folders: a run loads as it was saved, or the damaged file is named."""

import hashlib
import io
import json
import pickle
import resource
import signal
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import widemax as wm
from tests.fuzzing import FUZZ
from widemax.runs.run import Neighbour
from widemax.training.checkpoints import CheckpointStore

MOST_SECONDS = 20
MOST_KILOBYTES = 2**18

KEYS = [f"i{number}" for number in range(12)]


class Payload:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


class Saved:
    """A run as it was saved: its folder, the bytes of every file, the weights of every step."""

    def __init__(self, folder):
        self.folder = folder
        found = sorted(path for path in folder.rglob("*") if path.is_file())
        self.files = {str(path.relative_to(folder)): path.read_bytes() for path in found}
        store = CheckpointStore(folder)
        self.weights = {step: store.load(step).model_tensors() for step in store.steps()}
        self.marker = folder.parent / "executed"
        self.most_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + MOST_KILOBYTES

    def restore(self):
        # Only what was changed: most of the time of an example would go into writing.
        for name, content in self.files.items():
            path = self.folder / name
            if not path.is_file() or path.read_bytes() != content:
                path.write_bytes(content)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    rows = [f"u{user},{KEYS[(user + step) % 12]},{step}" for user in range(40) for step in range(6)]
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(rows) + "\n")
    config = wm.Config(
        epochs=2, dimension=4, batch_size=32, num_samples=4, validation_size=20,
        checkpoint_every=3, validate_every=3, max_history=2, learning_rate=0.05,
    )  # fmt: skip
    wm.train(folder / "log.csv", config, folder=folder / "run")
    saved = Saved(folder / "run")
    assert len(saved.weights) >= 2
    return saved


@contextmanager
def limited(saved):
    """Fail what hangs, takes memory without bound or executes what it reads."""

    def too_long(number, frame):
        raise AssertionError(f"took more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < saved.most_memory
    assert not saved.marker.exists()


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def load_and_ask(saved):
    """Load and ask a run; return it, or what an error says."""
    with limited(saved):
        try:
            run = wm.load(saved.folder)
            found = run.similar(run.vocabulary.keys[0], k=3)
            metrics = run.metrics
        except (ValueError, OSError) as error:
            return None, str(error)
    assert found
    assert all(isinstance(each, Neighbour) for each in found)
    assert all(isinstance(line["step"], int) for line in metrics)
    assert run.step in saved.weights
    return run, None


def damaged_bytes(draw, whole):
    place = draw(st.integers(0, len(whole)))
    piece = draw(st.binary(min_size=1, max_size=9) | st.sampled_from([b"9", b"{", b'"', b"\n"]))
    rest = draw(st.sampled_from([place, place + 1, place + len(piece), len(whole)]))
    return whole[:place] + draw(st.sampled_from([piece, b""])) + whole[rest:]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def damaged_json(draw, whole):
    """Replace, remove or add one entry somewhere in a JSON file."""
    content = json.loads(whole.splitlines()[0] if whole.count(b"\n{") else whole)
    place = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys)) if keys else None
        inner = place[key] if keys else None
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            break
        place = inner
    if key is None or draw(st.integers(0, 4)) == 0:
        return json.dumps(draw(JSON)).encode() + b"\n"
    if draw(st.integers(0, 3)) == 0:
        del place[key]
    else:
        place[key] = draw(JSON)
    return json.dumps(content).encode() + b"\n"


def damaged_toml(draw, whole):
    """Give one setting another value, of the right type or not."""
    lines = whole.decode().split("\n")
    settings = [number for number, line in enumerate(lines) if line[:1].isalpha()]
    number = draw(st.sampled_from(settings))
    name = lines[number].split(" =")[0]
    values = ['""', "true", "0", "-1", "1", "2.5", "nan", "65536", str(2**28), "10" * 9, "[]", "{}"]
    names = ["full", "hierarchical", "adaptive", "skip-gram", "cbow", "in-batch", "cosine", "auto"]
    value = draw(st.sampled_from([*values, *(f'"{each}"' for each in names)]))
    lines[number] = f"{name} = {value}"
    return "\n".join(lines).encode()


def other_vocabulary(draw, whole):
    """A whole Parquet file of other keys or counts, valid or not."""
    size = draw(st.integers(0, 15))
    key = draw(st.sampled_from([KEYS, list(range(12)), [None, *KEYS], [1.5] * 20, ["i0"] * 20]))
    count = draw(st.sampled_from([[1], [-1], [None], [0.5], ["1"], [2**60], [{"a": 1}]]))
    table = pl.DataFrame({"key": key[:size], "count": count * len(key[:size])})
    nested = "[" * 10**5
    marks = [("1", "null"), ("1", nested), ("1", '"i3"'), ("2", "null"), ("x", "null"), ("1", "{}")]
    version, unknown = draw(st.sampled_from(marks))
    fields = {"widemax.vocabulary.version": version, "widemax.vocabulary.unknown": unknown}
    file = io.BytesIO()
    table.write_parquet(file, metadata=fields)
    return file.getvalue()


def foreign_bytes(draw, saved):
    """What stands in another file, or was never a file of a run."""
    others = [
        b"", b"\x00" * 100, b"{}", b"[]", b"null", b"3\n", b"[" * 10**5, b'{"a":' * 10**5,
        b'{"format": 2}', b'{"format_version": 2}', b'{"step": 1}\n' * 3, b"1" * 5000,
        b"dimension = 65536\n", b"a" + b".a" * 500 + b" = 1\n", b"\xff\xfe{\x00}\x00",
        pickle.dumps(Payload(saved.marker)), b"PAR1" * 9,
    ]  # fmt: skip
    return draw(st.sampled_from([*others, *saved.files.values()]))


def agree(saved, name):
    """Make the digests fit the damaged file, so that the damage reaches whatever parses it."""
    path = saved.folder / name
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if path.name == "vocabulary.parquet":
        description = json.loads(saved.files["run.json"])
        description["vocabulary_sha256"] = digest
        (saved.folder / "run.json").write_text(json.dumps(description))
    elif path.parent.name.startswith("step-") and path.name != "manifest.json":
        manifest = json.loads((path.parent / "manifest.json").read_bytes())
        manifest["files"][path.name] = {"size": len(data), "sha256": digest}
        (path.parent / "manifest.json").write_text(json.dumps(manifest))


CHANGES = {
    "bytes": damaged_bytes,
    "json": damaged_json,
    "toml": damaged_toml,
    "vocabulary": other_vocabulary,
}


def damage(draw, saved, name):
    """Damage one file; return whether the digests were made to agree with it."""
    path, whole = saved.folder / name, saved.files[name]
    kinds = ["bytes", "foreign", "removed"]
    if path.suffix in (".json", ".jsonl"):
        kinds += ["json"] * 2
    if path.suffix == ".toml":
        kinds += ["toml"] * 2
    if path.suffix == ".parquet":
        kinds += ["vocabulary"] * 2
    kind = draw(st.sampled_from(kinds))
    if kind == "removed":
        path.unlink()
        return False
    if kind == "foreign":
        path.write_bytes(foreign_bytes(draw, saved))
    else:
        path.write_bytes(CHANGES[kind](draw, whole))
    # Bytes that are no whole Parquet file may abort polars, and with it this process: the digest
    # is there to stop them before.
    forged = draw(st.booleans()) and (kind == "vocabulary" or path.suffix != ".parquet")
    if forged:
        agree(saved, name)
    return forged


@pytest.mark.filterwarnings("ignore:skipped a damaged checkpoint")
@FUZZ
@given(data=st.data())
def test_a_damaged_run_loads_as_saved_or_names_the_file(saved, data):
    name = data.draw(st.sampled_from([each for each in saved.files if each[-4:] != "lock"]))
    try:
        forged = damage(data.draw, saved, name)
        run, problem = load_and_ask(saved)
        if run is None:
            assert Path(name).name in problem or Path(name).parent.name in problem.split("/")
            assert "\n" not in problem
        elif not forged and name not in ("config.toml", "run.json"):
            assert same(run.model.state_dict(), saved.weights[run.step])
            assert sorted(run.vocabulary.keys) == sorted(KEYS)
    finally:
        saved.restore()
