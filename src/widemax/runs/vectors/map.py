"""A map of the catalogue: where each class stands in the plane, kept in the folder of its run."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from widemax.storage.arrays import map_arrays, write_arrays

MapMethod = Literal["pca", "umap"]

MAPS: dict[MapMethod, str] = {"pca": "map.safetensors", "umap": "map-umap.safetensors"}
"""The file of each kind of map in the folder of a run."""

_COORDINATES, _OF = "coordinates", "vectors_sha256"
_BLOCK = 2**16
_NEIGHBOURS = 15

Vectors = NDArray[np.float32]


def check_map_method(method: MapMethod) -> None:
    """Raise if there is no such map, or the package is missing that draws it."""
    if method not in MAPS:
        raise ValueError(f"map must be pca or umap, got {method!r}")
    if method == "umap":
        _umap()


def map_of(folder: Path, vectors: Vectors, method: MapMethod = "pca") -> Vectors:
    """Return where classes stand, float32 [V, 2] in −1 … 1: as it was kept, or computed and kept.

    "pca" is ``principal_plane``, "umap" ``neighbour_plane``. What was kept of other vectors, as of
    an earlier checkpoint, is computed anew. A folder that cannot be written keeps nothing.
    """
    check_map_method(method)
    digest, path = _digest(vectors), folder / MAPS[method]
    kept = _kept(path, digest, len(vectors))
    if kept is not None:
        return kept
    found = (neighbour_plane if method == "umap" else principal_plane)(vectors)
    with suppress(OSError):
        write_arrays(path, {_COORDINATES: found}, {_OF: digest, "method": method})
    return found


def neighbour_plane(vectors: NDArray[Any]) -> Vectors:
    """Return vectors [V, D] laid out by UMAP, near ones near, each axis scaled to −1 … 1.

    It is seeded, so that a map is the same each time. Fewer than four vectors have no neighbours
    to lay out: they stand in their principal plane.
    """
    if len(vectors) < 4:
        return principal_plane(vectors)
    neighbours = min(_NEIGHBOURS, len(vectors) - 1)
    layout = _umap().UMAP(
        n_components=2, n_neighbors=neighbours, metric="cosine", random_state=0, n_jobs=1
    )
    plane = np.asarray(layout.fit_transform(vectors), np.float64)
    lowest, highest = plane.min(axis=0), plane.max(axis=0)
    plane -= (lowest + highest) / 2
    farthest = np.abs(plane).max(axis=0)
    scaled: Vectors = (plane / np.where(farthest > 0, farthest, 1)).astype(np.float32)
    return scaled


def _umap() -> Any:
    """Return the package that lays out by neighbours, which nothing else needs."""
    try:
        return import_module("umap")
    except ImportError as error:
        raise ValueError(
            "map umap needs the package umap-learn, which is not installed: pip install umap-learn"
        ) from error


def principal_plane(vectors: NDArray[Any]) -> Vectors:
    """Return vectors [V, D] projected on their two principal axes, each scaled to −1 … 1.

    The signs of axes are arbitrary: the largest weight of each is positive here, so that a map is
    the same each time.

    >>> principal_plane(np.array([[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]])).round(3).tolist()
    [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    """
    count, width = vectors.shape
    mean = vectors.mean(axis=0, dtype=np.float64)
    spread = np.zeros((width, width))
    for start in range(0, count, _BLOCK):
        block = vectors[start : start + _BLOCK] - mean
        spread += block.T @ block
    sizes, axes = np.linalg.eigh(spread)
    axes = axes[:, ::-1][:, :2]
    # An axis along which nothing varies but rounding would fill the plane with noise.
    axes = axes * (sizes[::-1][:2] > 1e-10 * max(float(sizes[-1]), np.finfo(float).tiny))
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.where(axes[largest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    plane = np.zeros((count, 2), np.float32)
    for start in range(0, count, _BLOCK):
        centred = vectors[start : start + _BLOCK] - mean
        plane[start : start + _BLOCK, : axes.shape[1]] = centred @ axes
    farthest = np.abs(plane).max(axis=0)
    scaled: Vectors = (plane / np.where(farthest > 0, farthest, 1)).astype(np.float32)
    return scaled


def _digest(vectors: Vectors) -> str:
    digest = sha256(str(vectors.shape).encode())
    digest.update(np.ascontiguousarray(vectors).view(np.uint8).data)
    return digest.hexdigest()


def _kept(path: Path, digest: str, count: int) -> Vectors | None:
    """Return what was kept of these vectors; None if it is of others, damaged or not there."""
    if not path.is_file():
        return None
    try:
        arrays, fields = map_arrays(path)
    except ValueError:
        return None
    found = arrays.get(_COORDINATES)
    whole = found is not None and found.shape == (count, 2) and found.dtype == np.float32
    if not whole or fields.get(_OF) != digest:
        return None
    assert found is not None
    # Copied: the file may be replaced while it is mapped.
    copied: Vectors = np.array(found)
    return copied if bool((np.abs(copied) <= 1).all()) else None
