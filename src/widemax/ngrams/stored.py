"""A model as named tensors, and the checks of tensors that come from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from widemax.ngrams.counting import MAX_ORDER, MOST_KEYS
from widemax.ngrams.trie import ROOT_KEY, Trie
from widemax.validation import MAX_TABLE_CLASSES, check_num_classes, check_tensor, check_whole

MOST_LOG10_BACKOFF = 99.0
"""Largest log10 back-off: the sum of those of all lengths stays finite."""

_TYPES = {"shape": torch.int64, "keys": torch.int64} | dict.fromkeys(
    ("log_probs", "log_backoffs"), torch.float64
)


def named_tensors(trie: Trie, order: int) -> dict[str, Tensor]:
    """Return ``shape`` = [num_classes, order], ``keys``, ``log_probs`` and ``log_backoffs``."""
    return {
        "shape": torch.tensor([trie.num_classes, order]),
        "keys": trie.keys,
        "log_probs": trie.log_probs,
        "log_backoffs": trie.log_backoffs,
    }


def checked_trie(tensors: Mapping[str, Tensor]) -> tuple[Trie, int]:
    """Return the trie and the order of stored tensors; ValueError if they are no model's."""
    if set(tensors) != set(_TYPES):
        raise ValueError(f"tensors must be {sorted(_TYPES)}, got {sorted(tensors)}")
    for name, dtype in _TYPES.items():
        value = check_tensor(name, tensors[name])
        if value.dtype != dtype or value.dim() != 1:
            raise ValueError(
                f"{name} must be {dtype} of one dimension, got {value.dtype} {list(value.shape)}"
            )
    if len(tensors["shape"]) != 2:
        raise ValueError(f"shape must hold two numbers, got {len(tensors['shape']):,}")
    num_classes, order = tensors["shape"].tolist()
    check_num_classes(num_classes, limit=MAX_TABLE_CLASSES)
    check_whole("order", order, 1, MAX_ORDER)
    trie = Trie(num_classes, *(tensors[name].cpu() for name in list(_TYPES)[1:]))
    check_trie(trie)
    if len(trie.bounds) - 1 > order:
        raise ValueError(f"keys must hold n-grams of up to {order} ids, got {len(trie.bounds) - 1}")
    return trie, order


def check_trie(trie: Trie) -> None:
    """Refuse keys that are not those of a trie, and numbers that are no probabilities."""
    keys, base = trie.keys, trie.base
    if len(trie.log_probs) != len(keys) or len(trie.log_backoffs) != len(keys):
        raise ValueError(
            f"log_probs and log_backoffs must be as many as keys, {len(keys):,}, got "
            f"{len(trie.log_probs):,} and {len(trie.log_backoffs):,}"
        )
    if not base < len(keys) <= MOST_KEYS // base:
        raise ValueError(
            f"keys must number between {base + 1:,} and {MOST_KEYS // base:,} for "
            f"{trie.num_classes:,} classes, got {len(keys):,}"
        )
    if int(keys[0]) != ROOT_KEY or not torch.equal(keys[1 : base + 1], torch.arange(base)):
        raise ValueError("keys must start with the empty n-gram and all classes")
    if not bool((keys[1:] > keys[:-1]).all()):
        raise ValueError("keys must rise")
    longer = keys[base + 1 :]
    parents = longer.div(base, rounding_mode="floor")
    if not bool((parents < torch.arange(base + 1, len(keys))).all()):
        raise ValueError("keys must name contexts that come before them")
    if bool((longer % base == trie.num_classes).any()):
        raise ValueError(f"keys must not predict the begin marker, id {trie.num_classes:,}")
    for name, values, most in (
        ("log_probs", trie.log_probs, 0.0),
        ("log_backoffs", trie.log_backoffs, MOST_LOG10_BACKOFF * math.log(10)),
    ):
        # NaN is not at most anything.
        if not bool((values <= most).all()):
            raise ValueError(f"{name} must be at most {most:g}, got {values.max().item():g}")
    if float(trie.log_probs[trie.base]) != -math.inf:
        raise ValueError("log_probs must be -inf for the begin marker")
