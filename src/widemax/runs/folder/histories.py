"""What the users of a run had, read without torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from widemax.declarations.options import shortened
from widemax.runs.folder.description import check_unchanged, has_file
from widemax.vocabulary.spelling import (
    MOST_COMPARED,
    Key,
    UnknownNameError,
    key_like,
    near_or_some,
    nearest_spellings,
)

HISTORIES = "histories.parquet"
USER, ITEMS_OF = "user", "items"

_USUAL_HISTORY = 50


class Settings(Protocol):
    """The settings of a run: a configuration, or what its file says."""

    def get(self, name: str, default: Any, /) -> Any:
        """Return a setting, or the default where there is none."""


def max_history(settings: Settings) -> int:
    """Return how many earlier items a model of a log is asked with.

    >>> max_history({"model": "mind", "max_history": 7}), max_history({"model": "cbow"})
    (7, 50)
    """
    return int(settings.get("max_history", _USUAL_HISTORY))


class UserHistories:
    """What the users of a run had, for whoever asks more than once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def path(self) -> Path | None:
        """The file of the histories, compared with its sha256 once; None: there are none."""
        return kept_histories(self.folder)

    def of(self, user: Key | None) -> list[int]:
        """Return the ids of all that a user had, oldest first; whoever is no user is an error."""
        path = self._there()
        found = None if user is None else history_of(path, user)
        if found is None:
            raise unknown_user(path, self.folder, user)
        return found

    def lengths(self) -> tuple[pl.Series, pl.Series]:
        """Return all users, in their order, and how many items each had."""
        return user_lengths(self._there())

    def _there(self) -> Path:
        if self.path is None:
            raise ValueError(f"{self.folder} has no users: give a history instead")
        return self.path


def kept_histories(folder: Path) -> Path | None:
    """Return the file of the histories, if it is still what was written; None: there are none."""
    return check_unchanged(folder, HISTORIES) if has_file(folder, HISTORIES) else None


def history_of(path: Path, user: Key) -> list[int] | None:
    """Return the ids of all that a user of the log had, oldest first; None: there is no such user.

    Only the part of the file that can hold the user is read.
    """
    with _errors(path):
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        wanted = key_like(user, whole=table.collect_schema()[USER].is_integer())
        if wanted is None:
            return None
        found = table.filter(pl.col(USER) == wanted).select(ITEMS_OF).collect()
    return None if not found.height else list(found[ITEMS_OF][0])


def num_users(path: Path) -> int:
    """Return how many users have a history."""
    with _errors(path):
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        return int(table.select(pl.len()).collect().item())


def user_lengths(path: Path) -> tuple[pl.Series, pl.Series]:
    """Return all users, in their order, and how many items each had."""
    with _errors(path):
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        found = table.select(USER, pl.col(ITEMS_OF).list.len()).collect()
    return found[USER], found[ITEMS_OF]


def unknown_user(path: Path, folder: Path, user: Key | None) -> UnknownNameError:
    """Return the error that says that a run does not know a user, with the nearest spellings."""
    with _errors(path):
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        first = table.select(USER).head(MOST_COMPARED).collect()[USER].cast(pl.String).to_list()
    near = nearest_spellings(user, first)
    return UnknownNameError(
        f"user {shortened(repr(user))} is not among the {num_users(path):,} users of "
        f"{folder}{near_or_some(near, first)}",
        near,
    )


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read as a table: {reason}") from error
