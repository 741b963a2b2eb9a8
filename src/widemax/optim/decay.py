"""Weight decay by part: which parameters of a model decay, and how much."""

from __future__ import annotations

from torch import nn

from widemax.optim.base import Group
from widemax.validation import check_not_negative


def table_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the matrices that are looked up by row, by their names in the model.

    Tables of classes, items, features and positions: the matrices of modules that can be ``sparse``
    and of their ``nn.ParameterList``s, whether or not their gradients are, and what a module names
    as its ``tables``. One of two names of the same parameter is returned.

    >>> from widemax.scoring import TableScorer
    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), TableScorer(9, 4, bias=True))
    >>> list(table_parameters(model))
    ['0.weight', '2.weight']
    """
    found: dict[str, nn.Parameter] = {}
    for path, module in model.named_modules():
        named: tuple[str, ...] | None = getattr(module, "tables", None)
        by_row = isinstance(getattr(module, "sparse", None), bool)
        lists = [(n, m) for n, m in module.named_children() if isinstance(m, nn.ParameterList)]
        for name, part in [("", module), *(lists if by_row else [])]:
            for own, parameter in part.named_parameters(recurse=False):
                is_table = by_row if named is None else own in named
                is_new = all(parameter is not each for each in found.values())
                if is_table and is_new and parameter.dim() > 1 and parameter.requires_grad:
                    found[".".join(each for each in (path, name, own) if each)] = parameter
    return found


def decay_groups(
    model: nn.Module, *, weight_decay: float = 0.0, table_weight_decay: float = 0.0
) -> list[Group]:
    """Return the parameters of a model in groups for an optimiser, each with its weight decay.

    ``table_weight_decay`` is for ``table_parameters``, ``weight_decay`` for all other matrices, as
    of an encoder's layers; biases, norms and whatever else is no matrix do not decay. Decay is
    decoupled, as AdamW's: w ← (1 − lr·decay)·w before each update of w. Of a table whose gradients
    are sparse an optimiser by rows decays those rows alone that a step uses: frequent classes as
    often as they are trained, a class that is never used not at all; ``DenseAdam`` decays all rows.
    Decay of parameters that the model does not have is refused. Without decay it is one group.

    >>> model = nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Linear(4, 2))
    >>> groups = decay_groups(model, weight_decay=0.1, table_weight_decay=0.01)
    >>> [(len(each["params"]), each["weight_decay"]) for each in groups]
    [(1, 0.01), (1, 0.1), (1, 0.0)]
    """
    check_not_negative("weight_decay", weight_decay)
    check_not_negative("table_weight_decay", table_weight_decay)
    if not weight_decay and not table_weight_decay:
        return [{"params": list(model.parameters())}]
    tables = list(table_parameters(model).values())
    names = {id(table) for table in tables}
    others = [each for each in model.parameters() if id(each) not in names]
    dense = [each for each in others if each.dim() > 1 and each.requires_grad]
    if weight_decay and not dense:
        raise ValueError(
            f"weight_decay = {weight_decay:g} has no effect: {type(model).__name__} has no layers, "
            "its matrices are all tables, which table_weight_decay is for"
        )
    if table_weight_decay and not tables:
        raise ValueError(
            f"table_weight_decay = {table_weight_decay:g} has no effect: {type(model).__name__} "
            "has no tables"
        )
    names |= {id(each) for each in dense}
    rest = [each for each in others if id(each) not in names]
    groups = [(tables, table_weight_decay), (dense, weight_decay), (rest, 0.0)]
    return [
        {"params": params, "weight_decay": decay, "decoupled_weight_decay": True}
        for params, decay in groups
        if params
    ]
