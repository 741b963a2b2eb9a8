"""The options that several models share, and what they are usually trained with."""

from __future__ import annotations

from dataclasses import replace

from widemax.declarations import Option, Value

LAST_FEW = 10
"""Items of a history that are read where nothing says how many are worth it."""
LENGTHS = (1, 2, 3, 5, LAST_FEW, 200)
"""How many may turn out to be worth it: from what follows one item to tastes that last."""

DIMENSION = Option("dimension", 64, "Length of every class vector.", least=1, most=65_536)
DROPOUT = Option("dropout", 0.2, "Fraction of the units dropped in a training step.", most=0.99)
MAX_HISTORY = Option(
    "max_history",
    50,
    "How many of a user's last items, or of the words before, the model reads.",
    least=1,
    most=10_000,
    group="Data",
)
HISTORY_BY_TEST = replace(
    MAX_HISTORY,
    help="How many of a user's last items the model reads; auto is the most of "
    f"{', '.join(map(str, LENGTHS))} by which item-knn does not surely rank worse.",
    word="auto",
)
WINDOW = Option(
    "window",
    5,
    "Neighbours on each side that a word or item is trained with.",
    least=1,
    most=1000,
    group="Data",
)
SUBSAMPLE = Option(
    "subsample",
    0.0,
    "Classes more frequent than this share are thinned out; 0 keeps all.",
    most=1.0,
    group="Data",
)
SESSION_GAP = Option(
    "session_gap",
    0.0,
    "Seconds without activity after which a new session begins; 0 makes one per user.",
    most=1e12,
    group="Data",
)
GOAL_COLUMN = Option(
    "goal_column",
    "",
    "Column that is true for an item booked; empty: each session's last, or, of requests, all.",
    group="Data",
)
WEIGHTS = (
    Option(
        "weight_column",
        "",
        "Column of weights, such as ratings or play counts: how much each row counts as a target; "
        "empty counts all alike.",
        group="Data",
    ),
    Option(
        "event_column",
        "",
        "Column of what was done, such as view or purchase; needs --event-weights.",
        group="Data",
    ),
    Option(
        "event_weights",
        "",
        "How much each type of event counts as a target, such as view=1, cart=3; others are left "
        "out.",
        only_with="event_column",
        group="Data",
    ),
)
"""How much each row of a log counts; relative to their mean, so that equal ones change nothing."""
USER_FEATURES = Option(
    "user_features",
    "",
    "File with features of users; empty takes the .user file beside an .inter file.",
    group="Data",
)
LSTM_LAYERS = Option(
    "lstm_layers", 1, "Layers of the LSTM, each on the states of the one before.", least=1, most=64
)
TIED = Option("tied", True, "Whether what is read and what is predicted share one table.")
TIED_BY_TEST = replace(
    TIED,
    help="Whether what is read and what is predicted share one table; auto finds out: unless what "
    "follows an item is another thing than what comes before it.",
    word="auto",
)
NUM_ATTENTION_HEADS = Option(
    "num_attention_heads", 1, "Heads of each attention layer.", least=1, most=64
)

RETRIEVAL: dict[str, Value] = {
    "dimension": 64,
    "sampler": "uniform",
    "num_samples": 800,
    "dropout": 0.0,
    "metric": "ndcg@20",
    "learning_rate": 0.002,
    "epochs": "auto",
    # Validations that vary less also choose better among checkpoints.
    "averaging": "auto",
}
"""What models of users are usually trained with."""

COSINE: dict[str, Value] = {
    "similarity": "cosine",
    "temperature": "auto",
    # A cosine cannot hold how popular an item is.
    "bias": True,
    "bias_start": 0.5,
    # The most probable items are nearly always drawn, and those that nobody chose now and then.
    "sampler": "unigram",
    "distortion": 0.5,
    "extra_count": 1.0,
}
"""What makes the mean of a history good: scores on one scale, popularity in the biases."""

LAST_ITEMS: dict[str, Value] = {
    **RETRIEVAL,
    **COSINE,
    "max_history": "auto",
    # Rare items go on moving between the steps that use them.
    "optimizer": "auto",
}
"""What models are usually trained with that score by a cosine and read the last items."""

NEIGHBOURS: dict[str, Value] = {
    "dimension": 64,
    "sampler": "unigram",
    "objective": "negative-sampling",
    "num_samples": 10,
    # A batch is many windows: each pair has its own negatives.
    "per_example": True,
    "unique": False,
    "metric": "ndcg@20",
    "epochs": 10,
    "optimizer": "adagrad",
    "learning_rate": 0.1,
    "schedule": "linear",
}
"""What skip-gram on walks or on clicks and bookings is usually trained with."""

LANGUAGE: dict[str, Value] = {
    "unknown": "<unk>",
    "end": "<eos>",
    "min_count": 2,
    "across_lines": True,
    "bias": True,
    "num_samples": 1000,
    "schedule": "linear",
    "validation_size": 20_000,
}
"""What neural language models are usually trained with."""
