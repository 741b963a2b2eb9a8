"""Losses and gradients against TensorFlow 2.21's candidate-sampling losses, float64."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from widemax.heads import hits_by_class
from widemax.objectives import nce, sampled_logistic, sampled_softmax

DATA = Path(__file__).parents[1] / "golden"
CASES = json.loads((DATA / "candidate_losses.json").read_text())
ROWS = {
    ("softmax", True): sampled_softmax,
    ("softmax", False): sampled_softmax,
    ("nce", True): partial(sampled_logistic, normalize_positives=True),
    ("nce", False): partial(nce, normalize_positives=True),
}


@pytest.fixture(scope="module")
def arrays():
    with np.load(DATA / "candidate_losses.npz", allow_pickle=False) as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def losses_of(case, parameters, read):
    weights, biases, hidden = parameters
    targets, sampled = read("targets"), read("sampled")
    hits = hits_by_class(sampled, targets)
    keep_hits = case["kind"] == "softmax" and not case["remove_accidental_hits"]
    return ROWS[case["kind"], case["remove_accidental_hits"]](
        (weights[targets] * hidden[:, None]).sum(-1) + biases[targets],
        hidden @ weights[sampled].T + biases[sampled],
        target_log_expected_count=read("target_expected_count").log(),
        log_expected_count=read("sampled_expected_count").log(),
        hits=None if keep_hits else hits,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_tensorflow_losses_and_gradients(case, arrays):
    def read(name):
        return arrays[f"{case['name']}/{name}"]

    names = ("weights", "biases", "hidden")
    parameters = [read(name).clone().requires_grad_() for name in names]
    losses = losses_of(case, parameters, read)
    torch.testing.assert_close(losses, read("loss"), rtol=0, atol=1e-9)
    gradients = torch.autograd.grad(losses.sum(), parameters)
    for name, gradient in zip(names, gradients, strict=True):
        torch.testing.assert_close(gradient, read(f"grad_{name}"), rtol=0, atol=1e-9, msg=name)


def test_all_cases_are_there_and_some_have_hits(arrays):
    """Without a hit, removing hits would be tested by nothing."""
    assert len(CASES) == 24
    removing = [case["name"] for case in CASES if case["remove_accidental_hits"]]
    with_hits = [
        name
        for name in removing
        if hits_by_class(arrays[f"{name}/sampled"], arrays[f"{name}/targets"]).any()
    ]
    assert len(with_hits) >= 6
