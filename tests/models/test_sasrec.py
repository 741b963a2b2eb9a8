"""SASRec against its formula, written out place by place, and on sequences it must learn."""

import pytest
import torch
from torch.nn.functional import cross_entropy, layer_norm

from widemax.data import Sequences, WindowBatch
from widemax.encoders.blocks import BLOCKS, LiGRBlock
from widemax.encoders.sasrec import SASRecEncoder
from widemax.heads import FullHead, SampledHead
from widemax.models.retrieval.sasrec import SASRec
from widemax.models.segments import SegmentBatch
from widemax.objectives import negative_sampling
from widemax.optim import RowAdam
from widemax.sampling import UniformSampler
from widemax.scoring import TableScorer
from widemax.training.gradients.steps import GradientSteps

V, D = 11, 6
LISTS = [[3, 1, 4, 1, 5, 9, 2], [], [8], [9, 7, 9], [2, 3, 8, 4, 10, 0]]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def encoder_of(**options):
    """An encoder in float64 whose every parameter matters."""
    encoder = SASRecEncoder(V, D, 8, **{"num_heads": 2, **options}).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.5)
    return encoder


def model_of(**options):
    encoder = encoder_of(**options)
    return SASRec(encoder, FullHead(TableScorer.tied(encoder.items))).double().eval()


def norm(vector, layer):
    return layer_norm(vector, vector.shape, layer.weight, layer.bias, layer.eps)


def sasrec_halves(block, state, attended):
    state = state + attended
    return state + block.outer(torch.relu(block.inner(norm(state, block.forward_norm))))


