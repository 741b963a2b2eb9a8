"""What a user had is no negative of theirs: losses and gradients against plain loops in float64."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch

from tests.heads.head_cases import DIMENSION, NUM_CLASSES, OBJECTIVES, SAMPLERS
from tests.objectives import objective_cases
from widemax.devices import plain_torch
from widemax.heads import SampledHead
from widemax.objectives import is_keeping_hits
from widemax.scoring import TableScorer

HISTORY = torch.tensor(
    [
        [-1, 4, 4, 9, 1, 0],
        [12, -1, -1, 2, 3, 30],
        [-1] * 6,
        [5, 7, 11, 13, 17, 39],  # its target 7 among them
        [8, 6, 0, 1, 2, 21],
        list(range(6)),
    ]
)
TARGETS = torch.tensor([2, 9, 21, 7, 2, 38])
USERS = torch.tensor([0, 1, 1, 2, 3, 0])


NO_LOSS_ALONE = {"corrected-log-q", "importance-sampling"}
"""Objectives without a loss where nothing competes."""


def made(sampler, objective, num_groups=1):
    """A head in float64 with parameters that are drawn, and all that its sampler has answered."""
    torch.manual_seed(0)
    sampler, num_samples = SAMPLERS[sampler]()
    scorer = TableScorer(NUM_CLASSES, DIMENSION, bias=True)
    head = SampledHead(
        scorer,
        sampler,
        objective=OBJECTIVES[objective],
        num_samples=num_samples,
        num_groups=num_groups,
    ).double()
    for parameter in scorer.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    # A queue holds something.
    if hasattr(sampler, "update"):
        sampler.update(torch.tensor([3, 7, 0, 30, 9]))
    answers, sample = [], sampler.sample

    def recorded(*arguments, **keywords):
        answers.append(sample(*arguments, **keywords))
        return answers[-1]

    sampler.sample = recorded
    return head, answers


def hidden_states():
    generator = torch.Generator().manual_seed(1)
    states = torch.randn(len(TARGETS), DIMENSION, generator=generator, dtype=torch.float64)
    return states.requires_grad_()


def step(head, **own):
    """The losses of the batch, and the gradient of the sum of them for hidden states and head."""
    hidden = hidden_states()
    torch.manual_seed(4)
    losses = head(hidden, TARGETS, **own)
    losses.sum().backward()
    return losses.detach(), hidden.grad, head.scorer.weight.grad, head.scorer.bias.grad


def examples(head, answers, groups, query_ids):
    """Yield what the plain reference of an objective takes of each example: a row, targets, ..."""
    keeping = is_keeping_hits(head.objective)
    for rows, drawn in zip(groups, answers, strict=True):
        for place, row in enumerate(rows):
            ids = (drawn.ids[place] if drawn.ids.dim() == 2 else drawn.ids).tolist()
            brought = [-1] * len(ids)
            if drawn.rows is not None:
                brought = (drawn.rows[place] if drawn.rows.dim() == 2 else drawn.rows).tolist()
            target = int(TARGETS[row])
            barred = set(HISTORY[row].tolist()) - {-1}
            left = []
            for id, by in zip(ids, brought, strict=True):
                same = query_ids is not None and by >= 0 and USERS[rows[by]] == USERS[row]
                left.append(id not in barred and not same and not (keeping and by == place))
            counts = counts_of(drawn, place, ids, target, brought if keeping else None)
            draws = [id for id, kept in zip(ids, left, strict=True) if kept]
            if not keeping:
                # As many as were drawn, those that do not compete as hits.
                draws = [id if kept else target for id, kept in zip(ids, left, strict=True)]
            yield row, [target], draws, counts


def counts_of(drawn, place, ids, target, brought):
    """The expected count of each class, without the row's own share where that is not a draw."""
    counts = [1.0] * NUM_CLASSES
    log_counts = drawn.log_expected_count
    log_counts = log_counts[place] if log_counts.dim() == 2 else log_counts
    found = dict(zip(ids, log_counts.double().exp().tolist(), strict=True))
    found[target] = float(drawn.target_log_expected_count[place].double().exp())
    if brought is not None and place in brought:
        own = dict(zip(ids, drawn.row_log_prob.double().exp().tolist(), strict=True))
        own[target] = float(drawn.target_row_log_prob[place].double().exp())
        found = {id: count - brought.count(place) * own[id] for id, count in found.items()}
    for id, count in found.items():
        counts[id] = count
    return counts


