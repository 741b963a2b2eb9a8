"""The gradient audit: many draws of a head's loss against the exact softmax."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from widemax.auditing.moments import NUM_GROUPS, Moments, cosine, relative_bias, relative_spread
from widemax.auditing.proposal import ProposalFit, measure_proposal, notes_on
from widemax.auditing.report import AuditReport
from widemax.auditing.space import GradientSpace, HiddenSpace, ScoreSpace
from widemax.heads import Head, SampledHead
from widemax.validation import ABSENT, check_fraction, check_targets

Progress = Callable[[int, int], None]

# The group means of a chunk of examples, [NUM_GROUPS, R, V], hold at most this many values.
_MAX_VALUES = 2**25
_MAX_ROWS = 2048


def audit(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    *,
    draws: int = 1000,
    batch_size: int | None = None,
    tolerance: float = 0.03,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Measure how far a head's expected gradient is from the exact softmax's, on your data.

    bias² = ⟨ḡ_j − g*, ḡ_k − g*⟩ / ‖g*‖², the mean over pairs of independent groups of draws, which
    the noise of the draws does not inflate. For a ``SampledHead`` g is taken for the scores of all
    classes, g* = softmax(F) − label; for any other head g is taken for ``hidden`` and g* is the
    gradient of its own −log P. Logistic losses such as ``nce``, and label smoothing, are far from
    the softmax without being wrong; ``notes`` of the report says so.

    In each draw every example (hidden [N, D], targets [N] or [N, T]) is trained on once: all
    together, or in random batches of ``batch_size``, which must be given where candidates come
    from the batch. ``draws`` is rounded up to a multiple of 20; where nothing is random, 20 are
    made. It costs O(draws·N·S·D). ``progress(done, total)`` is called after each draw.

    The head is not changed: its samplers do not learn from the audit, no gradient is written.

    >>> import widemax as wm
    >>> _ = torch.manual_seed(0)
    >>> head = wm.SampledHead(wm.TableScorer(50, 4), wm.sampling.AllClassesSampler(50))
    >>> hidden, targets = torch.randn(8, 4), torch.arange(8)
    >>> report = audit(head, hidden, targets)  # every class competes: nothing is random
    >>> round(report.bias, 3), report.biased
    (0.0, False)
    """
    check_fraction("tolerance", tolerance)
    if draws < NUM_GROUPS:
        raise ValueError(f"draws must be at least {NUM_GROUPS}, got {draws:,}")
    hidden, targets = _examples(head, hidden, targets)
    rounds = math.ceil(draws / NUM_GROUPS)
    space: GradientSpace
    with _evaluating(head):
        fit = _check_proposal(head, hidden, targets, batch_size, generator)
        if isinstance(head, SampledHead):
            space = ScoreSpace(head, hidden, targets)
        else:
            space = HiddenSpace(head, hidden, targets)
        moments, rounds = _measure(space, rounds, batch_size, generator, progress)
    bias = relative_bias(moments)
    return AuditReport(
        space=space.name,
        num_classes=head.num_classes,
        num_examples=len(hidden),
        draws=rounds * NUM_GROUPS,
        tolerance=tolerance,
        bias=bias.value,
        bias_low=bias.low,
        bias_high=bias.high,
        spread=relative_spread(moments, rounds),
        cosine=cosine(moments),
        effective_sample_size=fit.effective_sample_size if fit else None,
        divergence=fit.divergence if fit else None,
        notes=notes_on(head, fit),
    )


