"""What a training step does, counted operation by operation, before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.advising.popularity import Popularity
from widemax.config import Config
from widemax.models.automatic import with_numbers
from widemax.models.embeddings.kernel_steps import words_a_step
from widemax.training.gradients.steps import chosen_averaging, chosen_optimizer

OPERATIONS: dict[str, str] = {
    "steps": "what every step has, however small it is",
    "products": "multiplications in products of matrices",
    "exponentials": "scores raised to a power and summed",
    "ranked": "scores among which the best are sought",
    "gathered": "numbers of rows that are read from a table",
    "updated": "numbers of rows that are written to a table",
    "dense": "numbers of a whole table that are written",
    "paths": "numbers of the nodes on the paths through a tree",
    "kernel": "numbers that the word2vec kernel multiplies and updates",
}
"""The operations, each with what is counted."""


class Work(dict[str, float]):
    """How often a step does each operation; counts need not be whole, and 0 is not listed.

    >>> work = Work(steps=1)
    >>> work.add(Work(products=2.5), steps=1)
    >>> work, work["paths"]
    ({'steps': 2, 'products': 2.5}, 0.0)
    """

    def __init__(self, **counts: float) -> None:
        super().__init__(counts)

    def __missing__(self, name: str) -> float:
        return 0.0

    def add(self, other: Work | None = None, **counts: float) -> None:
        """Add what is done besides."""
        for name, number in (other or {}).items():
            self[name] += number
        for name, number in counts.items():
            self[name] += number


TREE, SAMPLED = "hierarchical", ("sampled", "importance")
_EXACT_PASSES = 4
"""Products of an exact step: scores, scores again in the backward pass, and both gradients."""
_SUPPORT = 64
"""Classes that a sparse distribution is taken to have."""
_NUMBERS_A_WORD = 1500
"""What the kernel does for a word besides its pairs, as numbers that it could multiply."""
_CANDIDATES_OF_BATCH = ("in-batch", "queue", "batch-hard-negatives")
_STATES = {"sgd": 0, "rowwise-adagrad": 0, "adagrad": 1, "adam": 2, "dense-adam": 2}
"""Numbers that an optimiser keeps for each parameter."""


def work_of(config: Config, popularity: Popularity, num_targets: int) -> Work | None:
    """Return what one step of a configuration does; None for a model that is not counted.

    >>> curve = Popularity.zipf(100_000)
    >>> full, sampled = (
    ...     work_of(Config(source="log", model="next-item", head=head), curve, 10**6)
    ...     for head in ("full", "sampled")
    ... )
    >>> round(full["products"] / sampled["products"])
    154
    """
    if config.get("trainer", "") == "kernel":
        return _kernel_work(config, popularity, num_targets)
    config = settled(config, popularity.num_classes, num_targets)
    read = _READERS.get(config.model)
    if read is None:
        return None
    work = Work(steps=1)
    work.add(read(config, popularity))
    work.add(_head_work(config, popularity))
    if config.optimizer == "dense-adam":
        # Every row of every table, used or not: its gradient is filled up with zeros before.
        sparse = table_widths(config)[0 if _is_sparse(config) else 1 :]
        work["dense"] += _passes(config) * popularity.num_classes * sum(sparse)
        work["updated"] = 0
    if config.averaging:
        work["dense"] += popularity.num_classes * sum(table_widths(config))
    return work


def settled(config: Config, num_classes: int, num_targets: int) -> Config:
    """Return a configuration with what "auto" stands for, with so many classes and targets."""
    config = with_numbers(config, num_targets)
    if not config.has("optimizer"):
        return config
    return config.changed(
        optimizer=chosen_optimizer(config.optimizer, num_classes),
        averaging=chosen_averaging(config.averaging, num_classes),
    )


def batch_of(config: Config) -> int:
    """Return the targets of a step."""
    return int(config.get("batch_size", 0))


def candidates_of(config: Any, popularity: Popularity) -> float:
    """Return how many classes compete with the target in a step; all where none are drawn."""
    if config.head not in SAMPLED:
        return float(popularity.num_classes)
    if config.sampler in _CANDIDATES_OF_BATCH:
        return float(batch_of(config) + config.get("queue_size", 0))
    if config.sampler in ("all", "partition"):
        return float(min(popularity.num_classes, config.get("max_classes", 2**40)))
    most = popularity.num_classes // 2 if config.get("unique", False) else 2**40
    drawn = float(min(config.num_samples, max(1, most)))
    if config.sampler == "mixture":
        drawn += batch_of(config) * ("in-batch" in str(config.mixture))
    return drawn


def hidden_width(config: Config) -> int:
    """Return the dimension of the states that the head reads."""
    if config.model in ("nnlm", "lstm"):
        return int(config.get("head_units", 0) or config.hidden_size)
    return int(config.dimension)


def table_widths(config: Config) -> list[float]:
    """Return how many numbers each class has in each of the tables of a model."""
    width = float(hidden_width(config))
    if config.head == "adaptive":
        reduction = config.reduction
        width *= 0.05 + 0.2 / reduction + 0.75 / reduction**2
    elif config.get("scorer", "table") == "differentiated":
        width *= 0.5
    elif config.get("scorer", "table") == "char-cnn":
        width = float(config.correction_dimension)
    tables = [width + bool(config.get("bias", False))]
    if not is_tied(config):
        tables.append(float(config.dimension))
    return tables


def is_tied(config: Config) -> bool:
    """Return whether what is read and what is predicted share one table."""
    if config.get("scorer", "table") == "tower":
        return True
    tables = config.head == "full" or "vectors" in config.parts["head"].traits
    return bool(config.get("tied", False)) and tables and config.get("scorer", "table") == "table"


def state_numbers(config: Config) -> float:
    """Return how many numbers an optimiser keeps for each number of a model."""
    if config.get("trainer", "") == "kernel":
        return 1.0  # a copy of the tables, whose rows fill whole registers
    averaged = 1.0 if config.averaging else 0.0
    rows = 1 / max(1.0, sum(table_widths(config)))
    # Counts of steps, or means of squares, one a row; row-wise Adagrad has nothing else.
    return _STATES[config.optimizer] + averaged + 2 * rows


def _is_sparse(config: Any) -> bool:
    return config.head in (*SAMPLED, TREE)


def _passes(config: Any) -> int:
    """Return how often a number of a whole table is read and written: dense-adam is fused."""
    return 2 if config.optimizer == "dense-adam" else 1 + _STATES[config.optimizer]


def _update(config: Any, numbers: float) -> Work:
    """Return what it costs to write rows with so many numbers in all."""
    return Work(updated=numbers * (1 + _STATES[config.optimizer]))


# -- output layers ---------------------------------------------------------------------------------


def _head_work(config: Any, popularity: Popularity) -> Work:
    rows, width, classes = batch_of(config), hidden_width(config), popularity.num_classes
    if config.head in SAMPLED:
        return _sampled_work(config, popularity)
    if config.head == TREE:
        nodes = path_length(config, popularity)
        # Only the vectors of nodes are sparse, not their biases.
        biases = classes * bool(config.bias)
        work = Work(paths=rows * nodes * width, dense=biases * _passes(config))
        # Nodes near the root are on most paths: they are written once.
        work.add(_update(config, width * _distinct_nodes(rows, nodes, popularity)))
        return work
    if config.head == "adaptive":
        return _adaptive_work(config, popularity)
    scores, share = rows * classes, config.get("fraction", 1.0)
    work = Work(dense=classes * width * _passes(config))
    if config.head in ("top-k-softmax", "sparsemax", "entmax-1.5"):
        support = config.get("top_k", _SUPPORT)
        work.add(products=scores * width, ranked=scores, gathered=2 * rows * support * width)
    else:
        work.add(products=_EXACT_PASSES * share * scores * width)
        work.add(exponentials=2 * share * scores)
    return work


def _sampled_work(config: Any, popularity: Popularity) -> Work:
    rows, width = batch_of(config), hidden_width(config)
    candidates = candidates_of(config, popularity)
    scores = rows * candidates
    # Draws with replacement go through torch's own operations: one pass more over the scores.
    passes = 2 if config.head == "importance" else 1
    work = Work(products=3 * scores * width, exponentials=passes * scores)
    used = rows + (scores if config.get("per_example", False) else candidates)
    if config.sampler in _CANDIDATES_OF_BATCH:
        used = candidates
    work.add(gathered=used * width)
    work.add(_scorer_work(config, used, width))
    return work


def _scorer_work(config: Any, used: float, width: int) -> Work:
    """Return what the vectors of the classes in use cost."""
    scorer = config.get("scorer", "table")
    if scorer == "tower":
        inner = config.hidden_size
        read = config.dimension + 4 * config.get("feature_dimension", 16)
        layers = [read, *[inner] * config.num_layers, width]
        work = Work(products=3 * used * sum(a * b for a, b in pairwise(layers)))
        work.add(_update(config, used * read))
        return work
    if scorer == "char-cnn":
        letters, sizes = 12, 4
        filtered = used * letters * config.filters * sizes
        return Work(products=3 * 48 * filtered, exponentials=2 * filtered)
    return _update(config, used * width)


def _adaptive_work(config: Any, popularity: Popularity) -> Work:
    rows, width, classes = batch_of(config), hidden_width(config), popularity.num_classes
    cuts = sorted({max(1, classes // 20), max(2, classes // 4)} - {classes})
    # The first part competes in every example, a cluster where the target lies in it.
    parts = [(float(rows), cuts[0] + len(cuts), float(width))]
    for number, (start, stop) in enumerate(pairwise([*cuts, classes]), start=1):
        reduced = max(1.0, width // config.reduction**number)
        parts.append((rows * popularity.mass_between(start, stop), stop - start, reduced))
    work = Work()
    for examples, size, dimension in parts:
        work.add(products=3 * examples * size * dimension, exponentials=examples * size)
        work.add(dense=size * dimension * _passes(config), steps=0.25)
    return work


def path_length(config: Config, popularity: Popularity) -> float:
    """Return how many nodes lie on the path to a target, on average."""
    if config.get("tree", "huffman") == "balanced":
        return float(max(1, (popularity.num_classes - 1).bit_length()))
    return popularity.entropy_bits + 0.05


def _distinct_nodes(rows: float, nodes: float, popularity: Popularity) -> float:
    """Return how many nodes the paths of a batch have, each counted once."""
    total, level = 0.0, 1.0
    while nodes > 0:
        total += min(nodes, 1.0) * min(level, popularity.distinct(rows))
        level, nodes = 2 * level, nodes - 1
    return total


# -- what reads the context ------------------------------------------------------------------------


def _mean_of_items(config: Any, popularity: Popularity) -> Work:
    rows, width, history = batch_of(config), config.dimension, config.max_history
    used = popularity.distinct(rows * history)
    work = Work(gathered=rows * history * width)
    work.add(_update(config, used * width))
    layers = [width, *[config.get("hidden_size", width)] * config.get("num_layers", 0)]
    work.add(products=3 * rows * sum(a * b for a, b in pairwise([*layers, width])))
    return work


def _two_tower(config: Any, popularity: Popularity) -> Work:
    rows, history = batch_of(config), config.max_history
    read = config.dimension + 4 * config.get("feature_dimension", 16)
    layers = [read, *[config.hidden_size] * config.num_layers, config.dimension]
    work = Work(gathered=rows * history * read)
    work.add(products=3 * rows * sum(a * b for a, b in pairwise(layers)))
    work.add(_update(config, popularity.distinct(rows * history) * read))
    return work


def _words_side_by_side(config: Any, popularity: Popularity) -> Work:
    rows, read = batch_of(config), config.max_history * config.dimension
    work = Work(gathered=rows * read)
    work.add(products=3 * rows * read * config.hidden_size)
    used = popularity.distinct(rows * config.max_history)
    work.add(_update(config, used * config.dimension))
    return work


def _recurrent(config: Any, popularity: Popularity) -> Work:
    rows, width, hidden = batch_of(config), config.dimension, config.hidden_size
    gates = 4 * hidden * (width + hidden) + (config.lstm_layers - 1) * 8 * hidden * hidden
    work = Work(products=3 * rows * gates, gathered=rows * width)
    work.add(dense=gates * _passes(config))
    work.add(steps=config.max_history * config.lstm_layers / 20)
    work.add(_update(config, popularity.distinct(rows) * width))
    return work


def _attention(config: Any, popularity: Popularity) -> Work:
    rows, width, inner = batch_of(config), config.dimension, config.expansion
    gated = config.block == "ligr"
    layers = width * width * (4 + (2 + 3 * inner if gated else 2 * inner))
    looking = config.max_history * width
    work = Work(products=3 * config.num_blocks * rows * (layers + looking))
    work.add(gathered=rows * width, steps=2.5 * config.num_blocks)
    work.add(_update(config, popularity.distinct(rows) * width))
    return work


def _kernel_work(config: Any, popularity: Popularity, num_targets: int) -> Work:
    """Return what a step of the word2vec kernel does: some thousand words, one after the other."""
    words, width, window = words_a_step(num_targets), config.dimension, config.window
    kept = _kept_shares(config, popularity)
    share = float(kept.sum())
    # Windows are cut after the frequent words are thinned out, each of a random width.
    pairs = words * share * (window + 1)
    if config.head == "sampled":
        opponents = 1.0 + config.num_samples
    else:
        # Rare words, which have long paths, are the more of what is left.
        depths = -np.log2(np.maximum(popularity.shares, 1e-300))
        opponents = float((kept * depths).sum()) / share
    numbers = pairs * opponents
    if config.model == "cbow":
        # The vectors of a window are read for their mean, and written.
        numbers = 2 * pairs + words * share * opponents
    # Each word of the text is looked up and perhaps left out.
    return Work(kernel=width * numbers + _NUMBERS_A_WORD * words, steps=0.02)


def _kept_shares(config: Any, popularity: Popularity) -> NDArray[np.float64]:
    """Return what is left of the share of each group where frequent words are thinned out, [G]."""
    mass: NDArray[np.float64] = popularity.sizes * popularity.shares
    if config.get("subsample", 0.0):
        ratio = config.subsample / np.maximum(popularity.shares, 1e-300)
        mass = mass * np.minimum(1.0, np.sqrt(ratio) + ratio)
    return mass


_READERS: dict[str, Callable[[Any, Popularity], Work]] = {
    "next-item": _mean_of_items,
    "youtube-dnn": _mean_of_items,
    "two-tower": _two_tower,
    "nnlm": _words_side_by_side,
    "lstm": _recurrent,
    "sasrec": _attention,
}
