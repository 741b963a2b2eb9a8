"""Two towers in a training loop of your own: plain torch but for the output layer.

The item's tower is a scorer of your own: its vectors come from whatever is known of an item. The
other targets of a batch are the negatives. Popular items are among them more often, which log Q
corrects. Each part that begins with ``# %%`` is a cell of a notebook.
Run it: ``python examples/two_tower.py``.
"""

# %% Who clicked on what: put your own log here.
from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

import widemax as wm

DIMENSION, MAX_HISTORY, TEMPERATURE = 32, 20, 0.1
EPOCHS, BATCH_SIZE = 8, 512

torch.manual_seed(0)
shop = wm.data.SimulatedShop.create(num_items=2_000, num_users=2_000, seed=0)
vocabulary = wm.Vocabulary.count(shop.clicks["item_id"])
by_user = shop.clicks.group_by("user_id", maintain_order=True).agg("item_id")
log = wm.Sequences.from_lists([vocabulary.encode(items).tolist() for items in by_user["item_id"]])
# The last item of each user is the test, the one before it the validation.
split = wm.leave_one_out(log)
counts = torch.bincount(split.train.values, minlength=len(vocabulary))
print(f"{len(log):,} users, {len(vocabulary):,} items, {len(log.values):,} clicks")

# %% What is known of the items, a row for each class of the vocabulary.
features = wm.data.FeatureTable.fit(
    shop.items,
    vocabulary.keys,
    key_column="item_id",
    fields=[
        wm.data.FeatureField("category", "categorical"),
        wm.data.FeatureField("price", "numeric"),
    ],
)


# %% The item's tower: a scorer needs ``class_vectors``, and ``queries`` if they are scaled.
class ItemTower(wm.scoring.Scorer):
    """The vector of an item from its id, its category and its price."""

    codes: Tensor
    prices: Tensor

    def __init__(self, table: wm.data.FeatureTable, dimension: int) -> None:
        super().__init__()
        self.num_classes, self.dimension = len(table), dimension
        self.ids = nn.Embedding(len(table), dimension)
        self.categories = nn.Embedding(table.schema.fields[0].num_codes, dimension)
        self.layers = nn.Sequential(
            nn.Linear(2 * dimension + 1, 64), nn.ReLU(), nn.Linear(64, dimension)
        )
        self.register_buffer("codes", table.codes[:, 0])
        self.register_buffer("prices", table.numbers.nan_to_num())

    def inputs(self, ids: Tensor) -> Tensor:
        """Return what the tower reads of items of any shape."""
        known = [self.ids(ids), self.categories(self.codes[ids]), self.prices[ids]]
        return torch.cat(known, dim=-1)

    def class_vectors(self, ids: Tensor | None = None) -> Tensor:
        """Return vectors of length 1 of some classes, or of all."""
        ids = torch.arange(self.num_classes) if ids is None else ids
        return normalize(self.layers(self.inputs(ids)), dim=-1)

    def queries(self, hidden: Tensor) -> Tensor:
        """Return the user's vector as it is multiplied with an item's: a cosine over τ."""
        return normalize(hidden, dim=-1) / TEMPERATURE


# %% The user's tower reads the mean of what the item's tower reads of a history.
class UserTower(nn.Module):
    """The vector of a user from their last items."""

    def __init__(self, items: ItemTower) -> None:
        super().__init__()
        width = 2 * items.dimension + 1
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, items.dimension))

    def forward(self, items: ItemTower, context: Tensor) -> Tensor:
        """Return the vectors of histories [B, H], padded with -1."""
        known = (context >= 0)[..., None]
        read = items.inputs(context.clamp(min=0)) * known
        hidden: Tensor = self.layers(read.sum(1) / known.sum(1).clamp(min=1))
        return hidden


# %% The output layer: targets of a batch compete, each weighed by how often it was to be expected.
items = ItemTower(features, DIMENSION)
users = UserTower(items)
head = wm.SampledHead(
    items,
    wm.InBatchSampler(len(vocabulary), wm.UnigramSampler(len(vocabulary), counts, distortion=1.0)),
    objective=wm.corrected_log_q,
)
model = nn.ModuleList([items, users])


# %% Exact metrics over the whole catalogue; what a user had is left out.
def best(
    batch: wm.data.WindowBatch, k: int, *, exclude: Tensor | None = None
) -> wm.candidates.TopK:
    """Return the k best items of each user."""
    return head.topk(users(items, batch.context), k, exclude=exclude)


def popular(
    batch: wm.data.WindowBatch, k: int, *, exclude: Tensor | None = None
) -> wm.candidates.TopK:
    """Return the k most popular items: what every model has to beat."""
    alike = wm.FullHead(wm.TableScorer(len(vocabulary), 1))
    alike.scorer.weight.data = counts[:, None].float()
    return alike.topk(torch.ones(len(batch.context), 1), k, exclude=exclude)


def recall(topk: object, holdout: wm.data.Holdout) -> float:
    """Return how often the item is among the best 20."""
    report = wm.evaluate_recommendations(topk, holdout, ks=(20,), max_history=MAX_HISTORY)
    return report.metrics()["recall@20"]


# %% The loop.
windows = wm.data.Windows(split.train, before=MAX_HISTORY, require_context=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
folder = Path(tempfile.mkdtemp())
highest = 0.0
for epoch in range(EPOCHS):
    for rows in torch.randperm(len(windows)).split(BATCH_SIZE):
        batch = windows.batch(rows)
        optimizer.zero_grad()
        # A user's other clicks in the batch are no negatives.
        loss = head(users(items, batch.context), batch.targets, query_ids=batch.users).mean()
        loss.backward()
        optimizer.step()
    found = recall(best, split.validation)
    print(f"epoch {epoch + 1}  loss {loss.item():.4f}  validation recall@20 {found:.4f}")
    if found > highest:
        highest = found
        save_file(model.state_dict(), folder / "best.safetensors")

# %% The best epoch, loaded again, on the test.
model.load_state_dict(load_file(folder / "best.safetensors"))
print(f"popularity recall@20 {recall(popular, split.test):.4f}")
print(f"recall@20 {recall(best, split.test):.4f}")
