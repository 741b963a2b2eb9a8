"""An encoder as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widemax.encoders import BagEncoder
from widemax.extras import import_extra
from widemax.storage.files import atomic_write

# Old enough for every runtime of the last years, new enough for axes that are inputs.
_OPSET, _IR_VERSION = 17, 8
_MOST_BYTES = 2**31 - 2**20


def write_onnx_encoder(path: str | Path, encoder: BagEncoder) -> None:
    """Write an encoder as an ONNX model that needs no Python to run.

    Formula: hidden_b = Σ_h known(b, h) · u(max(context[b, h], 0)) / max(1, Σ_h known(b, h)), with
    known = 1 where the id is not negative: the mean of ``BagEncoder``.

    Shapes: input ``context`` int64 [B, H], padded with -1 → output ``hidden`` float32 [B, D];
    B and H are free.

    Cost: V·D·4 bytes, below 2 GB (the limit of the format); running takes O(B·H·D) memory.

    Reference: the ONNX operators, opset 17.

    Use when: queries are encoded where torch is not. Avoid when: torch is there. An id beyond the
    classes is an error of the runtime, any negative one is padding.

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
