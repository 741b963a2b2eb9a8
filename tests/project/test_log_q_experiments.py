"""The small experiments on log Q that the docs quote come to what they say."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments"))

import added_target
import gradient_bias
import in_batch_log_q


def test_the_added_target_is_corrected_by_its_own_log_q():
    found = {rule.name: added_target.learned(rule) for rule in added_target.RULES}
    divergence = {name: added_target.divergence(learned) for name, learned in found.items()}
    both, draws_alone, none, replaced, corrected = divergence.values()
    assert abs(both) < 1e-9
    assert draws_alone == pytest.approx(0.0075, abs=1e-4)
    assert none == pytest.approx(0.0269, abs=1e-4)
    assert replaced == pytest.approx(0.0043, abs=1e-4)
    assert corrected == pytest.approx(0.0036, abs=1e-4)


def test_every_sample_is_counted_once():
    for sample in (added_target.distinct(), added_target.with_replacement()):
        assert float(sample.prob.sum()) == pytest.approx(1.0)
        expected = (sample.prob[:, None] * (sample.ids == 0)).sum()
        assert float(expected) == pytest.approx(float(sample.log_count[0].exp()))


def test_copies_that_are_not_counted_cost_the_popular_classes_their_probability():
    found = {
        name: in_batch_log_q.learned(make(), in_batch_log_q.corrected_log_q, steps=400)
        for name, make in in_batch_log_q.ESTIMATES.items()
    }
    ratio = {name: float(each[0] / in_batch_log_q.popularity()[0]) for name, each in found.items()}
    assert ratio["once a batch"] < 0.25
    for name in ("copies", "counts", "distinct"):
        assert ratio[name] == pytest.approx(1.0, abs=0.1)
        assert in_batch_log_q.divergence(found[name]) < 0.01


def test_corrected_log_q_is_ahead_for_one_rare_target_and_even_over_drawn_ones():
    rare, _, drawn = gradient_bias.examples()
    rows = {row.name: row for row in gradient_bias.ROWS}
    found = {
        (example.name, name): gradient_bias.estimate(example, rows[name], 5, scores=400_000)
        for example in (rare, drawn)
        for name in ("sampled_softmax", "corrected_log_q")
    }
    assert max(each.error for each in found.values()) < 0.02
    bias = {key: each.bias for key, each in found.items()}
    assert bias["rare", "corrected_log_q"] < bias["rare", "sampled_softmax"] / 3
    ratio = bias["drawn", "corrected_log_q"] / bias["drawn", "sampled_softmax"]
    assert 0.85 < ratio < 1.3
