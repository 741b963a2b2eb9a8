"""Feature encoders and item towers: against plain loops, as heads, kept, cold and grown."""

import copy

import polars as pl
import pytest
import torch

from widemax.contracts.head import check_head
from widemax.data.features.fields import FeatureField
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable
from widemax.encoders.features import FeatureEncoder
from widemax.heads import FullHead, SampledHead
from widemax.optim import RowAdagrad
from widemax.sampling import InBatchSampler, StreamingFrequency, UniformSampler
from widemax.scoring import tower
from widemax.scoring.tower import TowerScorer

V, D = 12, 5
KEYS = [f"i{row}" for row in range(V)]
FIELDS = [
    FeatureField("brand", "categorical"),
    FeatureField("price", "numeric"),
    FeatureField("tags", "tokens"),
    FeatureField("size", "numeric"),
    FeatureField("shop", "categorical"),
    FeatureField("words", "tokens"),
]


def frame(rows=V - 2):
    return pl.DataFrame(
        {
            "item": [f"i{row}" for row in range(rows)],
            "brand": [["ale", "rum", None][row % 3] for row in range(rows)],
            "price": [float(row) if row % 4 else None for row in range(rows)],
            "tags": [["a", "b", "c"][: row % 4] for row in range(rows)],
            "size": [float(row * row) for row in range(rows)],
            "shop": [["x", "y"][row % 2] for row in range(rows)],
            "words": ["one two one", "two", "three", "four one", ""][:rows]
            + ["four"] * (rows - 5),
        }
    )  # fmt: skip


def make_table(keys=KEYS):
    return FeatureTable.fit(frame(), keys, key_column="item", fields=FIELDS)


def make_encoder(table=None, **options):
    torch.manual_seed(0)
    encoder = FeatureEncoder(table or make_table(), 3, **options).double()
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter)  # the unknown too
    return encoder


def make_scorer(**options):
    features = make_encoder(sparse=options.get("sparse", False))
    torch.manual_seed(1)
    settings = {"features": features, "id_dimension": 4, "hidden_sizes": (6,), **options}
    scorer = TowerScorer(V, D, **settings).double()
    torch.nn.init.normal_(scorer.unknown)
    return scorer


def encoded_by_hand(encoder, table, row):
    parts = []
    for place, weight in enumerate(encoder.code_weights):
        parts.append(weight[table.codes[row, place] if row >= 0 else 0])
    for place, weight in enumerate(encoder.token_weights):
        tokens = table.tokens[place].sequence(row).tolist() if row >= 0 else [0]
        parts.append(sum(weight[token] for token in tokens) / len(tokens))
    numbers = table.numbers[row].double() if row >= 0 else torch.full((2,), torch.nan).double()
    values = [0.0 if number != number else number for number in numbers.tolist()]
    missing = [float(number != number) for number in numbers.tolist()]
    layer = encoder.number_layer
    parts.append(layer.weight @ torch.tensor([*values, *missing]).double() + layer.bias)
    return torch.cat(parts)


def vector_by_hand(scorer, encoded, id_vector):
    value = torch.cat([id_vector, encoded])
    first, _, last = scorer.tower
    vector = last.weight @ (first.weight @ value + first.bias).clamp(min=0) + last.bias
    return vector / vector.norm() if scorer.similarity == "cosine" else vector


def test_encoded_features_equal_a_plain_loop():
    table, encoder = make_table(), make_encoder()
    rows = torch.tensor([3, -1, 11, 3, 0, 4])
    plain = torch.stack([encoded_by_hand(encoder, table, row) for row in rows.tolist()])
    torch.testing.assert_close(encoder(rows), plain)
    assert plain.shape[1] == encoder.output_dimension == 15
    assert torch.equal(encoder(torch.tensor([-1])), encoder(torch.tensor([10])))  # i10 has no row
    everything = encoder(torch.arange(V))
    torch.testing.assert_close(encoder.encode(table), everything)
    assert encoder(torch.empty(0, dtype=torch.int64)).shape == (0, 15)


def test_unknown_values_start_by_saying_nothing():
    encoder = FeatureEncoder(make_table(), 3)
    assert encoder(torch.tensor([-1]))[0, :12].abs().max() == 0
    assert encoder(torch.tensor([1]))[0, :12].abs().min() > 0


@pytest.mark.parametrize("kind", ["categorical", "numeric", "tokens"])
def test_fields_of_one_kind_are_enough(kind):
    fields = [field for field in FIELDS if field.kind == kind]
    table = FeatureTable.fit(frame(), KEYS, key_column="item", fields=fields)
    encoder = FeatureEncoder(table, 3)
    assert encoder(torch.tensor([0, -1])).shape == (2, encoder.output_dimension)


