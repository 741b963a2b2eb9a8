"""Steps of other libraries' SASRec, MIND and SDM, taken when asked: what sequences.py starts.

It runs in an environment of its own (see there) and imports nothing of widemax. A library trains
as its documentation says; after its first steps it waits, and for each line that comes in it takes
CALLS steps and answers with the processor seconds of one. Examples are made before that, so that
no library is charged for how it reads.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

DIMENSION, LENGTH, SHORT, HEADS, INTERESTS = 64, 50, 10, 2, 4
ROWS, EXAMPLES = 128, 512
"""Users in a batch of SASRec, and examples in one of the other models."""
NEGATIVES = {"sasrec": 256, "mind": 800, "sdm": 800}
DROPOUT = 0.1
CALLS, WARMUP = 5, 3


def read_log(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the items of all users, numbered by falling count, and where each user starts."""
    users, items = np.loadtxt(path, dtype=np.int64).T
    counts = np.bincount(items)
    numbers = np.empty_like(counts)
    numbers[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    order = np.argsort(users, kind="stable")
    sizes = np.bincount(users)
    offsets = np.concatenate([[0], sizes[sizes > 0].cumsum()])
    return numbers[items[order]], offsets


def last_items(values: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last LENGTH + 1 items of each user: what one pass of SASRec learns from."""
    starts = np.maximum(offsets[:-1], offsets[1:] - LENGTH - 1)
    kept = [values[start:end] for start, end in zip(starts, offsets[1:], strict=True)]
    return np.concatenate(kept), np.concatenate([[0], np.cumsum([len(each) for each in kept])])


class Gate:
    """Counts steps, and after the first ones stops until it is told to go on."""

    def __init__(self) -> None:
        self.taken, self.start = 0, 0.0

    def passed(self) -> None:
        """Say how long the steps since the last line took, and wait for the next."""
        self.taken += 1
        steps = self.taken - WARMUP
        if steps < 0 or steps % CALLS:
            return
        print("ready" if not steps else (time.process_time() - self.start) / CALLS, flush=True)
        if not sys.stdin.readline():
            os._exit(0)  # nobody asks any more; libraries would go on training
        self.start = time.process_time()


def rectools_sasrec(values: np.ndarray, offsets: np.ndarray, loss: str) -> None:
    """Train RecTools' SASRec, which reads the last items of each user once an epoch."""
    import pandas as pd
    import torch
    from pytorch_lightning import Callback, Trainer
    from rectools import Columns
    from rectools.dataset import Dataset
    from rectools.models import SASRecModel

    torch.set_num_threads(1)
    gate = Gate()

    class Waiting(Callback):
        def on_train_batch_end(self, *_: object) -> None:
            gate.passed()

    def trainer() -> Trainer:
        return Trainer(
            max_epochs=1000,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Waiting()],
        )

    values, offsets = last_items(values, offsets)
    users = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    table = pd.DataFrame({Columns.User: users, Columns.Item: values, Columns.Weight: 1.0})
    table[Columns.Datetime] = pd.to_datetime(np.arange(len(values)), unit="s")
    model = SASRecModel(
        n_blocks=2,
        n_heads=HEADS,
        n_factors=DIMENSION,
        session_max_len=LENGTH,
        dropout_rate=DROPOUT,
        loss=loss,
        n_negatives=NEGATIVES["sasrec"],
        batch_size=ROWS,
        get_trainer_func=trainer,
    )
    model.fit(Dataset.construct(table))


def deepmatch(values: np.ndarray, offsets: np.ndarray, name: str) -> None:
    """Train DeepMatch's MIND or SDM; its item 0 is padding, and it wants a feature of the user."""
    import tensorflow as tf
    from deepctr.feature_column import SparseFeat, VarLenSparseFeat
    from deepmatch.models import MIND, SDM
    from deepmatch.utils import NegativeSampler, sampledsoftmaxloss

    tf.compat.v1.disable_eager_execution()  # as DeepMatch's examples do
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gate = Gate()

    class Waiting(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, *_: object) -> None:
            gate.passed()

    size, users = int(values.max()) + 2, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    places = np.random.default_rng(0).permutation(len(values))
    places = places[places > offsets[users[places]]][: 500 * EXAMPLES]
    owners = users[places]
    lengths = np.minimum(places - offsets[owners], LENGTH)
    histories = np.zeros((len(places), LENGTH), np.int32)
    for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
        histories[row, :length] = values[place - length : place] + 1

    def sequence(feature: str, width: int, length: str) -> VarLenSparseFeat:
        item = SparseFeat(feature, size, DIMENSION, embedding_name="item")
        return VarLenSparseFeat(item, width, "mean", length)

    sampler = NegativeSampler("uniform", NEGATIVES[name], "item")
    user, item = (
        SparseFeat("user", len(offsets) - 1, DIMENSION),
        SparseFeat("item", size, DIMENSION),
    )
    inputs = {"user": owners, "item": values[places] + 1}
    if name == "mind":
        inputs |= {"hist_item": histories, "hist_len": lengths}
        model = MIND(
            [user, sequence("hist_item", LENGTH, "hist_len")],
            [item],
            k_max=INTERESTS,
            dynamic_k=True,
            user_dnn_hidden_units=(DIMENSION,),
            l2_reg_embedding=0,
            sampler_config=sampler,
        )
    else:
        recent = np.minimum(lengths, SHORT)
        steps, first = np.arange(LENGTH), (lengths - recent)[:, None]
        wide = np.pad(histories, ((0, 0), (0, SHORT)))
        inputs |= {
            "short_item": np.take_along_axis(wide, first + np.arange(SHORT), 1),
            "short_sess_length": recent,
            "prefer_item": np.where(steps < first, histories, 0)[:, : LENGTH - SHORT],
            "prefer_sess_length": first[:, 0],
        }
        columns = [
            sequence("short_item", SHORT, "short_sess_length"),
            sequence("prefer_item", LENGTH - SHORT, "prefer_sess_length"),
        ]
        model = SDM(
            [user, *columns],
            [item],
            history_feature_list=["item"],
            units=DIMENSION,
            rnn_layers=1,
            rnn_num_res=0,
            num_head=HEADS,
            dropout_rate=0.0,
            l2_reg_embedding=0,
            sampler_config=sampler,
        )
    model.compile(optimizer="adam", loss=sampledsoftmaxloss)
    labels = np.ones(len(places), np.float32)
    model.fit(inputs, labels, EXAMPLES, epochs=1000, verbose=0, callbacks=[Waiting()])


PEERS = {
    "SASRec over all items": lambda *log: rectools_sasrec(*log, loss="softmax"),
    "SASRec": lambda *log: rectools_sasrec(*log, loss="sampled_softmax"),
    "MIND": lambda *log: deepmatch(*log, name="mind"),
    "SDM": lambda *log: deepmatch(*log, name="sdm"),
}

if __name__ == "__main__":
    PEERS[sys.argv[1]](*read_log(Path(sys.argv[2])))
