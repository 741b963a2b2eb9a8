"""What a batch is: as many targets as were asked for, whatever a model reads to predict them."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import widemax as wm
from widemax.runs.training.preparing import prepare
from widemax.training.gradients.batches import even_batches


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(50, 200))
def test_every_row_is_in_one_batch_of_about_the_size_asked_for(sizes, batch_size):
    num_targets = torch.tensor(sizes)
    rows = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(0))
    count = math.ceil(sum(sizes) / batch_size)
    batches = even_batches(rows, num_targets, count)
    assert torch.equal(torch.cat(batches), rows)
    assert len(batches) == count
    assert all(len(batch) for batch in batches)
    even = sum(sizes) / count
    assert all(abs(int(num_targets[batch].sum()) - even) <= 2 * 50 for batch in batches)


def test_a_row_is_in_the_batch_that_its_middle_falls_into():
    batches = even_batches(torch.tensor([2, 0, 1, 3]), torch.tensor([2, 4, 5, 2]), 2)
    assert [batch.tolist() for batch in batches] == [[2, 0], [1, 3]]


def test_no_batch_is_empty_where_one_row_fills_several_shares():
    batches = even_batches(torch.arange(3), torch.tensor([50, 50, 1]), 3)
    assert [batch.tolist() for batch in batches] == [[0], [1], [2]]


@pytest.fixture
def log(tmp_path):
    """Users of 2 to 31 items."""
    rows = [
        f"u{user},i{(user * 7 + k * 3) % 40},{k}"
        for user in range(90)
        for k in range(2 + user % 30)
    ]
    path = tmp_path / "log.csv"
    path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(
    ("settings", "room"),
    [
        ({"model": "sasrec", "max_history": 8}, 8),
        ({"model": "youtube-dnn", "targets_per_row": 4, "item_order": "ignored"}, 4),
        ({"model": "next-item"}, 0),
    ],
)
def test_batch_size_is_the_number_of_targets_for_every_model(log, tmp_path, settings, room):
    config = wm.Config(**settings, batch_size=100, epochs=2, dimension=4, num_samples=5)
    training = prepare(log, config, tmp_path / "run")
    steps, predicted = training.loop.steps, []
    forward = steps.model.forward

    def counted(*arguments, **options):
        losses = forward(*arguments, **options)
        predicted.append(len(losses))
        return losses

    steps.model.forward = counted
    training.run()
    assert len(predicted) == 2 * steps.per_epoch
    first, second = predicted[: steps.per_epoch], predicted[steps.per_epoch :]
    assert sum(first) == sum(second)
    # Windows leave a rest for the last batch; several targets a row are spread evenly.
    even = sum(first) / steps.per_epoch if room else 100
    assert 100 - 100 / steps.per_epoch < even <= 100
    assert all(abs(count - even) <= room for count in first[:-1])
