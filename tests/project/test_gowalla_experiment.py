"""The experiment on Gowalla reads each history once, and loses nothing by it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))

from _gowalla import LeaveOneOut, LeaveOneOutBags, stages_of
from _gowalla_rows import BagSetting, Item2VecSetting, Setting
from widemax.data import Sequences
from widemax.encoders import YouTubeDNNEncoder
from widemax.heads import SampledHead
from widemax.models import YouTubeDNN
from widemax.sampling import AllClassesSampler
from widemax.scoring import TableScorer
from widemax.scoring.table import Similarity

NUM_CLASSES = 12
BASKETS = Sequences.from_lists([[3, 0, 7], [5], [1, 2], [], [4, 9, 0, 6, 11, 8, 2]])


def model_of(similarity: Similarity) -> tuple[YouTubeDNN, torch.nn.Embedding]:
    torch.manual_seed(0)
    encoder = YouTubeDNNEncoder(NUM_CLASSES, 5).double()
    scorer = TableScorer.tied(encoder.items, similarity=similarity, sparse=True)
    # All classes compete: both ways then have the same candidates.
    head = SampledHead(scorer, AllClassesSampler(NUM_CLASSES))
    return YouTubeDNN(encoder, head), encoder.items


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("targets_a_row", [1, 2, 100])
def test_whole_histories_give_the_losses_and_gradients_of_windows(
    similarity: Similarity, targets_a_row: int
) -> None:
    model, items = model_of(similarity)
    windows = YouTubeDNN.windows_without_order(BASKETS, max_history=20)
    bags = LeaveOneOutBags(BASKETS, targets_a_row=targets_a_row)
    plain = model(windows.batch(torch.arange(len(windows))))
    losses = LeaveOneOut(model)(bags.batch(torch.arange(len(bags))))
    # Weights of their own for the losses: no mistake may cancel out in their sum.
    weights = torch.linspace(0.5, 2.0, len(plain), dtype=torch.float64)
    wanted, found = (
        torch.autograd.grad((weights * each).sum(), items.weight)[0].to_dense()
        for each in (plain, losses)
    )
    assert bags.num_targets == len(windows) == 12
    torch.testing.assert_close(losses, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_items_that_are_left_out_are_not_in_the_mean_and_are_targets_all_the_same() -> None:
    model, items = model_of("dot")
    training = LeaveOneOut(model, left_out=0.5)
    batch = LeaveOneOutBags(BASKETS, targets_a_row=3).batch(torch.arange(4))
    hidden = training.hidden(batch, torch.Generator().manual_seed(3))
    drawn = torch.rand(batch.bags.shape, generator=torch.Generator().manual_seed(3))
    shown = batch.bags.masked_fill(drawn < 0.5, -1)
    for i, (target, owner) in enumerate(zip(batch.targets, batch.owners, strict=True)):
        others = shown[owner][(shown[owner] >= 0) & (shown[owner] != target)]
        mean = items.weight[others].mean(0) if len(others) else torch.zeros(5).double()
        torch.testing.assert_close(hidden[i], mean, rtol=1e-12, atol=1e-12)
    whole = LeaveOneOut(model).hidden(batch)
    assert torch.equal(training.eval().hidden(batch), whole)
    assert not torch.allclose(hidden, whole)


def test_rows_of_bags_hold_each_target_once_with_its_owner() -> None:
    bags = LeaveOneOutBags(BASKETS, targets_a_row=3)
    batch = bags.batch(torch.tensor([3, 0, 2]))
    assert batch.targets.tolist() == [6, 11, 8, 3, 0, 7, 4, 9, 0]
    assert batch.users.tolist() == [4, 4, 4, 0, 0, 0, 4, 4, 4]
    assert batch.bags[1].tolist() == [3, 0, 7, -1, -1, -1, -1]
    every = bags.batch(torch.arange(len(bags))).targets
    assert sorted(every.tolist()) == sorted([3, 0, 7, 1, 2, 4, 9, 0, 6, 11, 8, 2])


def test_a_model_with_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="layers"):
        LeaveOneOut(YouTubeDNN.create(torch.ones(4), dimension=2, num_layers=1, hidden_size=3))


def test_stages_train_on_no_target_and_know_every_place() -> None:
    train = Sequences.from_lists([[0, 2], [2], [2, 1]])
    valid = Sequences.from_lists([[1], [], [3]])
    test = Sequences.from_lists([[3], [0], []])
    data = stages_of(train, valid, test)
    # By count before the test: 2 (three times), 1 (twice), then 0 and 3.
    assert data.tuning.train.values.tolist() == [2, 0, 0, 0, 1]
    assert data.tuning.counts.tolist() == [3, 1, 1, 0]
    assert data.tuning.asked.users.tolist() == [0, 2]
    assert data.final.train.values.tolist() == [2, 0, 1, 0, 0, 1, 3]
    assert data.final.asked.histories.values.tolist() == [2, 0, 1, 0]
    assert data.final.asked.targets.values.tolist() == [3, 2]


@pytest.mark.parametrize(
    "setting",
    [
        BagSetting(num_samples=8, epochs=40, learning_rate=0.05),
        BagSetting(opponents="in-batch", epochs=40, learning_rate=0.05),
        BagSetting(opponents="in-batch", correction="none", epochs=40, learning_rate=0.05),
        BagSetting(
            opponents="in-batch", correction="corrected log Q", epochs=40, learning_rate=0.05
        ),
        BagSetting(opponents="mixed", num_samples=32, epochs=40, learning_rate=0.05),
        Item2VecSetting(epochs=30),
    ],
    ids=lambda setting: f"{type(setting).__name__}-{getattr(setting, 'opponents', '')}",
)
def test_every_kind_of_row_learns_what_goes_together(setting: Setting) -> None:
    generator = torch.Generator().manual_seed(0)
    # Baskets of four out of one of two groups of ten; each user's fifth is asked for.
    lists = [(torch.randperm(10, generator=generator) + 10 * (i % 2))[:5] for i in range(200)]
    train = Sequences.from_lists([list_[:4].tolist() for list_ in lists])
    valid = Sequences.from_lists([list_[4:].tolist() for list_ in lists])
    stage = stages_of(train, valid, valid).tuning
    model = setting.fit(stage, lambda *_: None).eval()
    asked = stage.asked.batch(torch.arange(len(stage.asked)), max_history=10)
    best = model.topk(asked, 6, exclude=asked.context).ids
    # Six more are in each group, one of which is the target.
    found = (best == stage.asked.targets.values[:, None]).any(1)
    assert found.double().mean() > 0.95
