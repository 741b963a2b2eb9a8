"""Settings that the data of a run decide, once they are read."""

from __future__ import annotations

import logging
from typing import Any

from widemax.config import Config
from widemax.config.resolution import is_ordered
from widemax.data import Holdout, Source
from widemax.data.reading.tables import TEXT
from widemax.data.splitting.holding_out import Split
from widemax.declarations import Value, find
from widemax.models.automatic import AUTO, FLAT, open_settings, with_numbers
from widemax.runs.run import Run
from widemax.runs.training.order import tested_order
from widemax.training.together import ALONE, Together
from widemax.vectors import KeyedVectors

_LOGGER = logging.getLogger(__name__)

_LEARNED_WITH = ("max_history", "temperature", "tied")
"""What the weights of a model were learned with, and mean little without."""


def decided(
    config: Config,
    source: Source,
    split: Split,
    *,
    with_seen: bool,
    learned: KeyedVectors | Run | None = None,
    together: Together = ALONE,
) -> Config:
    """Return the settings of a run, with numbers for what its data decide.

    What it starts from decides before them: the few data of another day are none to change the
    model by. Processes that train together go by what the writing one found, whose processor may
    round otherwise than theirs.
    """
    if isinstance(learned, Run) and learned.config.model == config.model:
        config = _as_learned_with(config, learned.config)
    by_test = open_settings(config) & {"max_history", "tied", "temperature"}
    if not _is_ordered(config, source):
        by_test.discard("tied")
    if by_test - {"temperature"} and isinstance(split.validation, Holdout):
        order = tested_order(
            split.sequences, split.validation, len(source.vocabulary), with_seen=with_seen
        )
        history = int(together.total(order.history if together.writes else 0))
        directed = together.decided(order.directed)
        found: dict[str, Value] = {"max_history": history, "tied": not directed}
        if together.decided(order.popular):
            found["temperature"] = FLAT
        config = config.changed(**{name: found[name] for name in by_test & found.keys()})
        if "tied" in by_test and directed:
            _LOGGER.warning(
                "what follows an item is another thing than what comes before it: histories and "
                "targets have a table each (--no-tied; --tied shares one)"
            )
    return with_numbers(config, len(split.sequences.values))


def _as_learned_with(config: Config, other: Config) -> Config:
    """Return a configuration that has what is open of a model from the run that it goes on from."""
    names = open_settings(config).intersection(_LEARNED_WITH, other.values)
    return config.changed(**{name: other.values[name] for name in names})


def _is_ordered(config: Config, source: Source) -> bool:
    return source.kind == TEXT or is_ordered(
        str(config.get("item_order", AUTO)), find("format", source.kind).traits
    )


def said(before: Config, after: Config) -> dict[str, Any]:
    """Return the settings that were open and what was decided."""
    still = open_settings(after)
    return {name: after.values.get(name) for name in sorted(open_settings(before) - still)}
