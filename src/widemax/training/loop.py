"""The training loop: batches in a seeded order, exact validation, checkpoints that resume."""

from __future__ import annotations

import math
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from types import FrameType

from torch import Tensor

from widemax.storage.state_dicts import flatten_state, unflatten_state
from widemax.training.checkpoints import CheckpointStore
from widemax.training.steps import Steps
from widemax.training.stopping import Difference, Validation
from widemax.training.together import ALONE, Together
from widemax.training.tracking import Tracker

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """Training was stopped by a signal; all that was done is saved."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a loop trains: what of a configuration concerns it."""

    total_steps: int
    """When to stop at the latest."""
    learning_rate: Callable[[int, float], float]
    """The learning rate of each step, counted from 0, at a share of the time that has passed."""
    time_budget: float = math.inf
    """After how many seconds to stop, those before a resumption included."""
    follows_time: bool = False
    """Whether the learning rate follows the time where that is limited, not the steps alone."""
    validate_every: int = 0
    """Every how many steps to validate; 0 is at the end of each epoch."""
    patience: int = 0
    """After how many validations without a better metric to stop; 0 is never."""
    patience_steps: int = 0
    """How many steps must have passed since the best one, too."""
    floor: float | None = None
    """What the metric must have reached before patience counts."""
    checkpoint_every: int = 0
    """Every how many steps to save; 0 is at the end of each epoch."""
    metric: str = "loss"
    """Which metric of a validation decides; all but "loss" are better when larger."""


@dataclass
class Progress:
    """Where a run stands: all that is not in the model, the optimiser or a generator."""

    step: int = 0
    """How many steps were taken."""
    seconds: float = 0.0
    """How long training has taken."""
    best: float = math.inf
    """The best metric so far, as something to minimise."""
    best_step: int = 0
    """The step it was measured at."""
    chosen_step: int = 0
    """The latest step that was as good as the best one, within the error of their difference."""
    waited: float = 0
    """How many validations since then were no better; half of one that is so within its error."""
    finished: str = ""
    """Why training ended: "steps", "time" or "patience"; empty while it has not."""


def _warn_if_not_finite(metric: str, value: float) -> None:
    """Say that a metric cannot tell which checkpoint is best; the same text once a run."""
    if math.isnan(value):
        warnings.warn(
            f"validation: {metric} is NaN, so that no checkpoint is the best one: the model gives "
            "scores that are not finite (a smaller learning rate may help)",
            stacklevel=4,
        )
    elif math.isinf(value):
        warnings.warn(
            f"validation: {metric} is infinite, so that no checkpoint is the best one: some target "
            'has probability 0; let another metric decide, such as "ndcg@20"',
            stacklevel=4,
        )