def is_alone(name, targets, draws):
    competing = draws
    if not is_keeping_hits(OBJECTIVES[name]):
        competing = objective_cases.without(draws, targets)
    return name in NO_LOSS_ALONE and not competing


def plain_loss(name, scores, targets, draws, counts):
    objective = OBJECTIVES[name]
    options = objective.keywords if isinstance(objective, partial) else {}
    if name == "gbce":
        options = {"num_classes": NUM_CLASSES}
    if is_alone(name, targets, draws):
        return 0.0
    reference = objective_cases.REFERENCES[name.split(",")[0]]
    return reference(scores, targets, draws, counts, **options)


def plain_slope(name, scores, targets, draws, counts):
    """The derivative of the loss for the score of each class."""
    slope = [0.0] * NUM_CLASSES
    if is_alone(name, targets, draws):
        return slope
    if name == "corrected-log-q":  # stops gradients: differences of its value say nothing
        pull, push = objective_cases.corrected_log_q_gradient(scores, targets, draws, counts)
        for id, value in zip([*targets, *draws], [*pull, *push], strict=True):
            slope[id] += value
        return slope
    for id in {*targets, *draws}:
        up, down = list(scores), list(scores)
        up[id] += 1e-5
        down[id] -= 1e-5
        ends = (plain_loss(name, each, targets, draws, counts) for each in (up, down))
        slope[id] = (next(ends) - next(ends)) / 2e-5
    return slope


def expected(head, name, answers, groups, query_ids):
    weight, bias = head.scorer.weight.detach(), head.scorer.bias.detach()
    hidden = hidden_states().detach()
    scores = hidden @ weight.T + bias
    losses = torch.zeros(len(TARGETS), dtype=torch.float64)
    slopes = torch.zeros_like(scores)
    for row, *rest in examples(head, answers, groups, query_ids):
        losses[row] = plain_loss(name, scores[row].tolist(), *rest)
        slopes[row] = torch.tensor(plain_slope(name, scores[row].tolist(), *rest))
    return losses, slopes @ weight, slopes.T @ hidden, slopes.sum(0)


NEEDS_ALL = {"full-softmax", "full-logistic"}
CASES = [
    (sampler, objective)
    for sampler in ("all", "in-batch", "log-uniform, unique", "queue", "uniform, per example")
    for objective in OBJECTIVES
    if sampler == "all" or objective not in NEEDS_ALL
]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize(("sampler", "objective"), CASES)
def test_losses_and_gradients_are_those_of_plain_loops(sampler, objective, num_groups, kernels):
    head, answers = made(sampler, objective, num_groups)
    from_batch = head.sampler.from_batch
    query_ids = USERS if from_batch else None
    answers.clear()
    with nullcontext() if kernels else plain_torch():
        found = step(head, history=HISTORY, query_ids=query_ids)
    rows = torch.arange(len(TARGETS)).tensor_split(num_groups)
    groups = [each.tolist() for each in rows]
    torch.testing.assert_close(
        found, expected(head, objective, answers, groups, query_ids), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("objective", ["sampled-softmax", "info-nce", "sampled-softmax, smoothed"])
def test_a_history_leaves_the_scores_of_shared_candidates_to_the_fused_kernel(objective):
    head, _ = made("uniform", objective)
    products, product = [], head.scorer.inner_product
    head.scorer.inner_product = lambda *factors: products.append(product(*factors)) or products[-1]
    step(head, history=HISTORY)
    assert [each.shape for each in products] == [(len(TARGETS), 12)]


def test_a_history_of_nothing_changes_no_bit():
    for history in (torch.full((len(TARGETS), 3), -1), torch.empty(len(TARGETS), 0).long()):
        head, _ = made("uniform", "sampled-softmax")
        other, _ = made("uniform", "sampled-softmax")
        for found, wanted in zip(step(head, history=history), step(other), strict=True):
            assert torch.equal(found, wanted)
