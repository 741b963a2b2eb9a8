"""Weights that move between heads keep their scores, or the move is refused."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from widemax.heads import FullHead, SampledHead, conversion
from widemax.objectives import corrected_log_q
from widemax.sampling import LogUniformSampler, UniformSampler
from widemax.scoring import Scorer, TableScorer

V, D, B = 30, 6, 5
EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture
def hidden():
    return torch.randn(B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def table(*, bias=True, seed=1, **options):
    scorer = TableScorer(V, D, bias=bias, **options).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        scorer.weight.copy_(torch.randn(V, D, generator=generator))
        if bias:
            scorer.bias.copy_(torch.randn(V, generator=generator))
    return scorer


class Spelled(Scorer):
    """A scorer without a table: its vectors are computed, with dropout while it trains."""

    def __init__(self):
        super().__init__()
        self.num_classes, self.dimension = V, D
        generator = torch.Generator().manual_seed(3)
        spelling = torch.randn(V, 4, generator=generator, dtype=torch.float64)
        self.register_buffer("spelling", spelling)
        self.network = nn.Sequential(nn.Linear(4, D), nn.Tanh(), nn.Dropout(0.5)).double()

    def class_vectors(self, ids=None):
        return self.network(self.spelling if ids is None else self.spelling[ids])


class Rotated(Spelled):
    def queries(self, hidden):
        return hidden.flip(-1)


def same_answers(left, right, hidden):
    ids = torch.tensor([0, 3, V - 1])
    for name in ("scores", "log_prob"):
        ours, theirs = getattr(left, name), getattr(right, name)
        torch.testing.assert_close(ours(hidden), theirs(hidden), **EXACT)
        torch.testing.assert_close(ours(hidden, ids), theirs(hidden, ids), **EXACT)
    assert torch.equal(left.topk(hidden, 5).ids, right.topk(hidden, 5).ids)


def sampled(scorer, **options):
    return SampledHead(scorer, UniformSampler(V), num_samples=8, **options)


def test_train_on_samples_and_serve_exactly(hidden):
    head = sampled(table(similarity="cosine", temperature=0.2), ignore_index=-7)
    served = conversion.as_full_head(head)
    same_answers(head, served, hidden)
    assert served.ignore_index == -7
    # Shared, not copied: a step of the one is a step of the other.
    with torch.no_grad():
        head.scorer.weight.add_(0.1)
    same_answers(head, served, hidden)


def test_another_sampler_and_objective_on_the_same_weights(hidden):
    head = FullHead(table())
    proposal = LogUniformSampler(V)
    other = conversion.as_sampled_head(head, proposal, objective=corrected_log_q, num_samples=9)
    same_answers(head, other, hidden)
    assert other.scorer is head.scorer
    assert (other.sampler, other.objective, other.num_samples) == (proposal, corrected_log_q, 9)
    with pytest.raises(ValueError, match="same num_classes, got 30 and 31"):
        conversion.as_sampled_head(head, UniformSampler(V + 1))


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_a_temperature_folds_into_a_plain_table(hidden, temperature, bias):
    head = FullHead(table(bias=bias, temperature=temperature))
    plain = conversion.as_table(head)
    assert (plain.similarity, plain.temperature) == ("dot", 1.0)
    assert (plain.bias is not None) == bias
    same_answers(head, FullHead(plain), hidden)
    # A copy: training it leaves the source alone.
    assert plain.weight.data_ptr() != head.scorer.weight.data_ptr()


def test_a_plain_table_loads_into_a_linear_layer(hidden):
    scorer = table(temperature=0.3)
    linear = nn.Linear(D, V).double()
    linear.load_state_dict(conversion.as_table(scorer).state_dict())
    torch.testing.assert_close(linear(hidden), scorer(hidden), **EXACT)


def test_cosine_folds_for_hidden_states_of_length_one_only(hidden):
    head = sampled(table(similarity="cosine", temperature=0.2))
    with pytest.raises(ValueError, match="length 1; scale them and pass unit_hidden=True"):
        conversion.as_table(head)
    plain = FullHead(conversion.as_table(head, unit_hidden=True))
    same_answers(head, plain, normalize(hidden, dim=-1))
    # What the promise is about: for other lengths the order stays, the probabilities do not.
    assert (plain.log_prob(hidden) - head.log_prob(hidden)).abs().max() > 0.1


def test_a_scorer_that_computes_its_vectors_becomes_a_table(hidden):
    scorer = Spelled()
    plain = conversion.as_table(scorer)
    assert scorer.training, "the scorer is left in the mode it was in"
    scorer.eval()
    same_answers(FullHead(scorer), FullHead(plain), hidden)


def test_queries_of_its_own_are_refused(hidden):
    scorer = Rotated().eval()
    with pytest.raises(ValueError, match="Rotated with queries of its own"):
        conversion.as_table(scorer)
    # What the message advises.
    expected = scorer.queries(hidden) @ conversion.class_vectors_of(scorer).T
    torch.testing.assert_close(scorer(hidden), expected, **EXACT)


def test_class_vectors_are_a_copy_without_a_graph():
    head = FullHead(table(similarity="cosine"))
    vectors = conversion.class_vectors_of(head)
    assert vectors.shape == (V, D)
    assert not vectors.requires_grad
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(V, dtype=torch.float64), **EXACT)
    plain = FullHead(table())
    conversion.class_vectors_of(plain).zero_()
    assert plain.scorer.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("old", "new"), list(itertools.product([1.0, 0.1], repeat=2)), ids=lambda t: f"temperature {t}"
)
def test_weights_load_across_temperatures(hidden, old, new):
    source, into = table(temperature=old), table(temperature=new, seed=2)
    conversion.copy_class_vectors(source, into)
    assert into.temperature == new
    same_answers(FullHead(source), sampled(into), hidden)


def test_weights_load_from_one_cosine_table_into_another(hidden):
    options = {"similarity": "cosine", "temperature": 0.2}
    source, into = table(**options), table(seed=2, **options)
    conversion.copy_class_vectors(sampled(source), into)
    same_answers(FullHead(source), FullHead(into), hidden)


def test_cosine_loads_into_dot_for_hidden_states_of_length_one(hidden):
    source, into = table(similarity="cosine", temperature=0.2), table(temperature=0.5, seed=2)
    with pytest.raises(ValueError, match="unit_hidden=True"):
        conversion.copy_class_vectors(source, into)
    conversion.copy_class_vectors(source, into, unit_hidden=True)
    same_answers(FullHead(source), FullHead(into), normalize(hidden, dim=-1))


def test_a_source_without_biases_clears_those_of_the_table(hidden):
    source, into = table(bias=False), table(seed=2)
    conversion.copy_class_vectors(source, into)
    same_answers(FullHead(source), FullHead(into), hidden)


def test_a_tied_table_stays_tied(hidden):
    embedding = nn.Embedding(V, D).double()
    source, into = table(bias=False), TableScorer.tied(embedding)
    conversion.copy_class_vectors(source, into)
    assert into.weight is embedding.weight
    torch.testing.assert_close(hidden @ embedding.weight.T, source(hidden), **EXACT)


REFUSED = {
    "biases would be lost": (
        lambda: (table(), table(bias=False)),
        "source has biases but into was made with bias=False",
    ),
    "dot into cosine": (
        lambda: (table(), table(similarity="cosine")),
        "the lengths of its vectors would be lost",
    ),
    "two temperatures of cosine": (
        lambda: (
            table(similarity="cosine", temperature=0.1),
            table(similarity="cosine", temperature=0.2),
        ),
        "same temperature where the similarity is cosine, got 0.1 and 0.2",
    ),
    "another number of classes": (
        lambda: (table(), TableScorer(V + 1, D)),
        "source has 30 classes of dimension 6, but into has 31 of dimension 6",
    ),
    "another dimension": (lambda: (table(), TableScorer(V, D + 1)), "into has 30 of dimension 7"),
    "no vectors": (lambda: (nn.Linear(D, V), table()), "got Linear: its classes have no vectors"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_kept_is_refused_and_nothing_written(case):
    make, message = REFUSED[case]
    source, into = make()
    before = into.weight.clone()
    with pytest.raises(ValueError, match=message):
        conversion.copy_class_vectors(source, into)
    assert torch.equal(into.weight, before)


def test_biases_of_zero_need_no_place(hidden):
    source, into = table(), table(bias=False, seed=2)
    with torch.no_grad():
        source.bias.zero_()
    conversion.copy_class_vectors(source, into)
    same_answers(FullHead(source), FullHead(into), hidden)
