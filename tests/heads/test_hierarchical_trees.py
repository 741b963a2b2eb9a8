"""Trees: that they are trees, as short as they may be, and refuse what is none."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.heads.head_cases_hierarchical import TREES
from widemax.heads import Tree
from widemax.kernels.heads.huffman import (
    fill_left,
    fill_left_reference,
    huffman_children,
    huffman_children_reference,
)
from widemax.kernels.heads.two_means import two_means, two_means_reference

COUNTS = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-9, 1e12), st.integers(1, 20).map(float)),
    min_size=1,
    max_size=60,
).filter(any)  # fmt: skip


def walked_depths(tree):
    """The depth of each class by a walk from the root, in plain Python."""
    depths = {}
    waiting = [(0, 0)] if tree.num_classes > 1 else [(-1, 0)]
    while waiting:
        entry, depth = waiting.pop()
        if entry < 0:
            assert -1 - entry not in depths
            depths[-1 - entry] = depth
        else:
            waiting += [(child, depth + 1) for child in tree.children[entry].tolist()]
    return [depths[y] for y in range(tree.num_classes)]


def walked_path(tree, class_id):
    """The (node, sign) pairs of one class, from the root."""
    stack = [(0, [])]
    while stack:
        entry, path = stack.pop()
        if entry == -1 - class_id:
            return path
        if entry >= 0:
            left, right = tree.children[entry].tolist()
            stack += [(left, [*path, (entry, -1)]), (right, [*path, (entry, 1)])]
    raise AssertionError(f"class {class_id} is not in the tree")


@pytest.mark.parametrize("name", TREES)
def test_depths_and_paths_are_those_of_a_walk(name):
    tree = TREES[name]()
    assert tree.depths.tolist() == walked_depths(tree)
    nodes, signs = tree.paths(torch.arange(tree.num_classes))
    for class_id in range(tree.num_classes):
        steps = zip(nodes[class_id].tolist(), signs[class_id].tolist(), strict=True)
        path = [(node, sign) for node, sign in steps if sign]
        assert path[::-1] == walked_path(tree, class_id)


@given(COUNTS)
@settings(max_examples=150, deadline=None)
def test_huffman_is_within_one_bit_of_the_entropy(counts):
    summary = Tree.huffman(counts).describe(counts)
    assert summary.entropy_bits - 1e-9 <= summary.average_path
    assert summary.average_path <= summary.entropy_bits + 1 + 1e-9


def raw_depths(children, num_classes):
    depths = np.zeros(2 * num_classes - 1, dtype=np.int64)
    for merge in range(num_classes - 2, -1, -1):
        depths[children[merge]] = depths[num_classes + merge] + 1
    return depths[:num_classes]


@given(COUNTS)
@settings(max_examples=150, deadline=None)
def test_huffman_is_as_short_as_that_of_a_heap(counts):
    array = np.array(counts)
    kernel = array @ raw_depths(huffman_children(array), len(counts))
    heap = array @ raw_depths(huffman_children_reference(array), len(counts))
    assert math.isclose(kernel, heap, rel_tol=1e-12)
    assert math.isclose(array @ Tree.huffman(counts).depths.numpy(), heap, rel_tol=1e-12)


def test_huffman_is_the_best_of_all_trees_of_few_classes():
    def best(weights):
        if len(weights) == 1:
            return 0.0
        masks = range(1, 2 ** (len(weights) - 1))
        splits = (
            ([w for i, w in enumerate(weights) if mask >> i & 1],
             [w for i, w in enumerate(weights) if not mask >> i & 1])
            for mask in masks
        )  # fmt: skip
        return sum(weights) + min(best(left) + best(right) for left, right in splits)

    generator = np.random.default_rng(0)
    for _ in range(5):
        counts = generator.integers(0, 9, size=6) + np.array([1.0, 0, 0, 0, 0, 0])
        assert counts @ Tree.huffman(counts).depths.numpy() == best(counts.tolist())


def test_zipf_paths_against_entropy_and_log2():
    """Morin & Bengio report 13.3 → 9.16 for their corpus; Zipf's law gives about the same."""
    counts = 1 / np.arange(1, 10_001)
    balanced = Tree.balanced(10_000).describe(counts)
    huffman = Tree.huffman(counts).describe(counts)
    assert balanced.max_depth == 14
    assert round(balanced.average_path, 2) == 13.05
    assert round(huffman.average_path, 2) == 9.56
    assert round(huffman.entropy_bits, 2) == 9.53
    assert round(huffman.log2_classes, 2) == 13.29


def test_equal_counts_and_zero_counts_keep_paths_short():
    assert Tree.huffman(np.ones(1000)).describe().max_depth == 10
    mostly_unseen = np.zeros(1025)
    mostly_unseen[3] = 5
    depths = Tree.huffman(mostly_unseen).depths
    assert depths[3] == 1
    assert depths.max() == 11


