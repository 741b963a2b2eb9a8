"""Runs in other tools, and vectors of other tools in runs."""

import json
import shutil
import sys

import faiss
import gensim.models
import numpy as np
import pytest
import torch
from torch.nn.functional import normalize
from typer.testing import CliRunner

import widemax as wm
from tests.runs.settings import config_with
from widemax.cli.app import app
from widemax.runs.export.faiss import read_faiss_index, write_faiss_index
from widemax.runs.training.preparing import prepare
from widemax.runs.training.warm_start import as_learned

GENSIM = gensim.models.KeyedVectors
WORDS = [f"w{number}" for number in range(40)]


def config(**options):
    values = {"epochs": 1, "dimension": 8, "batch_size": 64, "num_samples": 10}
    values |= {"learning_rate": 0.1, "validation_size": 20, **options}
    return config_with(source=None, **values)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    generator = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("source") / "text"
    lines = (" ".join(WORDS[place % 40] for place in range(start, start + 6)) for start in
             generator.integers(40, size=200))  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    return wm.train(text, config(), folder=tmp_path_factory.mktemp("runs") / "dot")


@pytest.fixture(scope="module")
def cosine_run(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "cosine"
    return wm.train(text, config(similarity="cosine", temperature=0.1), folder=folder)


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_finds_the_same_neighbours(binary, run, tmp_path):
    run.export(tmp_path / "vectors", to="word2vec-binary" if binary else "word2vec")
    loaded = GENSIM.load_word2vec_format(str(tmp_path / "vectors"), binary=binary)
    for key in ("w0", "w17", "w39"):
        theirs = loaded.most_similar(key, topn=5)
        ours = run.similar(key, k=5)
        assert [found.key for found in ours] == [key for key, _ in theirs]
        assert [found.score for found in ours] == pytest.approx([s for _, s in theirs], abs=1e-4)


def test_a_faiss_index_ranks_as_the_head_does(run, tmp_path):
    run.export(tmp_path / "index", to="faiss")
    index, vocabulary, similarity, _ = read_faiss_index(tmp_path / "index")
    assert (index.ntotal, index.d, similarity) == (40, 8, "dot")
    context = run.vocabulary.encode(["w3", "w4"])[None]
    scores, ids = index.search(run.model.encode(context).detach().numpy(), 5)
    ours = run.recommend(["w3", "w4"], k=5, include_seen=True)
    assert vocabulary.decode(torch.from_numpy(ids[0])) == [found.key for found in ours]
    assert scores[0].tolist() == pytest.approx([found.score for found in ours], abs=1e-5)


def test_a_faiss_index_of_a_cosine_run_gives_cosines(cosine_run, tmp_path):
    cosine_run.export(tmp_path / "index", to="faiss")
    index, vocabulary, similarity, _ = read_faiss_index(tmp_path / "index")
    assert similarity == "cosine"
    own = int(cosine_run.vocabulary.encode(["w3"])[0])
    row = index.reconstruct(own)
    assert np.linalg.norm(row) == pytest.approx(1, abs=1e-6)
    scores, ids = index.search(row[None], 4)
    assert ids[0, 0] == own
    # Of words as classes: those of words as input, which ``similar`` compares, are others.
    classes = normalize(cosine_run.class_vectors().vectors, dim=-1)
    cosines = classes @ classes[own]
    cosines[own] = -2
    best = cosines.topk(3)
    assert vocabulary.decode(torch.from_numpy(ids[0, 1:])) == vocabulary.decode(best.indices)
    assert scores[0, 1:].tolist() == pytest.approx(best.values.tolist(), abs=1e-5)


def test_vectors_of_any_length_are_scaled_for_cosine(tmp_path):
    vocabulary = wm.Vocabulary.from_counts(["a", "b"], [2, 1])
    vectors = wm.KeyedVectors(["a", "b"], torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    write_faiss_index(tmp_path, vectors, vocabulary, similarity="cosine")
    rows = read_faiss_index(tmp_path).index.reconstruct_n(0, 2)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0, 1]], atol=1e-6)
    swapped = wm.KeyedVectors(["b", "a"], vectors.vectors)
    with pytest.raises(ValueError, match="in its order"):
        write_faiss_index(tmp_path, swapped, vocabulary)


def test_biases_are_the_last_coordinate(tmp_path):
    vocabulary = wm.Vocabulary.from_counts(["a", "b"], [2, 1])
    vectors = wm.KeyedVectors(["a", "b"], torch.tensor([[3.0, 4.0], [0.0, 2.0]]))
    biases = torch.tensor([0.5, 9.0])
    write_faiss_index(tmp_path, vectors, vocabulary, similarity="cosine", biases=biases)
    read = read_faiss_index(tmp_path)
    assert read.biases
    np.testing.assert_allclose(read.index.reconstruct_n(0, 2), [[0.6, 0.8, 0.5], [0, 1, 9]])


