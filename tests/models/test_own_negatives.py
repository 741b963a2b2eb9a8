"""What a user had is no negative of theirs, with youtube-dnn: by the gradients of the biases."""

import pytest
import torch

import widemax as wm
from widemax.data import Sequences
from widemax.models import YouTubeDNN
from widemax.models.retrieval.bags import Bags
from widemax.runs.training.preparing import prepare

NUM_CLASSES = 20
LISTS = [[3, 7, 1], [5, 7, 12, 9]]
ALL = {"sampler": "all", "objective": "full-softmax"}
"""Every class is a candidate of every example: what is not pushed was left out."""


def pushed(batch, rows=None, **options):
    """The classes whose biases the losses of some rows push down."""
    torch.manual_seed(0)
    options = {"bias_start": 0.0, **ALL, **options}
    model = YouTubeDNN.create([1] * NUM_CLASSES, dimension=4, bias=True, **options).double()
    losses = model(batch, generator=torch.Generator().manual_seed(0))
    (losses if rows is None else losses[rows]).sum().backward()
    return set((model.head.scorer.bias.grad.to_dense() > 0).nonzero()[:, 0].tolist())


def windows():
    """The last item of each user, from those before it."""
    examples = YouTubeDNN.windows(Sequences.from_lists(LISTS), max_history=9, window=1)
    batch = examples.batch(torch.arange(len(examples)))
    rows = [batch.targets.tolist().index(items[-1]) for items in LISTS]
    return batch, rows


def bags():
    batch = Bags(Sequences.from_lists(LISTS), targets_per_row=2, max_history=9).batch(
        torch.arange(4)
    )
    return batch, [batch.users.tolist().index(user) for user in range(2)]


@pytest.mark.parametrize("examples", [windows, bags])
@pytest.mark.parametrize("user", [0, 1])
def test_an_own_item_gets_no_push(examples, user):
    batch, rows = examples()
    assert pushed(batch, rows[user]) == set(range(NUM_CLASSES)) - set(LISTS[user])


@pytest.mark.parametrize("examples", [windows, bags])
def test_the_item_of_one_user_is_a_negative_of_another(examples):
    batch, rows = examples()
    # Both had 7; a target of the one is no target of the other.
    targets = set(batch.targets[rows].tolist())
    assert pushed(batch, rows) | targets == set(range(NUM_CLASSES)) - {7}


@pytest.mark.parametrize(("length", "drawn"), [(1, {3, 7}), (2, {3}), (9, set())])
def test_what_is_not_read_any_more_may_be_a_negative(length, drawn):
    examples = YouTubeDNN.windows(
        Sequences.from_lists([[3, 7, 1, 9]]), max_history=length, window=1
    )
    batch = examples.batch(torch.arange(len(examples)))
    last = [batch.targets.tolist().index(9)]
    assert pushed(batch, last) & {3, 7, 1} == drawn


@pytest.mark.parametrize("examples", [windows, bags])
@pytest.mark.parametrize("user", [0, 1])
def test_drawn_brings_it_back(examples, user):
    batch, rows = examples()
    target = int(batch.targets[rows[user]])
    found = pushed(batch, rows[user], own_negatives="drawn")
    assert found == set(range(NUM_CLASSES)) - {target}


@pytest.mark.parametrize("examples", [windows, bags])
def test_an_item_that_is_not_shown_was_had_all_the_same(examples):
    batch, rows = examples()
    found = pushed(batch, rows[1], history_dropout=0.9)
    assert found == set(range(NUM_CLASSES)) - set(LISTS[1])


@pytest.mark.parametrize("examples", [windows, bags])
def test_usual_draws_leave_it_out_too(examples):
    batch, rows = examples()
    usual = {"sampler": "unigram", "objective": "sampled-softmax", "num_samples": 10}
    assert not pushed(batch, rows[1], **usual) & set(LISTS[1])
    assert pushed(batch, rows[1], **usual, own_negatives="drawn") & set(LISTS[1])


def leaves_own_out(folder, lines, **settings):
    (folder / "log.csv").write_text("user,item,time\n" + "\n".join(lines) + "\n")
    config = wm.Config(model="youtube-dnn", dimension=4, **settings)
    return prepare(folder / "log.csv", config, folder / "run").model.leaves_own_out


def visits(items):
    return [f"u{user},i{(user + t) % items},{t}" for user in range(30) for t in range(10)]


@pytest.mark.parametrize("asked", ["auto", "drawn", "left-out"])
@pytest.mark.parametrize("items", [3, 12])
def test_auto_draws_it_where_most_is_chosen_again(tmp_path, items, asked):
    # Of ten visits each to three items, seven were there before.
    wanted = {"auto": items == 12, "drawn": False, "left-out": True}[asked]
    assert leaves_own_out(tmp_path, visits(items), own_negatives=asked) == wanted


@pytest.mark.parametrize("asked", ["drawn", "left-out"])
@pytest.mark.parametrize("head", ["full", "adaptive"])
def test_a_head_that_draws_nothing_refuses_it(tmp_path, head, asked):
    with pytest.raises(ValueError, match=f"own_negatives = '{asked}' needs head = 'sampled'"):
        leaves_own_out(tmp_path, visits(12), head=head, own_negatives=asked)


def test_a_head_that_draws_nothing_leaves_auto_without_effect(tmp_path):
    assert not leaves_own_out(tmp_path, visits(12), head="full")
