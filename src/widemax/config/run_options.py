"""The settings of every run, and those of a log or a text; methods declare all others."""

from __future__ import annotations

from widemax.declarations import Declaration, Option
from widemax.declarations.table import register, reserve_names

LENGTH = "Length of the run"
DATA = "Data"
VALIDATION = "Validation"
KEEPING = "Checkpoints and machine"

MAX_STEPS = 10**12
MAX_COUNT = 2**40

SLOTS: dict[str, Option] = {
    "model": Option(
        "model",
        "auto",
        "The model to train; auto takes youtube-dnn for a log, two-tower where features of its "
        "items or users are given, cbow for a text.",
    ),
    "trainer": Option(
        "trainer",
        "torch",
        "What trains the model: torch (gradients), kernel (fast word2vec) or fit (closed form).",
    ),
    "head": Option("head", "sampled", "The output layer."),
    "scorer": Option("scorer", "table", "Where the vector of a class comes from."),
    "sampler": Option("sampler", "log-uniform", "Which classes compete with the target."),
    "objective": Option("objective", "sampled-softmax", "How scores become a loss."),
}
"""The settings that name a method, with the one that is taken where nothing else is said."""

GROUPS: dict[str, str] = {
    "model": "Model",
    "trainer": "Training",
    "head": "Output layer",
    "scorer": "Output layer",
    "sampler": "Sampling",
    "objective": "Sampling",
}
"""The heading of each kind of method in ``--help``."""

HEADINGS = ("Model", "Output layer", "Sampling", "Training", LENGTH, DATA, VALIDATION, KEEPING)
"""All headings, in the order they are shown."""


def place(option: Option) -> int:
    """Return where the heading of an option stands; one of somebody's own comes last."""
    return HEADINGS.index(option.group) if option.group in HEADINGS else len(HEADINGS)


RUN = Declaration(
    kind="run",
    name="run",
    help="What every run has.",
    slots=("model",),
    options=(
        Option(
            "time_budget",
            0.0,
            "Seconds after which training ends; 0 sets no limit. A schedule follows the time too, "
            "unless the steps are given, so that such a run does not come out bit for bit again.",
            most=1e9,
            group=LENGTH,
        ),
        Option(
            "kind",
            "",
            "What the source is: text, csv, parquet, jsonl, atomic, pairs, lists, duckdb, "
            "postgresql or a format of your own; empty goes by its content.",
            group=DATA,
        ),
        Option(
            "min_count",
            1,
            "How often a class must occur to be kept.",
            least=1,
            most=MAX_COUNT,
            group=DATA,
        ),
        Option(
            "validation_size",
            2000,
            "Examples held out to choose the checkpoint by; 0 disables validation.",
            most=10**9,
            group=VALIDATION,
        ),
        Option(
            "test_size",
            10_000,
            "Further examples held out for `evaluate`; they have no influence on the training.",
            most=10**9,
            group=VALIDATION,
        ),
        Option(
            "split",
            "last-of-some",
            "What is held out. Of a log: the last item of some users, or that of every user (test) "
            "and the one before (validation), the last fifth of the time, or whole users; of a "
            "text its end; or what files say, found by their names.",
            choices=("last-of-some", "last", "time", "user", "files"),
            group=VALIDATION,
        ),
        Option(
            "validation_file",
            "",
            "With split = files: the file that validates; empty finds it by its name.",
            group=VALIDATION,
        ),
        Option(
            "test_file",
            "",
            "With split = files: the file of the test; empty finds it by its name.",
            group=VALIDATION,
        ),
        Option(
            "validate_every",
            0,
            "Steps between validations; 0 validates once an epoch.",
            most=MAX_STEPS,
            only_with="validation_size",
            group=VALIDATION,
        ),
        Option(
            "metric",
            "loss",
            "What decides which checkpoint is best, and when to stop.",
            choices=("loss", "mrr", "recall@K", "ndcg@K", "hit_rate@K"),
            only_with="validation_size",
            group=VALIDATION,
        ),
        Option(
            "patience",
            3,
            "Validations without a better metric before training stops, those within a standard "
            "error of the best counted half; 0 never stops early.",
            most=1_000_000,
            only_with="validation_size",
            group=VALIDATION,
        ),
        Option(
            "patience_examples",
            500_000,
            "Interactions or words that must have been trained on since the best validation, too, "
            "before training stops: the smaller the data, the more epochs.",
            most=MAX_COUNT,
            only_with="validation_size",
            group=VALIDATION,
        ),
        Option(
            "refit",
            False,
            "Whether to train once more at the end, on training and validation data together, for "
            "as many epochs as the best checkpoint had; that model is kept.",
            only_with="validation_size",
            group=VALIDATION,
        ),
        Option(
            "checkpoint_every",
            0,
            "Steps between checkpoints; 0 writes one an epoch.",
            most=MAX_STEPS,
            group=KEEPING,
        ),
        Option(
            "keep_last",
            2,
            "Checkpoints kept besides the best.",
            least=1,
            most=1000,
            group=KEEPING,
        ),
        Option(
            "seed",
            0,
            "Seed of the parameters, the order of batches and the draws; what is held out is "
            "always the same.",
            most=2**63 - 1,
            group=KEEPING,
        ),
        Option(
            "threads",
            0,
            "Threads to compute with; 0 lets torch decide.",
            most=1024,
            group=KEEPING,
        ),
        Option(
            "tracking",
            "",
            "Where metrics are sent besides the run's own file; empty sends them nowhere else.",
            choices=("", "tensorboard", "mlflow"),
            group=KEEPING,
        ),
    ),
)

