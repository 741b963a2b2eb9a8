"""Columns of features: what they are taken for, their codes, and what is refused."""

import json
import math

import polars as pl
import pytest
import torch

from widemax.data.features.cells import as_numbers, as_texts, as_tokens
from widemax.data.features.fields import FeatureField, FittedField
from widemax.data.features.inference import infer_fields
from widemax.data.features.reading import read_feature_frame, read_features
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable
from widemax.vocabulary import Vocabulary

N = 60
COMBINED = ["Action Comedy", "Comedy", "Action", "Comedy Drama", "Drama", "Action Drama", "War"]


def catalogue(rows=N):
    return pl.DataFrame(
        {
            "item": [f"i{row}" for row in range(rows)],
            "title": [f"The {row} of {row * 7 % rows}" for row in range(rows)],
            "genres": [["War|Drama", "War", "Opera|War"][row % 3] for row in range(rows)],
            "classes": [COMBINED[row % 7] for row in range(rows)],
            "city": [["New York", "Los Angeles", "Rome"][row % 3] for row in range(rows)],
            "brand": [["ale", "rum", None][row % 3] for row in range(rows)],
            "price": [row * 0.5 if row % 5 else None for row in range(rows)],
            "price_text": [str(row * 0.5) if row % 5 else "" for row in range(rows)],
            "shop_id": [row % 4 for row in range(rows)],
            "number": list(range(100, 100 + rows)),
            "code": [f"x{row}" for row in range(rows)],
            "zip": [f"0{row % 20:04d}" for row in range(rows)],
            "since": [f"20{row % 30:02d}-01-0{1 + row % 9}" for row in range(rows)],
            "tags": [["a", "b"][: row % 3] for row in range(rows)],
            "vector": [[0.5, float(row)] for row in range(rows)],
            "new": [row % 2 == 0 for row in range(rows)],
            "ratio": [math.inf if row == 3 else row / 7 for row in range(rows)],
            "language": ["en"] * rows,
            "empty": [None] * rows,
        }
    )


EXPECTED = {
    "title": "tokens",
    "genres": "tokens",
    "classes": "tokens",
    "city": "categorical",
    "brand": "categorical",
    "price": "numeric",
    "price_text": "numeric",
    "shop_id": "categorical",
    "zip": "categorical",
    "since": "numeric",
    "tags": "tokens",
    "new": "categorical",
}
LEFT_OUT = {
    "number": "id",
    "code": "id",
    "vector": "fractions",
    "ratio": "infinite",
    "language": "same value",
    "empty": "no value",
}


def test_kinds_are_told_from_the_values():
    inferred = infer_fields(catalogue(), key_column="item")
    assert {field.name: field.kind for field in inferred.fields} == EXPECTED
    for name, reason in LEFT_OUT.items():
        assert inferred.reasons[name].startswith("left out: "), name
        assert reason in inferred.reasons[name], name
    assert "item" not in inferred.reasons
    separators = {field.name: field.separator for field in inferred.fields}
    assert (separators["genres"], separators["classes"]) == ("|", " ")


def test_a_few_rows_are_never_taken_for_ids():
    names = infer_fields(catalogue(5), key_column="item").fields
    assert {"code", "number"} <= {field.name for field in names}


def test_describe_says_what_was_found_and_what_was_left_out():
    lines = FeatureSchema.fit(catalogue(), key_column="item").describe().splitlines()
    assert len(lines) == len(EXPECTED) + len(LEFT_OUT)
    by_name = {line.split("  ")[0]: line for line in lines}
    assert "cut at '|'" in by_name["genres"]
    assert "mean 15" in by_name["price"]
    assert "left out: the same value in every row" in by_name["language"]


def test_types_of_atomic_files_decide():
    frame = pl.DataFrame(
        {"year": ["1995", "1996"] * 10, "age": ["1", "2"] * 10, "seq": ["1 2"] * 20}
    )
    types = {"year": "token", "age": "float", "seq": "float_seq"}
    fields = infer_fields(
        frame.with_columns(seq=pl.Series(["1 2", "3 4"] * 10)), types=types
    ).fields
    assert [(field.name, field.kind) for field in fields] == [
        ("year", "categorical"),
        ("age", "numeric"),
    ]