def test_a_table_is_exchanged_and_is_no_part_of_the_state():
    encoder, fewer = make_encoder(), ["i5", "gone", "i1"]
    other = FeatureTable.encode(encoder.schema, frame(), fewer, key_column="item")
    assert not any("codes" in name and "weights" not in name for name in encoder.state_dict())
    wanted = encoder(torch.tensor([5, -1, 1]))
    torch.testing.assert_close(encoder.encode(other), wanted)
    encoder.set_table(other)
    torch.testing.assert_close(encoder(torch.arange(3)), wanted)
    assert encoder.num_rows == 3
    with pytest.raises(ValueError, match="rows must lie"):
        encoder(torch.tensor([3]))
    stranger = FeatureTable.fit(frame(4), KEYS, key_column="item", fields=FIELDS)
    with pytest.raises(ValueError, match="fields and codes"):
        encoder.set_table(stranger)
    encoder.set_table(make_table())
    assert encoder.num_rows == V


def test_a_grown_encoder_keeps_what_it_learned():
    encoder = make_encoder()
    newer = pl.DataFrame(
        {
            "item": ["n0", "n1"],
            "brand": ["gin", "rum"],
            "price": [1.0, 2.0],
            "tags": [["z"], ["a"]],
            "size": [1.0, None],
            "shop": ["w", "x"],
            "words": ["five", "one"],
        }
    )
    schema = encoder.schema.grown(newer)
    keys = [*KEYS, "n0", "n1"]
    both = pl.concat([frame(), newer])
    table = FeatureTable.encode(schema, both, keys, key_column="item")
    grown = encoder.grown(table)
    torch.testing.assert_close(grown(torch.arange(V)), encoder(torch.arange(V)))
    old = FeatureTable.encode(encoder.schema, both, keys, key_column="item")
    torch.testing.assert_close(grown(torch.tensor([V, V + 1])), encoder.encode(old)[V:])
    with pytest.raises(ValueError, match="must keep its codes"):
        encoder.grown(FeatureTable.fit(newer, ["n0"], key_column="item", fields=FIELDS))
    with pytest.raises(ValueError, match="must have the fields"):
        FeatureEncoder(make_table()).grown(
            FeatureTable.fit(newer, ["n0", "n1"], key_column="item", fields=FIELDS[:1])
        )


def test_gradients_of_the_encoder():
    encoder = make_encoder()
    names, values = zip(*encoder.named_parameters(), strict=True)
    rows = torch.tensor([0, 3, -1, 3])

    def encoded(*values):
        return torch.func.functional_call(encoder, dict(zip(names, values, strict=True)), (rows,))

    values = [value.detach().requires_grad_() for value in values]
    assert torch.autograd.gradcheck(encoded, values)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_class_vectors_equal_a_plain_loop(similarity):
    cold = torch.arange(V) % 5 == 4
    scorer, table = make_scorer(similarity=similarity, temperature=0.5, cold=cold), make_table()
    plain = torch.stack(
        [
            vector_by_hand(
                scorer,
                encoded_by_hand(scorer.features, table, row),
                scorer.unknown if cold[row] else scorer.weight[row],
            )
            for row in range(V)
        ]
    )
    torch.testing.assert_close(scorer.class_vectors(), plain)
    ids = torch.tensor([[3, 3, 4], [0, 9, 3]])
    torch.testing.assert_close(scorer.class_vectors(ids), plain[ids])
    hidden = torch.randn(2, D).double()
    length = hidden.norm(dim=1, keepdim=True) if similarity == "cosine" else 1.0
    torch.testing.assert_close(scorer(hidden), hidden / length / 0.5 @ plain.T)
    unseen = [
        vector_by_hand(scorer, encoded_by_hand(scorer.features, table, row), scorer.unknown)
        for row in range(V)
    ]
    torch.testing.assert_close(scorer.vectors_of(table), torch.stack(unseen))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"similarity": "cosine", "temperature": 0.1},
        {"features": None},
        {"id_dimension": 0, "hidden_sizes": ()},
    ],
)
@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("head", ["full", "uniform", "in-batch"])
def test_heads_keep_their_contract(options, mode, head):
    # Hidden ids make losses random in training mode, as any dropout does.
    scorer = make_scorer(**options, id_dropout=0.0 if mode else 0.5)
    heads = {
        "full": lambda: FullHead(scorer),
        "uniform": lambda: SampledHead(scorer, UniformSampler(V, per_example=True), num_samples=4),
        "in-batch": lambda: SampledHead(scorer, InBatchSampler(V, StreamingFrequency(V))),
    }
    check_head(heads[head]().train(mode), dimension=D)


def test_a_sparse_tower_learns_what_a_dense_one_does():
    ids, results = torch.tensor([[3, 3, 8], [0, 11, 3]]), []
    for sparse in (False, True):
        scorer = make_scorer(sparse=sparse)
        scorer.class_vectors(ids).square().sum().backward()
        assert scorer.weight.grad.is_sparse == sparse
        RowAdagrad(scorer.parameters(), lr=0.1).step()
        results.append([parameter.detach() for parameter in scorer.parameters()])
    for dense, sparse in zip(*results, strict=True):
        torch.testing.assert_close(dense, sparse)


