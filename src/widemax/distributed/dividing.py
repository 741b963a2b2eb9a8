"""Models whose tables are divided over processes: their heads, and which parameters are slices."""

from __future__ import annotations

from typing import Any

from torch import nn

from widemax.distributed.heads import SlicedEvaluation, SlicedFullHead, SlicedSampledHead
from widemax.distributed.slices import Slices
from widemax.heads.full import FullHead
from widemax.heads.sampled import SampledHead


def divided_head(head: Any) -> SlicedEvaluation:
    """Return a head that trains and predicts over the slices of all processes."""
    if type(head) is SampledHead:
        return SlicedSampledHead.of(head)
    if type(head) is FullHead:
        return SlicedFullHead.of(head)
    raise ValueError(
        f"vocabulary_parallel takes the heads sampled and full, got {type(head).__name__}"
    )


def slices_of(model: nn.Module) -> dict[str, Slices]:
    """Return which parameters of a model hold only rows of this process, by name."""
    found: dict[str, Slices] = {}
    for prefix, module in model.named_modules():
        slices = getattr(module, "slices", None)
        if isinstance(slices, Slices):
            for name, parameter in module.named_parameters(prefix, recurse=False):
                assert len(parameter) == len(slices.own)
                found[name] = slices
    return found


def check_all_divided(model: nn.Module, num_classes: int) -> None:
    """Raise if a model has a table of all classes that no process may hold."""
    divided = slices_of(model)
    for name, parameter in model.named_parameters():
        if name not in divided and parameter.dim() and len(parameter) == num_classes:
            raise ValueError(
                f"vocabulary_parallel cannot divide {name} of {type(model).__name__}: --model "
                "next-item, cbow and skip-gram with the scorer table have tables that it can"
            )
