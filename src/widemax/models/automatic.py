"""Settings that the data decide: "auto" stands for a number until they are read."""

from __future__ import annotations

from widemax.config import Config
from widemax.declarations import Value
from widemax.models.options import LAST_FEW
from widemax.training.epochs import chosen_epochs

AUTO = "auto"

_SHARP, _SOFT = 0.1, 0.3
FLAT = 1.0
"""The temperature where histories say no more than what all choose, which biases hold alone."""
_MANY = 500_000
"""Interactions from which on a cosine is divided by the smallest temperature."""


def chosen_temperature(num_interactions: int) -> float:
    """Return the temperature of cosines for a log of so many interactions.

    0.1·(500,000 / n)^¼, between 0.1 and 0.3: what little data say is soon learned by heart, the
    sooner the further a softmax can tell items apart.

    >>> [chosen_temperature(n) for n in (1_000_000, 100_000, 20_000, 1000)]
    [0.1, 0.15, 0.22, 0.3]
    """
    by_size: float = _SHARP * (_MANY / max(num_interactions, 1)) ** 0.25
    return round(min(max(by_size, _SHARP), _SOFT), 2)


def with_numbers(config: Config, num_interactions: int) -> Config:
    """Return a configuration in which numbers stand for what the size of the data decides.

    How much of a history is worth reading is not decided by that, nor whether order has a
    direction: the last few and one table, unless a run has found out
    (``widemax.runs.training.order``).

    >>> config = with_numbers(Config(source="log", model="youtube-dnn"), 100_000)
    >>> config.temperature, config.epochs, config.max_history, config.tied
    (0.15, 63, 10, True)
    """
    still_open = open_settings(config)
    numbers: dict[str, Value] = {}
    if "temperature" in still_open:
        numbers["temperature"] = chosen_temperature(num_interactions)
    if "max_history" in still_open:
        numbers["max_history"] = LAST_FEW
    if "tied" in still_open:
        numbers["tied"] = True
    if "epochs" in still_open and not config.get("steps", 0):
        trainer = config.parts["trainer"].name
        numbers["epochs"] = chosen_epochs(AUTO, num_interactions, trainer=trainer)
    return config.changed(**numbers) if numbers else config


def open_settings(config: Config) -> set[str]:
    """Return the settings that the data have yet to decide.

    >>> sorted(open_settings(Config(source="log", model="youtube-dnn")))
    ['averaging', 'epochs', 'max_history', 'temperature', 'tied']
    """
    return {
        name
        for name, option in config.options.items()
        if option.word and config.values.get(name) == option.word
    }
