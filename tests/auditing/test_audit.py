"""The gradient audit tells right estimators from wrong ones, and leaves the head as it was."""

import copy
import itertools
import math
from functools import partial

import pytest
import torch

from widemax.auditing import audit
from widemax.auditing.measuring import drawing
from widemax.auditing.measuring.moments import Moments, relative_bias, relative_spread
from widemax.heads import FullHead, SampledHead
from widemax.objectives import (
    corrected_log_q,
    importance_sampling,
    info_nce,
    nce,
    negative_sampling,
    sampled_softmax,
)
from widemax.sampling import (
    AllClassesSampler,
    InBatchSampler,
    LearnedUnigramSampler,
    LogUniformSampler,
    MixtureSampler,
    QueueSampler,
    StreamingFrequency,
    UniformSampler,
    UnigramSampler,
)
from widemax.scoring import TableScorer

V, D, N = 60, 6, 16
POPULARITY = 1 / torch.arange(1, V + 1, dtype=torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def scorer(tilt=0.7, **options):
    """A model that knows popularity, as a trained one does."""
    made = TableScorer(V, D, bias=True, **options).double()
    with torch.no_grad():
        made.weight.copy_(torch.randn(V, D, generator=seeded(1)) * D**-0.5)
        made.bias.copy_(tilt * POPULARITY.log())
    return made


def examples(number=N):
    hidden = torch.randn(number, D, generator=seeded(2), dtype=torch.float64)
    targets = torch.multinomial(POPULARITY, number, replacement=True, generator=seeded(3))
    return hidden, targets


def unigram(**options):
    return UnigramSampler(V, POPULARITY, distortion=1.0, **options)


def audited(head, data=None, *, draws=400, **options):
    return audit(head, *(data or examples()), draws=draws, generator=seeded(4), **options)


# --- the statistics


def group_means(bias, noise, seed):
    """Return 20 group means of a gradient whose exact value is (1, 0, 0), and that value."""
    exact = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
    drawn = noise * torch.randn(1, 20, 3, generator=seeded(seed), dtype=torch.float64)
    return drawn + exact[:, None] + torch.tensor([0.0, bias, 0.0]), exact


def test_noise_does_not_inflate_the_bias():
    found, naive = [], []
    for seed in range(200):
        means, exact = group_means(0.0, 0.5, seed)
        naive.append(float((means.mean(1) - exact).norm()))
        found.append(relative_bias(Moments.of(means, exact)))
    assert sum(naive) / 200 > 0.15
    assert sum(interval.low > 0 for interval in found) <= 3
    assert sum(interval.value == 0 for interval in found) > 60


@pytest.mark.parametrize("bias", [0.05, 0.3, 2.0])
def test_the_interval_covers_the_truth(bias):
    found = [relative_bias(Moments.of(*group_means(bias, 0.2, seed))) for seed in range(400)]
    # The verdict rests on the low end: 2.5 %, 10 of 400, and three standard errors.
    assert sum(interval.low > bias for interval in found) <= 19
    # The high end of a norm is somewhat short where noise hides a part of it: up to 7 %.
    assert sum(interval.high < bias for interval in found) <= 40
    assert all(interval.low <= interval.value <= interval.high for interval in found)


def test_the_spread_is_that_of_one_draw():
    spreads = [
        relative_spread(Moments.of(*group_means(0.3, 0.2, seed)), draws_per_group=25)
        for seed in range(100)
    ]
    mean_square = sum(spread**2 for spread in spreads) / 100
    assert mean_square == pytest.approx(3 * 0.2**2 * 25, rel=0.05)


def test_the_expectation_is_that_of_all_possible_draws():
    """Three classes, two draws: the nine outcomes can be listed."""
    table = TableScorer(3, 2).double()
    hidden, target = torch.tensor([[0.5, -1.0]], dtype=torch.float64), 2
    scores = table(hidden)[0].detach()
    log_count = torch.full((2,), math.log(2 / 3), dtype=torch.float64)
    mean = torch.zeros(3, dtype=torch.float64)
    for pair in itertools.product(range(3), repeat=2):
        leaf = scores.clone().requires_grad_()
        ids = torch.tensor([pair])
        losses = sampled_softmax(
            leaf[target : target + 1],
            leaf[ids],
            target_log_expected_count=log_count[:1],
            log_expected_count=log_count,
            hits=ids == target,
        )
        mean += torch.autograd.grad(losses.sum(), leaf)[0] / 9
    exact = scores.softmax(-1)
    exact[target] -= 1
    truth = float((mean - exact).norm() / exact.norm())
    head = SampledHead(table, UniformSampler(3), num_samples=2)
    report = audited(head, (hidden, torch.tensor([target])), draws=1000)
    assert truth > 0.1
    assert report.bias_low <= truth <= report.bias_high
    assert report.bias_high - report.bias_low < 0.1
    assert report.cosine == pytest.approx(
        float((mean @ exact) / mean.norm() / exact.norm()), abs=0.02
    )


# --- right and wrong estimators


RIGHT = {
    "sampled softmax, distinct": (partial(unigram, unique=True), sampled_softmax, 40),
    "corrected log Q": (unigram, corrected_log_q, 60),
    "importance sampling": (unigram, importance_sampling, 60),
    "every class": (lambda: AllClassesSampler(V), sampled_softmax, None),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_estimators_pass(name):
    sampler, objective, num_samples = RIGHT[name]
    head = SampledHead(scorer(), sampler(), objective=objective, num_samples=num_samples)
    report = audited(head)
    assert not report.biased
    assert report.bias_high < 0.03
    assert report.cosine > 0.999
    assert report.space == "scores"


def test_log_q_dropped_is_flagged():
    report = audited(SampledHead(scorer(), unigram(), objective=info_nce, num_samples=60))
    assert report.biased
    assert report.bias_low > 0.2
    assert any("leaves log Q out on purpose" in note for note in report.notes)


def test_log_q_divided_by_the_temperature_is_flagged():
    temperature = 0.2

    def divided(*scores, target_log_expected_count, log_expected_count, **rest):
        return sampled_softmax(
            *scores,
            target_log_expected_count=target_log_expected_count / temperature,
            log_expected_count=log_expected_count / temperature,
            **rest,
        )

    cosine = scorer(similarity="cosine", temperature=temperature)
    right, wrong = (
        audited(SampledHead(cosine, unigram(unique=True), objective=objective, num_samples=40))
        for objective in (sampled_softmax, divided)
    )
    assert not right.biased
    assert wrong.biased
    assert wrong.bias_low > 0.1


def test_hits_masked_only_once_are_flagged():
    """The target is drawn some fourteen times: all copies but the first stay as negatives."""

    def masked_once(*scores, hits, **rest):
        return corrected_log_q(*scores, hits=hits & (hits.cumsum(-1) == 1), **rest)

    data = examples()[0], torch.zeros(N, dtype=torch.int64)
    right, wrong = (
        audited(SampledHead(scorer(), unigram(), objective=objective, num_samples=60), data)
        for objective in (corrected_log_q, masked_once)
    )
    assert not right.biased
    assert wrong.biased
    assert wrong.bias_low > 0.1


def test_probabilities_floored_at_a_millionth_are_flagged():
    """1.5 million rare classes share a quarter of the draws and half of the model's belief."""
    few, many = 5, 1_500_000

    def shares(mass_of_few):
        return torch.cat(
            [torch.full((few,), mass_of_few / few), torch.full((many,), (1 - mass_of_few) / many)]
        )

    def floored(*scores, target_log_expected_count, log_expected_count, **rest):
        least = math.log(1e-6 * scores[1].shape[1])
        return sampled_softmax(
            *scores,
            target_log_expected_count=target_log_expected_count.clamp(min=least),
            log_expected_count=log_expected_count.clamp(min=least),
            **rest,
        )

    table = TableScorer(few + many, 1)
    with torch.no_grad():
        table.weight.copy_(shares(0.5).log()[:, None])
    sampler = UnigramSampler(few + many, shares(0.75), distortion=1.0)
    assert sampler.log_prob(torch.tensor([few])).exp().item() < 2e-7
    data = torch.ones(1, 1), torch.tensor([few + many - 1])
    right, wrong = (
        audited(SampledHead(table, sampler, objective=objective, num_samples=500), data, draws=200)
        for objective in (sampled_softmax, floored)
    )
    assert not right.biased
    assert right.bias < 0.01
    assert wrong.biased
    assert wrong.bias_low > 0.1


def test_many_draws_with_replacement_show_the_bias_of_likely_targets():
    """The limit is g* / (1 − P): a relative bias of P / (1 − P) in the right direction."""
    model, data = scorer(), (examples()[0][:1], torch.tensor([0]))
    with torch.no_grad():
        model.bias[0] += 1.5
    prob = FullHead(model).log_prob(data[0])[0, 0].exp().item()
    assert prob > 0.3
    head = SampledHead(model, unigram(), num_samples=4000)
    report = audited(head, data, draws=100)
    assert report.biased
    assert report.bias == pytest.approx(prob / (1 - prob), rel=0.03)
    assert report.cosine > 0.9999
    assert any("distinct ones where the sampler" in note for note in report.notes)
    distinct = audited(SampledHead(model, unigram(unique=True), num_samples=50), data, draws=200)
    assert not distinct.biased
    assert not distinct.notes


@pytest.mark.parametrize("objective", [nce, partial(negative_sampling, normalize_positives=True)])
def test_logistic_objectives_are_far_from_the_softmax_and_a_note_says_why(objective):
    head = SampledHead(scorer(), unigram(), objective=objective, num_samples=20)
    report = audited(head, draws=100)
    assert report.biased
    assert "logistic objective" in report.notes[0]


# --- METHODS: the bias falls as samples grow, whatever the sampler


def in_batch(num_classes=V):
    """Counts of the very targets that the batches are made of."""
    counts = torch.bincount(covering_examples()[1], minlength=num_classes)
    return InBatchSampler(num_classes, UnigramSampler(num_classes, counts, distortion=1.0))


def covering_examples():
    """Every class is a target at least once, so that every class can be drawn from a batch."""
    hidden, targets = examples(4 * V)
    targets[:V] = torch.arange(V)
    return hidden, targets


# A uniform proposal leaves out likely classes as often as others: it needs nearly all of them.
DRAWN = {
    "uniform": (lambda: UniformSampler(V, unique=True), 57),
    "log-uniform": (lambda: LogUniformSampler(V, unique=True), 45),
    "unigram": (lambda: unigram(unique=True), 45),
}


@pytest.mark.parametrize("name", DRAWN)
def test_the_bias_of_distinct_draws_falls_as_samples_grow(name):
    make, enough = DRAWN[name]
    few, many = (
        audited(SampledHead(scorer(), make(), num_samples=size), draws=200) for size in (5, enough)
    )
    assert few.biased
    assert many.bias_high < few.bias_low / 4
    assert not many.biased


FROM_BATCH = {
    "in-batch": (in_batch, 1),
    "mixture": (lambda: MixtureSampler([in_batch(), UniformSampler(V)], [0.5, 0.5]), 2),
}


@pytest.mark.parametrize("name", FROM_BATCH)
def test_the_bias_of_candidates_from_the_batch_falls_as_batches_grow(name):
    make, factor = FROM_BATCH[name]
    few, many = (
        audited(
            SampledHead(
                scorer(), make(), objective=corrected_log_q, num_samples=factor * batch_size
            ),
            covering_examples(),
            draws=draws,
            batch_size=batch_size,
        )
        for batch_size, draws in ((6, 20), (120, 60))
    )
    assert few.biased
    assert many.bias_high < few.bias_low / 2
    assert not many.biased


class OncePerBatch:
    """Yi et al. 2019: a class counts once, however often it is in a batch."""

    def __init__(self):
        self.visits, self.batches, self.targets = torch.zeros(V, dtype=torch.float64), 0, 0

    def update(self, targets):
        self.visits[targets.unique()] += 1
        self.batches, self.targets = self.batches + 1, self.targets + len(targets)

    def log_prob(self, ids):
        return (self.visits[ids].clamp(min=1) / self.targets).log()


def test_a_log_q_that_counts_a_class_once_a_batch_is_flagged():
    data, batch_size = covering_examples(), 120
    reports = {}
    for frequency in (OncePerBatch(), StreamingFrequency(V, rate=0.002)):
        for step in range(2000):
            rows = torch.randperm(len(data[1]), generator=seeded(step))[:batch_size]
            frequency.update(data[1][rows])
        sampler = InBatchSampler(V, frequency)
        head = SampledHead(scorer(), sampler, objective=corrected_log_q)
        reports[type(frequency)] = audited(head, data, draws=60, batch_size=batch_size)
    assert reports[OncePerBatch].biased
    assert reports[OncePerBatch].bias_low > 0.1
    assert not reports[StreamingFrequency].biased
    assert reports[StreamingFrequency].bias < 0.03


def test_in_batch_without_log_q_is_flagged_however_large_the_batch():
    head = SampledHead(scorer(), in_batch(), objective=info_nce)
    report = audited(head, covering_examples(), draws=20, batch_size=120)
    assert report.biased
    assert report.bias_low > 0.1


def test_classes_that_are_never_drawn_are_named():
    counts = (torch.arange(V) < V // 2).long()
    head = SampledHead(
        scorer(), UnigramSampler(V, counts), objective=corrected_log_q, num_samples=60
    )
    data = examples()[0], examples()[1] % (V // 2)
    report = audited(head, data, draws=100)
    assert report.biased
    assert report.divergence == math.inf
    assert any("never drawn" in note for note in report.notes)


# --- the proposal


def test_divergence_and_effective_sample_size_judge_the_proposal():
    model = scorer()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(POPULARITY.log())
    matching, uniform = (
        audited(SampledHead(model, sampler, objective=corrected_log_q, num_samples=30), draws=20)
        for sampler in (unigram(), UniformSampler(V))
    )
    assert matching.divergence == pytest.approx(0.0, abs=1e-6)
    assert matching.effective_sample_size == pytest.approx(30.0, rel=1e-5)
    prob = POPULARITY / POPULARITY.sum()
    assert uniform.divergence == pytest.approx(float((prob * (prob * V).log()).sum()))
    assert uniform.effective_sample_size < 20


def test_figures_without_a_meaning_are_left_out():
    distinct = audited(SampledHead(scorer(), unigram(unique=True), num_samples=5), draws=20)
    assert distinct.effective_sample_size is None
    streaming = InBatchSampler(V, StreamingFrequency(V))
    head = SampledHead(scorer(), streaming)
    for _ in range(20):  # the sum of its estimates is near 1, but no more than near
        streaming.sample(None, examples()[1])
    assert audited(head, draws=20, batch_size=4).divergence is None


# --- heads of other kinds, and other examples


def test_the_exact_head_has_no_bias_and_needs_few_draws():
    report = audited(FullHead(scorer()), draws=1000)
    assert (report.space, report.draws) == ("hidden", 20)
    assert report.bias_high < 1e-6
    assert report.spread < 1e-6


class Louder(FullHead):
    """Half as much again as it should be, for half of the examples, by lot."""

    def forward(self, hidden, targets, *, weights=None, generator=None):
        losses = super().forward(hidden, targets, weights=weights)
        return losses * (1.0 + (torch.rand(len(losses), generator=generator) < 0.5))


def test_any_head_is_compared_with_its_own_log_prob():
    report = audited(Louder(scorer()))
    assert report.space == "hidden"
    assert report.bias_low <= 0.5 <= report.bias_high
    # Of 20 groups: the spread itself is known to some 5 %.
    assert report.spread == pytest.approx(0.5, rel=0.2)
    assert report.cosine > 0.999


@pytest.mark.parametrize(
    "head",
    [
        FullHead(scorer(), label_smoothing=0.2),
        SampledHead(
            scorer(), AllClassesSampler(V), objective=partial(sampled_softmax, label_smoothing=0.2)
        ),
    ],
)
def test_label_smoothing_counts_as_bias(head):
    report = audited(head)
    assert report.biased
    assert any("Label smoothing" in note for note in report.notes)


@pytest.mark.parametrize("make", [FullHead, partial(SampledHead, sampler=AllClassesSampler(V))])
def test_several_positives_and_ignored_examples(make):
    hidden, targets = examples()
    several = torch.stack([targets, (targets + 1) % V], dim=1)
    several[::3, 1] = -100
    several[1] = -100
    report = audited(make(scorer()), (hidden, several))
    assert report.num_examples == N - 1
    assert report.bias_high < 1e-6


@pytest.mark.parametrize("batch_size", [None, 5, N])
def test_each_example_counts_once_however_they_are_cut(monkeypatch, batch_size):
    """Three at a time, batches of five of sixteen: no remainder is lost or counted twice."""
    monkeypatch.setattr(drawing, "_MAX_SCORES", 3)
    exact = audited(SampledHead(scorer(), AllClassesSampler(V)), batch_size=batch_size, draws=40)
    assert exact.bias_high < 1e-6
    assert exact.cosine == pytest.approx(1.0)


def test_batches_change_nothing_but_the_draws(monkeypatch):
    head = SampledHead(scorer(), unigram(), objective=info_nce, num_samples=10)
    whole = audited(head, draws=200)
    monkeypatch.setattr(drawing, "_MAX_SCORES", 5 * 10)
    cut = audited(head, draws=200)
    assert cut.bias != whole.bias
    assert cut.bias == pytest.approx(whole.bias, rel=0.05)
    assert cut.spread == pytest.approx(whole.spread, rel=0.1)


# --- manners


@pytest.mark.parametrize(
    "sampler",
    [LearnedUnigramSampler(V), QueueSampler(V, unigram(), capacity=9)],
    ids=["learned", "queue"],
)
def test_the_head_is_left_as_it_was(sampler):
    head = SampledHead(scorer(), sampler, objective=corrected_log_q, num_samples=4)
    head.scorer.eval()
    head.sampler.train()
    before = copy.deepcopy(head.state_dict())
    data = examples()
    data[0].requires_grad_()
    audited(head, data, draws=20, batch_size=8)
    assert all(torch.equal(value, before[name]) for name, value in head.state_dict().items())
    assert (head.training, head.scorer.training, head.sampler.training) == (True, False, True)
    assert data[0].grad is None
    assert all(parameter.grad is None for parameter in head.parameters())
    assert head(data[0], data[1]).requires_grad, "the scores are part of the graph again"


def test_a_failing_head_is_left_as_it_was_too():
    def fails(*scores, **rest):
        raise RuntimeError("no")

    head = SampledHead(scorer(), unigram(), objective=fails, num_samples=4)
    with pytest.raises(RuntimeError):
        audited(head)
    assert head.training
    assert head.scorer(examples()[0], torch.tensor([1])).grad_fn is not None


def test_same_seed_same_report():
    head = SampledHead(scorer(), unigram(), num_samples=5)
    first, second = (audited(head, draws=40) for _ in range(2))
    assert first == second


def test_it_works_without_gradients_and_tells_its_progress():
    told = []
    with torch.no_grad():
        report = audited(
            SampledHead(scorer(), unigram(), num_samples=5),
            draws=50,
            progress=lambda done, total: told.append((done, total)),
        )
    assert report.draws == 60, "rounded up to groups of equal size"
    assert told == [(done, 60) for done in range(1, 61)]


def test_the_report_is_a_table_of_80_columns():
    report = audited(SampledHead(scorer(), unigram(), objective=info_nce, num_samples=5), draws=20)
    shown = str(report)
    assert max(len(line) for line in shown.splitlines()) <= 80
    for text in ("biased above 0.03", f"{report.bias:.4f} (", "KL(P ‖ q)", "on purpose"):
        assert text in shown
    assert "effective sample size" not in str(audited(FullHead(scorer())))


def test_a_model_that_is_half_precision_is_audited_in_single():
    head = SampledHead(scorer(), AllClassesSampler(V)).to(torch.bfloat16)
    hidden, targets = examples()
    report = audit(head, hidden.to(torch.bfloat16), targets, generator=seeded())
    assert not report.biased


HIDDEN, TARGETS = examples()
REFUSED = {
    "few draws": ({"draws": 19}, "draws must be at least 20, got 19"),
    "tolerance": ({"tolerance": 1.0}, "tolerance must be at least 0 and below 1"),
    "no batch": ({"batch_size": 0}, "batch_size must be between 1 and 16"),
    "large batch": ({"batch_size": 17}, "batch_size must be between 1 and 16"),
    "target": ({"targets": TARGETS + V}, "targets must lie between 0 and 59"),
    "rows": ({"hidden": HIDDEN[1:]}, r"hidden must have shape \[16, D\], got \[15, 6\]"),
    "no example": ({"targets": torch.full((N,), -100)}, "at least one example with a positive"),
    "NaN": ({"hidden": HIDDEN * math.nan}, "NaN or infinity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_arguments_are_named(case):
    changed, message = REFUSED[case]
    head = SampledHead(scorer(), unigram(), objective=importance_sampling, num_samples=4)
    options = {"hidden": HIDDEN, "targets": TARGETS, "draws": 20, **changed}
    with pytest.raises(ValueError, match=message):
        audit(head, **options)


@pytest.mark.parametrize("batch_size", [None, N])
def test_candidates_from_the_batch_need_random_batches(batch_size):
    head = SampledHead(scorer(), InBatchSampler(V, unigram()))
    with pytest.raises(ValueError, match="batch_size must be given, and below 16"):
        audited(head, batch_size=batch_size)


def test_a_model_that_is_certain_has_no_gradient_to_compare():
    model = scorer()
    with torch.no_grad():
        model.bias[0] = 1e6
    data = HIDDEN[:2], torch.zeros(2, dtype=torch.int64)
    with pytest.raises(ValueError, match="certain of every target"):
        audited(SampledHead(model, AllClassesSampler(V)), data)
