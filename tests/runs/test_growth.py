"""Training goes on elsewhere: a new run on other data, from all that an older one has learnt."""

import os
import shutil
import signal

import pytest
import torch
from typer.testing import CliRunner

import widemax as wm
from tests.runs.run_metrics import check_stored_metrics
from widemax.cli.app import app
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore

OPTIONS = {"dimension": 8, "min_count": 2, "threads": 1, "validation_size": 20, "epochs": 2}
KINDS = {
    "skip-gram": wm.Config(model="skip-gram", **OPTIONS, subsample=0.0),
    "tree": wm.Config(model="skip-gram", **OPTIONS, subsample=0.0, head="hierarchical"),
    "cbow": wm.Config(
        model="cbow",
        **OPTIONS,
        batch_size=16,
        num_samples=3,
        learning_rate=0.05,
        bias=True,
        subsample=0.0,
    ),
    "unknown": wm.Config(
        model="cbow", **OPTIONS, subsample=0.0, batch_size=16, head="full", unknown="?"
    ),
    "phrases": wm.Config(model="cbow", **OPTIONS, subsample=0.0, phrases=1),
    "log": wm.Config(model="next-item", **OPTIONS, batch_size=16, head="full"),
}

OLD_ONLY, BOTH, NEW = ["tea", "mug"], ["rum", "cup"], ["gin", "jar"]
# Once in the new text: known from the old run it stays, otherwise it is too rare.
RARE_KNOWN, RARE_NEW = "ale", "rye"


def write(path, kind, sentences):
    if kind == "log":
        rows = [f"u{user},{item}" for user, line in enumerate(sentences) for item in line.split()]
        path.write_text("user,item\n" + "\n".join(rows) + "\n")
    else:
        path.write_text("\n".join(sentences) + "\n")
    return path


@pytest.fixture(params=KINDS)
def case(request, tmp_path):
    """A kind of run, the older run of it, and the new source."""
    kind = request.param
    before = ["rum and ale in a cup", "tea and ale in a mug", "tea and rum in a mug"] * 30
    after = ["gin and rum in a jar", "gin or gin in a cup", "a cup or a jar"] * 25
    if kind == "phrases":
        # Rare in a long text, and never apart: that makes a phrase.
        before, after = [*before * 8, *["new york"] * 12], [*after * 8, *["new york"] * 12]
    old = write(tmp_path / "old", kind, before)
    new = write(tmp_path / "new", kind, [*after, "ale and rye in a cup"])
    run = wm.train(old, KINDS[kind], folder=tmp_path / "first")
    return kind, run, new, tmp_path / "second"


def row(vocabulary, table, key):
    return table[vocabulary.id_of(key)]


def tables(model):
    """Return what a model has for each class, the nodes of a tree left out."""
    found = {"input": model.encoder.weight}
    scorer = getattr(model.head, "scorer", None)
    if scorer is not None:
        found["class"] = scorer.weight
        if scorer.bias is not None:
            found["bias"] = scorer.bias
    return {name: table.detach().clone() for name, table in found.items()}


def test_nothing_learnt_is_lost(case):
    kind, run, new, folder = case
    training = prepare(new, KINDS[kind], folder, vectors=run)
    vocabulary, old = training.source.vocabulary, run.vocabulary
    assert vocabulary.ordered
    assert {*OLD_ONLY, *BOTH, *NEW, RARE_KNOWN} <= set(vocabulary.keys)
    assert RARE_NEW not in vocabulary
    assert ("new_york" in vocabulary) == (kind == "phrases")
    started, before = tables(training.model), tables(run.model)
    assert started.keys() == before.keys()
    assert set(started) >= ({"input"} if kind == "tree" else {"input", "class"})
    for name in started:
        for key in old.keys:
            mine, theirs = row(vocabulary, started[name], key), row(old, before[name], key)
            assert torch.equal(mine, theirs), (name, key)
    fresh = prepare(new, KINDS[kind], folder.with_name("fresh")).model.encoder.weight
    for key in NEW:
        vector = row(vocabulary, started["input"], key)
        assert not (before["input"] == vector).all(-1).any()
        assert vector.abs().max() <= fresh.abs().max() * 3
    assert training.warm.found == len(old)


def test_counts_are_added(case):
    kind, run, new, folder = case
    vocabulary = prepare(new, KINDS[kind], folder, vectors=run.folder).source.vocabulary
    words = new.read_text().replace("\n", " ").replace(",", " ").split()
    for key in (*OLD_ONLY, *NEW, RARE_KNOWN):
        in_old = int(run.vocabulary.counts[run.vocabulary.id_of(key)]) if key not in NEW else 0
        assert int(vocabulary.counts[vocabulary.id_of(key)]) == in_old + words.count(key)
    if kind == "unknown":
        assert int(vocabulary.counts[vocabulary.id_of("?")]) == words.count(RARE_NEW) == 1


