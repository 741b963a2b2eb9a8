"""Random tables and random dictionaries: a table or a ValueError, nothing else."""

import copy
import json
from datetime import date

import polars as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzzing import EXAMPLES, FUZZ
from widemax.data.features.inference import infer_fields
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
CELLS = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=3, max_size=30),
    st.lists(st.one_of(st.none(), st.floats()), min_size=3, max_size=30),
    st.lists(st.one_of(st.none(), TEXT), min_size=3, max_size=30),
    st.lists(
        st.sampled_from(["War|Drama", "1", "", "2020-01-02", "x y", "007"]), min_size=3, max_size=30
    ),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=3, max_size=30),
    st.lists(st.one_of(st.none(), st.dates(date(1900, 1, 1))), min_size=3, max_size=30),
    st.lists(st.one_of(st.none(), st.lists(TEXT, max_size=3)), min_size=3, max_size=30),
    st.lists(st.lists(st.floats(), max_size=3), min_size=3, max_size=30),
    st.lists(st.just({"a": 1}), min_size=3, max_size=30),
)


@settings(FUZZ, max_examples=max(1, EXAMPLES // 4))  # each makes and stores a whole table
@given(CELLS, CELLS)
def test_any_columns_give_a_table_or_a_value_error(left, right):
    rows = min(len(left), len(right))
    frame = pl.DataFrame({"item": range(rows), "left": left[:rows], "right": right[:rows]})
    names = {*infer_fields(frame, key_column="item").reasons}
    assert names == {"left", "right"}
    try:
        table = FeatureTable.fit(frame, list(range(rows + 1)), key_column="item")
    except ValueError:
        return
    assert len(table) == rows + 1
    assert not table.known[rows]
    schema = FeatureSchema.from_dict(json.loads(json.dumps(table.schema.to_dict())))
    assert schema.same_codes(table.schema)
    again = FeatureTable.encode(schema, frame, list(range(rows + 1)), key_column="item")
    assert torch.equal(again.codes, table.codes)
    torch.testing.assert_close(again.numbers, table.numbers, equal_nan=True, rtol=0, atol=0)
    stored = FeatureTable.from_frame(schema, table.to_frame())
    for one, other in zip(stored.tokens, table.tokens, strict=True):
        assert torch.equal(one.values, other.values)


GARBAGE = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just("tokens")
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)
FIELD = st.fixed_dictionaries(
    {"name": st.one_of(TEXT, GARBAGE), "kind": st.sampled_from(["categorical", "tokens"])},
    optional={
        "separator": st.one_of(st.just(" "), GARBAGE),
        "values": st.one_of(st.lists(st.text(max_size=3), max_size=4), GARBAGE),
        "counts": st.one_of(st.lists(st.integers(), max_size=4), GARBAGE),
    },
)
NUMBER = st.fixed_dictionaries(
    {
        "name": st.one_of(TEXT, GARBAGE),
        "kind": st.just("numeric"),
        "mean": st.one_of(st.floats(), GARBAGE),
        "deviation": st.one_of(st.floats(), GARBAGE),
    }
)
SCHEMA = st.fixed_dictionaries(
    {
        "version": st.one_of(st.just(1), GARBAGE),
        "fields": st.one_of(st.lists(st.one_of(FIELD, NUMBER, GARBAGE), max_size=3), GARBAGE),
        "reasons": st.one_of(st.just({}), GARBAGE),
    }
)


@FUZZ
@given(st.one_of(GARBAGE, SCHEMA))
def test_any_dictionary_is_a_schema_or_a_value_error(given_dictionary):
    try:
        schema = FeatureSchema.from_dict(given_dictionary)
    except ValueError:
        return
    assert FeatureSchema.from_dict(schema.to_dict()).same_codes(schema)


FRAME = pl.DataFrame({"x": ["a", "b", "b"], "y": [1.0, 2.0, None], "z": ["a|b", "b", "c"]})
STORED = FeatureSchema.fit(FRAME).to_dict()


@FUZZ
@given(st.data())
def test_a_schema_with_one_entry_broken_is_refused_or_read(data):
    stored = copy.deepcopy(STORED)
    place = data.draw(st.sampled_from(range(3)))
    entry = data.draw(st.sampled_from(sorted(stored["fields"][place])))
    stored["fields"][place][entry] = data.draw(GARBAGE)
    message = ""
    try:
        FeatureSchema.from_dict(stored)
    except ValueError as error:
        message = str(error)
    assert len(message) < 2000