def test_extreme_counts():
    falling = [2.0**-y for y in range(1000)]
    assert Tree.huffman(falling).describe().max_depth == 999
    assert Tree.huffman([1e308] * 5).describe().max_depth == 3
    assert Tree.huffman([1e308, 1e-308, 0]).depths.tolist() == [1, 2, 2]


def test_huffman_is_deterministic_and_reads_any_kind_of_counts():
    counts = [3, 1, 1, 1, 0, 2]
    table = Tree.huffman(counts).children
    for same in (np.array(counts), torch.tensor(counts), torch.tensor(counts).float()):
        assert torch.equal(Tree.huffman(same).children, table)


@given(COUNTS, st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_vectors_do_not_change_how_long_a_huffman_path_is(counts, seed):
    vectors = np.random.default_rng(seed).standard_normal((len(counts), 3))
    tree = Tree.huffman(counts, vectors)
    assert torch.equal(tree.depths, Tree.huffman(counts).depths)
    assert tree.depths.tolist() == walked_depths(tree)


def test_leaves_go_left_as_by_fractions_and_fill_both_halves():
    generator = np.random.default_rng(0)
    for counts in (generator.zipf(1.3, 500).astype(float), 2.0 ** -np.arange(300)):
        depths = generator.permutation(Tree.huffman(counts).depths.numpy())
        starts, sizes = np.array([0, len(depths)]), np.array([len(depths)] * 2)
        twice = np.concatenate([depths, depths[::-1]])
        left = fill_left(twice, starts, sizes)
        assert np.array_equal(left, fill_left_reference(twice, starts, sizes))
        for start in starts:
            own = slice(start, start + len(depths))
            taken = sum(Fraction(1, 2 ** int(k)) for k in twice[own][left[own]])
            assert taken == Fraction(1, 2)


def test_huffman_with_vectors_keeps_clusters_together_as_far_as_lengths_let_it():
    """Eight far clouds of 8 classes that are chosen alike: three levels tell them apart."""
    generator = np.random.default_rng(0)
    centres = np.array([[a, b, c] for a in (0, 9) for b in (0, 30) for c in (0, 90)])
    label = generator.permutation(np.repeat(np.arange(8), 8))
    vectors = centres[label] + 0.1 * generator.standard_normal((64, 3))
    upper = [tuple(walked_path(Tree.huffman(np.ones(64), vectors), y)[:3]) for y in range(64)]
    assert len({(int(own), path) for own, path in zip(label, upper, strict=True)}) == 8
    by_counts = [tuple(walked_path(Tree.huffman(np.ones(64)), y)[:3]) for y in range(64)]
    assert len({(int(own), path) for own, path in zip(label, by_counts, strict=True)}) > 30


@pytest.mark.parametrize("num_classes", [1, 2, 3, 4, 5, 7, 8, 9, 100, 1023, 1024, 1025])
def test_balanced_depth(num_classes):
    tree = Tree.balanced(num_classes)
    assert tree.describe().max_depth == math.ceil(math.log2(num_classes))
    assert tree.depths.tolist() == walked_depths(tree)
    assert tree.depths.min() >= math.floor(math.log2(num_classes))
    same = torch.ones(num_classes, 3)
    assert Tree.clustered(same).describe().max_depth == math.ceil(math.log2(num_classes))


def test_many_classes_are_built_quickly():
    counts = 1 / np.arange(1, 200_001)
    summary = Tree.huffman(counts).describe(counts)
    assert summary.average_path < summary.entropy_bits + 0.1


def test_clusters_stay_together():
    """Four far clouds of 16 classes, shuffled: the two upper levels tell them apart."""
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0], [9, 0], [0, 90], [9, 90]])
    label = generator.permutation(np.repeat(np.arange(4), 16))
    vectors = centres[label] + 0.1 * generator.standard_normal((64, 2))
    tree = Tree.clustered(vectors)
    upper = [tuple(walked_path(tree, y)[:2]) for y in range(64)]
    assert len(set(upper)) == 4
    assert len({(int(own), path) for own, path in zip(label, upper, strict=True)}) == 4


