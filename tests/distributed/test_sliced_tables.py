"""Tables divided over processes: losses, gradients, updates and answers are those of one."""

import pytest
import torch
from torch import nn

from tests.distributed.processes import measured_by_all, parts_of
from tests.distributed.test_data_parallel import apart
from widemax.distributed import (
    JoinedBatches,
    SlicedBagEncoder,
    SlicedFullHead,
    SlicedSampledHead,
    SlicedTableScorer,
    SlicedUnigramSampler,
    Slices,
    Wire,
    add_gradients,
)
from widemax.distributed.wire import starts
from widemax.encoders import BagEncoder
from widemax.heads import FullHead, SampledHead
from widemax.optim import optimizer_for
from widemax.sampling import InBatchSampler, UniformSampler, UnigramSampler
from widemax.sampling.base import DrawnSampler
from widemax.scoring import TableScorer

V, D, ROWS, STEPS, K = 23, 5, 11, 2, 6
COUNTS = torch.arange(V, 0, -1).double()
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
SHAPES = ((2, "even"), (3, "last empty"), (4, "first empty"))


class Model(nn.Module):
    def __init__(self, encoder, head, dtype):
        super().__init__()
        self.encoder, self.layer, self.head = encoder, nn.Linear(D, D), head
        self.to(dtype)

    def forward(self, context, targets, generator):
        return self.head(self.layer(self.encoder(context)), targets, generator=generator)


class Given(DrawnSampler):
    """Draws what a sampler of several processes drew, with the probabilities that it says."""

    def __init__(self, drawn, log_probs):
        super().__init__(V)
        self.drawn, self.step, self.log_probs = drawn, 0, log_probs

    def draw(self, shape, *, device=None, generator=None):
        self.step += 1
        return self.drawn[self.step - 1]

    def log_prob(self, ids):
        return self.log_probs[ids]


class Noting(SlicedUnigramSampler):
    """Keeps what it draws."""

    def sample(self, *args, **kwargs):
        found = super().sample(*args, **kwargs)
        self.drawn = [*getattr(self, "drawn", []), found.ids]
        return found


def samplers(kind, wire):
    """Return the sampler of the processes, and of one; what the latter draws is known later."""
    if kind == "sliced unigram":
        own = Slices(V, wire).own
        return Noting(V, COUNTS[own.start : own.stop], wire), None
    if kind == "in-batch":
        made = [InBatchSampler(V, UnigramSampler(V, COUNTS, distortion=1.0)) for _ in range(2)]
        return made[0], made[1]
    return UniformSampler(V, unique=True), UniformSampler(V, unique=True)


def weights_of(dtype):
    generator = torch.Generator().manual_seed(5)
    shapes = {
        "inputs": (V, D),
        "layer": (D, D),
        "layer bias": (D,),
        "classes": (V, D),
        "bias": (V,),
    }
    return {
        name: torch.randn(shape, generator=generator, dtype=dtype) / 2
        for name, shape in shapes.items()
    }


@torch.no_grad()
def fill(model, dtype, own=slice(None)):
    given = weights_of(dtype)
    model.encoder.weight.copy_(given["inputs"][own])
    model.layer.weight.copy_(given["layer"])
    model.layer.bias.copy_(given["layer bias"])
    model.head.scorer.weight.copy_(given["classes"][own])
    model.head.scorer.bias.copy_(given["bias"][own])
    return model


def batch(step):
    generator = torch.Generator().manual_seed(step)
    context = torch.randint(-1, V, (ROWS, 4), generator=generator)
    return context, torch.randint(5, (ROWS,), generator=generator)


def one(kind, dtype, sampler, smoothing):
    scorer = TableScorer(
        V, D, bias=True, sparse=kind != "full", similarity="cosine", temperature=0.5
    )
    if kind == "full":
        head = FullHead(scorer, label_smoothing=smoothing)
    else:
        head = SampledHead(scorer, sampler, num_samples=None if kind == "in-batch" else 9)
    return fill(Model(BagEncoder(V, D), head, dtype), dtype)


def many(kind, dtype, sampler, smoothing, wire):
    scorer = SlicedTableScorer(V, D, wire, bias=True, similarity="cosine", temperature=0.5)
    if kind == "full":
        head = SlicedFullHead(scorer, label_smoothing=smoothing)
    else:
        head = SlicedSampledHead(scorer, sampler, num_samples=None if kind == "in-batch" else 9)
    own = scorer.slices.own
    model = Model(SlicedBagEncoder(V, D, wire), head, dtype)
    return fill(model, dtype, slice(own.start, own.stop))


def trained(model, rows, generator, wire=None):
    optimizer, history = torch.optim.SGD(model.parameters(), lr=0.1), []
    row_wise = optimizer_for(model.encoder, lr=0.05)
    for step in range(STEPS):
        context, targets = (each[rows] for each in batch(step))
        optimizer.zero_grad()
        losses = model(context, targets, generator)
        (losses.sum() / ROWS).backward()
        if wire is not None:
            add_gradients(model.layer.parameters(), wire)
        grads = [each.grad.to_dense().clone() for each in model.parameters()]
        optimizer.step()
        row_wise.step()
        history.append(
            (losses.detach(), grads, [each.detach().clone() for each in model.parameters()])
        )
    return history


def of_slice(model, tensors, own):
    """Return the rows of a slice, of the tables among the tensors of a model."""
    tables = [each.shape[0] == V for each in model.parameters()]
    pairs = zip(tensors, tables, strict=True)
    return [each[own] if is_table else each for each, is_table in pairs]


