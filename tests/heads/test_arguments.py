"""Every declared head names the argument that is wrong, before anything is computed."""

from typing import NamedTuple

import pytest
import torch

from tests.heads.declared_heads import NAMES, NUM_CLASSES, make_batch, make_head
from widemax.heads import LayeredHead
from widemax.validation import check_generator

HIDDEN, TARGETS = make_batch()


def weights(*values, dtype=None):
    return torch.tensor([1.0, 1.0, *values], dtype=dtype)


with torch.inference_mode():
    INFERENCE = HIDDEN.clone()

BATCHES = {
    "float64 hidden": ({"hidden": HIDDEN.double()}, r"hidden must have the precision .*float32"),
    "sparse hidden": ({"hidden": HIDDEN.to_sparse()}, "hidden must be dense, got layout"),
    "meta hidden": ({"hidden": HIDDEN.to("meta")}, "hidden must hold values"),
    "inference hidden": ({"hidden": INFERENCE}, "hidden was made in inference mode"),
    "complex hidden": ({"hidden": HIDDEN.cfloat()}, "hidden must be floating point"),
    "generator is a seed": ({"generator": 3}, "generator must be a torch.Generator, got int"),
    "NaN weight": ({"weights": weights(torch.nan, 1, 1)}, "weights must be finite .* got nan"),
    "inf weight": ({"weights": weights(torch.inf, 1, 1)}, "weights must be finite .* got inf"),
    "negative weight": ({"weights": weights(-0.5, 1, 1)}, "weights must be .* 0, got -0.5"),
    "NaN and negative": ({"weights": weights(-1, torch.nan, 1)}, "weights must be finite"),
    "complex weights": (
        {"weights": weights(1, 1, 1, dtype=torch.cfloat)},
        "weights must be real numbers, got dtype torch.complex64",
    ),
    "sparse weights": ({"weights": weights(1, 1, 1).to_sparse()}, "weights must be dense"),
}


@pytest.mark.parametrize("case", BATCHES)
@pytest.mark.parametrize("name", [*NAMES, "layered"])
def test_fault_40_a_wrong_argument_of_a_step_is_named(name, case):
    head = make(name)
    wrong, message = BATCHES[case]
    arguments = {"hidden": HIDDEN, "targets": TARGETS} | wrong
    with pytest.raises(ValueError, match=message):
        head(**arguments)
    assert head(HIDDEN, TARGETS, weights=weights(0, 2, 1)).isfinite().all()


@pytest.mark.parametrize("case", [case for case in BATCHES if "hidden" in case])
@pytest.mark.parametrize("name", [*NAMES, "layered"])
def test_fault_40_a_wrong_hidden_state_is_named_when_asked(name, case):
    head = make(name)
    wrong, message = BATCHES[case]
    calls = {"scores": head.scores, "log_prob": head.log_prob, "topk": lambda x: head.topk(x, 3)}
    for what, call in calls.items():
        if what == "topk" and case == "inference hidden":
            assert torch.equal(call(INFERENCE).ids, call(HIDDEN).ids), "it needs no gradient"
            continue
        with pytest.raises(ValueError, match=message):
            call(wrong["hidden"])


@pytest.mark.parametrize("name", [*NAMES, "layered"])
def test_in_inference_mode_a_hidden_state_of_it_is_right(name):
    head = make(name).eval()
    with torch.no_grad():
        expected = head.log_prob(HIDDEN)
        torch.testing.assert_close(head.log_prob(INFERENCE), expected)
    with torch.inference_mode():
        torch.testing.assert_close(head.log_prob(INFERENCE), expected)
        assert head(INFERENCE, TARGETS).isfinite().all()


@pytest.mark.parametrize("wrong", [None, 1.5, "-100", True, 2**63])
@pytest.mark.parametrize("name", NAMES)
def test_an_ignore_index_that_is_no_id_is_named(name, wrong):
    with pytest.raises(ValueError, match="ignore_index must be"):
        make_head(name, ignore_index=wrong)
    ignoring = make_head(name, ignore_index=NUM_CLASSES - 1)
    assert ignoring(HIDDEN, TARGETS).eq(0).tolist() == [False, False, True, False, False]


class Elsewhere(NamedTuple):
    """A generator of a device that this machine may not have."""

    device: torch.device = torch.device("cuda")


def test_fault_40_a_generator_of_another_device_is_named(monkeypatch):
    monkeypatch.setattr(torch, "Generator", Elsewhere)
    with pytest.raises(ValueError, match="generator must be on cpu like hidden, got one on cuda"):
        check_generator(Elsewhere(), HIDDEN.device)
    for name in NAMES:
        head = make_head(name)
        with pytest.raises(ValueError, match="generator must be on cpu"):
            head(HIDDEN, TARGETS, generator=Elsewhere())


def make(name):
    if name == "layered":
        torch.manual_seed(0)
        return LayeredHead(6, torch.nn.Linear(6, 6), make_head("hierarchical"))
    return make_head(name)
