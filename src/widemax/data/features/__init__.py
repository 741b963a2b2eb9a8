"""Features of items and users: columns in, codes and numbers out.

``cells`` → ``fields`` → ``inference`` → ``schema`` → ``table`` → ``reading``: each knows only
those before it, and of the readers of logs (``data.reading``) files, tables and columns.
"""

from widemax.data.features.fields import FeatureField, FeatureKind, FittedField
from widemax.data.features.inference import infer_fields
from widemax.data.features.reading import key_column_of, read_feature_frame, read_features
from widemax.data.features.schema import FeatureSchema
from widemax.data.features.table import FeatureTable

__all__ = [
    "FeatureField",
    "FeatureKind",
    "FeatureSchema",
    "FeatureTable",
    "FittedField",
    "infer_fields",
    "key_column_of",
    "read_feature_frame",
    "read_features",
]
