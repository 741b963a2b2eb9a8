"""The runs that are served, and the newer checkpoints that take their place."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from widemax.limits import check_whole
from widemax.runs.folder.chosen_checkpoint import trained_checkpoint
from widemax.runs.folder.description import DESCRIPTION, INDEX
from widemax.runs.vectors.map import MapMethod
from widemax.serving.limits import MOST_RUNS
from widemax.serving.runs.served_run import ServedRun
from widemax.serving.runs.store_pool import TablePlace
from widemax.stores.searching import OtherTableError, VectorStore
from widemax.vocabulary.spelling import UnknownNameError, nearest_spellings

Stamps: TypeAlias = tuple[tuple[str, int], ...]
Written: TypeAlias = tuple[str, str, int] | None

_LOGGER = logging.getLogger(__name__)
_CHECKPOINTS = ("checkpoints/*/manifest.json", "refit-*/checkpoints/*/manifest.json")
_OTHERS = (DESCRIPTION, f"{INDEX}/*/manifest.json")


@dataclass
class _Place:
    """A run that is served, and what its folder was like when it was loaded."""

    served: ServedRun
    seen: tuple[Stamps, Written]
    content: tuple[object, ...]


class Fleet:
    """Runs by their names. A request keeps the one that it was given; another may be put in place.

    A run is called after its folder; where two folders have one name, after that and the folder
    they lie in. With ``place`` the one run answers from a table of a database.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        checkpoint: str = "best",
        place: TablePlace | None = None,
        map_by: MapMethod = "pca",
    ) -> None:
        check_whole("the number of runs", len(folders), 1, MOST_RUNS)
        if place is not None and len(folders) > 1:
            raise ValueError(f"a table is of one run, and {len(folders)} are to be served from it")
        self._checkpoint, self._table, self._map_by = checkpoint, place, map_by
        self._watched: VectorStore | None = None
        self._places: dict[str, _Place] = {}
        try:
            for name, folder in zip(names_of(folders), folders, strict=True):
                seen, written = _stamps(folder), self._written()
                served = self._loaded(name, folder)
                content = (*_content(folder, checkpoint), written)
                self._places[name] = _Place(served, (seen, written), content)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        """The names of the runs; the first answers if none is named."""
        return list(self._places)

    @property
    def in_memory(self) -> bool:
        """Whether no database is asked."""
        return self._table is None

    def __iter__(self) -> Iterator[ServedRun]:
        return iter([place.served for place in self._places.values()])

    def get(self, name: str | None) -> ServedRun:
        """Return a run by its name, or the first."""
        if name is None:
            return next(iter(self._places.values())).served
        if name not in self._places:
            there = ", ".join(map(repr, self._places))
            raise UnknownNameError(
                f"run must be one of {there}, got {name[:60]!r}",
                nearest_spellings(name, list(self._places)),
            )
        return self._places[name].served

    def renew(self, taken: Callable[[ServedRun], object] = lambda _: None) -> None:
        """Load what is newer in a folder than what is served, and put it in its place.

        What cannot be loaded, such as one whose index is that of an older checkpoint, is logged and
        not tried again until its folder changes; what was served stays.
        """
        for name, place in self._places.items():
            folder = place.served.folder
            seen = (_stamps(folder), self._written(place.seen[1]))
            if seen == place.seen:
                continue
            try:
                content = (*_content(folder, self._checkpoint), seen[1])
                if content != place.content:
                    served = self._loaded(name, folder)
                    self._places[name] = _Place(served, seen, content)
                    place.served.close()
                    taken(served)
                    continue
            except (ValueError, OSError) as error:
                _LOGGER.warning(
                    "%s: step %s is served as before: %s", name, place.served.step, error
                )
            place.seen = seen

    def _loaded(self, name: str, folder: Path) -> ServedRun:
        return ServedRun(
            name, folder, checkpoint=self._checkpoint, place=self._table, map_by=self._map_by
        )

    def _written(self, before: Written = None) -> Written:
        """Return which table the database has now; as ``before`` where it cannot be asked."""
        if self._table is None:
            return None
        try:
            if self._watched is None:
                self._watched = VectorStore(*self._table)
            return self._watched.identity()
        except OtherTableError:
            # The connection was lost, and the table has changed: the next look takes it up.
            self._forget_watched()
        except ValueError:
            if before is None:
                raise
            self._forget_watched()
        return before

    def _forget_watched(self) -> None:
        if self._watched is not None:
            self._watched.close()
        self._watched = None

    def close(self) -> None:
        """Give connections to a database back."""
        self._forget_watched()
        for each in self:
            each.close()


def names_of(folders: Sequence[Path]) -> list[str]:
    """Return what runs are called.

    >>> names_of([Path("runs/a"), Path("old/b"), Path("new/b")])
    ['a', 'old/b', 'new/b']
    """
    paths = [folder.resolve() for folder in folders]
    counted = Counter(path.name for path in paths)
    names = [path.name if counted[path.name] == 1 else "/".join(path.parts[-2:]) for path in paths]
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(f"two runs are called {name!r}: serve them from other folders")
    return names


def _stamps(folder: Path) -> Stamps:
    """Return what changes whenever a checkpoint, an index or the run itself is written."""
    found = []
    for pattern in (*_CHECKPOINTS, *_OTHERS):
        for path in folder.glob(pattern):
            try:
                found.append((str(path), path.stat().st_mtime_ns))
            except OSError:  # an older checkpoint that is removed just now
                continue
    return tuple(sorted(found))


def _content(folder: Path, checkpoint: str) -> tuple[object, ...]:
    """Return what answers are made from: the chosen checkpoint, the run and its indexes."""
    found = trained_checkpoint(folder, checkpoint)
    others = tuple(
        (str(path), path.stat().st_mtime_ns)
        for pattern in _OTHERS
        for path in sorted(folder.glob(pattern))
    )
    return (found.step, str(found.folder), dict(found.records), others)
