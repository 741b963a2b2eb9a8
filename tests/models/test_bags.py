"""Histories without order: what the other items of a user say, read once for several targets."""

import pytest
import torch

import widemax as wm
from widemax.data import Sequences
from widemax.models import YouTubeDNN
from widemax.models.retrieval.bags import Bags
from widemax.runs.training.preparing import prepare


@pytest.mark.parametrize("num_layers", [0, 1])
def test_a_target_is_predicted_from_all_other_items(num_layers):
    torch.manual_seed(0)
    model = YouTubeDNN.create(
        torch.arange(20, 0, -1), dimension=4, num_samples=5, num_layers=num_layers
    ).double()
    lists = [[3, 7, 7, 1], [5, 2], [9, 0, 4, 6, 8]]
    batch = Bags(Sequences.from_lists(lists), targets_per_row=2, max_history=9).batch(
        torch.arange(6)
    )
    found = model.encoder.of_others(batch.bags, batch.targets, batch.owners, batch.users)
    assert batch.targets.tolist() == [item for items in lists for item in items]
    for place, (target, user) in enumerate(zip(batch.targets, batch.users, strict=True)):
        others = list(lists[int(user)])
        others.remove(int(target))
        torch.testing.assert_close(found[place], model.encode(torch.tensor([others]))[0])


def test_of_too_many_items_a_stretch_with_the_targets_is_read():
    log = Sequences.from_lists([list(range(50))])
    bags = Bags(log, targets_per_row=4, max_history=10)
    batch = bags.batch(torch.arange(len(bags)))
    assert batch.bags.shape[1] == 10
    assert sorted(batch.targets.tolist()) == list(range(50))
    for target, owner in zip(batch.targets.tolist(), batch.owners.tolist(), strict=True):
        assert target in batch.bags[owner].tolist()


def test_single_items_are_no_examples():
    assert len(Bags(Sequences.from_lists([[1], [2]]), targets_per_row=2, max_history=5)) == 0


def test_items_are_left_out_in_training_only():
    torch.manual_seed(0)
    model = YouTubeDNN.create([1] * 30, dimension=4, num_samples=5, history_dropout=0.5)
    context = torch.randint(30, (200, 40))
    shown = model._left(context, torch.Generator().manual_seed(0))
    assert 0.45 < (shown == -1).double().mean() < 0.55
    assert torch.equal(shown[shown >= 0], context[shown >= 0])
    assert torch.equal(model.eval()._left(context, None), context)


def test_a_run_on_lists_trains_by_rows(tmp_path):
    lines = [f"u{user} " + " ".join(f"i{(user + k) % 12}" for k in range(6)) for user in range(30)]
    (tmp_path / "lists").write_text("\n".join(lines) + "\n")
    settings = {"kind": "lists", "model": "youtube-dnn", "targets_per_row": 4, "batch_size": 16}
    small = {"dimension": 4, "num_samples": 5, "epochs": 1}
    run = wm.train(tmp_path / "lists", wm.Config(**settings, **small), folder=tmp_path / "run")
    assert run.recommend(["i3"], k=2)
    kept = wm.Config(**settings, **small, item_order="kept")
    with pytest.raises(ValueError, match="targets_per_row is for a log without an order"):
        wm.train(tmp_path / "lists", kept, folder=tmp_path / "ordered")


def test_biases_start_with_a_share_of_the_log_counts():
    counts = torch.tensor([7, 3, 1, 0])
    model = YouTubeDNN.create(counts, dimension=4, num_samples=2, bias=True, bias_start=0.5)
    started = model.head.scorer.bias.detach().double()
    # log2 of the counts plus one is 3, 2, 1, 0: on average 1.5.
    expected = torch.tensor([1.5, 0.5, -0.5, -1.5]) * torch.tensor(2.0).log() / 2
    torch.testing.assert_close(started, expected.double(), atol=1e-6, rtol=0)
    plain = YouTubeDNN.create(counts, dimension=4, num_samples=2, bias=True, bias_start=0.0)
    assert not plain.head.scorer.bias.any()


def test_a_most_of_examples_holds_where_rows_of_several_targets_are_usual(tmp_path):
    (tmp_path / "lists").write_text("".join(f"{u} 1 2 3 4 5 6 7 8 9\n" for u in range(9)))
    config = wm.Config(
        kind="lists", model="youtube-dnn", max_examples=2, num_samples=3, batch_size=9, epochs=1
    )
    training = prepare(tmp_path / "lists", config, tmp_path / "run")
    assert len(training.loop.steps.examples) == 9 * 2


def test_targets_of_one_user_do_not_compete_in_a_batch():
    torch.manual_seed(0)
    plain = {"similarity": "dot", "temperature": 1.0, "bias": False}
    model = YouTubeDNN.create([9] * 20, dimension=4, sampler="in-batch", **plain).double()
    log = Sequences.from_lists([[3, 7, 1], [5, 2]])
    batch = Bags(log, targets_per_row=3, max_history=9).batch(torch.arange(2))
    found = model(batch)
    hidden = model.encoder.of_others(batch.bags, batch.targets, batch.owners, batch.users)
    scores = hidden @ model.head.scorer.weight.T
    others = {0: [5, 2], 1: [3, 7, 1]}
    for place, user in enumerate(batch.users.tolist()):
        # All classes are equally frequent, so that log Q is the same for target and candidates.
        competing = [int(batch.targets[place]), *others[user]]
        expected = -scores[place, competing].log_softmax(0)[0]
        torch.testing.assert_close(found[place], expected)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("targets_per_row", [1, 2, 100])
def test_rows_of_several_targets_give_the_losses_and_gradients_of_windows(
    similarity, targets_per_row
):
    torch.manual_seed(0)
    # All classes compete: both ways then have the same candidates.
    settings = {"head": "full", "similarity": similarity, "dimension": 5}
    model = YouTubeDNN.create([1] * 12, **settings).double()
    log = Sequences.from_lists([[3, 0, 7], [5], [1, 2], [], [4, 9, 0, 6, 11, 8, 2]])
    windows = model.windows_without_order(log, max_history=20)
    bags = Bags(log, targets_per_row=targets_per_row, max_history=20)
    plain = model(windows.batch(torch.arange(len(windows))))
    losses = model(bags.batch(torch.arange(len(bags))))
    # Weights of their own for the losses: no mistake may cancel out in their sum.
    weights = torch.linspace(0.5, 2.0, len(plain), dtype=torch.float64)
    wanted, found = (
        torch.autograd.grad((weights * each).sum(), model.encoder.items.weight)[0].to_dense()
        for each in (plain, losses)
    )
    torch.testing.assert_close(losses, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
