"""Trackers, with the packages they are for: what they keep is what ``metrics.jsonl`` says."""

import builtins
import sys

import pytest

import widemax as wm
from widemax.runs.training.preparing import prepare
from widemax.training.tracking import MLflow, TensorBoard, check_tracking

CONFIG = {"epochs": 3, "dimension": 4, "head": "full", "validation_size": 9, "patience": 0}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "text"
    path.write_text("the cat sat on the mat\nthe dog lay on the rug\n" * 20)
    return path


def stored(run):
    """Return {metric: [(step, value), ...]} of the run's own file."""
    curves = {}
    for line in run.metrics:
        for name, value in line.items():
            if name != "step":
                curves.setdefault(name, []).append((line["step"], value))
    assert len(curves["loss"]) == CONFIG["epochs"]
    return curves


def test_tensorboard_holds_the_metrics_of_the_run(source, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = wm.Config(**CONFIG, tracking="tensorboard")
    run = wm.train(source, config, folder=tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    curves = stored(run)
    assert set(events.Tags()["scalars"]) == set(curves)
    for name, points in curves.items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        # An event is a float32.
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in points], name


def test_a_point_that_is_run_again_stands_in_tensorboard_once(source, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = wm.Config(
        **CONFIG, tracking="tensorboard", batch_size=16, validate_every=1, checkpoint_every=4
    )
    training = prepare(source, config, tmp_path / "run")

    def fail(progress):
        if progress.step == 6:
            raise RuntimeError("as if killed")

    training.loop.on_step = fail
    with pytest.raises(RuntimeError, match="as if killed"):
        training.run()
    run = wm.train(source, None, folder=tmp_path / "run", resume=True)
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    wanted = [line["step"] for line in run.metrics]
    assert wanted == list(range(1, wanted[-1] + 1))
    assert [event.step for event in events.Scalars("loss")] == wanted


def test_a_tracker_that_is_not_there_is_told_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ValueError, match="the package mlflow is not installed"):
        wm.train(tmp_path / "absent", wm.Config(tracking="mlflow"), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """MLflow, with a folder as its store: the one that needs neither a server nor a database."""
    package = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    return package


def test_mlflow_holds_the_metrics_of_the_run(mlflow, source, tmp_path):
    run = wm.train(source, wm.Config(**CONFIG, tracking="mlflow"), folder=tmp_path / "named")
    client = mlflow.MlflowClient()
    (kept,) = client.search_runs(["0"])
    assert (kept.info.run_name, kept.info.status) == ("named", "FINISHED")
    curves = stored(run)
    assert set(kept.data.metrics) == {name.replace("@", "_at_") for name in curves}
    for name, points in curves.items():
        history = client.get_metric_history(kept.info.run_id, name.replace("@", "_at_"))
        assert [(each.step, each.value) for each in history] == points, name


def test_a_store_that_mlflow_refuses_is_a_mistake_that_names_it(mlflow, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "ftp://nowhere")
    wanted = r"MLflow does not keep runs at ftp://nowhere \(MLFLOW_TRACKING_URI says where\)"
    with pytest.raises(ValueError, match=wanted):
        MLflow("run")
    with pytest.raises(ValueError, match=wanted):
        check_tracking("mlflow")


def test_a_store_that_mlflow_takes_passes_the_check(mlflow):
    check_tracking("mlflow")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(name, tmp_path, monkeypatch):
    real_import = builtins.__import__

    def without(module, *rest):
        if module.split(".")[0] == name:
            raise ImportError(name)
        return real_import(module, *rest)

    for module in [each for each in sys.modules if name in each.split(".")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setitem(sys.modules, name, None)
    wanted = rf"the package {name} is not installed: pip install 'widemax\[{name}\]'"
    with pytest.raises(ValueError, match=wanted):
        check_tracking(name)
    with pytest.raises(ValueError, match=wanted):
        {"tensorboard": TensorBoard, "mlflow": MLflow}[name](str(tmp_path))


def test_no_tracker_needs_no_package():
    check_tracking("")