def _batches(
    chunk: Tensor, num_examples: int, size: int | None, generator: torch.Generator | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the rows of each batch of a draw, and the place of each in ``chunk`` (-1: none)."""
    if size is None:
        yield chunk, torch.arange(len(chunk), device=chunk.device)
        return
    place_of = torch.full((num_examples,), ABSENT, device=chunk.device)
    place_of[chunk] = torch.arange(len(chunk), device=chunk.device)
    order = torch.randperm(num_examples, device=chunk.device, generator=generator)
    for start in range(0, num_examples, size):
        # The last batch is filled with examples that were counted before.
        first = min(start, num_examples - size)
        rows = order[first : first + size]
        places = place_of[rows]
        places[: start - first] = ABSENT
        if bool((places >= 0).any()):
            yield rows, places


def _measure(
    space: GradientSpace,
    rounds: int,
    batch_size: int | None,
    generator: torch.Generator | None,
    progress: Progress | None,
) -> tuple[Moments, int]:
    """Return the moments over all examples, a chunk at a time, and how many rounds were made."""
    num_examples = len(space.hidden)
    size = max(1, min(_MAX_ROWS, _MAX_VALUES // (NUM_GROUPS * space.width)))
    chunks = torch.split(torch.arange(num_examples, device=space.hidden.device), size)
    total = len(chunks) * rounds * NUM_GROUPS
    found, most_rounds = [], 1
    for index, chunk in enumerate(chunks):
        done = index * rounds * NUM_GROUPS
        exact = space.exact(chunk)
        sums = exact.new_zeros((NUM_GROUPS, *exact.shape))
        made = 0
        # One round shows whether anything is random.
        while made < rounds and not (made == 1 and bool((sums == sums[:1]).all())):
            for group in range(NUM_GROUPS):
                for rows, places in _batches(chunk, num_examples, batch_size, generator):
                    space.add_draw(rows, places, sums[group], generator)
                if progress is not None:
                    progress(done + made * NUM_GROUPS + group + 1, total)
            made += 1
        found.append(Moments.of(sums.div_(made), exact))
        most_rounds = max(most_rounds, made)
    moments = functools.reduce(Moments.plus, found)
    if not (math.isfinite(float(moments.gram.sum())) and math.isfinite(moments.size)):
        raise ValueError("the gradients hold NaN or infinity: check hidden and the class vectors")
    if moments.size == 0:
        raise ValueError("the exact gradient is 0: the model is certain of every target")
    return moments, most_rounds


def _examples(head: Head, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the examples with a positive, absent positives marked -1; refuse none at all."""
    ignored = targets == head.ignore_index
    check_targets(targets.masked_fill(ignored, 0), head.num_classes, absent=False)
    if hidden.dim() != 2 or len(hidden) != len(targets):
        raise ValueError(f"hidden must have shape [{len(targets)}, D], got {list(hidden.shape)}")
    kept = ~ignored if targets.dim() == 1 else ~ignored.all(-1)
    if not bool(kept.any()):
        raise ValueError("targets must hold at least one example with a positive, got none")
    return hidden.detach()[kept], targets.long().masked_fill(ignored, ABSENT)[kept]


def _check_proposal(
    head: Head,
    hidden: Tensor,
    targets: Tensor,
    batch_size: int | None,
    generator: torch.Generator | None,
) -> ProposalFit | None:
    """Return how the proposal fits, if there is one; refuse batches that do not suit it."""
    if batch_size is not None and not 1 <= batch_size <= len(hidden):
        raise ValueError(
            f"batch_size must be between 1 and {len(hidden):,} (examples), got {batch_size:,}"
        )
    if not isinstance(head, SampledHead):
        return None
    size = len(hidden) if batch_size is None else batch_size
    fit = measure_proposal(head, hidden[:size], targets[:size], generator)
    if fit.from_batch and size == len(hidden):
        raise ValueError(
            f"batch_size must be given, and below {len(hidden):,} (examples), got {batch_size}: "
            "the candidates come from the batch, and are random only if the batches are"
        )
    return fit


@contextmanager
def _evaluating(head: Head) -> Iterator[None]:
    """Hold the head in evaluation mode, in which samplers do not learn; notes replace warnings."""
    modes = [(module, module.training) for module in head.modules()]
    head.eval()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.filterwarnings("ignore", "sampled_softmax")
            yield
    finally:
        for module, training in modes:
            module.training = training
