"""The encoders of language models against their formulas, word by word."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from widemax.data import Sequences, Windows
from widemax.encoders import LSTMEncoder, NNLMEncoder
from widemax.evaluation import evaluate_perplexity
from widemax.heads import FullHead
from widemax.optim import RowAdam
from widemax.scoring import TableScorer

NUM_CLASSES, CONTEXT, DIMENSION, HIDDEN = 20, 3, 4, 6
CONTEXTS = torch.tensor([[3, 1, 4], [-1, 5, 5], [-1, -1, 0], [-1, -1, -1], [19, 3, 3]])


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def nnlm(**options):
    return NNLMEncoder(NUM_CLASSES, CONTEXT, DIMENSION, HIDDEN, **options)


def lstm(**options):
    return LSTMEncoder(NUM_CLASSES, DIMENSION, HIDDEN, **options)


# NNLM


@pytest.mark.parametrize("direct", [False, True])
def test_nnlm_and_head_are_the_formula_of_bengio(direct):
    """y = b + W x + U tanh(d + H x), with W and U the two parts of the head's table."""
    encoder = nnlm(direct=direct).double()
    torch.nn.init.normal_(encoder.hidden.bias)
    scorer = TableScorer(NUM_CLASSES, encoder.output_dimension, bias=True).double()
    torch.nn.init.normal_(scorer.weight)
    torch.nn.init.normal_(scorer.bias)
    scores = FullHead(scorer).scores(encoder(CONTEXTS))
    parts = scorer.weight.split([HIDDEN, encoder.output_dimension - HIDDEN], dim=1)
    for row, words in enumerate(CONTEXTS.tolist()):
        x = torch.cat([encoder.start if word < 0 else encoder.weight[word] for word in words])
        expected = scorer.bias + parts[0] @ torch.tanh(
            encoder.hidden.bias + encoder.hidden.weight @ x
        )
        if direct:
            expected = expected + parts[1] @ x
        torch.testing.assert_close(scores[row], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("direct", [False, True])
def test_nnlm_gradients_are_those_of_finite_differences(direct):
    encoder = nnlm(direct=direct).double()
    names, parameters = zip(*encoder.named_parameters(), strict=True)

    def hidden(*values):
        named = dict(zip(names, values, strict=True))
        return torch.func.functional_call(encoder, named, (CONTEXTS,))

    assert torch.autograd.gradcheck(hidden, parameters)


@pytest.mark.parametrize("make", [nnlm, lstm])
def test_sparse_gradients_equal_dense_ones_and_name_no_row_for_padding(make):
    dense, sparse = make(), make(sparse=True)
    sparse.load_state_dict(dense.state_dict())
    weights = torch.randn(len(CONTEXTS), dense.output_dimension)
    for encoder in (dense, sparse):
        (encoder(CONTEXTS) * weights).sum().backward()
    for (name, first), second in zip(dense.named_parameters(), sparse.parameters(), strict=True):
        assert second.grad.is_sparse == (name == "weight")
        torch.testing.assert_close(first.grad, second.grad.to_dense(), rtol=1e-6, atol=1e-7)
    rows = sparse.weight.grad.coalesce().indices()[0].tolist()
    assert rows == [0, 1, 3, 4, 5, 19]
    assert sparse.weight.grad._nnz() == int((CONTEXTS >= 0).sum())


def test_padding_alone_moves_no_word():
    """A row-sparse Adam moves each row that a gradient names, even by 0."""
    encoder = nnlm(sparse=True)
    optimiser = RowAdam(encoder.parameters(), lr=0.1)
    for context in (torch.tensor([[0, 1, 2]]), torch.full((2, CONTEXT), -1)):
        before = encoder.weight.detach().clone()
        optimiser.zero_grad()
        encoder(context).sum().backward()
        optimiser.step()
    assert torch.equal(encoder.weight.detach(), before)


def test_nnlm_learns_what_the_order_says():
    """The third word is 2·first + second modulo 5: no bag of words can predict it."""
    first, second = torch.meshgrid(torch.arange(5), torch.arange(5), indexing="ij")
    context = torch.stack([first.flatten(), second.flatten()], 1)
    targets = (2 * context[:, 0] + context[:, 1]) % 5
    encoder = NNLMEncoder(5, 2, 8, 32)
    head = FullHead(TableScorer(5, encoder.output_dimension, bias=True))
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.02)
    for _ in range(200):
        optimiser.zero_grad()
        head(encoder(context), targets).mean().backward()
        optimiser.step()
    sequences = Sequences.from_lists(torch.cat([context, targets[:, None]], 1).tolist())
    windows = Windows(sequences, before=2, positions=sequences.offsets[1:] - 1)
    assert evaluate_perplexity(head, encoder.eval(), windows).perplexity < 1.1


