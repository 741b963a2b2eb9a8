"""A folder that a run is served from without widemax or torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from widemax.declarations import declare
from widemax.extras import import_extra
from widemax.runs.export.faiss import ABOUT_FILE, INDEX_FILE, VOCABULARY_FILE, export_faiss
from widemax.runs.export.onnx import (
    check_encoder,
    described,
    export_onnx,
    scorer_of,
    write_onnx_items,
)
from widemax.scoring.tower import TowerScorer
from widemax.storage.files import make_folder
from widemax.storage.manifest import file_sha256, write_manifest

if TYPE_CHECKING:
    from widemax.runs.run import Run

ENCODER_FILE = "encoder.onnx"
ITEMS_FILE = "items.onnx"
MANIFEST_FILE = "serving.json"
FORMAT_VERSION = 1


@declare.export(
    "serving",
    help="A folder with ONNX models of the encoder and of computed items, a Faiss index, and keys.",
    traits=["run"],
)
def export_serving(path: str | Path, run: Run) -> None:
    """Write all that answers for a run: ``encoder.onnx``, a Faiss index, and the vocabulary.

    The score of a class is the inner product of the encoder's output ``query`` and its row in
    ``index.faiss``; row i is key i of ``vocabulary.parquet``. Where items are computed from their
    features, ``items.onnx`` computes rows of new ones. ``serving.json`` names the run and the
    sha256 of each file; it is written last, so that files of two exports do not match it.
    """
    check_encoder(run, "serving")
    scorer = scorer_of(run.model)
    if scorer is None:
        parts = [run.config.parts[slot] for slot in ("model", "head") if run.config.has(slot)]
        named = " with ".join(f"{part.kind} {part.name}" for part in parts)
        raise ValueError(
            f"{named} cannot be exported to serving: it does not rank items by products of vectors"
        )
    for extra in ("onnx", "faiss"):
        import_extra(extra)  # before there is a folder, which would stay empty
    folder = make_folder(path)
    names = [ENCODER_FILE, INDEX_FILE, VOCABULARY_FILE, ABOUT_FILE]
    export_onnx(folder / ENCODER_FILE, run)
    if isinstance(scorer, TowerScorer):
        write_onnx_items(folder / ITEMS_FILE, run.model, about=described(run))
        names.append(ITEMS_FILE)
    export_faiss(folder, run)
    files = {name: file_sha256(folder / name) for name in names}
    write_manifest(folder / MANIFEST_FILE, FORMAT_VERSION, {**described(run), "files": files})