@pytest.mark.parametrize("name", ["index.faiss", "vocabulary.parquet", "index.json"])
def test_files_of_two_exports_are_refused(name, run, tmp_path):
    run.export(tmp_path / "one", to="faiss")
    keys = [f"x{number}" for number in range(40)]
    vectors = wm.KeyedVectors(keys, torch.randn(40, 8))
    write_faiss_index(tmp_path / "two", vectors, wm.Vocabulary.from_counts(keys, [1] * 40))
    shutil.copy(tmp_path / "two" / name, tmp_path / "one" / name)
    with pytest.raises(ValueError, match="was changed: its sha256 is not the one recorded"):
        read_faiss_index(tmp_path / "one")


@pytest.mark.parametrize("name", ["index.faiss", "vocabulary.parquet", "index.json"])
def test_a_file_that_is_cut_or_missing_is_refused(name, run, tmp_path):
    run.export(tmp_path / "index", to="faiss")
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        read_faiss_index(tmp_path / "index")
    path.unlink()
    with pytest.raises(ValueError, match=name.replace(".", r"\.")):
        read_faiss_index(tmp_path / "index")


@pytest.mark.parametrize("name", ["index.faiss", "vocabulary.parquet"])
def test_a_changed_file_is_refused_before_anything_parses_it(name, run, tmp_path, monkeypatch):
    run.export(tmp_path / "index", to="faiss")
    path = tmp_path / "index" / name
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)

    def parse(*_):
        raise AssertionError("parsed before it was compared")

    monkeypatch.setattr(faiss, "read_index", parse)
    monkeypatch.setattr(wm.Vocabulary, "load", parse)
    with pytest.raises(ValueError, match="was changed: its sha256 is not the one recorded"):
        read_faiss_index(tmp_path / "index")


