"""One row for each objective, and the plain truth it is held to.

The second half is the table of objectives once more, in plain Python over classes, sharing no code
with the library. Each function takes one example: ``scores`` of all classes, ``targets``, ``draws``
(class ids as drawn) and ``count``, the expected count of each class. Slow, and meant to be read.
"""

from functools import partial
from math import exp, fsum, log, log1p

from widemax import objectives as wo

NUM_CLASSES = 12

OBJECTIVES = {
    "corrected-log-q": wo.corrected_log_q,
    "full-logistic": wo.full_logistic,
    "full-softmax": wo.full_softmax,
    "gbce": partial(wo.gbce, num_classes=NUM_CLASSES),
    "importance-sampling": wo.importance_sampling,
    "info-nce": wo.info_nce,
    "nce": wo.nce,
    "negative-sampling": wo.negative_sampling,
    "sampled-logistic": wo.sampled_logistic,
    "sampled-softmax": wo.sampled_softmax,
}

# Options that leave every rule of the contract standing.
OPTIONS = {
    "gbce, calibration=1": partial(wo.gbce, num_classes=NUM_CLASSES, calibration=1.0),
    "info-nce, temperature=0.1": partial(wo.info_nce, temperature=0.1),
}

# A label between 0 and 1 wants a score in between: these may push a target down.
SOFT_LABELS = {
    "full-softmax, label_smoothing=0.1": partial(wo.full_softmax, label_smoothing=0.1),
    "info-nce, label_smoothing=0.1": partial(wo.info_nce, label_smoothing=0.1),
    "sampled-softmax, label_smoothing=0.1": partial(wo.sampled_softmax, label_smoothing=0.1),
    "full-logistic, normalize_positives": partial(wo.full_logistic, normalize_positives=True),
    "nce, normalize_positives": partial(wo.nce, normalize_positives=True),
    "negative-sampling, normalize_positives": partial(
        wo.negative_sampling, normalize_positives=True
    ),
    "sampled-logistic, normalize_positives": partial(wo.sampled_logistic, normalize_positives=True),
}

EVERY_CASE = OBJECTIVES | OPTIONS | SOFT_LABELS


def reference_of(name):
    """Return the plain function of a row of the table, with the options of that row bound."""
    objective = EVERY_CASE[name]
    options = objective.keywords if isinstance(objective, partial) else {}
    return partial(REFERENCES[name.split(",")[0]], **options)


def softplus(value):
    return max(value, 0.0) + log1p(exp(-abs(value)))


def log_sum_exp(values):
    top = max(values)
    return top + log(fsum(exp(value - top) for value in values))


def logistic(g, positives, negatives, normalize_positives=False):
    label = 1 / len(positives) if normalize_positives else 1.0
    gain = [label * softplus(-g[t]) + (1 - label) * softplus(g[t]) for t in positives]
    return fsum(gain) + fsum(softplus(g[d]) for d in negatives)


def softmax(g, positives, negatives, label_smoothing=0.0, classes_per_draw=None):
    competing = [g[y] for y in [*positives, *negatives]]
    wanted = fsum(g[t] for t in positives) / len(positives)
    weight = [1.0] * len(positives) + [
        1.0 if classes_per_draw is None else classes_per_draw[d] for d in negatives
    ]
    everywhere = fsum(w * c for w, c in zip(weight, competing, strict=True)) / fsum(weight)
    label = (1 - label_smoothing) * wanted + label_smoothing * everywhere
    return log_sum_exp(competing) - label


def corrected(scores, count):
    return [f - log(q) for f, q in zip(scores, count, strict=True)]


def without(draws, targets):
    return [d for d in draws if d not in targets]


def nce(scores, targets, draws, count, **options):
    return logistic(corrected(scores, count), targets, draws, **options)


def sampled_logistic(scores, targets, draws, count, **options):
    return logistic(corrected(scores, count), targets, without(draws, targets), **options)


def negative_sampling(scores, targets, draws, count, **options):
    return logistic(scores, targets, draws, **options)


def full_logistic(scores, targets, draws, count, **options):
    return logistic(scores, targets, without(draws, targets), **options)


def full_softmax(scores, targets, draws, count, **options):
    return softmax(scores, targets, without(draws, targets), **options)


def sampled_softmax(scores, targets, draws, count, **options):
    classes = [1 / q for q in count]
    negatives = without(draws, targets)
    return softmax(
        corrected(scores, count), targets, negatives, classes_per_draw=classes, **options
    )


def info_nce(scores, targets, draws, count, temperature=1.0, **options):
    g = [f / temperature for f in scores]
    return softmax(g, targets, without(draws, targets), **options)


def importance_sampling(scores, targets, draws, count):
    g = corrected(scores, count)
    return log_sum_exp([g[d] for d in draws]) - fsum(scores[t] for t in targets) / len(targets)


def gbce(scores, targets, draws, count, num_classes, calibration=0.75):
    rate = len(draws) / (num_classes - 1)
    beta = rate * (calibration * (1 - 1 / rate) + 1 / rate)
    positive = fsum(beta * softplus(-scores[t]) for t in targets)
    return positive + fsum(softplus(scores[d]) for d in without(draws, targets))


def corrected_log_q(scores, targets, draws, count):
    parts = corrected_log_q_parts(scores, targets, draws, count)
    prob, rest, inner = parts
    # The formula of one positive, and its sum over several.
    if len(targets) == 1:
        return (1 - prob[0]) * (inner - scores[targets[0]])
    share = 1 / len(targets)
    pulled = fsum((p - share) * scores[t] for p, t in zip(prob, targets, strict=True))
    return pulled + rest * inner


def corrected_log_q_parts(scores, targets, draws, count):
    """Return P̂ of each target, 1 − Σ P̂ and LSE of F − log Q'."""
    negatives = without(draws, targets)
    per_draw = [q / len(draws) for q in count]
    other = 1 - fsum(per_draw[t] for t in targets)
    ratio = [scores[d] - log(per_draw[d] / other) for d in negatives]
    mean = fsum(exp(r) for r in ratio) / len(ratio)
    total = fsum(exp(scores[t]) for t in targets) + mean
    prob = [exp(scores[t]) / total for t in targets]
    return prob, 1 - fsum(prob), log_sum_exp(ratio)


def corrected_log_q_gradient(scores, targets, draws, count):
    """Return the derivative for each target's score and for each draw's score."""
    prob, rest, inner = corrected_log_q_parts(scores, targets, draws, count)
    other = 1 - fsum(count[t] / len(draws) for t in targets)
    of_draws = [
        0.0 if d in targets else rest * exp(scores[d] - log(count[d] / len(draws) / other) - inner)
        for d in draws
    ]
    return [p - 1 / len(targets) for p in prob], of_draws


REFERENCES = {
    "corrected-log-q": corrected_log_q,
    "full-logistic": full_logistic,
    "full-softmax": full_softmax,
    "gbce": gbce,
    "importance-sampling": importance_sampling,
    "info-nce": info_nce,
    "nce": nce,
    "negative-sampling": negative_sampling,
    "sampled-logistic": sampled_logistic,
    "sampled-softmax": sampled_softmax,
}