def test_such_a_run_is_trained_resumed_and_asked_like_any_other(case):
    kind, run, new, folder = case
    whole = wm.train(new, KINDS[kind], folder=folder, vectors=run.folder)
    training = prepare(new, KINDS[kind], folder.with_name("parts"), vectors=run)
    middle = training.loop.steps.per_epoch + training.loop.steps.per_epoch // 2

    def stop(progress):
        if progress.step == middle:
            os.kill(os.getpid(), signal.SIGTERM)

    training.loop.on_step = stop
    with pytest.raises(wm.training.Interrupted):
        training.run()
    shutil.rmtree(run.folder)  # it is needed no more
    parts = wm.train(new, None, folder=folder.with_name("parts"), resume=True)
    one, other = (CheckpointStore(each.folder).load().model_tensors() for each in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert parts.vocabulary == whole.vocabulary
    assert parts.description["warm_start"] == {"found": len(run.vocabulary)}
    check_stored_metrics(parts)
    for key in (*OLD_ONLY, *NEW, RARE_KNOWN):
        assert parts.similar(key, k=1)
    new.write_text(new.read_text().replace("or", "and"))
    assert parts.evaluate() == whole.evaluate()  # on what it keeps
    with pytest.raises(ValueError, match="content differs"):
        parts.evaluate(new)
    with pytest.raises(ValueError, match="content differs"):
        wm.train(new, None, folder=parts.folder, resume=True)


def test_input_vectors_of_words_that_do_not_come_again_stay(tmp_path):
    old = write(tmp_path / "old", "text", ["rum and ale", "tea and ale"] * 300)
    new = write(tmp_path / "new", "text", ["gin and rum"] * 300)
    config = KINDS["skip-gram"]
    first = wm.train(old, config, folder=tmp_path / "first")
    second = wm.train(new, config, folder=tmp_path / "second", vectors=first)
    third = wm.train(old, config, folder=tmp_path / "third", vectors=second)
    assert torch.equal(second.vectors().vector("tea"), first.vectors().vector("tea"))
    assert not torch.equal(second.vectors().vector("rum"), first.vectors().vector("rum"))
    assert torch.equal(third.vectors().vector("gin"), second.vectors().vector("gin"))
    assert int(third.vocabulary.counts[third.vocabulary.id_of("tea")]) == 600


def test_the_command_line_takes_the_folder_of_a_run(tmp_path):
    old = write(tmp_path / "old", "text", ["rum and ale"] * 30)
    new = write(tmp_path / "new", "text", ["gin and rum"] * 30)
    flags = ["--model", "cbow", "--dimension", "4", "--epochs", "1", "--threads", "1"]

    def train(source, name, *more):
        arguments = ["train", str(source), "--folder", str(tmp_path / name), *flags, *more]
        return CliRunner().invoke(app, arguments)

    assert train(old, "first").exit_code == 0
    done = train(new, "second", "--vectors", str(tmp_path / "first"))
    assert "3 of 4 classes start from" in done.output
    wrong = train(new, "third", "--vectors", str(tmp_path))
    assert "is a folder without a run.json" in str(wrong.exception)
    wrong = train(new, "third", "--vectors", str(tmp_path / "first"), "--dimension", "8")
    assert "train with dimension = 4" in str(wrong.exception)
    assert not (tmp_path / "third").exists()
    for said in ("3 of 4 classes start from", "resumed at step"):
        done = train(new, "third", "--vectors", str(tmp_path / "first"), "--resume")
        assert said in done.output


def test_numbers_and_words_do_not_mix():
    words, numbers = wm.Vocabulary.count(["tea"]), wm.Vocabulary.count([7])
    with pytest.raises(ValueError, match="other must hold"):
        words.merge(numbers)


def test_a_log_whose_keys_are_of_another_kind_is_refused(tmp_path):
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    write(old, "log", ["tea rum gin", "rum ale tea"] * 20)
    write(new, "log", ["1 2 3", "2 4 1"] * 20)
    run = wm.train(old, KINDS["log"], folder=tmp_path / "run")
    message = r"new\.csv must have keys like the run .*run has texts, and these are whole numbers"
    with pytest.raises(ValueError, match=message):
        wm.train(new, KINDS["log"], folder=tmp_path / "other", vectors=run.folder)


def test_two_unknown_words_do_not_mix():
    old = wm.Vocabulary.count(["tea"], unknown="?")
    with pytest.raises(ValueError, match="the same unknown key"):
        old.merge(wm.Vocabulary.count(["tea"]), unknown="<unk>")
    assert old.merge(wm.Vocabulary.count(["rum"]), min_count=2).unknown == "?"
    assert old.merge(wm.Vocabulary.count(["?", "rum"]), min_count=2).total == 3
