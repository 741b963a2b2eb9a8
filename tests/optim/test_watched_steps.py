"""Hooks and profilers see the steps of our optimisers, as they do those of torch."""

from __future__ import annotations

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from widemax.optim import RowAdam


@pytest.fixture
def optimizer():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    return RowAdam([weight], lr=0.5)


def test_hooks_of_an_optimiser_are_called_around_its_step(optimizer):
    seen = []
    before = optimizer.register_step_pre_hook(lambda *_: seen.append(weight.tolist()))
    optimizer.register_step_post_hook(lambda *_: seen.append(weight.tolist()))
    weight = optimizer.param_groups[0]["params"][0]
    optimizer.step()
    before.remove()
    optimizer.step()
    assert [each[0] for each in seen] == pytest.approx([1.0, 0.5, 0.0], abs=1e-6)


def test_hooks_of_all_optimisers_are_called(optimizer):
    seen = []
    handle = register_optimizer_step_post_hook(lambda own, *_: seen.append(own))
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert seen == [optimizer]


def test_a_closure_goes_through_a_watched_step(optimizer):
    optimizer.register_step_post_hook(lambda *_: None)
    assert optimizer.step(lambda: 3.0) == 3.0


def test_a_profiler_shows_steps(optimizer):
    with torch.autograd.profiler.profile() as profile:
        optimizer.step()
    assert any("Optimizer.step#RowAdam.step" in each.key for each in profile.key_averages())


def test_gradients_are_zeroed_in_place(optimizer):
    optimizer.zero_grad(set_to_none=False)
    assert optimizer.param_groups[0]["params"][0].grad.tolist() == [0.0, 0.0]
