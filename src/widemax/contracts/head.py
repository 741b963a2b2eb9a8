"""The contract of a head, as a check anyone can run."""

from __future__ import annotations

import copy
from functools import partial

import torch
from torch import Tensor

from widemax.contracts.requirements import require, require_close, require_error
from widemax.heads import Head


def check_head(
    head: Head,
    *,
    dimension: int,
    batch_size: int = 6,
    gradients: bool = True,
    generator: torch.Generator | None = None,
) -> None:
    """Check a head against its contract; raises AssertionError that says what is broken.

    Σ_y exp(log_prob(x, y)) = 1 to 1e-6; ``topk`` is the sort of ``log_prob``; the gradient of
    ``forward`` is that of its finite differences. The head takes hidden [B, ``dimension``]; it is
    copied and checked in float64, at O(batch_size · V · dimension): pass one with up to some 1,000
    classes. Pass ``gradients=False`` where the loss stops gradients on purpose; it also saves a few
    hundred evaluations of the loss.

    >>> import widemax as wm
    >>> check_head(wm.FullHead(wm.TableScorer(20, 4)), dimension=4)
    >>> class Doubled(wm.FullHead):
    ...     def log_prob(self, hidden, ids=None):
    ...         return 2 * super().log_prob(hidden, ids)
    >>> try:
    ...     check_head(Doubled(wm.TableScorer(20, 4)), dimension=4)
    ... except AssertionError as error:
    ...     print(str(error).split(":")[0])
    probabilities must sum to 1
    """
    generator = generator or torch.Generator().manual_seed(0)
    head = copy.deepcopy(head).double()
    hidden = torch.randn(batch_size, dimension, generator=generator, dtype=torch.float64)
    targets = torch.randint(head.num_classes, (batch_size,), generator=generator)
    with torch.no_grad():
        _check_probabilities(head, hidden, generator)
        _check_topk(head, hidden)
    _check_losses(head, hidden, targets)
    _check_edges(head, hidden, targets)
    _check_backward(head, hidden, targets)
    if gradients:
        few = hidden[:3].clone().requires_grad_()
        torch.autograd.gradcheck(lambda x: _losses(head, x, targets[:3]), (few,))


def _check_probabilities(head: Head, hidden: Tensor, generator: torch.Generator) -> None:
    log_prob = head.log_prob(hidden)
    require(
        log_prob.shape == (len(hidden), head.num_classes),
        f"log_prob(hidden) must be [B, V], got {list(log_prob.shape)}",
    )
    total = log_prob.exp().sum(-1)
    require_close(total, torch.ones_like(total), "probabilities must sum to 1")
    size = (len(hidden), min(5, head.num_classes))
    per_row = torch.randint(head.num_classes, size, generator=generator)
    for what, function in (("log_prob", head.log_prob), ("scores", head.scores)):
        everything = function(hidden)
        require_close(function(hidden, per_row[0]), everything[:, per_row[0]], f"{what}, ids [S]")
        require_close(
            function(hidden, per_row), everything.gather(1, per_row), f"{what}, ids [B, S]"
        )


def _check_topk(head: Head, hidden: Tensor) -> None:
    k = min(5, head.num_classes)
    scores, log_prob = head.scores(hidden), head.log_prob(hidden)
    best = head.topk(hidden, k)
    found = log_prob.gather(1, best.ids)
    require_close(best.scores, scores.gather(1, best.ids), "topk scores against scores of its ids")
    require_close(found, log_prob.topk(k).values, "topk against sorted log_prob")
    rest = head.topk(hidden, k, exclude=best.ids[:, :1])
    require(rest.ids != best.ids[:, :1], "topk returned an excluded class")
    require_close(rest.scores[:, : k - 1], best.scores[:, 1:], "topk after exclusion of the best")
    everything = torch.arange(head.num_classes).expand(len(hidden), -1)
    nothing = head.topk(hidden, 1, exclude=everything)
    require(nothing.ids == -1, "topk with every class excluded must give id -1")
    for wrong in (0, -1, head.num_classes + 1):
        require_error(partial(head.topk, hidden, wrong), f"topk with k = {wrong}")


def _check_losses(head: Head, hidden: Tensor, targets: Tensor) -> None:
    losses = _losses(head, hidden, targets)
    require(losses.shape == targets.shape, f"losses must be [B], got {list(losses.shape)}")
    require(losses.isfinite(), "losses must be finite")
    require_close(_losses(head, hidden, targets), losses, "same generator, same losses")
    weights = torch.arange(len(targets), dtype=torch.float64)
    weighted = _losses(head, hidden, targets, weights=weights)
    require_close(weighted, losses * weights, "weights must multiply the losses")
    for wrong in {head.num_classes, -7, -8} - {_ignore_index(head)}:
        bad = targets.clone()
        bad[0] = wrong
        require_error(partial(_losses, head, hidden, bad), f"target {wrong}")


def _check_edges(head: Head, hidden: Tensor, targets: Tensor) -> None:
    require(_losses(head, hidden[:0], targets[:0]).shape == (0,), "an empty batch has losses [0]")
    require(_losses(head, hidden[:1], targets[:1]).isfinite(), "a batch of one")
    ignored = targets.clone()
    ignored[0] = _ignore_index(head)
    require(_losses(head, hidden, ignored)[0] == 0, "an ignored example has loss 0")
    several = targets[:, None].expand(-1, min(2, head.num_classes)).clone()
    several[:, 1:] = _ignore_index(head)
    require(_losses(head, hidden, several).shape == targets.shape, "targets [B, T] give losses [B]")


def _check_backward(head: Head, hidden: Tensor, targets: Tensor) -> None:
    hidden = hidden.clone().requires_grad_()
    head.zero_grad()
    _losses(head, hidden, targets).sum().backward()  # type: ignore[no-untyped-call]
    reached = [parameter.grad for parameter in head.parameters()] + [hidden.grad]
    given = [grad for grad in reached if grad is not None]
    require(bool(given), "no gradient reaches the parameters")
    for grad in given:
        require(grad.to_dense().isfinite(), "gradients must be finite")


def _ignore_index(head: Head) -> int:
    return int(getattr(head, "ignore_index", -100))


def _losses(
    head: Head, hidden: Tensor, targets: Tensor, *, weights: Tensor | None = None
) -> Tensor:
    """Return the losses under one fixed seed and one fixed state: a function of its arguments."""
    fresh = copy.deepcopy(head.state_dict())
    losses: Tensor = head(
        hidden, targets, weights=weights, generator=torch.Generator().manual_seed(1)
    )
    buffers = {name: value for name, value in fresh.items() if name in dict(head.named_buffers())}
    head.load_state_dict(buffers, strict=False)
    return losses
