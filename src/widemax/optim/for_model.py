"""One optimiser for a model with tables: by rows for these, AdamW for all the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, StateDict

from widemax.optim.adam import RowAdam
from widemax.optim.base import Group, RowOptimizer
from widemax.optim.tables import sparse_parameters
from widemax.validation import check_not_negative, check_positive


def optimizer_for(
    *modules: nn.Module,
    lr: float = 1e-3,
    weight_decay: float = 0.01,
    table_rule: Callable[..., RowOptimizer] = RowAdam,
    table_lr: float | None = None,
    table_weight_decay: float = 0.0,
) -> JointOptimizer:
    """Return one optimiser for modules: ``table_rule`` for sparse tables, AdamW for the rest.

    Tables are what ``sparse_parameters`` finds; a step touches only the rows that its batch used.
    ``lr`` is for both, which suits ``RowAdam``; Adagrad's rules want a ``table_lr`` of their own,
    about 50 times as large. ``weight_decay`` is AdamW's and leaves the tables alone;
    ``table_weight_decay`` is theirs, decoupled as well, of the rows that a step uses, and leaves
    their biases alone.

    >>> import widemax as wm
    >>> encoder, scorer = nn.Linear(8, 64), wm.TableScorer(100_000, 64)
    >>> head = wm.SampledHead(scorer, wm.LogUniformSampler(100_000, unique=True), num_samples=64)
    >>> optimizer = optimizer_for(encoder, head, lr=0.01)
    >>> before = scorer.weight.detach().clone()
    >>> head(encoder(torch.randn(4, 8)), torch.tensor([1, 2, 3, 99_999])).mean().backward()
    >>> optimizer.step()
    >>> bool((scorer.weight != before).any(1).sum() <= 68)
    True
    """
    for module in modules:
        if not isinstance(module, nn.Module):
            raise ValueError(f"modules must be nn.Modules, got {type(module).__name__}")
    check_positive("lr", lr)
    check_not_negative("weight_decay", weight_decay)
    check_not_negative("table_weight_decay", table_weight_decay)
    together = nn.ModuleList(modules)
    tables = list(sparse_parameters(together).values())
    names = {id(table) for table in tables}
    rest = [p for p in together.parameters() if p.requires_grad and id(p) not in names]
    parts: list[Optimizer] = []
    if table_weight_decay and not tables:
        raise ValueError("table_weight_decay has no effect: modules have no sparse tables")
    if tables:
        groups: list[Group] = [{"params": tables}]
        if table_weight_decay:
            decay = {"weight_decay": table_weight_decay, "decoupled_weight_decay": True}
            biases = [each for each in tables if each.dim() < 2]
            groups = [{"params": [each for each in tables if each.dim() > 1], **decay}]
            groups += [{"params": biases}] if biases else []
        parts.append(table_rule(groups, lr=lr if table_lr is None else table_lr))
    if rest:
        parts.append(torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay))
    if not parts:
        raise ValueError("modules must have parameters that require a gradient, got none")
    return JointOptimizer(parts)


class JointOptimizer(Optimizer):
    """Several optimisers that step as one, for schedulers and checkpoints that take one.

    >>> table, rest = nn.Embedding(10, 2, sparse=True), nn.Linear(2, 1)
    >>> optimizer = optimizer_for(table, rest, lr=0.5)
    >>> [(len(group["params"]), group["lr"]) for group in optimizer.param_groups]
    [(1, 0.5), (2, 0.5)]
    """

    def __init__(self, parts: Sequence[Optimizer]) -> None:
        self.parts = list(parts)
        # The same dictionaries: who changes the rate of a group here changes it there.
        super().__init__([group for part in parts for group in part.param_groups], {})
        self._share()

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Let each part take its step; return what ``closure`` returns, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Load what ``state_dict`` returned: each part what belongs to its groups."""
        groups, start = state_dict["param_groups"], 0
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"state_dict must have {len(self.param_groups)} groups of parameters, "
                f"got {len(groups)}"
            )
        for part in self.parts:
            own: list[Group] = groups[start : start + len(part.param_groups)]
            start += len(own)
            named = {index for group in own for index in group["params"]}
            state = {i: each for i, each in state_dict["state"].items() if i in named}
            part.load_state_dict({"state": state, "param_groups": own})
        self._share()

    def _share(self) -> None:
        """Show groups and states of the parts as this optimiser's own."""
        self.param_groups = [group for part in self.parts for group in part.param_groups]
        self.state = defaultdict(dict)
        for part in self.parts:
            self.state.update(part.state)
            part.state = self.state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; once all parts are there, to the last of them."""
        if len(self.param_groups) >= sum(len(part.param_groups) for part in self.parts):
            self.parts[-1].add_param_group(param_group)
        super().add_param_group(param_group)
