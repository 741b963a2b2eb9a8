"""The graph of sessions against counting by hand, and walks against its probabilities."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from widemax.contracts.distribution import check_distribution
from widemax.data import Sequences
from widemax.data.graph import ItemGraph
from widemax.kernels.data.walks import random_walks, random_walks_reference, running_weights

V = 15


def random_sessions(seed=0, num_sessions=200):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 6, (num_sessions,), generator=generator).tolist()
    # Squared, low items are frequent; item 14 is never chosen, empty sessions stand in between.
    return [
        (14 * torch.rand(length, generator=generator) ** 2).long().tolist() for length in lengths
    ]


def random_graph(seed=0):
    return ItemGraph.from_sequences(Sequences.from_lists(random_sessions(seed)), num_items=V)


def edges_of(graph):
    sources = torch.arange(graph.num_items).repeat_interleave(graph.starts.diff())
    edges = zip(sources.tolist(), graph.successors.tolist(), strict=True)
    return dict(zip(edges, graph.weights.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_edges_equal_counting_by_hand(seed):
    expected = Counter(
        (a, b) for session in random_sessions(seed) for a, b in pairwise(session) if a != b
    )
    assert edges_of(random_graph(seed)) == expected


@pytest.mark.parametrize("lists", [[], [[]], [[3]], [[3], [2], []], [[1, 1, 1]]])
def test_sessions_without_a_successor_give_no_edge_and_no_walk(lists):
    graph = ItemGraph.from_sequences(Sequences.from_lists(lists), num_items=5)
    assert len(graph.successors) == 0
    assert len(graph.walks(3, 4, generator=torch.Generator().manual_seed(0))) == 0


def test_walks_follow_the_transition_probabilities():
    graph = random_graph()
    walks = graph.walks(3000, 6, generator=torch.Generator().manual_seed(1))
    inside = torch.ones(len(walks.values) - 1, dtype=torch.bool)
    inside[walks.offsets[1:-1] - 1] = False
    before, after = walks.values[:-1][inside], walks.values[1:][inside]
    for item in range(V):
        edges = slice(int(graph.starts[item]), int(graph.starts[item + 1]))
        if edges.start == edges.stop:
            assert not bool((before == item).any())
            continue
        probability = torch.zeros(V, dtype=torch.float64)
        probability[graph.successors[edges]] = graph.weights[edges] / graph.weights[edges].sum()
        check_distribution(torch.bincount(after[before == item], minlength=V), probability)


def test_walks_start_at_every_item_with_an_edge_and_end_only_where_they_must():
    graph = ItemGraph.from_sequences(Sequences.from_lists([[0, 1, 2, 0], [1, 3]]), num_items=5)
    walks = graph.walks(50, 7, generator=torch.Generator().manual_seed(2))
    firsts, lasts = walks.values[walks.offsets[:-1]], walks.values[walks.offsets[1:] - 1]
    assert torch.bincount(firsts, minlength=5).tolist() == [50, 50, 50, 0, 0]
    short = walks.lengths < 7
    assert bool(short.any())
    assert not bool(short.all())
    assert bool((lasts[short] == 3).all())
    assert int(walks.lengths.max()) == 7


def test_the_kernel_equals_its_reference():
    graph = random_graph()
    starts, successors = graph.starts.numpy(), graph.successors.numpy()
    running = running_weights(starts, graph.weights.numpy())
    first = np.arange(V).repeat(20)
    for seed in (0, 7, 2**63 - 500):
        values, lengths = random_walks(starts, successors, running, first, 9, seed)
        other_values, other_lengths = random_walks_reference(
            starts, successors, running, first, 9, seed
        )
        np.testing.assert_array_equal(values, other_values)
        np.testing.assert_array_equal(lengths, other_lengths)


def test_the_same_seed_gives_the_same_walks():
    graph = random_graph()
    first, second, other = (
        graph.walks(5, 8, generator=torch.Generator().manual_seed(seed)).values
        for seed in (4, 4, 5)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_light_edge_behind_heavy_ones_is_walked():
    """One running sum over all nodes would lose it in rounding."""
    graph = ItemGraph(
        torch.tensor([0, 1, 3, 3]), torch.tensor([1, 0, 2]), torch.tensor([1e18, 1.0, 1.0])
    )
    walks = graph.walks(200, 2, generator=torch.Generator().manual_seed(0))
    from_one = walks.values.view(-1, 2)[200:, 1]
    assert 60 < int((from_one == 2).sum()) < 140


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ItemGraph.from_sequences(Sequences.from_lists([[4]]), num_items=3), "num_items"),
        (lambda: random_graph().walks(0, 5), "per_item"),
        (lambda: random_graph().walks(2**40, 5), "per_item"),
        (lambda: random_graph().walks(1, 1), "length"),
        (lambda: ItemGraph(torch.tensor([0, 1]), torch.tensor([1]), torch.ones(1)), "successors"),
        (lambda: ItemGraph(torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(1)), "weights"),
        (lambda: ItemGraph(torch.tensor([0, 1]), torch.tensor([0]), torch.ones(2)), "weights"),
        (lambda: ItemGraph(torch.tensor([0, 2]), torch.tensor([0]), torch.ones(1)), "starts"),
        (
            lambda: ItemGraph(torch.tensor([0, 2, 1]), torch.tensor([0]), torch.ones(1)),
            "starts",
        ),
    ],
)
def test_wrong_arguments_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