def test_an_export_that_fails_leaves_the_one_before(run, cosine_run, tmp_path, monkeypatch):
    run.export(tmp_path / "index", to="faiss")

    def fail(index, writer):
        writer(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(faiss, "PyCallbackIOWriter", lambda write: write)
        patched.setattr(faiss, "write_index", fail)
        with pytest.raises(OSError, match="disk full"):
            cosine_run.export(tmp_path / "index", to="faiss")
    assert read_faiss_index(tmp_path / "index").similarity == "dot"
    assert len(list((tmp_path / "index").iterdir())) == 3


@pytest.mark.parametrize("package", ["faiss", "onnx"])
def test_a_missing_package_names_its_extra(package, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"widemax\[{package}\]"):
        run.export(tmp_path / "out", to=package)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def given():
    """Vectors of half of the words, in an order of their own, and of others."""
    keys = ["other", *WORDS[30:10:-1], "another"]
    generator = torch.Generator().manual_seed(1)
    return wm.KeyedVectors(keys, torch.randn(len(keys), 8, generator=generator))


def written_by_gensim(path, vectors, *, binary):
    theirs = GENSIM(vectors.dimension)
    theirs.add_vectors(vectors.keys.to_list(), vectors.vectors.numpy())
    theirs.save_word2vec_format(str(path), binary=binary)
    return path


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("head", ["sampled", "full", "hierarchical"])
def test_a_file_of_gensim_starts_a_run(binary, head, text, given, tmp_path):
    file = written_by_gensim(tmp_path / "vectors", given, binary=binary)
    training = prepare(text, config(head=head), tmp_path / "warm", vectors=file)
    cold = prepare(text, config(head=head), tmp_path / "cold").model
    warm, vocabulary = training.model, training.source.vocabulary
    found = torch.tensor([key in given for key in vocabulary.keys])
    wanted = torch.stack([given.vector(key) for key in vocabulary.keys if key in given])
    for name, before in cold.state_dict().items():
        after = warm.state_dict()[name]
        if name in ("encoder.weight", "head.scorer.weight"):
            torch.testing.assert_close(after[found], wanted, rtol=0, atol=1e-6)
            assert torch.equal(after[~found], before[~found])
        else:
            assert torch.equal(after, before)
    assert (training.warm.found, training.warm.classes) == (20, 40)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_text_and_binary_are_told_apart_whatever_the_numbers(dimension, tmp_path):
    # The first byte of each number is a line break, and the keys are numbers themselves.
    numbers = np.frombuffer(b"\n11?" * dimension, "<f4").copy()
    vectors = wm.KeyedVectors(["70"], torch.from_numpy(numbers)[None])
    wm.vectors.write_word2vec_binary(tmp_path / "binary", vectors)
    wm.vectors.write_word2vec_text(tmp_path / "text", vectors)
    assert as_learned(tmp_path / "binary") == vectors
    assert as_learned(tmp_path / "text") == vectors


def test_keys_that_are_numbers_are_found(tmp_path):
    (tmp_path / "log.csv").write_text("user,item\n" + "1,70\n1,71\n2,70\n2,72\n" * 9)
    vectors = wm.KeyedVectors(["tea", "72", "70"], torch.tensor([[9.0, 9], [1, 2], [3, 4]]))
    training = prepare(tmp_path / "log.csv", config(dimension=2), tmp_path / "run", vectors=vectors)
    ids = training.source.vocabulary.encode([70, 72])
    assert training.model.input_table()[ids].tolist() == [[3, 4], [1, 2]]


def test_a_log_starts_from_vectors_whatever_its_tables_and_output_layer(tmp_path):
    (tmp_path / "log.csv").write_text("user,item\n" + "1,a\n1,b\n2,a\n2,c\n" * 9)
    vectors = wm.KeyedVectors(["c", "a"], torch.tensor([[1.0, 2], [3, 4]]))
    kinds = ({}, {"tied": False}, {"head": "hierarchical"}, {"model": "next-item"})
    for place, given in enumerate(kinds):
        chosen, folder = wm.Config(dimension=2, steps=1, **given), tmp_path / str(place)
        training = prepare(tmp_path / "log.csv", chosen, folder, vectors=vectors)
        model, ids = training.model, training.source.vocabulary.encode(["a", "c"])
        tables = [model.input_table()]
        if "head" not in given:
            tables.append(model.head.scorer.weight)
        assert all(each[ids].tolist() == [[3, 4], [1, 2]] for each in tables)


def test_a_run_says_how_many_it_found_and_leaves_the_vectors_alone(text, given, tmp_path):
    before = given.vectors.clone()
    run = wm.train(text, config(), folder=tmp_path / "run", vectors=given)
    assert run.description["warm_start"] == {"found": 20}
    assert torch.equal(given.vectors, before)
    file = written_by_gensim(tmp_path / "vectors", given, binary=True)
    verb = ["train", str(text), "--folder", str(tmp_path / "two"), "--vectors", str(file)]
    said = CliRunner().invoke(app, [*verb, "--dimension", "8", "--steps", "1"])
    assert said.exit_code == 0, said.output
    assert "20 of 40 classes start from" in said.output


@pytest.mark.parametrize(
    ("vectors", "wanted"),
    [
        (wm.KeyedVectors(["w1"], torch.ones(1, 3)), "dimension of the run, 8, got 3"),
        (wm.KeyedVectors(["W1"], torch.ones(1, 8)), "none of its 40 classes"),
        ("nowhere.txt", r"nowhere\.txt cannot be read"),
    ],
)
def test_vectors_that_do_not_fit_leave_no_folder(vectors, wanted, text, tmp_path):
    with pytest.raises(ValueError, match=wanted):
        wm.train(text, config(), folder=tmp_path / "run", vectors=vectors)
    assert not (tmp_path / "run").exists()


def test_only_a_new_run_starts_from_vectors(text, given, tmp_path):
    prepare(text, config(), tmp_path / "run", vectors=given)
    # Stopped before its first checkpoint, it would start cold without a word.
    with pytest.raises(ValueError, match="before its first checkpoint"):
        wm.train(text, folder=tmp_path / "run", resume=True)
    resumed = wm.train(text, folder=tmp_path / "run", resume=True, vectors=given)
    straight = wm.train(text, config(), folder=tmp_path / "straight", vectors=given)
    mine, other = (each.model.state_dict() for each in (resumed, straight))
    assert all(torch.equal(mine[name], other[name]) for name in other)
    # From now on they are not needed, and do no harm.
    wm.train(text, folder=tmp_path / "run", resume=True, vectors=given)
    wm.train(text, config(), folder=tmp_path / "cold")
    with pytest.raises(ValueError, match="did not start from vectors"):
        wm.train(text, folder=tmp_path / "cold", resume=True, vectors=given)


def test_titles_of_items_go_to_the_projector(tmp_path):
    rows = [f"u{user},i{(user + step) % 6},{step}" for user in range(12) for step in range(5)]
    (tmp_path / "log.csv").write_text("\n".join(["user,item,time", *rows]) + "\n")
    titled = [f'i{item},"Tea, no. {item}"' for item in range(5)]
    (tmp_path / "items.csv").write_text("\n".join(["item,title", *titled]) + "\n")
    titles = str(tmp_path / "items.csv")
    run = wm.train(
        tmp_path / "log.csv",
        wm.Config(titles=titles, epochs=1, dimension=4, num_samples=3),
        folder=tmp_path / "run",
    )
    run.export(tmp_path / "out", to="projector")
    header, *lines = (tmp_path / "out" / "metadata.tsv").read_text().splitlines()
    assert header == "key\ttitle"
    named = dict(line.split("\t") for line in lines)
    assert named == {"i5": ""} | {f"i{item}": f"Tea, no. {item}" for item in range(5)}


def test_the_verb_exports_every_format(run, tmp_path):
    for to in ("numpy", "safetensors", "projector", "faiss", "onnx", "serving"):
        said = CliRunner().invoke(app, ["export", str(run.folder), str(tmp_path / to), "--to", to])
        assert said.exit_code == 0, said.output
        assert (tmp_path / to).exists()
    about = json.loads((tmp_path / "faiss" / "index.json").read_text())
    assert (about["size"], about["dimension"]) == (40, 8)
    with pytest.raises(ValueError, match=r"to must be one of faiss, .*binary, got .*'csv'"):
        run.export(tmp_path / "out", to="csv")
