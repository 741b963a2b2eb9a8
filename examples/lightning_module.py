"""A head inside a LightningModule: Lightning owns the loop, the head stays the same.

The gradients of a sparse table need widemax's own clipping, which the module calls itself. Install
it with ``pip install lightning``; run it with ``python examples/lightning_module.py``.
"""

from __future__ import annotations

from typing import Any

import lightning as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import widemax as wm
from plain_torch import (
    BATCH_SIZE,
    NUM_CLASSES,
    STEPS,
    TOP,
    make_clicks,
    make_encoder,
    make_head,
    recall,
)


class ClickModel(pl.LightningModule):
    """The encoder and the head of ``plain_torch.py``."""

    def __init__(self, counts: Tensor) -> None:
        """Build both; ``counts`` says how often each item was clicked."""
        super().__init__()
        self.encoder = make_encoder()
        self.head = make_head(counts)

    def training_step(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the mean loss of a batch of features and items."""
        features, items = batch
        return self.head(self.encoder(features), items).mean()

    def validation_step(self, batch: tuple[Tensor, Tensor]) -> None:
        """Log how often the item is among the best of the whole catalogue."""
        self.log(f"recall@{TOP}", recall(self.encoder, self.head, *batch))

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip dense and sparse gradients together; torch's own takes no sparse ones."""
        if gradient_clip_val is not None:
            wm.clip_grad_norm_(self.parameters(), gradient_clip_val)

    def configure_optimizers(self) -> Any:
        """Return one optimiser for table and encoder, and a schedule that moves every step."""
        optimizer = wm.RowAdam(self.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-4)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def main() -> None:
    """Train for one epoch, and print recall@20 on clicks that were held out."""
    pl.seed_everything(0, verbose=False)
    world, users, items = make_clicks()
    clicks = TensorDataset(world.features(users), items)
    training = torch.utils.data.Subset(clicks, range(STEPS * BATCH_SIZE))
    held_out = torch.utils.data.Subset(clicks, range(STEPS * BATCH_SIZE, len(clicks)))
    model = ClickModel(torch.bincount(items[: len(training)], minlength=NUM_CLASSES))
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        gradient_clip_val=5.0,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        model,
        DataLoader(training, batch_size=BATCH_SIZE),
        DataLoader(held_out, batch_size=BATCH_SIZE),
    )
    print(f"recall@{TOP} {trainer.callback_metrics[f'recall@{TOP}'].item():.4f}")


if __name__ == "__main__":
    main()
