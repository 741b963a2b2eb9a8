"""Which output layer for this data? The same encoder with several heads, on equal steps.

``widemax compare log.parquet`` does this with learning rates, seeds and standard errors; here it is
in forty lines of one's own. Put your own data into ``make_clicks`` of ``plain_torch.py``.
Run it: ``python examples/compare_heads.py``.
"""

from __future__ import annotations

import time

import torch

import widemax as wm
from plain_torch import BATCH_SIZE, DIMENSION, NUM_CLASSES, make_clicks, make_encoder, recall

STEPS, FIRST_HELD_OUT = 40, 300 * BATCH_SIZE


def make_heads(counts: torch.Tensor) -> dict[str, wm.Head]:
    """Return the heads that compete; all of them are asked in the same way."""
    scorer, sampler = wm.TableScorer, wm.UnigramSampler(NUM_CLASSES, counts + 1, unique=True)
    return {
        "full softmax": wm.FullHead(scorer(NUM_CLASSES, DIMENSION, bias=True)),
        "sampled softmax": wm.SampledHead(
            scorer(NUM_CLASSES, DIMENSION, bias=True), sampler, num_samples=256
        ),
        "NCE": wm.SampledHead(
            scorer(NUM_CLASSES, DIMENSION, bias=True), sampler, objective=wm.nce, num_samples=256
        ),
        "Huffman tree": wm.HierarchicalHead(DIMENSION, wm.Tree.huffman(counts + 1)),
    }


def main() -> None:
    """Train each head alike; print exact log-likelihood, recall@20 and the time of a step."""
    world, users, items = make_clicks()
    features = world.features(users)
    counts = torch.bincount(items[:FIRST_HELD_OUT], minlength=NUM_CLASSES).double()
    held_out = slice(FIRST_HELD_OUT, FIRST_HELD_OUT + BATCH_SIZE)
    print(f"{'head':<16}{'ms/step':>9}{'log-likelihood':>16}{'recall@20':>11}")
    for name, head in make_heads(counts).items():
        torch.manual_seed(0)
        encoder = make_encoder()
        optimizer = wm.optimizer_for(encoder, head, lr=0.02)
        began = time.process_time()
        for step in range(STEPS):
            batch = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
            optimizer.zero_grad()
            head(encoder(features[batch]), items[batch]).mean().backward()
            optimizer.step()
        each = 1000 * (time.process_time() - began) / STEPS
        with torch.no_grad():
            asked = items[held_out, None]  # [B, 1]: for each example the class that was chosen
            log_prob = head.log_prob(encoder(features[held_out]), asked).mean().item()
        found = recall(encoder, head, features[held_out], items[held_out])
        print(f"{name:<16}{each:>9.1f}{log_prob:>16.3f}{found:>11.4f}")


if __name__ == "__main__":
    main()
