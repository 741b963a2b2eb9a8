"""Which parameters of a model are tables, whose gradients hold only the rows that were used."""

from __future__ import annotations

from torch import nn


def sparse_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of modules that say ``sparse``, by their names in the model.

    As ``nn.Embedding(sparse=True)`` and ``TableScorer(sparse=True)`` do: the parameters of such a
    module itself and of its ``nn.ParameterList``s, not those of other modules within it. One of
    two names of the same parameter is returned.

    >>> model = nn.Sequential(nn.Embedding(1000, 4, sparse=True), nn.Linear(4, 2))
    >>> list(sparse_parameters(model))
    ['0.weight']
    """
    found: dict[str, nn.Parameter] = {}
    for path, module in model.named_modules():
        if getattr(module, "sparse", False) is True:
            lists = [(n, m) for n, m in module.named_children() if isinstance(m, nn.ParameterList)]
            for name, part in [("", module), *lists]:
                for own, parameter in part.named_parameters(recurse=False):
                    place = ".".join(each for each in (path, name, own) if each)
                    if parameter.requires_grad and all(parameter is not p for p in found.values()):
                        found[place] = parameter
    return found
