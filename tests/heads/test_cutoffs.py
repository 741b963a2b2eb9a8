"""Automatic cutoffs: the cheapest under the cost model, and a cost model that is sane."""

import pytest
import torch

from tests.heads import head_cases_structured as cases
from widemax.heads import AdaptiveHead, CostModel
from widemax.heads.adaptive.cutoffs import choose_cutoffs, expected_seconds


def test_automatic_cutoffs_are_the_cheapest_of_an_exhaustive_search():
    """On 12 classes the grid holds every place: the search must find the best of all."""
    counts = cases.zipf(12)
    model = CostModel(overhead=1e-7, per_score=1e-8, per_product=1e-8, per_parameter=0.0)
    options = {"batch_size": 64, "reduction": 2.0, "cost_model": model}
    chosen = choose_cutoffs(counts, 64, **options)
    plans = [[], *([a] for a in range(1, 12)), *([a, b] for b in range(12) for a in range(1, b))]
    plans += [[a, b, c] for c in range(12) for b in range(c) for a in range(1, b)]
    least = min(expected_seconds(plan, counts, 64, **options) for plan in plans)
    assert expected_seconds(chosen, counts, 64, **options) == pytest.approx(least)
    assert chosen, "with calls this cheap a tail pays"


@pytest.mark.parametrize("bad", [[], [10], [50_000], [10, 99_000], [20_000, 90_000]])
def test_automatic_cutoffs_beat_bad_ones_under_the_model(bad):
    counts = cases.zipf(100_000)
    chosen = choose_cutoffs(counts, 128, cost_model=cases.MACHINE)
    least = expected_seconds(chosen, counts, 128, cost_model=cases.MACHINE)
    assert least < expected_seconds(bad, counts, 128, cost_model=cases.MACHINE)


def test_expensive_calls_and_even_counts_leave_no_tail():
    slow = CostModel(overhead=10.0, per_score=1e-9, per_product=1e-10, per_parameter=1e-9)
    assert choose_cutoffs(cases.zipf(1000), 64, cost_model=slow) == []
    model = cases.MACHINE
    assert choose_cutoffs(cases.zipf(1000), 64, cost_model=model) == choose_cutoffs(
        cases.zipf(1000), 64, cost_model=model
    )
    assert len(choose_cutoffs(cases.zipf(1000), 32, cost_model=model)) <= 1, "below 8 dimensions"


def test_the_measured_model_is_sane_and_measured_once():
    model = CostModel.measured()
    assert model is CostModel.measured()
    parts = (model.overhead, model.per_score, model.per_product, model.per_parameter)
    assert min(parts) >= 0
    assert model.seconds(1024, 100_000, 128) > model.seconds(16, 100, 8) > 0
    head = AdaptiveHead(32, 5000, counts=cases.zipf(5000))
    assert head(torch.randn(4, 32), torch.tensor([0, 10, 999, 4999])).isfinite().all()