def answers(model, rows):
    """Return everything a head is asked, for some rows of a batch."""
    context, targets = (each[rows] for each in batch(7))
    exclude = torch.stack([targets, targets * 0 - 1], 1)
    with torch.no_grad():
        hidden = model.layer(model.encoder(context))
        found = model.head.topk(hidden, K, exclude=exclude)
        whole = model.head.topk(hidden, V)
        return [
            model.head.log_normalizer(hidden),
            model.head.log_prob(hidden),
            model.head.log_prob(hidden, targets[:, None]),
            model.head.scores(hidden),
            found.ids,
            found.scores,
            whole.ids,
            whole.scores,
        ]


CASES = [
    (kind, dtype, smoothing)
    for kind, smoothing in (
        ("full", 0.0),
        ("full", 0.1),
        ("uniform", 0.0),
        ("in-batch", 0.0),
        ("sliced unigram", 0.0),
    )
    for dtype in TOLERANCE
]


def distances(groups):
    found = {}
    for kind, dtype, smoothing in CASES:
        for size, shape in SHAPES:
            if size not in groups:
                continue
            wire = Wire(groups[size])
            ours, theirs = samplers(kind, wire)
            bounds = starts(parts_of(ROWS, size, shape))
            rows = slice(bounds[wire.rank], bounds[wire.rank + 1])
            model = many(kind, dtype, ours, smoothing, wire)
            generator = torch.Generator().manual_seed(2)
            if kind != "full":
                model.head.joined = JoinedBatches(wire, generator)
            got = trained(model, rows, generator, wire)
            if kind == "sliced unigram":
                theirs = Given(ours.drawn, ours.log_prob(torch.arange(V)))
            single = one(kind, dtype, theirs, smoothing)
            generator = torch.Generator().manual_seed(2)
            expected = trained(single, slice(None), generator)
            held = slice(model.encoder.slices.own.start, model.encoder.slices.own.stop)
            worst = {"losses": 0.0, "gradients": 0.0, "weights": 0.0}
            for mine, whole in zip(got, expected, strict=True):
                worst["losses"] = max(worst["losses"], apart([mine[0]], [whole[0][rows]]))
                for place, name in ((1, "gradients"), (2, "weights")):
                    wanted = of_slice(single, whole[place], held)
                    worst[name] = max(worst[name], apart(mine[place], wanted))
            worst["answers"] = apart(answers(model, rows), answers(single, rows))
            found[kind, str(dtype), smoothing, size] = worst
    return found


def started(groups):
    """Return whether slices start as the whole table would, and the frequency of draws."""
    same = []
    for group in groups.values():
        wire = Wire(group)
        for rows, width in ((V, D), (70_001, 33), (7, 3)):
            torch.manual_seed(1)
            whole = TableScorer(rows, width).weight
            torch.manual_seed(1)
            mine = SlicedTableScorer(rows, width, wire)
            own = mine.slices.own
            after = torch.rand(1)
            torch.manual_seed(1)
            TableScorer(rows, width)
            same.append(torch.equal(whole[own.start : own.stop], mine.weight))
            same.append(torch.equal(after, torch.rand(1)))
    wire = Wire(groups[max(groups)])
    own = Slices(V, wire).own
    sampler = SlicedUnigramSampler(V, COUNTS[own.start : own.stop], wire)
    generator = torch.Generator().manual_seed(3)
    drawn = sampler.sample(100_000, torch.tensor([0]), generator=generator).ids
    log_probs = sampler.log_prob(torch.arange(V))
    return same, torch.bincount(drawn, minlength=V) / len(drawn), log_probs


def work(groups):
    return distances(groups), started(groups)


def prepare():
    for kind in ("full", "in-batch", "uniform"):
        for dtype in TOLERANCE:
            single = one(kind, dtype, samplers(kind, None)[1], 0.0)
            trained(single, slice(None), torch.Generator())
            answers(single, slice(None))
    UnigramSampler(V, COUNTS).sample(5, torch.tensor([0]))


@pytest.fixture(scope="module")
def measured(request, tmp_path_factory):
    return measured_by_all(request, tmp_path_factory)


def test_all_is_that_of_one_process(measured):
    missed = []
    for kind, dtype, smoothing in CASES:
        for size, _ in SHAPES:
            for rank in range(size):
                distance = measured[rank][0][kind, str(dtype), smoothing, size]
                # Scores of all classes are several times as large as losses.
                distance = {**distance, "answers": distance["answers"] / 4}
                if not max(distance.values()) <= TOLERANCE[dtype]:
                    missed.append((kind, dtype, smoothing, size, rank, distance))
    assert not missed


def test_a_process_without_rows_is_refused():
    wire = type("Wire", (), {"size": 4, "rank": 0})
    with pytest.raises(ValueError, match="5 rows, 2 a process, are too few for 4 processes"):
        Slices(5, wire)
    assert [len(Slices(7, wire).of(rank)) for rank in range(4)] == [2, 2, 2, 1]


def test_a_slice_starts_as_the_rows_of_the_whole_table(measured):
    assert all(all(same) for _, (same, _, _) in measured)


def test_draws_from_slices_follow_the_counts_of_all(measured):
    truth = COUNTS**0.75 / (COUNTS**0.75).sum()
    for _, (_, frequency, log_probs) in measured:
        # As exact as those of one table, which are kept in float32.
        torch.testing.assert_close(log_probs.exp(), truth, rtol=2e-7, atol=0)
        torch.testing.assert_close(frequency.double(), truth, rtol=0, atol=0.006)