_COLUMNS = (
    ("user_column", "Column of the users; empty: found by its usual names."),
    ("item_column", "Column of the items; empty: found by its usual names."),
    ("time_column", "Column of the times; empty: found by its usual names."),
)

SOURCES: dict[str, Declaration] = {
    "log": Declaration(
        kind="source",
        name="log",
        help="A log of interactions.",
        usual={"metric": "ndcg@20", "validation_size": 10_000, "test_size": 100_000},
        options=(
            Option(
                "query",
                "",
                "Of a database, a DuckDB file or postgresql://..., one SELECT of SQL whose answer "
                "is the log; an ORDER BY makes it the same each time.",
                group=DATA,
            ),
            *(Option(name, "", help, group=DATA) for name, help in _COLUMNS),
            Option(
                "where",
                "",
                "Condition of SQL on any column for the rows to read, such as rating >= 4; empty "
                "reads all.",
                group=DATA,
            ),
            Option(
                "seen_items",
                "auto",
                "Whether validation and evaluate rank what a user had before; auto does where most "
                "of what users choose is that.",
                choices=("auto", "left-out", "ranked"),
                group=VALIDATION,
            ),
            Option(
                "item_order",
                "auto",
                "Whether the order of a user's items means anything; auto goes by the format: that "
                "of lists does not.",
                choices=("auto", "kept", "ignored"),
                group=DATA,
            ),
            Option(
                "titles",
                "",
                "File with titles and other columns to show; empty takes that of item features.",
                group=DATA,
            ),
            Option(
                "core",
                0,
                "Keep only users and items with at least this many interactions; 0 keeps all.",
                most=MAX_COUNT,
                group=DATA,
            ),
        ),
    ),
    "text": Declaration(
        kind="source",
        name="text",
        help="A text, one sentence a line.",
        options=(
            Option(
                "unknown",
                "",
                "The word that replaces those rarer than min_count; empty leaves them out.",
                group=DATA,
            ),
            Option("end", "", "A word that ends every line; empty adds none.", group=DATA),
            Option(
                "across_lines",
                False,
                "Whether all lines are one stream, so that what stands before a word reaches back "
                "over the beginning of its line.",
                group=DATA,
            ),
            Option(
                "tokens",
                "",
                "Regular expression that matches a word; empty splits at white space.",
                group=DATA,
            ),
            Option(
                "phrases",
                0,
                "Passes that join frequent pairs of words into phrases.",
                most=10,
                group=DATA,
            ),
            Option("cache", False, "Whether the encoded text is kept beside the file.", group=DATA),
        ),
    ),
}
"""The two kinds of data, each with settings of its own."""

TRAIN_ARGUMENTS = (
    "source",
    "folder",
    "resume",
    "vectors",
    "print_config",
    "json",
    "rank_timeout",
    "vocabulary_parallel",
    "config",
    "help",
    "help_all",
)
"""What ``widemax train`` takes besides settings."""

# So that no method takes one of these names for something else.
reserve_names((*SLOTS, *TRAIN_ARGUMENTS))
for _each in (RUN, *SOURCES.values()):
    register(_each, None)

AUTO = {"log": "youtube-dnn", "text": "cbow"}
"""The model that ``auto`` stands for."""

AUTO_WITH = {"item_features": "two-tower", "user_features": "two-tower"}
"""What it stands for where one of these settings of a log is given."""
