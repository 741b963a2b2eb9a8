"""Settings for several models at once: each takes those that it has."""

from widemax.declarations import find
from widemax.runs.config import Config


def config_with(model, source="log", **options):
    """Return the configuration of a model with those of the options that it has."""
    find("model", model)
    kept = dict(options)
    for name in options:
        try:
            Config(source=source, model=model, **{name: options[name]})
        except ValueError as error:
            if "has no effect" not in str(error):
                raise
            del kept[name]
    return Config(source=source, model=model, **kept)
