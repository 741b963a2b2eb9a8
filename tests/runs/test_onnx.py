"""Encoders and item towers as ONNX models: what onnxruntime computes is what the model computes."""

import numpy as np
import onnxruntime
import polars as pl
import pytest
import torch
from torch.nn.functional import pad

import widemax as wm
from widemax.data import FeatureTable, WindowBatch
from widemax.heads import class_vectors_of
from widemax.models import (
    CBOW,
    MIND,
    NNLM,
    SDM,
    LSTMLanguageModel,
    NextItem,
    SASRec,
    TwoTower,
    YouTubeDNN,
)
from widemax.runs.export.onnx import write_onnx_encoder, write_onnx_items

ITEMS, USERS, REACH = 60, 12, 6
COUNTS = torch.arange(ITEMS, 0, -1)
PEOPLE = pl.DataFrame(
    {
        "user": range(USERS),
        "town": ["Ulm", "Bern", None] * 4,
        "age": [20.0, 31.5, None, 1.7e9] * 3,
        "likes": ["tea|rum", "", "ale", "rum|gin|tea"] * 3,
    }
)
GOODS = pl.DataFrame(
    {
        "item": range(ITEMS),
        "brand": ["A", "B", "C"] * 20,
        "price": [1.5, None, 3.0, 80.0] * 15,
        "tags": ["red big", "", "blue"] * 20,
    }
)
PEOPLE_TABLE = FeatureTable.fit(PEOPLE, PEOPLE["user"], key_column="user")
GOODS_TABLE = FeatureTable.fit(GOODS, GOODS["item"], key_column="item")
CASES = {
    "next-item": (NextItem, {}),
    "cbow": (CBOW, {}),
    "youtube-dnn": (YouTubeDNN, {}),
    "youtube-dnn, all it reads": (
        YouTubeDNN,
        {"user_features": True, "days": 9.0, "num_layers": 2, "hidden_size": 7, "bias": True},
    ),
    "two-tower": (TwoTower, {}),
    "two-tower, features": (TwoTower, {"user_features": True, "item_features": True}),
    "sasrec": (SASRec, {"num_blocks": 2, "num_attention_heads": 2}),
    "sasrec, plain": (SASRec, {"block": "sasrec", "expansion": 1}),
    "sasrec, from the end": (SASRec, {"positions": "last"}),
    "sasrec, cosine": (SASRec, {"similarity": "cosine", "temperature": 0.1}),
    "sasrec, ligr": (SASRec, {"block": "ligr", "expansion": 2, "positions": "last"}),
    "mind": (MIND, {"num_interests": 3}),
    "mind, all it reads": (
        MIND,
        {
            "user_features": True,
            "num_layers": 1,
            "hidden_size": 7,
            "bias": True,
            "similarity": "cosine",
            "temperature": 0.2,
            "tied": False,
        },
    ),
    "sdm": (SDM, {"short": 2}),
    "sdm, features": (SDM, {"user_features": True, "item_features": True, "lstm_layers": 2}),
    "nnlm": (NNLM, {"hidden_size": 9}),
    "nnlm, direct": (NNLM, {"hidden_size": 9, "direct": True}),
    "lstm": (LSTMLanguageModel, {"hidden_size": 9}),
    "next-item, char-cnn": (NextItem, {"scorer": "char-cnn", "keys": True}),
    "next-item, differentiated": (NextItem, {"scorer": "differentiated", "bias": True}),
}


def make(case):
    """Return a model with parameters that are neither small nor alike."""
    kind, settings = CASES[case]
    settings = dict(settings)
    if settings.pop("user_features", False):
        settings["user_features"] = PEOPLE_TABLE
    if settings.pop("item_features", False):
        settings["item_features"] = GOODS_TABLE
    if settings.pop("keys", False):
        settings["keys"] = [f"key {number}" for number in range(ITEMS)]
    if kind not in (NextItem, CBOW):
        settings["max_history"] = REACH
    torch.manual_seed(0)
    model = kind.create(COUNTS, dimension=8, **settings)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    if kind is TwoTower:
        model.items.set_cold(torch.arange(ITEMS) % 7 == 0)
    return model


