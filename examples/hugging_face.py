"""A causal model of Hugging Face with a widemax head instead of its output layer.

The weights are random, so that nothing is downloaded; ``from_pretrained`` goes the same way.
Install it with ``pip install transformers``; run it with ``python examples/hugging_face.py``.
"""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import widemax as wm
from language_model import CONTEXT, read_words, windows

STEPS, BATCH_SIZE = 60, 16


def main() -> None:
    """Train by sampled losses, and print the model's own exact loss before and after."""
    torch.manual_seed(0)
    ids, vocabulary = read_words()
    num_classes, cut = len(vocabulary), len(ids) * 9 // 10
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=num_classes,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
        )
    )
    head = wm.SampledHead(
        wm.TableScorer.tied(model.get_input_embeddings()),  # the table of the model itself
        wm.UnigramSampler(num_classes, vocabulary.counts, unique=True),
        num_samples=256,
    )
    optimizer = wm.optimizer_for(model, lr=3e-3)

    held_out, answers = windows(ids[cut:], 32, torch.Generator().manual_seed(1))

    @torch.no_grad()
    def own_loss() -> float:
        scores = model(held_out).logits.flatten(0, 1)
        return torch.nn.functional.cross_entropy(scores, answers).item()

    before, generator = own_loss(), torch.Generator().manual_seed(0)
    for _ in range(STEPS):
        context, targets = windows(ids[:cut], BATCH_SIZE, generator)
        optimizer.zero_grad()
        # model.model is all below the output layer: scores of all words are never computed.
        hidden = model.model(context).last_hidden_state.flatten(0, 1)
        head(hidden, targets).mean().backward()
        optimizer.step()
    print(f"exact loss {before:.3f} before, {own_loss():.3f} after {STEPS} steps")


if __name__ == "__main__":
    main()
