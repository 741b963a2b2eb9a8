"""A plug-in: objectives with the defects of well-known libraries, and the right one beside them."""

import math

import widemax as wm
from widemax.objectives import corrected_log_q

TEMPERATURE = 0.2


def with_log_q(change):
    """Return the right objective, given log Q as ``change`` makes it."""

    def loss(target_scores, candidate_scores, *, hits, target_mask=None, **log_counts):
        changed = {
            name: change(each, candidate_scores.shape[1]) for name, each in log_counts.items()
        }
        return corrected_log_q(
            target_scores, candidate_scores, hits=hits, target_mask=target_mask, **changed
        )

    return loss


@wm.declare.objective("right")
def right(target_scores, candidate_scores, **rest):
    """Return corrected_log_q as it is."""
    return corrected_log_q(target_scores, candidate_scores, **rest)


@wm.declare.objective("dropped")
def dropped(target_scores, candidate_scores, **rest):
    """Return the loss without log Q: all classes count as drawn alike."""
    change = with_log_q(lambda log_count, size: 0 * log_count)
    return change(target_scores, candidate_scores, **rest)


@wm.declare.objective("divided")
def divided(target_scores, candidate_scores, **rest):
    """Return the loss with log Q divided by the temperature, as the similarity is."""
    change = with_log_q(
        lambda log_count, size: (log_count - math.log(size)) / TEMPERATURE + math.log(size)
    )
    return change(target_scores, candidate_scores, **rest)


@wm.declare.objective("masked-once")
def masked_once(target_scores, candidate_scores, *, hits, **rest):
    """Return the loss with only the first copy of a target removed from its negatives."""
    first = hits & (hits.cumsum(-1) == 1)
    return corrected_log_q(target_scores, candidate_scores, hits=first, **rest)


@wm.declare.objective("floored")
def floored(target_scores, candidate_scores, **rest):
    """Return the loss with the probabilities of draws floored at a millionth."""
    change = with_log_q(lambda log_count, size: log_count.clamp(min=math.log(1e-6 * size)))
    return change(target_scores, candidate_scores, **rest)