@pytest.mark.parametrize("ids", [None, torch.tensor([9, 0, 3, 3])])
def test_blocks_and_the_whole_give_the_same_values_and_gradients(ids, monkeypatch):
    results = []
    for numbers in (2**23, 1):
        monkeypatch.setattr(tower, "BLOCK_VALUES", numbers)
        torch.manual_seed(3)
        scorer = make_scorer(id_dropout=0.3)
        torch.manual_seed(4)
        vectors = scorer.class_vectors(ids)
        vectors.square().sum().backward()
        results.append([vectors, *(parameter.grad for parameter in scorer.parameters())])
    for whole, blocks in zip(*results, strict=True):
        torch.testing.assert_close(whole, blocks)


def test_only_the_classes_asked_for_are_computed(monkeypatch):
    scorer, sizes = make_scorer(), []
    plain = scorer._block
    monkeypatch.setattr(
        scorer, "_block", lambda *block: sizes.append(len(block[0])) or plain(*block)
    )
    scorer.class_vectors(torch.tensor([[3, 3, 4], [4, 3, 3]]))
    assert sizes == [2]
    assert scorer.class_vectors(torch.empty(0, dtype=torch.int64)).shape == (0, D)
    scorer.eval()
    with torch.no_grad():
        first = scorer.class_vectors()
        assert scorer.class_vectors() is first
        torch.testing.assert_close(scorer.class_vectors(torch.tensor([4, 4])), first[[4, 4]])
    assert sizes[2:] == [V]


@torch.no_grad()
def test_kept_vectors_are_dropped_when_anything_changes():
    scorer = make_scorer().eval()
    stale = scorer.class_vectors().clone()

    def changed(what):
        nonlocal stale
        vectors = scorer.class_vectors()
        torch.testing.assert_close(vectors, copy.deepcopy(scorer).train().class_vectors())
        assert not torch.equal(vectors, stale), what
        stale = vectors.clone()

    for name, parameter in scorer.named_parameters():
        if name == "unknown":
            continue  # nobody is cold yet
        parameter.add_(0.1)
        changed(name)
    scorer.set_cold(torch.arange(V) < 3)
    changed("cold")
    scorer.unknown.add_(1.0)
    changed("unknown")
    for keys in (KEYS[::-1], KEYS, KEYS[::-1]):
        table = FeatureTable.encode(scorer.features.schema, frame(), keys, key_column="item")
        scorer.features.set_table(table)
        changed("features")
    twin = copy.deepcopy(scorer)
    assert twin._kept is None
    torch.testing.assert_close(twin.class_vectors(), scorer.class_vectors())
    assert scorer.float().class_vectors().dtype == torch.float32


def test_hidden_ids_are_the_share_that_was_asked_for_and_only_in_training():
    torch.manual_seed(0)
    scorer = TowerScorer(20_000, 2, id_dimension=2, id_dropout=0.2)
    inputs = scorer.inputs(torch.arange(20_000))
    share = (inputs == 0).all(1).double().mean().item()
    assert share == pytest.approx(0.2, abs=4 * (0.16 / 20_000) ** 0.5)
    assert torch.equal(scorer.eval().inputs(torch.arange(20_000)), scorer.weight)


def test_the_state_holds_which_classes_are_cold():
    scorer = make_scorer(cold=torch.arange(V) > 8)
    fresh = make_scorer()
    fresh.load_state_dict(scorer.state_dict())
    torch.testing.assert_close(fresh.class_vectors(), scorer.class_vectors())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_classes": 0}, "num_classes"),
        ({"num_classes": V + 1}, "features must have a row for each"),
        ({"dimension": 0}, "dimension"),
        ({"id_dimension": -1}, "id_dimension"),
        ({"id_dimension": 2.5}, "id_dimension"),
        ({"id_dimension": 0, "features": None}, "id_dimension must be at least 1"),
        ({"features": torch.nn.Linear(1, 1)}, "features must be a FeatureEncoder"),
        ({"hidden_sizes": (4, 0)}, "size 2"),
        ({"similarity": "cos"}, "similarity"),
        ({"temperature": 0.0}, "temperature"),
        ({"id_dropout": 1.0}, "id_dropout"),
        ({"cold": torch.zeros(3, dtype=torch.bool)}, r"cold must be bool \[12\]"),
        ({"cold": torch.zeros(V)}, "cold must be bool"),
    ],
)
def test_invalid_arguments(options, named):
    settings = {"num_classes": V, "dimension": D, "features": make_encoder(), **options}
    with pytest.raises(ValueError, match=named):
        TowerScorer(settings.pop("num_classes"), settings.pop("dimension"), **settings)


def test_vectors_of_need_features_and_their_codes():
    with pytest.raises(ValueError, match="needs features"):
        TowerScorer(V, D).vectors_of(make_table())
    other = FeatureSchema.fit(frame(), fields=FIELDS[:2])
    table = FeatureTable.encode(other, frame(), KEYS, key_column="item")
    with pytest.raises(ValueError, match="fields and codes"):
        make_scorer().vectors_of(table)