def brute_force(schema, frame, keys):
    """Every cell by hand: codes by list.index, numbers by the formula."""
    rows = {row["item"]: row for row in frame.iter_rows(named=True)}
    encoded = []
    for key in keys:
        row, cells = rows.get(key, {}), {}
        for fitted in schema.fields:
            value = row.get(fitted.field.name)
            if fitted.field.kind == "numeric":
                missing = value is None or value == ""
                cells[fitted.field.name] = (
                    None if missing else (float(value) - fitted.mean) / fitted.deviation
                )
                continue
            known = fitted.values.keys.to_list()
            if fitted.field.kind == "categorical":
                text = (
                    None
                    if value is None
                    else str(value).lower()
                    if value in (True, False) and isinstance(value, bool)
                    else str(value)
                )
                cells[fitted.field.name] = known.index(text) + 1 if text in known else 0
                continue
            if isinstance(value, str):
                value = value.split(None if fitted.field.separator == " " else "|")
            codes = [known.index(token) + 1 for token in value or [] if token in known]
            cells[fitted.field.name] = codes or [0]
        encoded.append(cells)
    return encoded


@pytest.mark.parametrize("min_count", [1, 4])
def test_tables_equal_a_plain_loop(min_count):
    frame = catalogue().drop("since")
    keys = ["i7", "nobody", *(f"i{row}" for row in range(0, N, 2))]
    table = FeatureTable.fit(frame, keys, key_column="item", min_count=min_count)
    plain = brute_force(table.schema, frame, keys)
    for column, fitted in enumerate(table.schema.of_kind("categorical")):
        assert table.codes[:, column].tolist() == [row[fitted.field.name] for row in plain]
    for column, fitted in enumerate(table.schema.of_kind("numeric")):
        wanted = [row[fitted.field.name] for row in plain]
        wanted = torch.tensor([math.nan if number is None else number for number in wanted])
        torch.testing.assert_close(table.numbers[:, column], wanted, equal_nan=True)
    for lists, fitted in zip(table.tokens, table.schema.of_kind("tokens"), strict=True):
        found = [lists.sequence(row).tolist() for row in range(len(keys))]
        assert found == [row[fitted.field.name] for row in plain]
    assert table.known.tolist() == [key != "nobody" for key in keys]
    assert table.describe().startswith("31 of 32 keys have features\n")


def test_standardised_numbers_have_mean_0_and_deviation_1():
    frame = pl.DataFrame({"item": range(50), "size": [1e150 * row**2 for row in range(50)]})
    numbers = FeatureTable.fit(frame, list(range(50)), key_column="item").numbers.double()
    assert numbers.mean().item() == pytest.approx(0, abs=1e-6)
    assert numbers.std(correction=0).item() == pytest.approx(1, abs=1e-6)


def test_rows_of_other_keys_are_not_learnt_from():
    frame = pl.DataFrame({"item": ["a", "b"], "brand": ["ale", "rum"], "price": [1.0, 9.0]})
    frame = pl.concat([frame, frame.with_columns(item=pl.Series(["c", "d"]))])
    fields = [FeatureField("brand", "categorical"), FeatureField("price", "numeric")]
    table = FeatureTable.fit(frame, ["a", "c"], key_column="item", fields=fields)
    assert table.schema.fields[0].values.keys.to_list() == ["ale"]
    assert table.schema.fields[1].mean == 1.0
    assert FeatureTable.encode(table.schema, frame, ["d"], key_column="item").codes.tolist() == [
        [0]
    ]


@pytest.mark.parametrize("keys", [[7, 8], ["7", "8"]])
@pytest.mark.parametrize("column", [[8, 7], ["8", "7"]])
def test_keys_are_matched_as_they_are_written(keys, column):
    frame = pl.DataFrame({"item": column, "price": [8.0, 7.0]})
    table = FeatureTable.fit(frame, keys, key_column="item")
    assert table.numbers[:, 0].tolist() == [-1.0, 1.0]


