"""Answers for a run that was exported with ``--to serving``: onnxruntime and Faiss, no torch.

``python examples/server.py FOLDER KEY KEY ...`` prints what best follows these items. ``Server`` is
what a web service would hold. It needs ``pip install faiss-cpu onnxruntime polars``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import faiss
import numpy as np
import onnxruntime
import polars as pl


class Server:
    """The files of an export, ready for questions."""

    def __init__(self, folder: Path) -> None:
        # Files of two exports that were mixed up would answer, and wrongly.
        about = json.loads((folder / "serving.json").read_text())
        for name, digest in about["files"].items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise SystemExit(f"{folder / name} is not the file that was exported")
        self.before = [int(place) for place in about["before"].split()]
        self.encoder = onnxruntime.InferenceSession(folder / "encoder.onnx")
        self.index = faiss.read_index(str(folder / "index.faiss"))
        self.keys = pl.read_parquet(folder / "vocabulary.parquet")["key"].to_list()
        self.ids = {key: place for place, key in enumerate(self.keys)}

    def recommend(
        self,
        histories: Sequence[Sequence[str]],
        features: Mapping[str, Sequence[str | float]] | None = None,
        k: int = 10,
    ) -> list[list[tuple[str, float]]]:
        """Return the best items of each user and their scores; what they had is left out.

        A feature that is not given is unknown: "" for a text, NaN for a number.
        """
        known = [
            self.before + [self.ids[key] for key in each if key in self.ids] for each in histories
        ]
        widest = max(map(len, known), default=0)
        context = np.full((len(known), widest), -1, np.int64)
        for row, ids in zip(context, known, strict=True):
            row[: len(ids)] = ids
        given = {"context": context, **self._columns(features or {}, len(known))}
        (queries,) = self.encoder.run(["query"], given)
        # Enough for k that the user has not had.
        found = self.index.search(queries, min(k + widest, len(self.keys)))
        return [
            [(self.keys[place], float(score)) for score, place in zip(*row, strict=True)
             if place not in had][:k]
            for *row, had in zip(*found, map(set, known), strict=True)
        ]  # fmt: skip

    def _columns(
        self, features: Mapping[str, Sequence[str | float]], rows: int
    ) -> dict[str, np.ndarray]:
        """Return the features as the encoder declares them."""
        columns = {}
        for each in self.encoder.get_inputs()[1:]:
            unknown = "" if each.type == "tensor(string)" else np.nan
            columns[each.name] = np.array(features.get(each.name, [unknown] * rows))
        return columns


if __name__ == "__main__":
    for key, score in Server(Path(sys.argv[1])).recommend([sys.argv[2:]])[0]:
        print(f"{score:8.4f}  {key}")
