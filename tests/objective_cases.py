"""One row for each objective: the contract test and the mathematics run over all of them."""

from functools import partial

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
