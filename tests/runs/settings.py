"""Settings for several models at once: each takes those that it has."""

from widemax.config import Config


def config_with(model="auto", source="log", **options):
    """Return the configuration of a model with those of the options that have an effect."""
    while True:
        try:
            return Config(source=source, model=model, **options)
        except ValueError as error:
            name, _, reason = str(error).partition(" ")
            if not reason.startswith("has no effect"):
                raise
            del options[name]
