"""A small transformer language model with a sampled head, judged by its exact perplexity.

The text is the language reference that comes with Python. Only the output layer and the optimiser
are from widemax; words read and words predicted share one table.
Run it: ``python examples/language_model.py``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

import widemax as wm

CONTEXT, DIMENSION, LAYERS = 32, 64, 2
STEPS, BATCH_SIZE, NUM_SAMPLES = 150, 32, 256


def read_words() -> tuple[Tensor, wm.Vocabulary]:
    """Return a text as ids, and which id is which word: put your own text here."""
    words = wm.data.python_reference().split()
    vocabulary = wm.Vocabulary.count(words, min_count=3, unknown="<unk>")
    return torch.as_tensor(vocabulary.encode(words)), vocabulary


class Transformer(nn.Module):
    """Reads words, gives a hidden state for each place that knows only what stands before it."""

    def __init__(self, num_classes: int) -> None:
        """Build the table of words, places, and the layers above them."""
        super().__init__()
        self.words = nn.Embedding(num_classes, DIMENSION)
        nn.init.normal_(self.words.weight, std=DIMENSION**-0.5)
        self.places = nn.Parameter(0.01 * torch.randn(CONTEXT, DIMENSION))
        layer = nn.TransformerEncoderLayer(
            DIMENSION, 4, 4 * DIMENSION, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIMENSION)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a hidden state [B, T, D] for each word of [B, T]."""
        length = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        states = self.words(ids) * DIMENSION**0.5 + self.places[:length]
        return self.norm(self.layers(states, mask=mask, is_causal=True))


def windows(ids: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return ``count`` random pieces of a text, and the word after each of their words."""
    starts = torch.randint(len(ids) - CONTEXT, (count, 1), generator=generator)
    places = starts + torch.arange(CONTEXT + 1)
    return ids[places[:, :-1]], ids[places[:, 1:]].flatten()


@torch.no_grad()
def perplexity(model: Transformer, head: wm.Head, ids: Tensor) -> float:
    """Return the exact perplexity over all words, although training saw only some of them."""
    context, targets = windows(ids, 64, torch.Generator().manual_seed(1))
    exact = wm.heads.as_full_head(head)
    return math.exp(exact(model(context).flatten(0, 1), targets).mean().item())


def main() -> None:
    """Train for some seconds, and print the perplexity of text that was held out."""
    torch.manual_seed(0)
    ids, vocabulary = read_words()
    num_classes, cut = len(vocabulary), len(ids) * 9 // 10
    model = Transformer(num_classes)
    head = wm.SampledHead(
        wm.TableScorer.tied(model.words),
        wm.UnigramSampler(num_classes, vocabulary.counts, unique=True),
        num_samples=NUM_SAMPLES,
    )
    optimizer = wm.optimizer_for(model, head, lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    print(f"{num_classes} words  perplexity {perplexity(model, head, ids[cut:]):.1f} at the start")
    for step in range(STEPS):
        context, targets = windows(ids[:cut], BATCH_SIZE, generator)
        optimizer.zero_grad()
        loss = head(model(context).flatten(0, 1), targets).mean()
        loss.backward()
        wm.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            print(f"step {step + 1}  loss {loss.item():.4f}")
    print(f"perplexity {perplexity(model, head, ids[cut:]):.1f}")


if __name__ == "__main__":
    main()
