"""A run that starts from another one gives each class what was learned of that class.

The ids of the two differ: the new data turn the order of frequency around.
"""

import itertools

import pytest
import torch
from torch import nn

import widemax as wm
from tests.runs.settings import config_with
from widemax.declarations import declared, names
from widemax.runs.training.preparing import prepare
from widemax.runs.training.warm_start import warm_start

ITEMS = [f"i{item}" for item in range(30)]
LEARNED = [
    name
    for name, each in declared("model").items()
    if "gradients" in each.traits and "head" in each.slots
]


def write_log(path, items):
    """Write a log in which items are the rarer the later they come in the list."""
    rows = ["user,item,time"]
    for user in range(40):
        chosen = items[: len(items) - user % len(items)]
        rows += [f"u{user},{item},{1_600_000_000 + 60 * t}" for t, item in enumerate(chosen)]
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_log(folder / "old.csv", ITEMS)
    # Twice, so that merged counts are in the order of the new log.
    new = write_log(folder / "new.csv", ITEMS[::-1])
    new.write_text(new.read_text() + "\n".join(new.read_text().split("\n")[1:]))
    kinds = ["id,kind", *(f"{item},k{place % 3}" for place, item in enumerate(ITEMS))]
    (folder / "items.csv").write_text("\n".join(kinds) + "\n")
    return folder


def config_of(data, model, scorer):
    """Return the settings of a small run."""
    return config_with(
        model,
        scorer=scorer,
        bias=True,
        dimension=6,
        steps=2,
        batch_size=64,
        num_samples=5,
        min_count=1,
        threads=1,
        item_features=str(data / "items.csv"),
    )


def fill(part):
    """Set every parameter to values that all differ."""
    with torch.no_grad():
        for place, parameter in enumerate(part.parameters()):
            values = torch.arange(parameter.numel(), dtype=torch.float32)
            parameter.copy_(values.view_as(parameter) + 1e5 * (place + 1))


@pytest.mark.parametrize(("model", "scorer"), list(itertools.product(LEARNED, names("scorer"))))
def test_every_table_is_copied_by_key(model, scorer, data, tmp_path):
    if model == "two-tower" and scorer != "tower":
        with pytest.raises(ValueError, match="scorer must be tower"):
            config_of(data, model, scorer)
        return
    config = config_of(data, model, scorer)
    old = wm.train(data / "old.csv", config, folder=tmp_path / "old")
    fill(old.model)
    training = prepare(data / "new.csv", config, tmp_path / "new", vectors=old)
    keys = training.source.vocabulary.keys
    assert set(keys) == set(old.vocabulary.keys)
    assert not keys.equals(old.vocabulary.keys)
    ids, old_ids = torch.arange(len(keys)), old.vocabulary.encode(keys)
    for part in ("encoder", "head.scorer"):
        own, before = training.model.get_submodule(part), old.model.get_submodule(part)
        tables = own.class_tables()
        for name, parameter in own.named_parameters():
            theirs = before.get_parameter(name)
            if name not in tables:
                assert torch.equal(parameter, theirs), name
                continue
            rows = tables[name]
            for row, id in enumerate(rows):
                if int(old_ids[id]) in rows:
                    assert torch.equal(parameter[row], theirs[rows.index(int(old_ids[id]))]), name
                elif scorer != "sharded":  # whose shards are compared below, as one table
                    # Of another block: it has no vector of this length.
                    assert scorer == "differentiated"
                    assert not (theirs == parameter[row]).all(-1).any()
        for name, buffer in own.named_buffers():
            # A class that the old run had held out, and so not seen, the new one may have.
            if len(buffer) == len(keys) and name not in ("cold", "seen"):
                # What is known of a class, such as its spelling, is the same in both runs.
                assert torch.equal(buffer, before.get_buffer(name)[old_ids]), name
    if scorer in ("table", "sharded"):
        new, before = training.model.head.scorer, old.model.head.scorer
        assert torch.equal(new.class_vectors(ids), before.class_vectors(old_ids))
        assert torch.equal(new.class_biases(ids), before.class_biases(old_ids))


def test_shards_are_copied_into_another_number_of_shards(data, tmp_path):
    config = config_of(data, "next-item", "sharded").changed(num_shards=3, shard_by="mod")
    old = wm.train(data / "old.csv", config, folder=tmp_path / "old")
    fill(old.model)
    config = config.changed(num_shards=5, shard_by="div")
    training = prepare(data / "new.csv", config, tmp_path / "new", vectors=old)
    ids = old.vocabulary.encode(training.source.vocabulary.keys)
    new, before = training.model.head.scorer, old.model.head.scorer
    assert torch.equal(new.class_vectors(), before.class_vectors(ids))
    assert torch.equal(new.class_biases(), before.class_biases(ids))


class OwnScorer(wm.Scorer):
    """A scorer of somebody else, who has not said which of its tensors are of classes."""

    def __init__(self, num_classes, dimension):
        super().__init__()
        self.num_classes, self.dimension = num_classes, dimension
        self.own = nn.Parameter(torch.randn(num_classes, dimension))

    def class_vectors(self, ids=None):
        return self.own if ids is None else self.own[ids]


class SayingScorer(OwnScorer):
    def class_tables(self):
        return {"own": range(self.num_classes)}


class LargerScorer(wm.TableScorer):
    """It has one table more than what it is derived from, and does not say so."""

    def __init__(self, num_classes, dimension):
        super().__init__(num_classes, dimension)
        self.more = nn.Parameter(torch.randn(num_classes, dimension))


@pytest.fixture(scope="module")
def cbow(data, tmp_path_factory):
    config = config_of(data, "cbow", "table")
    return wm.train(data / "old.csv", config, folder=tmp_path_factory.mktemp("runs") / "old")


def with_scorer(run, kind):
    """Return the run, and a new model, both with scorers of a kind."""
    size = len(run.vocabulary)
    models = [
        wm.models.CBOW(wm.encoders.BagEncoder(size, 6), wm.FullHead(kind(size, 6)))
        for _ in range(2)
    ]
    run.model = models[0]
    return models[1]


@pytest.mark.parametrize(("kind", "name"), [(OwnScorer, "own"), (LargerScorer, "more")])
def test_a_table_that_nobody_declared_is_refused(kind, name, cbow):
    run = wm.load(cbow.folder)
    model = with_scorer(run, kind)
    turned = wm.Vocabulary.from_counts(run.vocabulary.keys.reverse(), torch.ones(len(ITEMS)).long())
    assert not turned.keys.equals(run.vocabulary.keys)
    with pytest.raises(ValueError, match=f"head.scorer.{name} has 30 rows.*class_tables"):
        warm_start(model, turned, run)
    # The same classes in the same order: there is nothing to mistake.
    warm_start(model, run.vocabulary, run)
    own, theirs = (each.head.scorer.get_parameter(name) for each in (model, run.model))
    assert torch.equal(own, theirs)


def test_a_table_of_somebody_else_that_is_declared_is_copied_by_key(cbow):
    run = wm.load(cbow.folder)
    model = with_scorer(run, SayingScorer)
    turned = wm.Vocabulary.from_counts(run.vocabulary.keys.reverse(), torch.ones(len(ITEMS)).long())
    warm_start(model, turned, run)
    theirs = run.model.head.scorer.own[run.vocabulary.encode(turned.keys)]
    assert torch.equal(model.head.scorer.own, theirs)