class Loop:
    """Takes steps until their number, time or patience is spent.

    ``Steps`` decides what a step does; its number and its state, saved with every checkpoint,
    determine the next one. Validation runs between steps and draws nothing.
    """

    def __init__(
        self,
        steps: Steps,
        plan: Plan,
        *,
        store: CheckpointStore,
        validate: Callable[[], Mapping[str, float]] | None = None,
        trackers: Sequence[Tracker] = (),
        together: Together = ALONE,
        on_step: Callable[[Progress], None] = lambda progress: None,
        on_validation: Callable[[Progress, Mapping[str, float]], None] = lambda p, metrics: None,
    ) -> None:
        self.steps, self.model, self.plan = steps, steps.model, plan
        self.store, self.validate, self.trackers = store, validate, trackers
        self.together = together
        self.on_step, self.on_validation = on_step, on_validation
        self.progress = Progress()
        self._best_values: Tensor | None = None
        self._chosen_metric: float | None = None
        self._stop_signal = 0
        self._published_step: int | None = None
        self._writer: Executor | None = None
        self._being_written: Future[None] | None = None

    def run(self) -> Progress:
        """Train to the end; on SIGINT or SIGTERM save and raise ``Interrupted``."""
        started = time.perf_counter() - self.progress.seconds
        with self._listening(), self._writing_beside():
            while not self.progress.finished:
                step = self.progress.step
                self.steps.take(step, self.plan.learning_rate(step, self._passed()))
                self.progress.step += 1
                seconds = time.perf_counter() - started
                self.progress.seconds = self.together.agreed(seconds, self._stop_signal)
                self._after_step()
                if self.together.stops(self._stop_signal) and not self.progress.finished:
                    self.save()
                    self._wait_until_written()
                    raise Interrupted
            self._wait_until_written()
        return self.progress

    def _passed(self) -> float:
        """Return the share of the time that has passed, as far as the learning rate follows it."""
        return self.progress.seconds / self.plan.time_budget if self.plan.follows_time else 0.0

    def _after_step(self) -> None:
        progress, plan = self.progress, self.plan
        last = progress.step >= plan.total_steps or progress.seconds >= plan.time_budget
        is_chosen = False
        if self.validate and (last or self._due(plan.validate_every)):
            is_chosen = self._validate()
        if last and not progress.finished:
            progress.finished = "steps" if progress.step >= plan.total_steps else "time"
        # The chosen one is saved when it is found: the next one that is due is another model.
        if progress.finished or is_chosen or self._due(plan.checkpoint_every):
            self.save()
        self.on_step(progress)

    def _due(self, every: int) -> bool:
        return self.progress.step % (every or self.steps.per_epoch) == 0

    def _validate(self) -> bool:
        """Judge the model as it is now; return whether it is chosen, until another one is.

        Chosen is what is best, and after that what may be as good: noise alone must not decide for
        a model that was trained for less.
        """
        assert self.validate is not None
        progress, plan = self.progress, self.plan
        self._publish()
        self.model.eval()
        found = self.together.validated(self.validate)
        metrics = Validation(found, getattr(found, "per_question", None))
        # Kept as something to minimise: recall and its like are better when larger.
        sign = 1 if plan.metric == "loss" else -1
        value = metrics[plan.metric] * sign
        _warn_if_not_finite(plan.metric, value)
        is_best, as_good = value < progress.best, False
        if (values := metrics.per_question) is not None:
            metrics["standard_error"] = Difference.of(values).error
            if self._best_values is not None:
                behind = Difference.of((values - self._best_values) * sign)
                metrics |= {"behind_best": behind.mean, "behind_best_error": behind.error}
                as_good = behind.mean <= behind.error < math.inf
        if is_best:
            progress.best, progress.best_step, progress.waited = value, progress.step, 0
            self._best_values = values
        elif plan.floor is None or progress.best < plan.floor * sign:
            # Half of one that may be as good: noise alone must not end a training.
            progress.waited += 0.5 if as_good else 1.0
        if is_best or as_good:
            progress.chosen_step, self._chosen_metric = progress.step, value
        if self._out_of_patience():
            progress.finished = "patience"
        for tracker in self.trackers:
            tracker.log(progress.step, {**metrics, "seconds": progress.seconds})
        self.on_validation(progress, metrics)
        return progress.chosen_step == progress.step

    def _publish(self) -> None:
        """Make the model what it is after this step; once, where it is validated and then saved."""
        if self._published_step != self.progress.step:
            self._wait_until_written()
            self.steps.publish()
            self._published_step = self.progress.step

    def _out_of_patience(self) -> bool:
        progress, plan = self.progress, self.plan
        since = progress.step - progress.best_step
        return 0 < plan.patience <= progress.waited and since >= plan.patience_steps

    def save(self) -> None:
        """Save everything that the next step depends on."""
        self._wait_until_written()
        progress, together = self.progress, self.together
        if together.decided(progress.step in self.store.steps()):
            return
        self._publish()
        best = {} if self._best_values is None else {"best_values": self._best_values}
        tensors, rest = flatten_state({"progress": asdict(progress), **best, **self.steps.state()})
        metric = self._chosen_metric if progress.chosen_step == progress.step else None
        # Any module can be trained; a model knows which of its tensors its vectors are.
        named: Callable[[], str] = getattr(self.model, "vectors_name", str)
        answers: Callable[[], dict[str, str | float]] = getattr(self.model, "table_answers", dict)
        with together.whole(self.store.root, self.model.state_dict(), tensors) as found:
            if together.writes:
                self._write(
                    partial(
                        self.store.save,
                        progress.step,
                        *found,
                        rest,
                        metric=metric,
                        vectors=named(),
                        answers=answers(),
                    )
                )
        together.wait()

    def _write(self, save: Callable[[], None]) -> None:
        if self._writer is None:
            save()
        else:
            self._being_written = self._writer.submit(save)

    def _wait_until_written(self) -> None:
        """Wait until what was saved is on disk; raise what kept it from there."""
        being_written, self._being_written = self._being_written, None
        if being_written is not None:
            being_written.result()

    @contextmanager
    def _writing_beside(self) -> Iterator[None]:
        """Write checkpoints while steps are taken, where these leave the model as it is."""
        if self.together.size > 1 or not getattr(self.steps, "trains_copies", False):
            yield
            return
        with ThreadPoolExecutor(1) as self._writer:
            try:
                yield
            finally:
                self._writer = None

    def resume(self) -> bool:
        """Go back to the newest checkpoint; return whether there is one."""
        checkpoint = self.store.latest(skip_damaged=True)
        if checkpoint is None:
            return False
        rows_of = self.together.rows_of
        self.model.load_state_dict(checkpoint.model_tensors(rows_of))
        state = unflatten_state(checkpoint.state_tensors(rows_of), checkpoint.state)
        self.steps.load_state(state)
        self.progress, self._published_step = Progress(**state["progress"]), None
        self._best_values = state.get("best_values")
        if self._may_continue():
            self.progress.finished = ""
        return True

    def _may_continue(self) -> bool:
        """Return whether nothing ends the training any more: its plan may be another by now."""
        progress, plan = self.progress, self.plan
        if progress.step >= plan.total_steps or progress.seconds >= plan.time_budget:
            return False
        return not self._out_of_patience()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Turn SIGINT and SIGTERM into a request that is answered after the step."""

        def note(number: int, frame: FrameType | None) -> None:
            self._stop_signal = number

        try:
            before = {number: signal.signal(number, note) for number in _SIGNALS}
        except ValueError:  # not the main thread: whoever runs that one decides
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
