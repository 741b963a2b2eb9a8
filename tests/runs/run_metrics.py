"""What a run stored when it was trained, against what the run that is loaded again comes to."""

from widemax.runs.folder.histories import max_history
from widemax.runs.judging.validation import validation_of
from widemax.runs.source.splitting import split_source


def check_stored_metrics(run):
    judge = validation_of(
        run.model,
        split_source(run.config, run.read_source()).validation,
        run.config.metric,
        max_history=max_history(run.config),
        with_seen=run.description["ranks_seen"],
    )
    found = judge()
    (stored,) = [line for line in run.metrics if line["step"] == run.step]
    assert {name: stored[name] for name in found} == found