def contexts(rows, width, generator):
    """Return histories of any length up to ``width``, padded on the left; some are empty."""
    lengths = torch.randint(0, width + 1, (rows, 1), generator=generator)
    items = torch.randint(0, ITEMS, (rows, width), generator=generator)
    return torch.where(torch.arange(width) < width - lengths, -1, items)


@torch.no_grad()
def hidden_of(model, context, users):
    batch = WindowBatch(
        context=context,
        targets=torch.full((len(context),), -1),
        users=users,
        ages=torch.zeros(len(context)),
    )
    return model.eval().hidden(batch), model.scores(batch)


def sent(frame, rows, schema, prefix):
    """Return what a server sends of rows of a table, -1 for one it does not know."""
    columns = {}
    for field in schema.fields:
        name = field.field.name
        values = [None if row < 0 else frame[name][row] for row in rows]
        if field.field.kind == "numeric":
            given = np.array([np.nan if each is None else each for each in values])
        elif field.field.kind == "categorical":
            given = np.array([each or "" for each in values])
        else:
            tokens = [(each or "").replace("|", " ").split() for each in values]
            given = np.array([each + [""] * (3 - len(each)) for each in tokens])
        columns[f"{prefix}_{name}"] = given
    return columns


@pytest.mark.parametrize("case", CASES)
def test_an_encoder_gives_what_the_model_gives(case, tmp_path):
    model, path = make(case), tmp_path / "encoder.onnx"
    write_onnx_encoder(path, model, reach=REACH)
    session = onnxruntime.InferenceSession(path)
    reads_users = any(each.name.startswith("user_") for each in session.get_inputs())
    assert reads_users == ("features" in case or "all it reads" in case)
    vectors = class_vectors_of(model.head)
    biases = model.head.scorer.class_biases()
    generator = torch.Generator().manual_seed(1)
    for rows, width in ((1, REACH), (1, 1), (33, REACH), (5, 3)):
        context = contexts(rows, width, generator)
        users = torch.randint(-1, USERS, (rows,), generator=generator)
        people = sent(PEOPLE, users.tolist(), PEOPLE_TABLE.schema, "user") if reads_users else {}
        # The model takes histories of its own width; the file takes any.
        expected, scores = hidden_of(model, pad(context, (REACH - width, 0), value=-1), users)
        hidden, query = session.run(["hidden", "query"], {"context": context.numpy(), **people})
        np.testing.assert_allclose(hidden, expected, atol=1e-5, rtol=1e-5)
        if biases is not None:
            assert (query[..., -1] == 1).all()
            query = query[..., :-1]
        found = torch.from_numpy(query) @ vectors.T
        found = found.amax(1) if found.dim() == 3 else found
        found = found if biases is None else found + biases
        torch.testing.assert_close(found, scores, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("case", [case for case in CASES if "," not in case])
def test_padding_and_length_of_a_history_do_not_matter(case, tmp_path):
    model, path = make(case), tmp_path / "encoder.onnx"
    write_onnx_encoder(path, model, reach=REACH)
    session = onnxruntime.InferenceSession(path)

    def hidden(*rows):
        return session.run(["hidden"], {"context": np.array(rows, np.int64)})[0]

    (short,) = hidden([4, 9, 7])
    for row in ([-1, -1, 4, 9, 7], [4, 9, 7, -1], [-5, 4, -1, -2, 9, -1, 7, -1, -1, -1]):
        np.testing.assert_allclose(hidden(row)[0], short, atol=1e-6)
    # Of a longer history the last REACH items count, wherever the padding of its batch is.
    long = [*range(20), 4, 9, 7, 5, 3, 2]
    several = hidden(long, [*long[-REACH:], *[-1] * 20], [*[-1] * 23, 4, 9, 7])
    np.testing.assert_allclose(several[0], several[1], atol=1e-6)
    np.testing.assert_allclose(several[2], short, atol=1e-6)
    # Nothing at all is answered as by the model.
    nothing, _ = hidden_of(model, torch.full((2, REACH), -1), torch.full((2,), -1))
    (empty,) = session.run(["hidden"], {"context": np.empty((2, 0), np.int64)})
    np.testing.assert_allclose(empty, nothing, atol=1e-5)
    with pytest.raises(Exception, match="out of data bounds"):
        hidden([ITEMS])


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_an_item_tower_gives_the_vectors_of_old_and_new_items(features, similarity, tmp_path):
    torch.manual_seed(0)
    settings = {"item_features": GOODS_TABLE} if features else {}
    model = TwoTower.create(COUNTS, dimension=8, similarity=similarity, **settings).eval()
    model.items.set_cold(torch.arange(ITEMS) % 7 == 0)
    write_onnx_items(tmp_path / "items.onnx", model)
    session = onnxruntime.InferenceSession(tmp_path / "items.onnx")
    everything = range(ITEMS)
    asked = sent(GOODS, everything, GOODS_TABLE.schema, "item") if features else {}
    (old,) = session.run(["vector"], {"item": np.arange(ITEMS), **asked})
    np.testing.assert_allclose(old, class_vectors_of(model.head), atol=1e-5)
    if features:
        (new,) = session.run(["vector"], {"item": np.full(ITEMS, -1), **asked})
        with torch.no_grad():
            np.testing.assert_allclose(new, model.items.vectors_of(GOODS_TABLE), atol=1e-5)


def test_a_value_that_was_never_seen_is_unknown(tmp_path):
    model = make("youtube-dnn, all it reads")
    write_onnx_encoder(tmp_path / "encoder.onnx", model, reach=REACH)
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    asked = {"context": np.array([[3, 5]]), "user_age": np.array([np.nan])}
    texts = {"user_town": np.array(["Oslo"]), "user_likes": np.array([["milk", "NA"]])}
    (hidden,) = session.run(["hidden"], asked | texts)
    expected, _ = hidden_of(model, torch.tensor([[3, 5]]), torch.tensor([-1]))
    np.testing.assert_allclose(hidden, expected, atol=1e-5)


def test_a_model_stays_in_the_mode_it_was_in(tmp_path):
    model = make("two-tower").train()
    model.head.eval()
    write_onnx_encoder(tmp_path / "encoder.onnx", model)
    assert [each.training for each in (model, model.encoder, model.head)] == [True, True, False]


def test_a_head_without_vectors_has_no_query(tmp_path):
    torch.manual_seed(0)
    model = YouTubeDNN.create(COUNTS, dimension=8, head="hierarchical")
    write_onnx_encoder(tmp_path / "encoder.onnx", model)
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    assert [each.name for each in session.get_outputs()] == ["hidden"]
    assert "not by vectors" in session.get_modelmeta().custom_metadata_map["score"]


class Pictures(wm.scoring.tower.RowFeatures):
    num_rows, output_dimension = USERS, 2

    def forward(self, rows):
        return torch.zeros(len(rows), 2)

    def encode(self, table):
        raise NotImplementedError


def test_what_a_file_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "encoder.onnx"
    with torch.device("meta"):
        encoder = wm.encoders.BagEncoder(2**23, 64)
    model = make("next-item")
    model.encoder = encoder
    with pytest.raises(ValueError, match="less than 2 GB, got 2,147,483,648 bytes"):
        write_onnx_encoder(path, model)
    with pytest.raises(ValueError, match="NextItem has no tower of items: they are a table"):
        write_onnx_items(path, make("next-item"))
    model = make("youtube-dnn")
    model.encoder = wm.encoders.YouTubeDNNEncoder(ITEMS, 8, user_features=Pictures())
    with pytest.raises(ValueError, match=r"columns \(FeatureEncoder\), not Pictures"):
        write_onnx_encoder(path, model)
    with pytest.raises(ValueError, match="EGES has no dense encoder to export"):
        write_onnx_encoder(path, wm.models.EGES.create(COUNTS))
    assert not path.exists()
