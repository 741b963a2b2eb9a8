"""``--device`` and ``--precision``: they act, or a line says why they cannot."""

import pytest
import torch

import widemax as wm
from widemax.devices import find_device, plain_torch
from widemax.runs.training.preparing import prepare
from widemax.training.checkpoints import CheckpointStore
from widemax.training.gradients import steps as gradient_steps

SETTINGS = {"epochs": 2, "dimension": 8, "batch_size": 32, "num_samples": 10, "patience": 0}


@pytest.fixture
def log(tmp_path):
    rows = [f"u{user},i{(user * 7 + k) % 30},{k}" for user in range(60) for k in range(8)]
    path = tmp_path / "log.csv"
    path.write_text("user,item,time\n" + "\n".join(rows) + "\n")
    return path


def trained(log, folder, *, interrupted=False, **settings):
    config = wm.Config(model="next-item", checkpoint_every=4, **{**SETTINGS, **settings})
    if interrupted:
        training = prepare(log, config, folder)
        take = training.loop.steps.take

        def end_after_nine(step, rate):
            if step == 9:
                raise KeyboardInterrupt
            take(step, rate)

        training.loop.steps.take = end_after_nine
        with pytest.raises(KeyboardInterrupt):
            training.run()
    run = wm.train(log, config, folder=folder, resume=interrupted)
    assert bool(run.model.head.scorer.weight.isfinite().all())
    return CheckpointStore(folder).load().model_tensors()


def differs(one, other):
    return any(not torch.equal(one[name], other[name]) for name in one)


def test_mixed_precision_acts(log, tmp_path):
    wide, mixed = (trained(log, tmp_path / name, precision=name) for name in ("fp32", "bf16"))
    assert differs(wide, mixed)
    for name, tensor in wide.items():
        assert mixed[name].dtype == tensor.dtype
        torch.testing.assert_close(mixed[name], tensor, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_a_model_goes_to_its_device_and_back(log, tmp_path, monkeypatch, averaging):
    """cpu:0 is a device of its own to the trainer: all is moved, and nothing must change."""
    expected = trained(log, tmp_path / "cpu", averaging=averaging)
    monkeypatch.setattr(gradient_steps, "find_device", lambda name: torch.device("cpu", 0))
    for name in ("get_rng_state", "set_rng_state"):
        monkeypatch.setattr(torch.cpu, name, getattr(torch, name), raising=False)
    for interrupted in (False, True):
        folder = tmp_path / f"other {interrupted}"
        found = trained(log, folder, interrupted=interrupted, averaging=averaging)
        assert not differs(expected, found)


def test_a_run_without_kernels_learns_the_same(log, tmp_path):
    expected = trained(log, tmp_path / "kernels", clip_norm=1.0, sampler="uniform")
    with plain_torch():
        found = trained(log, tmp_path / "plain", clip_norm=1.0, sampler="uniform")
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_a_device_that_is_not_there(log, tmp_path):
    config = wm.Config(model="next-item", device="cuda", **SETTINGS)
    with pytest.raises(ValueError, match=r"one that torch finds here \(.*\), got 'cuda'"):
        wm.train(log, config, folder=tmp_path / "run")
    assert find_device("auto").type in ("cpu", "mps")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "popularity"}, "models that are fitted in one go run on the CPU"),
        ({"model": "item2vec", "trainer": "kernel"}, "the word2vec kernel runs on it"),
    ],
)
def test_what_runs_on_the_cpu_alone_says_so(log, tmp_path, settings, reason):
    with pytest.raises(ValueError, match=f"device must be cpu or auto, got 'cuda': {reason}"):
        wm.train(log, wm.Config(**settings, device="cuda"), folder=tmp_path / "run")
    wm.train(log, wm.Config(**settings, device="auto"), folder=tmp_path / "auto")


def test_the_kernel_has_no_other_precision():
    with pytest.raises(ValueError, match="precision has no effect with trainer = 'kernel'"):
        wm.Config(source="text", model="skip-gram", trainer="kernel", precision="bf16")


def test_a_checkpoint_of_another_device_is_refused(log, tmp_path, monkeypatch):
    config = wm.Config(model="next-item", averaging=0.0, **SETTINGS)
    training = prepare(log, config, tmp_path / "run")
    state = training.loop.steps.state()
    monkeypatch.setattr(training.loop.steps, "device", torch.device("cpu", 0))
    with pytest.raises(ValueError, match="cannot go on from a checkpoint of another device"):
        training.loop.steps.load_state(state)