def test_growing_keeps_codes_and_scales():
    frame = catalogue()
    schema = FeatureSchema.fit(frame, key_column="item")
    newer = frame.with_columns(
        brand=pl.Series(["gin", "rum", "gin"] * 20), genres=pl.lit("Farce|War"), price=pl.lit(99.0)
    )
    grown = schema.grown(newer)
    for old, new in zip(schema.fields, grown.fields, strict=True):
        if old.values is None:
            assert (old.mean, old.deviation) == (new.mean, new.deviation)
        else:
            before, after = old.values.keys.to_list(), new.values.keys.to_list()
            assert after[: len(before)] == before
            added = {"brand": ["gin"], "genres": ["Farce"]}.get(old.field.name, [])
            assert after[len(before) :] == added
    assert not grown.same_codes(schema)
    assert schema.grown(pl.DataFrame({"other": [1]})).same_codes(schema)


def test_round_trip_of_schema_and_table():
    table = FeatureTable.fit(catalogue(), ["i3", "nobody", "i4"], key_column="item")
    stored = json.loads(json.dumps(table.schema.to_dict()))
    schema = FeatureSchema.from_dict(stored)
    assert schema.same_codes(table.schema)
    assert schema.to_dict() == table.schema.to_dict()
    again = FeatureTable.from_frame(schema, table.to_frame())
    assert again.keys.to_list() == ["i3", "nobody", "i4"]
    assert torch.equal(again.codes, table.codes)
    torch.testing.assert_close(again.numbers, table.numbers, equal_nan=True, rtol=0, atol=0)
    for left, right in zip(again.tokens, table.tokens, strict=True):
        assert torch.equal(left.values, right.values)
        assert torch.equal(left.offsets, right.offsets)


def test_a_stored_table_of_another_schema_is_refused():
    table = FeatureTable.fit(catalogue(), ["i3", "i4"], key_column="item")
    frame = table.to_frame()
    with pytest.raises(ValueError, match="columns"):
        FeatureTable.from_frame(table.schema, frame.drop("field_0"))
    place = table.schema.names.index("brand")
    with pytest.raises(ValueError, match="codes of field 'brand'"):
        FeatureTable.from_frame(
            table.schema, frame.with_columns(pl.lit(99, pl.Int64).alias(f"field_{place}"))
        )
    with pytest.raises(ValueError, match="'brand' must be Int64"):
        FeatureTable.from_frame(
            table.schema, frame.with_columns(pl.lit("x").alias(f"field_{place}"))
        )
    place = table.schema.names.index("tags")
    empty = pl.Series([[], []], dtype=pl.List(pl.Int64)).alias(f"field_{place}")
    with pytest.raises(ValueError, match="must not be empty"):
        FeatureTable.from_frame(table.schema, frame.with_columns(empty))


