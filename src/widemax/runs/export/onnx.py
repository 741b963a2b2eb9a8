"""An encoder as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from widemax.declarations import declare
from widemax.encoders import BagEncoder
from widemax.extras import import_extra
from widemax.storage.files import atomic_write

if TYPE_CHECKING:
    from widemax.runs.run import Run

# Old enough for every runtime of the last years, new enough for axes that are inputs.
_OPSET, _IR_VERSION = 17, 8
_MOST_BYTES = 2**31 - 2**20


@declare.export("onnx", help="An ONNX model of the encoder.", traits=["run"])
def export_onnx(path: str | Path, run: Run) -> None:
    """Write the encoder of a run as an ONNX model."""
    encoder: Any = getattr(run.model, "encoder", None)
    if encoder is None:
        raise ValueError(f"{type(run.model).__name__} has no encoder to export: it counts")
    if not isinstance(encoder, BagEncoder):
        raise ValueError(
            f"onnx can hold the encoder of next-item, cbow and skip-gram, not of {run.config.model}"
        )
    write_onnx_encoder(path, encoder)


def write_onnx_encoder(path: str | Path, encoder: BagEncoder) -> None:
    """Write an encoder as an ONNX model that needs no Python to run.

    It is the mean of ``BagEncoder``: input ``context`` int64 [B, H], padded with any negative
    number, output ``hidden`` float32 [B, D]; B and H are free. The file must stay below 2 GB. An id
    beyond the classes is an error of the runtime.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "encoder.onnx"
    >>> write_onnx_encoder(path, BagEncoder(100, 8))
    >>> path.stat().st_size > 100 * 8 * 4
    True
    """
    onnx = import_extra("onnx")
    if not isinstance(encoder, BagEncoder):
        raise ValueError(f"encoder must be a BagEncoder, got {type(encoder).__name__}")
    if encoder.weight.numel() * 4 > _MOST_BYTES:
        raise ValueError(
            f"an ONNX file holds less than 2 GB, got {encoder.weight.numel() * 4:,} bytes of "
            "input vectors: export them to safetensors and gather them where they are served"
        )
    model = _bag_graph(onnx, encoder.weight.detach().float().cpu().numpy())
    onnx.checker.check_model(model)
    with atomic_write(path) as file:
        file.write(model.SerializeToString())


def _bag_graph(onnx: Any, weight: NDArray[np.float32]) -> Any:
    """Return the mean of rows as ONNX operators: ``embedding_bag`` has no counterpart there."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    whole, real = onnx.TensorProto.INT64, onnx.TensorProto.FLOAT
    nodes = [
        node("GreaterOrEqual", ["context", "zero"], ["is_known"]),
        node("Cast", ["is_known"], ["known"], to=real),
        node("Max", ["context", "zero"], ["ids"]),
        node("Gather", ["weight", "ids"], ["rows"]),
        node("Unsqueeze", ["known", "last"], ["mask"]),
        node("Mul", ["rows", "mask"], ["kept"]),
        node("ReduceSum", ["kept", "places"], ["total"], keepdims=0),
        node("ReduceSum", ["known", "places"], ["count"], keepdims=1),
        node("Max", ["count", "one"], ["divisor"]),
        node("Div", ["total", "divisor"], ["hidden"]),
    ]
    constants = {
        "weight": weight,
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.float32),
        "places": np.array([1], np.int64),
        "last": np.array([2], np.int64),
    }
    graph = onnx.helper.make_graph(
        nodes,
        "BagEncoder",
        [info("context", whole, ["B", "H"])],
        [info("hidden", real, ["B", weight.shape[1]])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opset = onnx.helper.make_opsetid("", _OPSET)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION)