def ligr_halves(block, state, attended):
    state = state + torch.sigmoid(block.attention_gate(state)) * attended
    normed = norm(state, block.forward_norm)
    first, second = block.inner.weight.split(len(block.inner.weight) // 2)
    inner = first @ normed
    added = block.outer.weight @ (inner * torch.sigmoid(inner) * (second @ normed))
    return state + torch.sigmoid(block.forward_gate(state)) * added


def reference(encoder, items):
    """The states after each item, by loops over places and heads."""
    places = [len(items) - 1 - t if encoder.from_end else t for t in range(len(items))]
    states = [
        encoder.item_scale * encoder.items.weight[i] + encoder.positions[t]
        for t, i in zip(places, items, strict=True)
    ]
    width = D // encoder.num_heads
    for block in encoder.blocks:
        normed = [norm(state, block.attention_norm) for state in states]
        q, k, v = zip(*(block.attention.projections(each).split(D) for each in normed), strict=True)
        added = []
        for t in range(len(states)):
            parts = []
            for h in range(encoder.num_heads):
                part = slice(h * width, (h + 1) * width)
                weights = torch.stack([q[t][part] @ k[s][part] for s in range(t + 1)])
                weights = (weights / width**0.5).softmax(0)
                parts.append(sum(w * v[s][part] for s, w in enumerate(weights)))
            added.append(block.attention.output(torch.cat(parts)))
        half = ligr_halves if isinstance(block, LiGRBlock) else sasrec_halves
        states = [half(block, state, more) for state, more in zip(states, added, strict=True)]
    return torch.stack([norm(state, encoder.norm) for state in states])


@pytest.mark.parametrize("from_end", [False, True])
@pytest.mark.parametrize("expansion", [1, 3])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_states_are_those_of_the_formula(heads, block, expansion, from_end):
    encoder = encoder_of(num_heads=heads, block=block, expansion=expansion, from_end=from_end)
    items = [3, 1, 4, 1, 5]
    torch.testing.assert_close(
        encoder.states(torch.tensor([items]))[0], reference(encoder, items), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("item_scale", [0.5, 1.0, 20.0])
def test_items_are_scaled_before_positions_are_added(item_scale):
    encoder, items = encoder_of(item_scale=item_scale), [3, 1, 4, 1, 5]
    wanted = reference(encoder, items)
    segments = torch.tensor([items])
    torch.testing.assert_close(encoder.states(segments)[0], wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(encoder(segments)[0], wanted[-1], rtol=0, atol=1e-12)
    torch.testing.assert_close(encoder.dense(segments)[0], wanted[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("from_end", [False, True])
def test_padding_changes_nothing(from_end):
    encoder = encoder_of(from_end=from_end)
    segments = torch.tensor([[3, 1, 4, 1], [5, 9, -1, -1], [-1, -1, -1, -1]])
    states = encoder.states(segments)
    torch.testing.assert_close(states[0], reference(encoder, [3, 1, 4, 1]))
    torch.testing.assert_close(states[1, :2], reference(encoder, [5, 9]))
    assert not states[1, 2:].any()
    assert not states[2].any()
    packed = encoder.packed_states(segments)
    torch.testing.assert_close(packed, states[segments >= 0])


def test_hidden_is_the_state_after_the_last_item_of_the_last_places():
    encoder = encoder_of()
    context = torch.full((3, 12), -1)
    context[0] = torch.arange(12) % V
    context[1, -2:] = torch.tensor([5, 9])
    hidden = encoder(context)
    torch.testing.assert_close(hidden[0], reference(encoder, context[0, -8:].tolist())[-1])
    torch.testing.assert_close(hidden[1], reference(encoder, [5, 9])[-1])
    assert not hidden[2].any()
    assert encoder(context[2:]).shape == (1, D)
    assert encoder(context[:0]).shape == (0, D)


def test_no_state_knows_what_comes_after_it():
    encoder = encoder_of()
    before = encoder.states(torch.tensor([[3, 1, 4, 1, 5]]))
    after = encoder.states(torch.tensor([[3, 1, 4, 7, 0]]))
    torch.testing.assert_close(before[:, :3], after[:, :3], rtol=0, atol=0)
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_segments_train_every_item_that_follows_another():
    model, sequences = model_of(), Sequences.from_lists(LISTS)
    segments = model.segments(sequences, length=4, overlap=2)
    losses = model(segments.batch(torch.arange(len(segments))))
    wanted = []
    for items in LISTS:
        for start in range(0, len(items), 4):
            first = max(0, start - 2 - 1)  # the overlap, and the item before it
            for t in range(max(1, start), min(start + 4, len(items))):
                state = reference(model.encoder, items[first:t])[-1]
                scores = model.encoder.items.weight @ state
                wanted.append(cross_entropy(scores, torch.tensor(items[t])))
    torch.testing.assert_close(losses, torch.stack(wanted))


def test_windows_and_segments_tell_the_same_of_short_sequences():
    model, sequences = model_of(), Sequences.from_lists(LISTS)
    segments = model.segments(sequences, length=8)
    windows = model.windows(sequences, max_history=8, window=1)
    assert len(windows) == sum(max(0, len(items) - 1) for items in LISTS)
    torch.testing.assert_close(
        model(segments.batch(torch.arange(len(segments)))),
        model(windows.batch(torch.arange(len(windows)))),
    )


def test_sparse_gradients_are_the_dense_ones():
    gradients = []
    for sparse in (False, True):
        torch.manual_seed(1)
        encoder = SASRecEncoder(V, D, 8, sparse=sparse)
        head = SampledHead(
            TableScorer.tied(encoder.items, sparse=sparse), UniformSampler(V), num_samples=4
        )
        model = SASRec(encoder, head)
        segments = model.segments(Sequences.from_lists(LISTS), length=8)
        generator = torch.Generator().manual_seed(0)
        model(segments.batch(torch.arange(len(segments))), generator=generator).sum().backward()
        gradients.append(encoder.items.weight.grad)
    assert gradients[1].is_sparse
    torch.testing.assert_close(gradients[1].to_dense(), gradients[0])


def heads(encoder):
    scorer = TableScorer.tied(encoder.items, sparse=True)
    one = UniformSampler(encoder.num_classes, per_example=True)
    return {
        "full": FullHead(scorer),
        "one negative": SampledHead(scorer, one, objective=negative_sampling, num_samples=1),
    }


@pytest.mark.parametrize("name", ["usual", "full", "one negative"])
def test_learns_what_follows_which_pair(name):
    """After 0 1 comes 2, after 3 1 comes 4: the last item alone does not say which."""
    model = SASRec.create(torch.ones(30), dimension=16, max_history=5, dropout=0.1)
    if name != "usual":
        model = SASRec(model.encoder, heads(model.encoder)[name])
    sequences = Sequences.from_lists([[0, 1, 2], [3, 1, 4], [5, 6, 7, 8, 9]] * 40)
    steps = GradientSteps(
        model, RowAdam(model.parameters()), model.segments(sequences, length=5), batch_size=30
    )
    for step in range(150):
        steps.take(step, 0.01)
    model.eval()
    context = torch.tensor([[-1, 0, 1], [-1, 3, 1], [5, 6, 7]])
    batch = WindowBatch(context=context, targets=torch.full((3,), -1))
    best = model.topk(batch, 1, exclude=context).ids[:, 0].tolist()
    if name == "one negative":  # it hardly ever meets the one that matters
        assert set(best[:2]) <= {2, 4}
        assert best[2] == 8
    else:
        assert best == [2, 4, 8]


def test_same_seed_same_bits():
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        model = SASRec.create(torch.ones(40), dimension=8, max_history=5, dropout=0.5)
        segments = model.segments(Sequences.from_lists(LISTS), length=5)
        steps = GradientSteps(model, RowAdam(model.parameters()), segments, batch_size=2, seed=1)
        for step in range(4):
            steps.take(step, 0.01)
        states.append(model.state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(("targets", "wanted"), [(0, 0.4), (100, 0.1), (400, 0.4), (900, 0.4)])
def test_dropout_falls_less_the_more_targets_there_are(targets, wanted):
    counts = torch.full((V,), 400 // V)
    counts[0] += 400 - counts.sum()
    model = SASRec.create(counts, dimension=D, dropout=0.4, dropout_targets=targets)
    encoder = model.encoder
    for layer in (encoder.dropout, *(block.dropout for block in encoder.blocks)):
        assert layer.p == pytest.approx(wanted)


def test_the_table_is_one_parameter():
    for tied in (True, False):
        model = SASRec.create(torch.ones(V), dimension=D, tied=tied)
        assert (model.head.scorer.weight is model.encoder.items.weight) == tied
        tables = [each for each in model.parameters() if each.shape == (V, D)]
        assert len(tables) == (1 if tied else 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"dimension": 0}, "dimension"),
        ({"max_length": 0}, "max_length"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"block": "other"}, "block must be one of ligr, sasrec, got 'other'"),
        ({"expansion": 0}, "expansion"),
        ({"num_heads": 4}, "num_heads must divide dimension 6, got 4"),
        ({"dropout": 1.0}, "dropout"),
        ({"item_scale": 0.0}, "item_scale must be a finite number above 0, got 0.0"),
    ],
)
def test_absurd_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SASRecEncoder(**{"num_classes": V, "dimension": D, **options})


def test_bad_batches_are_refused():
    model = model_of()
    with pytest.raises(ValueError, match="on the left, unlike row 1"):
        model.encoder(torch.tensor([[1, 2], [1, -1]]))
    with pytest.raises(ValueError, match="on the right, unlike row 0"):
        model.encoder.states(torch.tensor([[-1, 2]]))
    with pytest.raises(ValueError, match=r"at most 8 places .*got 9"):
        model.encoder.states(torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(ValueError, match="context must lie between 0 and 10"):
        model.encoder(torch.tensor([[V]]))
    with pytest.raises(ValueError, match="two dimensions"):
        model(SegmentBatch(context=torch.tensor([1]), targets=torch.tensor([2])))


@pytest.mark.parametrize("block", BLOCKS)
def test_dropout_falls_while_training_only(block):
    encoder = SASRecEncoder(V, D, dropout=0.5, block=block)
    context = torch.tensor([[3, 1, 4]])
    assert not torch.equal(encoder(context), encoder(context))
    encoder.eval()
    assert torch.equal(encoder(context), encoder(context))
