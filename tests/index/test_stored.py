"""Indexes on disk: whole and of this very model, or refused."""

import json
import os
import re
import signal
import sys
import traceback

import faiss
import pytest
import torch

import widemax as wm
from widemax.index import ExactIndex, HNSWIndex, IVFIndex, load_index, save_index

CLASSES, DIMENSION = 600, 6


def a_head(seed=0, num_classes=CLASSES, dimension=DIMENSION, **options):
    scorer = wm.TableScorer(num_classes, dimension, **options)
    generator = torch.Generator().manual_seed(seed)
    scorer.weight.data.copy_(torch.randn(num_classes, dimension, generator=generator))
    return wm.FullHead(scorer).requires_grad_(False)


def an_index(kind, head):
    made = {"exact": ExactIndex, "hnsw": HNSWIndex, "ivf": IVFIndex}
    return made[kind](head, **({"lists": 10, "probes": 3} if kind == "ivf" else {}))


def hidden():
    return torch.randn(8, DIMENSION, generator=torch.Generator().manual_seed(9))


@pytest.fixture
def stored(tmp_path):
    save_index(tmp_path, an_index("ivf", a_head()))
    return tmp_path


def file_of(folder):
    (path,) = folder.glob("index-*.faiss")
    return path


def change_manifest(folder, **fields):
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("kind", ["exact", "hnsw", "ivf"])
@pytest.mark.parametrize("options", [{}, {"bias": True, "similarity": "cosine"}])
def test_what_is_loaded_finds_the_same(kind, options, tmp_path):
    head = a_head(**options)
    index = an_index(kind, head)
    if kind != "exact":
        index.breadth = 5
    save_index(tmp_path / "new" / "folder", index)
    loaded = load_index(tmp_path / "new" / "folder", head)
    assert type(loaded) is type(index)
    if kind != "exact":
        assert loaded.breadth == 5
    found, expected = loaded.search(hidden(), 7), index.search(hidden(), 7)
    assert torch.equal(found.ids, expected.ids)
    assert torch.equal(found.scores, expected.scores)


def test_the_temperature_is_the_head_s_own(stored):
    """It changes scores, not the index."""
    head = a_head(temperature=0.5)
    found = load_index(stored, head).search(hidden(), 3)
    torch.testing.assert_close(found.scores, head.scores(hidden(), found.ids))


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"num_classes": CLASSES + 1}, "num_classes is 600 and the model's 601"),
        ({"dimension": DIMENSION + 1}, "dimension is 6 and the model's 7"),
        ({"similarity": "cosine"}, "similarity is 'dot' and the model's 'cosine'"),
        ({"seed": 1}, "model_sha256 is"),
        ({"bias": True}, "model_sha256 is"),
        ({"dtype": torch.float64}, "model_sha256 is"),
    ],
)
def test_fault_20_an_index_of_another_model(other, named, stored):
    with pytest.raises(ValueError, match=f"is of another model: its {named}"):
        load_index(stored, a_head(**other))


def test_fault_20_one_number_learned_since(stored, tmp_path):
    head = a_head()
    index = an_index("hnsw", head)
    head.scorer.weight.data[599, 5] += 1e-6
    with pytest.raises(ValueError, match="is of another model"):
        load_index(stored, head)
    with pytest.raises(ValueError, match="the head has learned since the index was built"):
        save_index(tmp_path, index)


def test_any_flipped_byte_is_refused_before_faiss_reads_it(stored, monkeypatch):
    def never(*_):
        raise AssertionError("Faiss was given a damaged file")

    monkeypatch.setattr(faiss, "read_index", never)
    path = file_of(stored)
    whole = path.read_bytes()
    damaged = [whole[:-1], whole + b"\0", b""]
    for place in (0, 4, 12, len(whole) // 2, len(whole) - 1):
        damaged.append(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"\.faiss was changed: .*; build the index again"):
            load_index(stored, a_head())
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        load_index(stored, a_head())


def test_a_manifest_that_is_none(stored):
    path = stored / "manifest.json"
    for text in ("", "{", "[]", "{}", "null", '{"format_version": true}', "NaN", "[" * 10**5):
        path.write_text(text)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            load_index(stored, a_head())
    path.unlink()
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        load_index(stored, a_head())


def test_fault_22_a_newer_format_says_which(stored):
    change_manifest(stored, format_version=2)
    expected = "has format version 2 and this widemax reads 1: a newer widemax is needed"
    with pytest.raises(ValueError, match=expected):
        load_index(stored, a_head())


def test_a_manifest_with_other_fields(stored):
    record = json.loads((stored / "manifest.json").read_text())["file"]
    for fields in ({"kind": "lsh"}, {"kind": ["ivf"]}, {"kind": "exact"}, {"more": 1}):
        change_manifest(stored, **fields)
        with pytest.raises(ValueError, match="does not describe an index"):
            load_index(stored, a_head())
        save_index(stored, an_index("ivf", a_head()))
    for name in ("../index-0123456789abcdef.faiss", "/etc/passwd", 5, None):
        change_manifest(stored, file={**record, "name": name})
        with pytest.raises(ValueError, match="does not name the file of an index"):
            load_index(stored, a_head())


def test_a_file_of_another_kind(stored):
    change_manifest(stored, kind="hnsw")
    with pytest.raises(ValueError, match=r"does not hold the index that manifest\.json describes"):
        load_index(stored, a_head())


def test_saving_again_leaves_one_file(stored):
    (stored / ".0123456789abcdef.part").write_bytes(b"torn")
    before = file_of(stored)
    save_index(stored, an_index("hnsw", a_head(1)))
    assert file_of(stored) != before
    assert {path.name for path in stored.iterdir()} == {
        "lock",
        "manifest.json",
        file_of(stored).name,
    }
    save_index(stored, an_index("exact", a_head(2)))
    assert not list(stored.glob("*.faiss"))
    assert load_index(stored, a_head(2)).kind == "exact"


def test_fault_16_a_full_disk_leaves_the_old_one(stored, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    other = an_index("ivf", a_head(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save_index(stored, other)
    load_index(stored, a_head())
    assert {path.suffix for path in stored.iterdir()} == {"", ".json", ".faiss"}


def die_at(number):
    """Kill this process just before the so-many-th file is opened, synced, renamed or removed."""
    seen = 0

    def count(event, _):
        nonlocal seen
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.fsync"):
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1

    fsync = os.fsync
    os.fsync = lambda descriptor: (count("os.fsync", ()), fsync(descriptor))
    sys.addaudithook(count)


def saved_by_a_child(folder, index, number):
    child = os.fork()
    if not child:
        try:
            die_at(number)
            save_index(folder, index)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_fault_15_kill_at_every_single_file_operation(tmp_path):
    heads = [a_head(seed) for seed in (0, 1)]
    old, new = (an_index("ivf", head) for head in heads)
    survivors = set()
    for number in range(50):
        folder = tmp_path / str(number)
        save_index(folder, old)
        code = saved_by_a_child(folder, new, number)
        names = [name for name, head in zip("on", heads, strict=True) if loads(folder, head)]
        assert len(names) == 1, "the old index or the new one, whole"
        survivors.update(names)
        save_index(folder, new)
        assert len(list(folder.iterdir())) == 3, "the next save leaves the folder clean"
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert code == 0, "no end of operations"
    assert number >= 8
    assert survivors == {"o", "n"}


def loads(folder, head):
    try:
        index = load_index(folder, head)
    except ValueError as error:
        assert "is of another model" in str(error)  # noqa: PT017
        return False
    return index.search(hidden(), 3).ids.shape == (8, 3)
