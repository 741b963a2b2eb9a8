"""Evaluation of recommendations: every figure against a plain loop over users and places."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widemax.candidates import TopK
from widemax.data import Holdout, Sequences
from widemax.evaluation import recommendation
from widemax.evaluation.recommendation import evaluate_recommendations
from widemax.heads import FullHead
from widemax.scoring import TableScorer

CLOSE = {"rel": 1e-12, "abs": 1e-12}


class Ranker:
    """Ranks classes by a table of scores, one row for each user, through a head."""

    def __init__(self, scores):
        # Scores as products with unit vectors: exact, so that ties are ties.
        self.head = FullHead(TableScorer(scores.shape[1], scores.shape[0])).requires_grad_(False)
        self.head.scorer.weight.copy_(scores.T)
        self.largest_batch = 0

    def __call__(self, batch, k, *, exclude=None):
        self.largest_batch = max(self.largest_batch, len(batch.users))
        hidden = torch.eye(self.head.scorer.dimension)[batch.users]
        return self.head.topk(hidden, k, exclude=exclude)


def holdout_of(histories, targets):
    return Holdout(
        Sequences.from_lists(histories), Sequences.from_lists(targets), torch.arange(len(targets))
    )


def random_case(seed, users, num_classes, levels):
    generator = torch.Generator().manual_seed(seed)

    def ids(least, most):
        number = int(torch.randint(least, most + 1, (1,), generator=generator))
        return torch.randint(num_classes, (number,), generator=generator).tolist()

    scores = torch.randint(levels, (users, num_classes), generator=generator).float()
    histories = [ids(0, num_classes // 2) for _ in range(users)]
    targets = [ids(1, 6) for _ in range(users)]
    counts = torch.randint(0, 30, (num_classes,), generator=generator)
    counts[0] += 1
    return scores, histories, targets, counts


def lists_of(scores, histories, k, exclude_seen):
    """Sort all classes of each user: by score, then by id; leave out what they had."""
    lists = []
    for row, seen in zip(scores.tolist(), histories, strict=True):
        left = [y for y in range(len(row)) if not (exclude_seen and y in seen)]
        lists.append(sorted(left, key=lambda y, row=row: (-row[y], y))[:k])
    return lists


def metrics_of(ranked, targets, k):
    """Return the metrics of one list, place by place."""
    wanted, best = set(targets), ranked[:k]
    places = [place for place, y in enumerate(best, 1) if y in wanted]
    most = min(k, len(wanted))
    ideal = math.fsum(1 / math.log2(place + 1) for place in range(1, most + 1))
    return {
        "recall": len(places) / len(wanted),
        "hit_rate": float(bool(places)),
        "precision": len(places) / k,
        "ndcg": math.fsum(1 / math.log2(place + 1) for place in places) / ideal,
        "mrr": 1 / places[0] if places else 0.0,
        "map": math.fsum((i + 1) / place for i, place in enumerate(places)) / most,
    }


def buckets_of(counts):
    """Walk down the classes in falling count until each third is full."""
    buckets, total, before = {}, sum(counts), 0
    for y in sorted(range(len(counts)), key=lambda y: (-counts[y], y)):
        buckets[y] = "head" if 3 * before < total else "torso" if 3 * before < 2 * total else "tail"
        before += counts[y]
    return buckets


def gini_of(exposure):
    """The mean difference of all pairs, by twice the mean."""
    n, total = len(exposure), sum(exposure)
    return sum(abs(a - b) for a in exposure for b in exposure) / (2 * n * total)


def assert_mean(mean, values):
    assert mean.value == pytest.approx(math.fsum(values) / len(values), **CLOSE)
    if len(values) == 1:
        assert mean.standard_error is None
    else:
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert mean.standard_error == pytest.approx(error, **CLOSE)


def assert_equals_loop(report, lists, targets, counts):
    per_user = {}
    for k in report.ks:
        for ranked, own in zip(lists, targets, strict=True):
            for name, value in metrics_of(ranked, own, k).items():
                per_user.setdefault(f"{name}@{k}", []).append(value)
        shown = [y for ranked in lists for y in ranked[:k]]
        exposure = [shown.count(y) for y in range(len(counts))]
        expected = {
            "coverage": len(set(shown)) / len(counts),
            "gini": gini_of(exposure),
            "popularity": sum(counts[y] for y in shown) / len(shown),
        }
        for name, value in expected.items():
            assert report.catalogue[f"{name}@{k}"] == pytest.approx(value, **CLOSE)
    assert set(report.means) == set(report.per_user) == set(per_user)
    for name, values in per_user.items():
        assert report.per_user[name].tolist() == pytest.approx(values, **CLOSE)
        assert_mean(report.means[name], values)
    assert_buckets_equal_loop(report, lists, targets, counts)


def assert_buckets_equal_loop(report, lists, targets, counts):
    bucket_of = buckets_of(counts)
    assert [part.name for part in report.buckets] == ["head", "torso", "tail"]
    for part in report.buckets:
        restricted = [[y for y in own if bucket_of[y] == part.name] for own in targets]
        asked = [i for i, own in enumerate(restricted) if own]
        assert part.users == len(asked)
        assert part.targets == sum(len(set(own)) for own in restricted)
        assert part.classes == sum(name == part.name for name in bucket_of.values())
        assert set(part.means) == (
            {f"{name}@{k}" for name in ("recall", "ndcg") for k in report.ks} if asked else set()
        )
        for name, mean in part.means.items():
            kind, k = name.split("@")
            values = [metrics_of(lists[i], restricted[i], int(k))[kind] for i in asked]
            assert_mean(mean, values)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    users=st.integers(1, 12),
    num_classes=st.integers(6, 40),
    levels=st.sampled_from([1, 3, 10**6]),
    ks=st.sets(st.integers(1, 6), min_size=1),
    exclude_seen=st.booleans(),
    rows_at_once=st.integers(1, 13),
)
def test_every_figure_is_that_of_a_plain_loop(
    seed, users, num_classes, levels, ks, exclude_seen, rows_at_once
):
    scores, histories, targets, counts = random_case(seed, users, num_classes, levels)
    report = evaluate_recommendations(
        Ranker(scores),
        holdout_of(histories, targets),
        ks=tuple(ks),
        counts=counts,
        exclude_seen=exclude_seen,
        rows_at_once=rows_at_once,
        keep_per_user=True,
    )
    lists = lists_of(scores, histories, max(ks), exclude_seen)
    assert report.ks == tuple(sorted(ks))
    assert report.targets == sum(len(set(own)) for own in targets)
    pairs = zip(histories, targets, strict=True)
    seen = sum(len(set(own) & set(had)) for had, own in pairs)
    assert report.unreachable == (seen if exclude_seen else 0)
    assert_equals_loop(report, lists, targets, counts.tolist())


def test_a_list_worked_out_by_hand():
    """Lists 4 3 2 1 0 for two users; the one wants 3 and 0, the other 7, which nobody is given."""
    scores = torch.arange(8.0).where(torch.arange(8) < 5, -1.0).expand(2, -1)
    report = evaluate_recommendations(
        Ranker(scores), holdout_of([[5], [6]], [[3, 0], [7]]), ks=(2, 5), keep_per_user=True
    )
    first = {name: values[0].item() for name, values in report.per_user.items()}
    ideal = 1 + 1 / math.log2(3)
    assert first == pytest.approx(
        {
            "recall@2": 0.5,
            "hit_rate@2": 1.0,
            "precision@2": 0.5,
            "ndcg@2": (1 / math.log2(3)) / ideal,
            "mrr@2": 0.5,
            "map@2": 0.25,
            "recall@5": 1.0,
            "hit_rate@5": 1.0,
            "precision@5": 0.4,
            "ndcg@5": (1 / math.log2(3) + 1 / math.log2(6)) / ideal,
            "mrr@5": 0.5,
            "map@5": (1 / 2 + 2 / 5) / 2,
        },
        **CLOSE,
    )
    assert all(values[1] == 0 for values in report.per_user.values())
    assert report.metrics()["recall@5"] == 0.5
    assert report.catalogue == {}
    assert report.buckets == ()


def test_of_one_target_recall_is_the_hit_rate():
    scores, histories, _, _ = random_case(1, 40, 30, 10**6)
    targets = [[row % 30] for row in range(40)]
    metrics = evaluate_recommendations(Ranker(scores), holdout_of(histories, targets)
        , ks=(3, 9)).metrics()  # fmt: skip
    for k in (3, 9):
        assert metrics[f"recall@{k}"] == metrics[f"hit_rate@{k}"]
        assert metrics[f"mrr@{k}"] == metrics[f"map@{k}"]


def test_a_target_given_twice_counts_once():
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    once, twice = (
        evaluate_recommendations(Ranker(scores), holdout_of([[3]], [targets]), ks=(1, 2))
        for targets in ([0, 2], [0, 2, 0, 0])
    )
    assert once == twice
    assert once.metrics()["recall@1"] == 0.5


def test_a_target_that_was_seen_cannot_be_found_and_still_counts():
    scores = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    held = holdout_of([[0]], [[0, 1]])
    report = evaluate_recommendations(Ranker(scores), held, ks=(2,))
    assert (report.unreachable, report.metrics()["recall@2"]) == (1, 0.5)
    assert "1 of them seen before" in str(report)
    assert "--seen-items ranked" in str(report)
    few = replace(report, targets=11)
    assert "1 of them seen before and so out of reach" in str(few)
    assert "--seen-items" not in str(few)
    report = evaluate_recommendations(Ranker(scores), held, ks=(2,), exclude_seen=False)
    assert (report.unreachable, report.metrics()["recall@2"]) == (0, 1.0)


def test_targets_that_nobody_chose_in_training_are_counted():
    held, ranker = holdout_of([[0], [1]], [[1, 2], [2]]), Ranker(torch.zeros(2, 3))
    report = evaluate_recommendations(ranker, held, ks=(1,), counts=torch.tensor([5, 2, 0]))
    assert report.new == 2
    assert "2 of them items that nobody chose in training" in str(report)
    known = evaluate_recommendations(ranker, held, ks=(1,), counts=torch.tensor([5, 2, 1]))
    assert known.new == 0
    assert "nobody chose" not in str(known)


def test_of_equal_scores_the_smaller_id_comes_first():
    held = holdout_of([[0], [5]], [[1], [1]])
    report = evaluate_recommendations(
        Ranker(torch.zeros(2, 6)), held, ks=(1, 2), keep_per_user=True
    )
    assert report.per_user["recall@1"].tolist() == [1.0, 0.0]
    assert report.per_user["mrr@2"].tolist() == [1.0, 0.5]


def test_lists_shorter_than_k_end_in_nothing():
    """One class is left of three: the other places are empty, and no hit of class 0 or -1."""
    held = holdout_of([[1, 2]], [[0, 2]])
    counts = torch.tensor([5, 3, 1])
    report = evaluate_recommendations(Ranker(torch.zeros(1, 3)), held, ks=(3,), counts=counts)
    metrics = report.metrics()
    assert metrics["precision@3"] == pytest.approx(1 / 3)
    assert metrics["coverage@3"] == pytest.approx(1 / 3)
    assert metrics["popularity@3"] == 5.0


@pytest.mark.parametrize("rows_at_once", [1, 7, 64, 500])
def test_results_do_not_depend_on_the_batches(rows_at_once, monkeypatch):
    scores, histories, targets, counts = random_case(3, 300, 60, 10**6)
    held, ranker = holdout_of(histories, targets), Ranker(scores)
    usual = evaluate_recommendations(ranker, held, ks=(1, 20), counts=counts)
    ranker.largest_batch, shown = 0, []
    other = evaluate_recommendations(
        ranker,
        held,
        ks=(1, 20),
        counts=counts,
        rows_at_once=rows_at_once,
        progress=shown.append,
    )
    assert usual == other
    assert ranker.largest_batch == min(rows_at_once, 300)
    assert sum(shown) == 300
    # However long the histories are, what is left out keeps to its limit.
    monkeypatch.setattr(recommendation, "_SEEN_AT_ONCE", 64)
    monkeypatch.setattr(recommendation, "_LISTS_AT_ONCE", 17)
    short = evaluate_recommendations(ranker, held, ks=(1, 20), counts=counts)
    assert short.means["recall@20"].value == pytest.approx(usual.means["recall@20"].value, **CLOSE)


def test_what_is_left_out_keeps_to_its_limit(monkeypatch):
    monkeypatch.setattr(recommendation, "_SEEN_AT_ONCE", 64)
    held = holdout_of([[0] * length for length in (3, 90, 1, 40, 8, 9)], [[1]] * 6)
    batches = [rows.tolist() for rows in recommendation._batches(held, 4)]
    assert sorted(row for rows in batches for row in rows) == list(range(6))
    for rows in batches:
        assert len(rows) == 1 or held.seen(torch.tensor(rows)).numel() <= 64


def test_the_table_and_the_text_show_every_figure():
    scores, histories, targets, counts = random_case(5, 30, 60, 10**6)
    report = evaluate_recommendations(
        Ranker(scores), holdout_of(histories, targets), ks=(5, 10), counts=counts
    )
    rows = report.table()
    assert [len(row) for row in rows] == [3] * len(rows)
    assert [row[0] for row in rows] == [
        *("recall", "hit_rate", "precision", "ndcg", "mrr", "map"),
        *("coverage", "gini", "popularity"),
        *(f"{name}_{kind}" for name in ("head", "torso", "tail") for kind in ("recall", "ndcg")),
    ]
    assert rows[0][1] == str(report.means["recall@5"])
    assert f"{report.metrics()['tail_ndcg@10']:.4f}" in rows[-1][2]
    lines = str(report).splitlines()
    assert len(lines) == 3 + len(rows) + 3
    for row, line in zip(rows, lines[3:-3], strict=True):
        assert line.endswith(row[-1])
    # What no user can guess is said below.
    notes = "\n".join(lines[-3:])
    for name in ("coverage", "gini", "popularity"):
        assert f"{name}: " in notes
    assert "\nHR " in str(report)
    assert "\ntail NDCG " in str(report)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ks": ()}, "ks must hold a length of list, got none"),
        ({"ks": (0,)}, "each of ks must be between 1 and 4, got 0"),
        ({"ks": (5,)}, "each of ks must be between 1 and 4, got 5"),
        ({"rows_at_once": 0}, "rows_at_once must be between 1 and 1,048,576, got 0"),
        ({"max_history": 0}, "max_history must be between 1"),
        ({"counts": torch.ones(2).long()}, "targets of holdout must lie between 0 and 1 .* got 2"),
        ({"counts": torch.zeros(4).long()}, "counts must be above 0 for some class, got 4 zeros"),
        ({"counts": torch.ones(4)}, "counts must hold whole numbers"),
        ({"counts": torch.ones(4, 1).long()}, r"counts must have shape \[V\]"),
    ],
)
def test_errors_name_the_argument_and_the_limit(change, message):
    arguments = {"ks": (1,), "counts": torch.ones(4).long()} | change
    with pytest.raises(ValueError, match=message):
        evaluate_recommendations(Ranker(torch.zeros(1, 4)), holdout_of([[0]], [[2]]), **arguments)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[1, 1]], "topk must name a class once in a list, got 1 twice"),
        ([[1, 9]], "ids of topk must lie between 0 and 3 .* got 9"),
        ([[1]], r"topk must return ids of shape \[1, 2\], got \[1, 1\]"),
    ],
)
def test_lists_that_are_none_are_refused(ids, message):
    def wrong(batch, k, *, exclude):
        return TopK(ids=torch.tensor(ids), scores=torch.zeros(1, 2))

    with pytest.raises(ValueError, match=message):
        evaluate_recommendations(
            wrong, holdout_of([[0]], [[2]]), ks=(2,), counts=torch.ones(4).long()
        )


def test_nobody_to_ask_is_an_error():
    with pytest.raises(ValueError, match="no users"):
        evaluate_recommendations(Ranker(torch.zeros(1, 4)), holdout_of([], []))


def test_users_who_had_everything_are_told_that_nothing_is_left():
    held = holdout_of([[0, 1, 2, 3]], [[2]])
    arguments = {"ks": (1,), "counts": torch.ones(4).long()}
    with pytest.raises(ValueError, match="nothing to recommend: each history has all 4 classes"):
        evaluate_recommendations(Ranker(torch.zeros(1, 4)), held, **arguments)
    shown = evaluate_recommendations(
        Ranker(torch.zeros(1, 4)), held, exclude_seen=False, **arguments
    )
    assert shown.catalogue["coverage@1"] == 0.25
