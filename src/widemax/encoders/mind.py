"""Several vectors for one user: what they chose, routed to the interests it belongs to."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from widemax.encoders.contexts import check_context, numbered_halves
from widemax.encoders.dense import dense_rows
from widemax.encoders.routing import route, squash
from widemax.encoders.users import Tower, features_dimension, item_table, known_features
from widemax.scoring.rows import gather_rows
from widemax.scoring.table import check_table_size
from widemax.validation import check_positive, check_whole

_MOST_INTERESTS = 2**10
_MOST_ITERATIONS = 100
_PLACES = 512


class MINDEncoder(nn.Module):
    """The interests of a user, found among their items by dynamic routing.

    Formula: c_i = S·u(item i), one map S for all. Routing logits b_ik start at fixed random
    numbers; ``iterations`` times: w_i = softmax over k of b_ik, x_k = squash(Σ_i w_ik·c_i),
    b_ik ← b_ik + x_k·c_i, with squash(z) = |z| / (1 + |z|²)·z. Gradients flow through the last
    round only. A user with n items has max(1, min(K, ⌊log₂ n⌋)) interests. Each then goes through
    one tower with the user's features (``YouTubeDNNEncoder``), as g·x_k; those that a user lacks
    are copies of the first one, so that they can never be the best alone. squash bounds x_k by 1,
    and with it any score by the length of an item: the learned ``gain`` g, which starts at
    ``initial_gain``, lets the softmax over many items become sharp.

    Shapes: context int64 [B, H], -1 anywhere; ``users`` int64 [B], -1 unknown → [B, K, D];
    ``routing`` [512, K], whose row is the place from the end, modulo 512. With ``sparse`` the
    gradient of ``items`` [V, D] holds the rows of the context only.

    Reference: Li et al. 2019.

    >>> encoder = MINDEncoder(100, 8, num_interests=3)
    >>> interests = encoder(torch.tensor([[-1, -1, 3, 5], [9, 3, 5, 7]]))
    >>> interests.shape, torch.equal(interests[0, 0], interests[0, 1])
    (torch.Size([2, 3, 8]), True)
    >>> torch.equal(interests[1, 0], interests[1, 1]), torch.equal(interests[1, 0], interests[1, 2])
    (False, True)
    """

    routing: Tensor

    def __init__(
        self,
        num_classes: int,
        dimension: int,
        layers: Sequence[int] = (),
        *,
        num_interests: int = 4,
        iterations: int = 3,
        initial_gain: float = 8.0,
        user_features: nn.Module | None = None,
        dropout: float = 0.0,
        sparse: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.num_classes, self.dimension = check_table_size(num_classes, dimension)
        self.output_dimension = dimension
        self.num_interests = check_whole("num_interests", num_interests, 1, _MOST_INTERESTS)
        self.iterations = check_whole("iterations", iterations, 1, _MOST_ITERATIONS)
        self.tower = Tower(dimension, features_dimension(user_features), layers, dropout=dropout)
        self.user_features = user_features
        self.items = item_table(num_classes, dimension, sparse=sparse)
        self.bilinear = nn.Parameter(torch.empty(dimension, dimension))
        # Near the identity: interests begin as sums of items, which a tied table can score at once.
        nn.init.normal_(self.bilinear, std=0.1 * dimension**-0.5)
        with torch.no_grad():
            self.bilinear.diagonal().add_(1.0)
        self.gain = nn.Parameter(torch.tensor(check_positive("initial_gain", initial_gain)))
        self.register_buffer("routing", torch.randn(_PLACES, num_interests, generator=generator))

    def class_tables(self) -> dict[str, range]:
        """Return which tensors have a row for each class, with the classes of their rows."""
        return {"items.weight": range(self.num_classes)}

    def forward(self, context: Tensor, users: Tensor | None = None) -> Tensor:
        """Return the interests of the users, [B, K, D]."""
        context = check_context(context, self.num_classes)
        named, _, _, places = numbered_halves(context, context.shape[1])
        used = self._used(places)
        hidden = self._route(named, places, used)
        features = None
        if self.user_features is not None:
            features = known_features(self.user_features, users, context)[:, None]
        interests: Tensor = self.tower(self.gain * hidden, features)
        return torch.where(used[..., None], interests, interests[:, :1])

    def dense(self, context: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the interests of contexts as ``DenseEncoder`` takes them, [B, K, D]."""
        used = self._used(context)
        behaviours = dense_rows(self.items.weight, context) @ self.bilinear.T
        lengths = (context >= 0).sum(1, keepdim=True)
        from_end = lengths - 1 - torch.arange(context.shape[1], device=context.device)
        logits = self.routing[from_end.clamp(min=0) % _PLACES]
        logits = logits.masked_fill(~used[:, None], -torch.inf)
        for _ in range(self.iterations - 1):
            interests = squash(logits.softmax(-1).transpose(1, 2) @ behaviours)
            logits = logits + behaviours @ interests.transpose(1, 2)
        interests = squash(logits.softmax(-1).transpose(1, 2) @ behaviours)
        if features is not None:
            features = features[:, None].expand(-1, self.num_interests, -1)
        interests = self.tower(self.gain * interests, features)
        return torch.where(used[..., None], interests, interests[:, :1])

    def _used(self, items: Tensor) -> Tensor:
        """Return which interests each user has, bool [B, K]."""
        lengths = (items >= 0).sum(-1, keepdim=True)
        numbers = torch.arange(self.num_interests, device=items.device)
        # From 2^(k+1) items on: ⌊log₂ n⌋ of them, without the rounding of a logarithm.
        return (numbers == 0) | (lengths >= 2.0 ** (numbers + 1))

    def _route(self, named: Tensor, places: Tensor, used: Tensor) -> Tensor:
        """Return the interests of items [U] at packed places [B, L] before the tower, [B, K, D]."""
        vectors = gather_rows(self.items.weight, named, sparse=self.items.sparse)
        vectors = vectors.to(self.bilinear.dtype)
        mapped = vectors.detach() @ self.bilinear.detach().T
        sums = route(vectors, mapped, places, used, self.routing, self.iterations)
        # The sum of what is mapped is the sum, mapped: of that there is less.
        return squash(sums @ self.bilinear.T)

    def extra_repr(self) -> str:
        """Return what ``print(encoder)`` shows."""
        return f"num_interests={self.num_interests}, iterations={self.iterations}"