# LSTM


def states_by_hand(encoder, words):
    """The equations of one layer after the other, in float64."""
    inputs = [encoder.weight[word] for word in words]
    for layer in range(encoder.num_layers):
        part = {
            name: getattr(encoder.lstm, f"{name}_l{layer}")
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        hidden = cell = torch.zeros(HIDDEN, dtype=torch.float64)
        outputs = []
        for word in inputs:
            gates = part["weight_ih"] @ word + part["bias_ih"]
            gates = gates + part["weight_hh"] @ hidden + part["bias_hh"]
            enter, forget, candidate, leave = gates.chunk(4)
            cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            outputs.append(hidden)
        inputs = outputs
    return inputs


SEGMENTS = torch.tensor(
    [[3, 1, 4, 1, 5], [9, 2, -1, -1, -1], [-1, -1, -1, -1, -1], [6, 6, 6, 6, -1]]
)


@pytest.mark.parametrize("num_layers", [1, 2])
def test_lstm_states_are_the_equations_and_zero_at_padding(num_layers):
    encoder = lstm(num_layers=num_layers).double()
    states = encoder.states(SEGMENTS)
    assert states.shape == (4, 5, HIDDEN)
    for row, words in enumerate(SEGMENTS.tolist()):
        known = [word for word in words if word >= 0]
        for place, expected in enumerate(states_by_hand(encoder, known)):
            torch.testing.assert_close(states[row, place], expected, rtol=0, atol=1e-12)
        assert not states[row, len(known) :].any()


@pytest.mark.parametrize("num_layers", [1, 2])
def test_the_state_at_each_place_is_that_of_the_context_up_to_it(num_layers):
    encoder = lstm(num_layers=num_layers).double()
    states = encoder.states(SEGMENTS)
    for row, words in enumerate(SEGMENTS.tolist()):
        known = [word for word in words if word >= 0]
        contexts = [[-1] * (7 - end) + known[:end] for end in range(1, len(known) + 1)]
        for place, context in enumerate(contexts):
            alone = encoder(torch.tensor([context]))[0]
            torch.testing.assert_close(states[row, place], alone, rtol=0, atol=1e-12)
        if contexts:
            together = encoder(torch.tensor(contexts))
            torch.testing.assert_close(states[row, : len(known)], together, rtol=0, atol=1e-12)


def test_windows_and_segments_give_the_same_losses():
    sequences = Sequences.from_lists([[3, 1, 4, 1, 5], [9, 2, 6]])
    encoder = lstm().double()
    windows = Windows(sequences, before=4, require_context=True)
    batch = windows.batch(torch.arange(len(windows)))
    padded = torch.nn.utils.rnn.pad_sequence(
        [sequences.sequence(row) for row in range(2)], batch_first=True, padding_value=-1
    )
    following = padded[:, 1:]
    states = encoder.states(padded[:, :-1])[following >= 0]
    assert torch.equal(following[following >= 0], batch.targets)
    table = torch.randn(NUM_CLASSES, HIDDEN).double()
    torch.testing.assert_close(
        cross_entropy(states @ table.T, batch.targets, reduction="none"),
        cross_entropy(encoder(batch.context) @ table.T, batch.targets, reduction="none"),
    )


def test_lstm_trained_on_segments_remembers_in_windows():
    """The last word repeats the first, five words before."""
    segments = torch.tensor([[first, 2, 2, 2, 2, first] for first in (0, 1)])
    encoder = LSTMEncoder(3, 4, 12)
    head = FullHead(TableScorer(3, encoder.output_dimension, bias=True))
    optimiser = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=0.03)
    for _ in range(150):
        optimiser.zero_grad()
        states = encoder.states(segments[:, :-1])
        head(states.flatten(0, 1), segments[:, 1:].flatten()).mean().backward()
        optimiser.step()
    sequences = Sequences.from_lists(segments.tolist())
    windows = Windows(sequences, before=8, positions=sequences.offsets[1:] - 1)
    assert evaluate_perplexity(head, encoder.eval(), windows).perplexity < 1.1


def test_a_context_of_nothing_is_zero_and_no_rows_are_no_rows():
    encoder = lstm()
    assert not encoder(torch.full((2, 3), -1)).any()
    assert encoder(torch.empty(0, 3, dtype=torch.int64)).shape == (0, HIDDEN)
    assert encoder.states(torch.empty(0, 3, dtype=torch.int64)).shape == (0, 3, HIDDEN)
    assert encoder.states(torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0, HIDDEN)
    assert nnlm()(torch.empty(0, CONTEXT, dtype=torch.int64)).shape == (0, HIDDEN)


