"""A module as an ONNX model: traced, with texts as inputs, described, checked."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from widemax.data.features.schema import FeatureSchema
from widemax.extras import import_extra

# Old enough for every runtime of the last years, new enough for all that encoders do.
_OPSET, _TEXT_OPSET = 17, 3
MOST_BYTES = 2**31 - 2**20
"""What an ONNX file can hold, with some room for the graph."""


@dataclass(frozen=True)
class Input:
    """An input of a traced module."""

    name: str
    """By which a runtime is given it."""
    example: Tensor
    """Of the type and the number of dimensions it has."""
    axes: tuple[str, ...]
    """What each of its dimensions is called; all of them are free."""
    texts: Sequence[str] = ()
    """Where a runtime gives texts: text i has code i + 1, any other code 0."""


def feature_inputs(schema: FeatureSchema, prefix: str, rows: str) -> list[Input]:
    """Return an input for each field of features, named by it: texts as they are, and numbers."""
    inputs = []
    for each in schema.fields:
        name, texts = f"{prefix}_{each.field.name}", ()
        if each.values is None:
            inputs.append(Input(name, torch.zeros(1, dtype=torch.float64), (rows,)))
            continue
        tokens = each.field.kind == "tokens"
        example = torch.zeros((1, 1) if tokens else 1, dtype=torch.int64)
        texts = tuple(each.values.keys.to_list())
        inputs.append(Input(name, example, (rows, f"{name}_tokens")[: example.dim()], texts))
    return inputs


def check_size(module: nn.Module) -> None:
    """Raise if the parameters of a module are more than an ONNX file can hold."""
    tensors = {id(each): each for each in (*module.parameters(), *module.buffers())}
    size = sum(each.numel() * each.element_size() for each in tensors.values())
    if size > MOST_BYTES:
        raise ValueError(
            f"an ONNX file holds less than 2 GB, got {size:,} bytes of parameters: export the "
            "vectors to safetensors and gather them where they are served"
        )


def traced(
    module: nn.Module,
    inputs: Sequence[Input],
    outputs: Sequence[str],
    about: Mapping[str, str],
) -> bytes:
    """Return a module as the bytes of an ONNX model, with what is to be known ``about`` it."""
    onnx = import_extra("onnx")
    check_size(module)
    axes = {each.name: dict(enumerate(each.axes)) for each in inputs}
    axes |= {name: {0: inputs[0].axes[0]} for name in outputs}
    written = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        # The exporter that follows this one needs a package more, and warns of itself until then.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(each.example for each in inputs),
            written,  # type: ignore[arg-type]
            input_names=[each.name for each in inputs],
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(written.getvalue())
    for each in inputs:
        if each.texts:
            _read_texts(onnx, model, each)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def _read_texts(onnx: Any, model: Any, given: Input) -> None:
    """Let an input of codes be one of texts."""
    graph, codes = model.graph, f"{given.name} codes"
    for node in graph.node:
        node.input[:] = [codes if name == given.name else name for name in node.input]
    (own,) = [each for each in graph.input if each.name == given.name]
    own.type.tensor_type.elem_type = onnx.TensorProto.STRING
    node = onnx.helper.make_node(
        "LabelEncoder",
        [given.name],
        [codes],
        domain="ai.onnx.ml",
        keys_strings=list(given.texts),
        values_int64s=list(range(1, len(given.texts) + 1)),
        default_int64=0,
    )
    graph.node.insert(0, node)
    if all(each.domain != "ai.onnx.ml" for each in model.opset_import):
        model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", _TEXT_OPSET))
