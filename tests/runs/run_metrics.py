"""What a run stored when it was trained, against what the run that is loaded again comes to."""

from widemax.evaluation import evaluate_ranking
from widemax.runs.source import split_source


def check_stored_metrics(run):
    validation = split_source(run.config, run.read_source()).validation
    report = evaluate_ranking(run.model.log_prob, validation)
    (stored,) = [line for line in run.metrics if line["step"] == run.step]
    assert {name: stored[name] for name in report.metrics()} == report.metrics()
