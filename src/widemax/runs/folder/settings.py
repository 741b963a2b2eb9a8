"""The settings that a run was started with, and those that it was continued with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from widemax.config import Config
from widemax.config.fitting import still_meant, switched_off
from widemax.config.toml import read_toml
from widemax.declarations import Value
from widemax.runs.folder.description import (
    CONFIG,
    FORMAT_VERSION,
    VERSION_FIELD,
    check_run,
    check_unchanged,
)
from widemax.storage.manifest import read_manifest, write_manifest

Spelling = Callable[[str], str]

CONTINUED = "continued.json"
ADJUSTABLE = (
    "epochs",
    "steps",
    "time_budget",
    "patience",
    "patience_examples",
    "validate_every",
    "refit",
    "checkpoint_every",
    "keep_last",
    "threads",
    "tracking",
)
"""Settings that may be others when a run is resumed: none of them decides what a step does."""


def stored_config(folder: Path) -> Config:
    """Return the configuration that a run was started with."""
    path = check_unchanged(folder, CONFIG)
    values: dict[str, Any] = read_toml(path)
    try:
        return Config(source=check_run(folder)["kind"], **values).changed(**_continued(folder))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _continued(folder: Path) -> dict[str, Any]:
    """Return the settings with which a run was resumed, where they are not its first ones."""
    path = folder / CONTINUED
    if not path.exists():
        return {}
    found = read_manifest(path, FORMAT_VERSION, version_field=VERSION_FIELD)
    values = {name: value for name, value in found.items() if name != VERSION_FIELD}
    if wrong := values.keys() - {*ADJUSTABLE}:
        raise ValueError(f"{path} is damaged: {min(wrong)!r} cannot be changed in a run")
    return values


def continue_with(folder: Path, given: Mapping[str, Value]) -> None:
    """Keep the settings with which a run is resumed, where they differ from those it has."""
    stored = stored_config(folder)
    changed = {
        name: value
        for name, value in given.items()
        if name in ADJUSTABLE and name in stored.options
        if value != stored.values[name] or switched_off(stored.options[name], stored.values)
    }
    if changed:
        content = {**still_meant(_continued(folder), changed, stored.options), **changed}
        stored.changed(**changed)  # refuses what does not fit
        write_manifest(folder / CONTINUED, FORMAT_VERSION, content, version_field=VERSION_FIELD)


def check_same_settings(folder: Path, given: Mapping[str, Value], spelling: Spelling = str) -> None:
    """Raise if a setting is given that is not that of the run, and cannot be changed by now.

    ``spelling`` makes a name what the user wrote, such as a flag.
    """
    stored = stored_config(folder).values
    for name in sorted(given):
        if (name, given[name]) == ("model", "auto") or (name in ADJUSTABLE and name in stored):
            continue
        if (name, given[name]) == ("learning_rate", "auto") and "range_test" in check_run(folder):
            continue
        if given[name] == "auto" and name in check_run(folder).get("automatic", {}):
            continue
        if name not in stored:
            raise ValueError(f"{spelling(name)} is not a setting of {folder}: leave it out")
        if given[name] != stored[name]:
            raise ValueError(
                f"{spelling(name)} is {given[name]!r}, and {folder} was started with "
                f"{stored[name]!r}: a run that is resumed keeps its settings; leave it out, or "
                "train in another folder"
            )
