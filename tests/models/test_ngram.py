"""An n-gram model as a model among others: it answers as ``NGramModel`` does."""

import pytest
import torch

from widemax.data import Sequences
from widemax.models import NGram
from widemax.models.language.ngram import NGramHead
from widemax.ngrams import NGramModel

V = 7


@pytest.fixture(scope="module")
def sentences():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 9, (60,), generator=generator).tolist()
    return Sequences.from_lists(
        [torch.randint(V, (n,), generator=generator).tolist() for n in lengths]
    )


@pytest.fixture(scope="module")
def plain(sentences):
    return NGramModel.kneser_ney(sentences, V, order=3)


@pytest.fixture(scope="module")
def model(sentences):
    model = NGram(V, NGramModel.kneser_ney, order=3)
    model.fit(sentences)
    return model


@pytest.fixture
def contexts():
    context = torch.randint(V, (5, 4), generator=torch.Generator().manual_seed(1))
    context[0] = -1
    context[1, :3] = -1
    return context


def test_log_prob_is_that_of_the_ngrams(model, plain, contexts):
    whole = plain.log_probs(contexts)
    assert torch.equal(model.head.log_prob(contexts), whole)
    assert torch.equal(model.head.scores(contexts), whole)
    assert whole.exp().sum(-1).tolist() == pytest.approx([1] * 5)
    shared = torch.tensor([3, 0])
    torch.testing.assert_close(model.head.log_prob(contexts, shared), whole[:, shared])
    own = torch.randint(V, (5, 3), generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(model.head.log_prob(contexts, own), whole.gather(1, own))
    with pytest.raises(ValueError, match="ids"):
        model.head.log_prob(contexts, torch.tensor([V]))


def test_losses_are_minus_log_prob_times_weights(model, plain, contexts):
    targets, weights = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([1.0, 2.0, 0.0, 1.0, 0.5])
    wanted = -plain.log_prob(contexts, targets)
    torch.testing.assert_close(model.head(contexts, targets), wanted)
    torch.testing.assert_close(model.head(contexts, targets, weights=weights), wanted * weights)


def test_topk_leaves_out_what_is_excluded(model, plain, contexts):
    whole = plain.log_probs(contexts)
    exclude = torch.tensor([[0, 1], [2, -1], [-1, -1], [6, 6], [3, 4]])
    found = model.head.topk(contexts, 3, exclude=exclude)
    for row, (left_out, ids, scores) in enumerate(
        zip(exclude.tolist(), found.ids.tolist(), found.scores.tolist(), strict=True)
    ):
        allowed = [y for y in range(V) if y not in left_out]
        best = sorted((whole[row, y].item() for y in allowed), reverse=True)[:3]
        assert scores == pytest.approx(best)
        assert [whole[row, y].item() for y in ids] == scores
        assert not set(ids) & set(left_out)
    assert torch.equal(model.head.topk(contexts, V).scores, whole.sort(descending=True).values)


def test_what_is_not_there_is_marked(model, contexts):
    found = model.head.topk(contexts[:1], V, exclude=torch.tensor([[5, 2]]))
    assert found.ids[0, -2:].tolist() == [-1, -1]
    with pytest.raises(ValueError, match="k must be"):
        model.head.topk(contexts, V + 1)


def test_the_state_is_the_ngrams(model, sentences, contexts):
    other = NGram(V, NGramModel.kneser_ney, order=3)
    assert other.state_dict() == {}
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.head.log_prob(contexts), model.head.log_prob(contexts))
    with pytest.raises(ValueError, match="7 classes, the model has 8"):
        NGram(8, NGramModel.kneser_ney).load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="not been fitted"):
        NGramHead(V).log_prob(contexts)


def test_windows_reach_as_far_as_any_order(model, plain, sentences):
    windows = model.windows(sentences, max_history=1, window=1)
    batch = windows.batch(torch.arange(len(windows)))
    found = model.head.log_prob(model.encode(batch.context), batch.targets[:, None])[:, 0]
    torch.testing.assert_close(found, plain.token_log_prob(sentences))