def test_cells_are_read_alike_from_every_type():
    assert as_texts(pl.Series([1, 2], dtype=pl.UInt8)).to_list() == ["1", "2"]
    assert as_texts(pl.Series([1.0, 1e300, None])).to_list() == ["1", "1e+300", None]
    assert as_texts(pl.Series(["NA", "x"], dtype=pl.Categorical)).to_list() == [None, "x"]
    assert as_numbers(pl.Series(["1970-01-03"])).to_list() == [2.0]
    assert as_numbers(pl.Series(["1970-01-03"]).str.to_date()).to_list() == [2.0]
    assert as_numbers(pl.Series(["1e2", "nan"])).to_list() == [100.0, None]
    assert as_tokens(pl.Series([[1, None], []]))["token"].to_list() == ["1"]
    assert as_tokens(pl.Series(["a| b |", None]), "|").rows() == [(0, "a"), (0, "b")]
    assert as_tokens(pl.Series(["a\t b"]))["token"].to_list() == ["a", "b"]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: FeatureField("", "numeric"), "name"),
        (lambda: FeatureField("x", "number"), "kind of field 'x'"),
        (lambda: FeatureField("x", "tokens", separator=""), "separator"),
        (lambda: FeatureField("\ud800", "tokens"), "Unicode"),
        (lambda: as_numbers(pl.Series("x", ["1", "b"])), "column 'x', row 1"),
        (lambda: as_numbers(pl.Series("x", [1.0, math.inf])), "row 1: a number must be finite"),
        (lambda: as_numbers(pl.Series("x", [[1]])), "tokens"),
        (lambda: as_texts(pl.Series("x", [{"a": 1}])), "column 'x' must hold"),
        (lambda: FeatureSchema.fit(pl.DataFrame({"x": ["a", "a"]})), "the same value"),
        (
            lambda: FeatureSchema.fit(
                pl.DataFrame({"x": [1]}), fields=[FeatureField("y", "numeric")]
            ),
            "no column 'y': there are 'x'",
        ),
        (
            lambda: FeatureTable.fit(catalogue(), ["i1"], key_column="id"),
            "key_column must name a column",
        ),
        (
            lambda: FeatureTable.fit(catalogue(), ["z"], key_column="item"),
            "none of the 1 keys, such as 'z'",
        ),
        (
            lambda: FeatureTable.fit(
                pl.DataFrame({"item": ["a", "a"], "x": [1, 2]}), ["a"], key_column="item"
            ),
            "row 1: key 'a' stands there twice",
        ),
        (
            lambda: FittedField(FeatureField("x", "numeric"), None, 0.0, 0.0),
            "deviation of field 'x'",
        ),
        (lambda: FittedField(FeatureField("x", "tokens")), "values of field 'x'"),
    ],
)
def test_what_makes_no_sense_is_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_a_number_beyond_float32_is_refused():
    frame = pl.DataFrame({"item": ["a", "b"], "size": [1.0, 2.0]})
    schema = FeatureTable.fit(frame, ["a", "b"], key_column="item").schema
    far = frame.with_columns(size=pl.Series([1.0, 1e300]))
    with pytest.raises(ValueError, match=r"'size', row 1: 1e\+300 is too far"):
        FeatureTable.encode(schema, far, ["a", "b"], key_column="item")


def test_files_of_all_formats_give_the_same_table(tmp_path):
    frame = catalogue().select("item", "genres", "price", "brand")
    frame.write_csv(tmp_path / "items.csv")
    frame.write_parquet(tmp_path / "items.parquet")
    keys = Vocabulary.count(["i3", "i3", "i4", "i50", "gone"]).keys
    tables = [read_features(tmp_path / name, keys) for name in ("items.csv", "items.parquet")]
    for table in tables:
        assert table.schema.same_codes(tables[0].schema)
        assert torch.equal(table.codes, tables[0].codes)
        assert torch.equal(table.tokens[0].values, tables[0].tokens[0].values)
    named = read_features(tmp_path / "items.csv", keys, key_column="item", schema=tables[1].schema)
    assert torch.equal(named.codes, tables[1].codes)


def test_atomic_files_are_read_by_their_header(tmp_path):
    path = tmp_path / "items.item"
    lines = ["item_id:token\tyear:token\tprice:float\tgenre:token_seq"]
    lines += [f"{row}\t{1990 + row % 3}\t{row / 2}\tWar Drama" for row in range(30)]
    path.write_text("\n".join(lines))
    frame, types = read_feature_frame(path)
    assert types == {"item_id": "token", "year": "token", "price": "float", "genre": "token_seq"}
    assert frame.height == 30
    schema = read_features(path, list(range(40))).schema
    assert [field.field.kind for field in schema.fields] == ["categorical", "numeric"]
    assert "same value" in schema.reasons["genre"]


def test_files_without_a_table_or_keys_are_refused(tmp_path):
    path = tmp_path / "file"
    path.write_text("some words\nand more words here\n")
    with pytest.raises(ValueError, match="must hold a table"):
        read_features(path, ["a"])
    path.write_text("item,brand\na,ale\nb,ale\n")
    with pytest.raises(ValueError, match="no column holds the keys"):
        read_features(path, ["c"])
    with pytest.raises(ValueError, match=r"file: no column can be read as a feature: 'brand'"):
        read_features(path, ["a", "b"])


@pytest.mark.parametrize(
    ("kind", "content"),
    [("text", "good morning"), ("pairs", "u7 i31"), ("lists", "1 2 3\n2 5 6 7")],
)
def test_features_need_columns_that_have_names(kind, content, tmp_path):
    (tmp_path / "file").write_text(content + "\n")
    with pytest.raises(ValueError, match=f"must hold a table with columns .* got {kind}"):
        read_feature_frame(tmp_path / "file")