def test_clusters_of_different_size_stay_together():
    """A cut at half of the mass would part the larger cloud."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((80, 3)) + np.repeat([[0], [20]], [60, 20], axis=0)
    sides = [walked_path(Tree.clustered(vectors), y)[0] for y in range(80)]
    assert len(set(sides[:60])) == len(set(sides[60:])) == 1
    assert sides[0] != sides[-1]


def test_clustered_paths_are_short():
    generator = np.random.default_rng(0)
    counts = 1 / np.arange(1, 5001)
    summary = Tree.clustered(generator.standard_normal((5000, 8)), counts).describe(counts)
    assert summary.average_path < summary.entropy_bits + 3.5
    assert summary.max_depth <= 20


def test_outliers_are_not_cut_off_one_by_one():
    far = 2.0 ** np.arange(100)[:, None]
    assert Tree.clustered(far).describe().max_depth <= 20
    assert Tree.clustered(far, 2.0 ** np.arange(100)).describe().max_depth <= 55


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200])
def test_clustered_with_equal_or_far_vectors(scale):
    tree = Tree.clustered(np.full((33, 4), scale))
    assert tree.describe().max_depth == 6
    one_seen = np.zeros(33)
    one_seen[7] = 1
    assert Tree.clustered(np.full((33, 4), scale), one_seen).describe().max_depth <= 8


def test_two_means_equal_their_reference():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((300, 6)).astype(np.float32)
    members = generator.permutation(300)
    starts, sizes = np.array([0, 2, 3, 20]), np.array([2, 1, 17, 280])
    weights = generator.uniform(0.01, 1.0, 300).astype(np.float32)
    found = two_means(vectors, members, starts, sizes, weights)
    expected = two_means_reference(vectors, members, starts, sizes, weights)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_two_means_find_the_gap():
    """The mean lies within the larger cloud: the first cut alone would part it."""
    vectors = np.append(np.linspace(0, 3, 20), [12, 12, 12]).astype(np.float32)[:, None]
    assert 2 < vectors.mean() < 3
    ones = np.ones(23, np.float32)
    right = two_means(vectors, np.arange(23), np.array([0]), np.array([23]), ones) > 0
    assert len(set(right[:20].tolist())) == len(set(right[20:].tolist())) == 1
    assert right[0] != right[-1]


def test_rare_classes_do_not_say_where_a_tree_is_cut():
    # Two frequent classes differ along the first axis, many rare ones more along the second.
    rare = [[0.0, 10.0 * side] for side in (-1, 1) for _ in range(20)]
    tree = Tree.clustered(np.array([[-1.0, 0.0], [1.0, 0.0], *rare]), [1e6, 1e6, *[1.0] * 40])
    first, second = (set(walked_path(tree, y)) for y in (0, 1))
    assert (0, -1) in first ^ second
    assert (0, 1) in first ^ second


def test_the_three_given_forms_agree():
    nested = Tree.given([[0, 1, 2], [[3], [4, 5]]])
    parents = Tree.given(parents=[7, 7, 7, 9, 10, 10, -1, 6, 6, 8, 8])
    categories = Tree.given(categories=["a", "a", ("a",), "b/c", "b/d", ["b", "d"]])
    assert nested.depths.tolist() == [2, 3, 3, 2, 3, 3]
    assert torch.equal(nested.children, parents.children)
    assert torch.equal(nested.children, categories.children)


def test_nodes_with_many_children_are_halved_and_only_children_left_out():
    assert Tree.given([list(range(64))]).describe().max_depth == 6
    assert Tree.given([[[[0]]], [[1]]]).depths.tolist() == [1, 1]
    assert Tree.given([0]).num_classes == 1
    assert Tree.given([[[0]]]).num_classes == 1
    assert Tree.given(parents=[-1]).num_classes == 1
    assert Tree.given(categories=["everything"] * 4).depths.tolist() == [2, 2, 2, 2]


def test_deep_trees_need_no_recursion_and_little_memory():
    nested = [0]
    for class_id in range(1, 5000):
        nested = [class_id, nested]
    tree = Tree.given(nested)
    assert tree.describe().max_depth == 4999
    assert tree.paths(torch.tensor([0, 4999])).nodes.shape == (2, 4999)


def test_a_tree_moves_and_prints():
    tree = Tree.huffman([3, 2, 1])
    assert tree.to("cpu") is tree
    assert tree.to("meta").children.device.type == "meta"
    assert repr(tree) == "Tree(num_classes=3, max_depth=2)"
    table = tree.children
    again = Tree(table)
    table[0, 0] = 7
    assert again.children[0, 0] != 7, "a tree keeps a table of its own"


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Tree.balanced(0), "num_classes"),
        (lambda: Tree.balanced(2**40), "num_classes"),
        (lambda: Tree.huffman([]), "counts"),
        (lambda: Tree.huffman([0, 0]), "zeros"),
        (lambda: Tree.huffman([1, float("nan")]), "nan for class 1"),
        (lambda: Tree.huffman([1, float("inf")]), "counts"),
        (lambda: Tree.huffman([3, -1]), "-1 for class 1"),
        (lambda: Tree.huffman([[1, 2]]), "counts"),
        (lambda: Tree.huffman(["a"]), "counts"),
        (lambda: Tree.clustered(torch.randn(3)), "vectors"),
        (lambda: Tree.clustered(torch.randn(0, 3)), "vectors"),
        (lambda: Tree.clustered(torch.full((2, 2), torch.nan)), "vectors"),
        (lambda: Tree.clustered(torch.randn(3, 2), [1, 2]), "counts"),
        (lambda: Tree.balanced(5).describe([1, 2]), "counts"),
        (lambda: Tree.given(), "exactly one"),
        (lambda: Tree.given([0, 1], parents=[-1]), "exactly one"),
        (lambda: Tree.given([]), "empty"),
        (lambda: Tree.given([0, []]), "empty"),
        (lambda: Tree.given([0, 2]), "class 1 is missing"),
        (lambda: Tree.given([0, 10**15]), "class 1 is missing"),
        (lambda: Tree.given([0, [1, 0]]), "class 0 again"),
        (lambda: Tree.given([0, -1]), "-1"),
        (lambda: Tree.given([0, 1.5]), "1.5"),
        (lambda: Tree.given("ab"), "nested"),
        (lambda: Tree.given(parents=[]), "parents"),
        (lambda: Tree.given(parents=[[0]]), "parents"),
        (lambda: Tree.given(parents=[2.0, 2.0, -1.0]), "parents"),
        (lambda: Tree.given(parents=[2, 3, -1]), "got 3"),
        (lambda: Tree.given(parents=[2, -2, -1]), "got -2"),
        (lambda: Tree.given(parents=[1, 0]), "cycle"),
        (lambda: Tree.given(parents=[4, 4, 5, 6, -1, 6, 5]), "cycle"),
        (lambda: Tree.given(parents=[-1, 2, 1]), "cycle"),
        (lambda: Tree.given(parents=[2, 2, -1, -1]), "one root"),
        (lambda: Tree.given(parents=[1, -1, 1]), "node 2 has no child"),
        (lambda: Tree.given(categories=[]), "categories"),
        (lambda: Tree.given(categories=["a", None]), "class 1"),
        (lambda: Tree.given(categories=["a", ""]), "class 1"),
        (lambda: Tree.given(categories=["a//b"]), "class 0"),
        (lambda: Tree.given(categories=[()]), "class 0"),
        (lambda: Tree.given(categories=[("a", 3)]), "class 0"),
        (lambda: Tree.huffman([1, 1], torch.zeros(3, 2)), "each of 2, got 3"),
        (lambda: Tree.huffman([1, 1], torch.zeros(2)), "vectors"),
        (lambda: Tree.huffman([1, 1], [[1.0, math.nan], [0.0, 0.0]]), "class 0"),
        (lambda: Tree(torch.zeros(2, 2)), "int64"),
        (lambda: Tree(torch.tensor([[-1, -2], [1, -3]])), "breadth first"),
        (lambda: Tree(torch.tensor([[1, -1], [-2, -2]])), "each class"),
        (lambda: Tree(torch.tensor([[5, -1], [-2, -3]])), "breadth first"),
        (lambda: Tree(torch.tensor([[-1, -(2**62)]])), "each class"),
    ],
)
def test_what_is_no_tree_is_refused(build, named):
    with pytest.raises(ValueError, match=named):
        build()


def test_nested_lists_from_json_of_any_depth_end_in_an_error_not_a_crash():
    text = "[" * 500 + "0" + "]" * 500
    assert Tree.given(json.loads(text)).num_classes == 1


@given(st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_any_parent_table_becomes_a_binary_tree(num_classes, seed):
    generator = np.random.default_rng(seed)
    groups = [[y] if generator.random() < 0.3 else y for y in range(num_classes)]
    while len(groups) > 1:
        size = int(generator.integers(1, 5))
        generator.shuffle(groups)
        groups = [*groups[size:], groups[:size]]
        if size == 1 and generator.random() < 0.5:
            groups = [groups]
            break
    tree = Tree.given(groups)
    assert tree.num_classes == num_classes
    assert tree.depths.tolist() == walked_depths(tree)


@pytest.mark.parametrize("name", TREES)
def test_log_odds_as_biases_give_the_frequencies(name):
    tree = TREES[name]()
    counts = torch.arange(1, tree.num_classes + 1)
    log_odds = tree.log_odds(counts).double()
    nodes, signs = tree.paths(torch.arange(tree.num_classes))
    turns = torch.where(signs == 0, 0.0, torch.nn.functional.logsigmoid(log_odds[nodes] * signs))
    expected = (counts / counts.sum()).double().log()
    torch.testing.assert_close(turns.sum(-1), expected, atol=1e-5, rtol=0)


def test_a_side_without_counts_has_finite_odds():
    assert Tree.balanced(2).log_odds([0, 3]).exp().tolist() == [pytest.approx(6.0)]