# Both


@pytest.mark.parametrize("make", [nnlm, lambda **options: lstm(num_layers=2, **options)])
def test_dropout_falls_while_training_only_and_follows_the_seed(make):
    encoder = make(dropout=0.5)
    torch.manual_seed(7)
    first = encoder(CONTEXTS)
    torch.manual_seed(7)
    assert torch.equal(first, encoder(CONTEXTS))
    assert not torch.equal(first, encoder(CONTEXTS))
    assert (first[0] == 0).any()
    whole = encoder.eval()(CONTEXTS)
    assert torch.equal(whole, encoder(CONTEXTS))
    plain = make()
    plain.load_state_dict(encoder.state_dict())
    assert torch.equal(whole, plain(CONTEXTS))


def test_dropout_of_nnlm_falls_on_the_words_and_on_the_tanh_of_what_is_left():
    encoder = nnlm(direct=True, dropout=0.5)
    hidden, words = encoder(CONTEXTS).split([HIDDEN, CONTEXT * DIMENSION], dim=1)
    whole = encoder.eval()(CONTEXTS)[:, HIDDEN:]
    expected = 2 * torch.tanh(encoder.hidden(words))
    for found, kept in ((words, 2 * whole), (hidden, expected)):
        assert 0.2 < (found == 0).float().mean() < 0.8
        torch.testing.assert_close(found, torch.where(found == 0, 0, kept))


def test_dropout_of_lstm_falls_on_the_words_and_between_layers():
    encoder = lstm(dropout=0.5)
    dropped, whole = encoder(CONTEXTS[:1]), encoder.eval()(CONTEXTS[:1])
    # Dropout on the result alone would leave what it keeps at twice its value.
    assert not torch.isclose(dropped, 2 * whole)[dropped != 0].any()
    assert encoder.lstm.dropout == 0
    assert lstm(dropout=0.5, num_layers=2).lstm.dropout == 0.5


@pytest.mark.parametrize("make", [nnlm, lstm])
def test_half_precision_encodes(make):
    encoder = make().to(torch.bfloat16)
    hidden = encoder(CONTEXTS)
    assert hidden.dtype == torch.bfloat16
    torch.testing.assert_close(hidden.float(), encoder.float()(CONTEXTS), rtol=0, atol=0.05)


@pytest.mark.parametrize("make", [nnlm, lambda **options: nnlm(direct=True, **options), lstm])
def test_autocast_encodes_and_trains(make):
    encoder = make()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = encoder(CONTEXTS)
    hidden.sum().backward()
    torch.testing.assert_close(hidden.float(), encoder(CONTEXTS), rtol=0, atol=0.05)
    assert all(parameter.grad.isfinite().all() for parameter in encoder.parameters())


@pytest.mark.parametrize("make", [nnlm, lstm])
def test_ids_out_of_range_are_refused(make):
    for worst in (NUM_CLASSES, -2):
        with pytest.raises(ValueError, match=f"context must lie between 0 and 19 .* got {worst}"):
            make()(torch.tensor([[0, 1, worst]]))
    with pytest.raises(ValueError, match="context must hold whole numbers"):
        make()(torch.zeros(1, CONTEXT))
    with pytest.raises(ValueError, match="context must have"):
        make()(torch.tensor([0, 1, 2]))


def test_nnlm_refuses_another_context_size():
    with pytest.raises(ValueError, match=r"shape \[B, 3\] \(context_size\), got \[1, 2\]"):
        nnlm()(torch.tensor([[0, 1]]))


def test_lstm_refuses_padding_on_the_wrong_side():
    with pytest.raises(ValueError, match=r"context must have its padding .* left, unlike row 1"):
        lstm()(torch.tensor([[-1, 0, 1], [-1, 0, -1]]))
    with pytest.raises(ValueError, match=r"segments must have its padding .* right, unlike row 0"):
        lstm().states(torch.tensor([[0, -1, 1], [0, 1, -1]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"dimension": 0}, "dimension must be between 1"),
        ({"hidden_size": 0}, "hidden_size must be between 1"),
        ({"num_classes": 0}, "num_classes must be between 1"),
    ],
)
def test_sizes_are_checked(options, message):
    sizes = {"num_classes": 5, "dimension": 2, "hidden_size": 2, **options}
    for make, more in ((NNLMEncoder, {"context_size": 2}), (LSTMEncoder, {})):
        with pytest.raises(ValueError, match=message):
            make(**sizes, **more)
    with pytest.raises(ValueError, match="context_size must be between 1"):
        NNLMEncoder(5, 0, 2, 2)
    with pytest.raises(ValueError, match="num_layers must be between 1"):
        LSTMEncoder(5, 2, 2, 0)
