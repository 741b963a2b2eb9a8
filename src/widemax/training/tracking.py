"""Where the metrics of a run go: a file of JSON lines always, other trackers beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from widemax.extras import import_extra
from widemax.storage.files import atomic_write, read_text

_MOST_METRICS = 2**28  # bytes: a million validations
_TENSORBOARD = "torch.utils.tensorboard"


class Tracker(Protocol):
    """Something that takes the metrics of a step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of one step."""

    def close(self) -> None:
        """Write what is still to be written."""


class JsonLines:
    """The metrics of a run, one JSON object a line; what is not finite is null.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "metrics.jsonl"
    >>> tracker = JsonLines(path)
    >>> tracker.log(10, {"loss": 2.5}); tracker.close()
    >>> read_metrics(path)
    [{'step': 10, 'loss': 2.5}]
    """

    def __init__(self, path: str | Path, *, after_step: int | None = None) -> None:
        """Continue a file; lines after ``after_step`` belong to a part that is run again."""
        self.path = Path(path)
        lines = read_metrics(self.path) if self.path.exists() else []
        kept = [line for line in lines if after_step is not None and line["step"] <= after_step]
        with atomic_write(self.path) as file:
            file.write("".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = self.path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line."""
        plain = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        try:
            self._file.write(json.dumps({"step": step, **plain}) + "\n")
            self._file.flush()
        except OSError as error:  # a full disk names no file
            raise OSError(error.errno, error.strerror or str(error), str(self.path)) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_metrics(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics file; a last line that a crash cut off is left out."""
    rows = []
    lines = read_text(path, most=_MOST_METRICS).splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        if number == len(lines) and not line.endswith("\n"):
            break
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number:,}: not JSON ({error})") from error
        if not isinstance(row, dict) or not isinstance(row.get("step"), int):
            raise ValueError(f"{path}, line {number:,}: no metrics of a step")
        rows.append(row)
    return rows


class TensorBoard:
    """The metrics of a run for TensorBoard; needs the package ``tensorboard``."""

    def __init__(self, folder: str | Path, *, after_step: int = 0) -> None:
        """Continue a folder; points after ``after_step`` belong to a part that is run again."""
        self._writer = import_extra("tensorboard", _TENSORBOARD).SummaryWriter(
            str(folder), purge_step=after_step + 1
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is still to be written."""
        self._writer.close()


@contextmanager
def _refusal_named(mlflow: Any) -> Iterator[None]:
    """Turn an error of MLflow into one that says which store it is about."""
    try:
        yield
    except mlflow.MlflowException as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"MLflow does not keep runs at {mlflow.get_tracking_uri()} "
            f"(MLFLOW_TRACKING_URI says where): {reason}"
        ) from error


class MLflow:
    """The metrics of a run for MLflow; needs the package ``mlflow`` or ``mlflow-skinny``."""

    def __init__(self, name: str) -> None:
        self._mlflow = import_extra("mlflow")
        with _refusal_named(self._mlflow):
            self._mlflow.start_run(run_name=name)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics; MLflow takes no ``@`` in a name."""
        named = {name.replace("@", "_at_"): value for name, value in metrics.items()}
        self._mlflow.log_metrics(named, step=step)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


def check_tracking(name: str) -> None:
    """Raise if a tracker cannot be used: before the data are read and a folder is made."""
    if name == "tensorboard":
        import_extra("tensorboard", _TENSORBOARD)
    elif name == "mlflow":
        mlflow = import_extra("mlflow")
        with _refusal_named(mlflow):
            mlflow.MlflowClient().search_experiments(max_results=1)
