"""A head in a training loop of your own: only the output layer and the optimiser are from widemax.

One optimiser trains the dense encoder and the sparse table, a torch scheduler lowers its learning
rate, and what was trained by sampling is evaluated exactly.
Run it: ``python examples/plain_torch.py``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import widemax as wm

NUM_CLASSES = 20_000
FEATURES, DIMENSION = 16, 32
STEPS, BATCH_SIZE = 300, 512
TOP = 20


def make_clicks() -> tuple[wm.data.SimulatedWorld, Tensor, Tensor]:
    """Return a simulated shop, and who clicked on what in it: put your own data here."""
    world = wm.data.SimulatedWorld.create(
        num_classes=NUM_CLASSES, num_users=2_000, dimension=FEATURES, sharpness=8.0, seed=0
    )
    users, items = world.interactions(
        (STEPS + 4) * BATCH_SIZE, generator=torch.Generator().manual_seed(0)
    )
    return world, users, items


def make_encoder() -> nn.Module:
    """Return what turns a user's features into a hidden state: any module with D outputs."""
    return nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, DIMENSION))


def make_head(counts: Tensor) -> wm.SampledHead:
    """Return the output layer; ``sparse=True``: a step writes only the rows that it drew."""
    return wm.SampledHead(
        wm.TableScorer(NUM_CLASSES, DIMENSION, bias=True, sparse=True),
        wm.UnigramSampler(NUM_CLASSES, counts + 1, unique=True),
        objective=wm.sampled_softmax,
        num_samples=256,
    )


@torch.no_grad()
def recall(encoder: nn.Module, head: wm.SampledHead, features: Tensor, items: Tensor) -> float:
    """Return how often the item is among the best of the whole catalogue."""
    best = head.topk(encoder(features), k=TOP)
    return (best.ids == items[:, None]).any(1).double().mean().item()


def main() -> None:
    """Train, and print recall@20 on clicks that were held out."""
    torch.manual_seed(0)
    world, users, items = make_clicks()
    held_out = slice(STEPS * BATCH_SIZE, None)
    encoder = make_encoder()
    head = make_head(torch.bincount(items[: held_out.start], minlength=NUM_CLASSES))
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = wm.RowAdam(parameters, lr=0.02)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-4)

    for step in range(STEPS):
        batch = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        optimizer.zero_grad()
        loss = head(encoder(world.features(users[batch])), items[batch]).mean()
        loss.backward()
        wm.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        scheduler.step()
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}  loss {loss.item():.4f}")

    found = recall(encoder, head, world.features(users[held_out]), items[held_out])
    print(f"recall@{TOP} {found:.4f}")


if __name__ == "__main__":
    main()
