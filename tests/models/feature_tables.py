"""Tables of features for tests, made from codes."""

import polars as pl

from widemax.data import FeatureTable
from widemax.data.features.fields import FeatureField


def features_of(codes):
    """Return the categorical features of rows that have these codes [N, F]; -1 is unknown."""
    keys = list(range(len(codes)))
    columns = {
        f"field{n}": [None if code < 0 else f"value{code}" for code in column]
        for n, column in enumerate(codes.T.tolist())
    }
    fields = [FeatureField(name, "categorical") for name in columns]
    frame = pl.DataFrame({"key": keys, **columns})
    return FeatureTable.fit(frame, keys, key_column="key", fields=fields)
