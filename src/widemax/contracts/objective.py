"""The contract of an objective, as a check anyone can run."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from widemax.candidates import InnerProduct
from widemax.contracts.requirements import require, require_close
from widemax.objectives import FromFactors, Objective, find_from_factors

_ROWS, _SAMPLES, _POSITIVES = 6, 7, 3
_EXTREMES = (-3e38, -1e4, 0.0, 1e4, 3e38)

_require_same = partial(require_close, tolerance=1e-9, relative=True)


class _Arguments(NamedTuple):
    """What an objective is called with; the names are those of ``Objective``."""

    target_scores: Tensor
    candidate_scores: Tensor
    target_log_expected_count: Tensor
    log_expected_count: Tensor
    hits: Tensor | None = None
    target_mask: Tensor | None = None

    def rows(self, index: Tensor | slice) -> _Arguments:
        return _Arguments._make(None if value is None else value[index] for value in self)

    def candidates(self, index: Tensor | slice) -> _Arguments:
        return self._replace(
            candidate_scores=self.candidate_scores[:, index],
            log_expected_count=self.log_expected_count[:, index],
            hits=None if self.hits is None else self.hits[:, index],
        )

    def with_targets(self, index: slice | None) -> _Arguments:
        return self._replace(
            target_scores=self.target_scores[:, index],
            target_log_expected_count=self.target_log_expected_count[:, index],
        )

    def cast(self, dtype: torch.dtype) -> _Arguments:
        return self._replace(
            target_scores=self.target_scores.to(dtype),
            candidate_scores=self.candidate_scores.to(dtype),
        )


def check_objective(
    objective: Objective, *, monotone: bool = True, generator: torch.Generator | None = None
) -> None:
    """Check an objective against its contract; raises AssertionError that says what is broken.

    L_b depends on row b alone, not on the order of the candidates, nor on a candidate of score −inf
    or an absent positive; L_b = 0 with gradient 0 where row b has no positive; hits are either not
    used, or every one of them equals a score of −inf; with ``monotone`` and one positive
    ∂L/∂F_t ≤ 0 ≤ ∂L/∂F_d; no NaN for scores up to ±3e38; ``from_factors``, if there is one, gives
    what the scores give.

    The objective is called some 50 times with everything that ``Objective`` allows: [B] and [B, T]
    positives, [S] and [B, S] log-counts, no candidate, no row, half precision. Bind its options
    with ``functools.partial`` first. Pass ``monotone=False`` where labels are softened on purpose,
    so that a target's score can be too high.

    >>> from widemax.objectives import sampled_softmax
    >>> check_objective(sampled_softmax)
    >>> def summed(*args, **kwargs):
    ...     return sampled_softmax(*args, **kwargs).sum()
    >>> try:
    ...     check_objective(summed)
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    an objective returns one loss per row, [6], got []
    """
    generator = generator or torch.Generator().manual_seed(0)
    for arguments in _examples(generator):
        _check_losses(objective, arguments)
        _check_hits(objective, arguments)
        _check_order(objective, arguments, generator)
        _check_removed(objective, arguments)
        _check_small(objective, arguments)
        _check_half(objective, arguments)
    _check_shapes(objective, generator)
    _check_absent(objective, generator)
    _check_without_positive(objective, generator)
    _check_extremes(objective)
    if monotone:
        _check_signs(objective, generator)
    from_factors = find_from_factors(objective)
    if from_factors is not None:
        _check_factors(objective, from_factors, generator)


def _examples(generator: torch.Generator) -> list[_Arguments]:
    """Return one positive per row; several; several of which some are absent, with hits."""
    one = _random(generator, (_ROWS,))
    several = _random(generator, (_ROWS, _POSITIVES))
    mask = torch.ones(_ROWS, _POSITIVES, dtype=torch.bool)
    mask[::2, 1:] = False
    hits = torch.zeros(_ROWS, _SAMPLES, dtype=torch.bool)
    hits[:, [1, 4]] = True
    hits[0] = False
    return [one, several, one._replace(hits=hits), several._replace(hits=hits, target_mask=mask)]


def _random(generator: torch.Generator, targets: tuple[int, ...]) -> _Arguments:
    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    # Counts below 1/2: three positives then never claim all draws for themselves.
    return _Arguments(
        2 * normal(*targets),
        2 * normal(_ROWS, _SAMPLES),
        normal(*targets).abs().neg() - 0.7,
        normal(_ROWS, _SAMPLES).abs().neg() - 0.7,
    )


def _losses(objective: Objective, arguments: _Arguments) -> Tensor:
    positive, negative, *_ = arguments
    return objective(
        positive,
        negative,
        target_log_expected_count=arguments.target_log_expected_count,
        log_expected_count=arguments.log_expected_count,
        hits=arguments.hits,
        target_mask=arguments.target_mask,
    )


def _gradients(
    objective: Objective, arguments: _Arguments, *, finite: str = ""
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses and the gradients of their sum for both kinds of scores.

    With ``finite``, the message otherwise, all of them must be finite.
    """
    positive = arguments.target_scores.detach().clone().requires_grad_()
    negative = arguments.candidate_scores.detach().clone().requires_grad_()
    losses = _losses(
        objective, arguments._replace(target_scores=positive, candidate_scores=negative)
    )
    require(losses.requires_grad, "the loss must be differentiable in the scores")
    found = torch.autograd.grad(losses.sum(), [positive, negative], allow_unused=True)
    of_positive, of_negative = (
        torch.zeros_like(scores) if gradient is None else gradient
        for scores, gradient in zip((positive, negative), found, strict=True)
    )
    for values in (losses, of_positive, of_negative) if finite else ():
        require(values.isfinite(), finite)
    return losses.detach(), of_positive, of_negative


def _check_losses(objective: Objective, arguments: _Arguments) -> None:
    before = [None if value is None else value.clone() for value in arguments]
    with torch.no_grad():
        losses = _losses(objective, arguments)
    require(
        losses.shape == (_ROWS,),
        f"an objective returns one loss per row, [{_ROWS}], got {list(losses.shape)}",
    )
    require(losses.isfinite(), f"losses of plain scores must be finite: {losses}")
    for name, value, old in zip(arguments._fields, arguments, before, strict=True):
        untouched = value is None or old is None or torch.equal(value, old)
        require(untouched, f"the objective changed its argument {name} in place")
    again, *gradients = _gradients(objective, arguments, finite="gradients must be finite")
    require(torch.equal(again, losses), "the same arguments must give the same losses")
    require(any(bool(g.ne(0).any()) for g in gradients), "no gradient reaches the scores")


def _check_order(objective: Objective, arguments: _Arguments, generator: torch.Generator) -> None:
    losses = _losses(objective, arguments)
    order = torch.randperm(_ROWS, generator=generator)
    permuted = _losses(objective, arguments.rows(order))
    _require_same(permuted, losses[order], "the order of the rows must not matter")
    scores = arguments.candidate_scores.clone()
    scores[0] += 3.0
    changed = _losses(objective, arguments._replace(candidate_scores=scores))
    _require_same(changed[1:], losses[1:], "a row's loss must not depend on the other rows")
    order = torch.randperm(_SAMPLES, generator=generator)
    permuted = _losses(objective, arguments.candidates(order))
    _require_same(permuted, losses, "the order of the candidates must not matter")


def _check_removed(objective: Objective, arguments: _Arguments) -> None:
    scores = arguments.candidate_scores.clone()
    scores[:, 2] = -torch.inf
    removed = arguments._replace(candidate_scores=scores)
    losses, _, of_negative = _gradients(
        objective, removed, finite="a candidate of score -inf must not compete"
    )
    require(of_negative[:, 2] == 0, "a candidate of score -inf has no gradient")
    log_count = arguments.log_expected_count.clone()
    log_count[:, 2] = 5.0
    other = _losses(objective, removed._replace(log_expected_count=log_count))
    _require_same(other, losses, "the log-count of a candidate of score -inf must not matter")
    nothing = arguments._replace(candidate_scores=torch.full_like(scores, -torch.inf))
    _gradients(objective, nothing, finite="with every candidate removed all must be finite")


def _check_hits(objective: Objective, arguments: _Arguments) -> None:
    """Hits are used or not, but never some of them: a class drawn twice is two hits."""
    if arguments.hits is None:
        nothing = torch.zeros(_ROWS, _SAMPLES, dtype=torch.bool)
        marked = _losses(objective, arguments._replace(hits=nothing))
        _require_same(marked, _losses(objective, arguments), "hits=None must equal hits all False")
        return
    found = _gradients(objective, arguments)
    kept = _gradients(objective, arguments._replace(hits=None))
    scores = arguments.candidate_scores.masked_fill(arguments.hits, -torch.inf)
    removed = _gradients(objective, arguments._replace(hits=None, candidate_scores=scores))
    if not all(torch.equal(left, right) for left, right in zip(found, kept, strict=True)):
        for left, right in zip(found, removed, strict=True):
            _require_same(left, right, "every hit must be removed, as if its score were -inf")
    everything = arguments._replace(hits=torch.ones_like(arguments.hits))
    _gradients(objective, everything, finite="with every candidate a hit all must be finite")


def _check_small(objective: Objective, arguments: _Arguments) -> None:
    losses = _losses(objective, arguments)
    alone = _losses(objective, arguments.rows(slice(0, 1)))
    _require_same(alone, losses[:1], "a batch of one must give the loss of that row")
    empty, *_ = _gradients(objective, arguments.rows(slice(0, 0)))
    require(empty.shape == (0,), f"an empty batch has losses [0], got {list(empty.shape)}")
    without = arguments.candidates(slice(0, 0))
    _gradients(objective, without, finite="without a candidate all must be finite")


def _check_half(objective: Objective, arguments: _Arguments) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        half = arguments.cast(dtype)
        losses, *_ = _gradients(objective, half, finite=f"{dtype} scores must give finite values")
        require(losses.dtype == torch.float32, f"{dtype} scores give float32, got {losses.dtype}")
        error = (losses - _losses(objective, half.cast(torch.float32))).abs().max().item()
        require(error <= 1e-5, f"{dtype} scores must be summed in float32, off by {error:.3g}")


def _check_shapes(objective: Objective, generator: torch.Generator) -> None:
    arguments = _random(generator, (_ROWS,))
    losses = _losses(objective, arguments)
    column = arguments.with_targets(None)
    _require_same(_losses(objective, column), losses, "targets [B, 1] must equal targets [B]")
    shared = arguments._replace(log_expected_count=arguments.log_expected_count[0])
    expanded = shared._replace(log_expected_count=shared.log_expected_count.expand(_ROWS, -1))
    _require_same(
        _losses(objective, shared),
        _losses(objective, expanded),
        "log-counts [S] must equal the same ones for each row, [B, S]",
    )


def _check_absent(objective: Objective, generator: torch.Generator) -> None:
    several = _random(generator, (_ROWS, _POSITIVES))
    mask = torch.ones(_ROWS, _POSITIVES, dtype=torch.bool)
    mask[:, -1] = False
    expected = _gradients(objective, several.with_targets(slice(0, -1)))
    for junk in (0.0, 1e30, -1e30):
        scores = several.target_scores.masked_fill(~mask, junk)
        log_count = several.target_log_expected_count.masked_fill(~mask, min(junk, 50.0))
        padded = several._replace(
            target_scores=scores, target_log_expected_count=log_count, target_mask=mask
        )
        losses, of_positive, of_negative = _gradients(objective, padded)
        require(of_positive[:, -1] == 0, "an absent positive has no gradient")
        found = (losses, of_positive[:, :-1], of_negative)
        for values, without in zip(found, expected, strict=True):
            _require_same(values, without, "an absent positive must change nothing")


def _check_without_positive(objective: Objective, generator: torch.Generator) -> None:
    several = _random(generator, (_ROWS, _POSITIVES))
    mask = torch.ones(_ROWS, _POSITIVES, dtype=torch.bool)
    mask[:2] = False
    scores = several.candidate_scores.clone()
    scores[1] = -torch.inf
    expected = _gradients(objective, several._replace(candidate_scores=scores).rows(slice(2, None)))
    found = _gradients(objective, several._replace(candidate_scores=scores, target_mask=mask))
    for values, rest in zip(found, expected, strict=True):
        require(values[:2] == 0, "a row without a positive has loss 0 and gradient 0")
        _require_same(values[2:], rest, "a row without a positive must not change the other rows")


def _check_extremes(objective: Objective) -> None:
    values = torch.tensor(_EXTREMES)
    grid = torch.cartesian_prod(values, values, values)
    # Counts that leave room for the target, as those of a proper sample do.
    arguments = _Arguments(
        grid[:, 0], grid[:, 1:], grid.new_full((len(grid),), -1.0), grid.new_full((2,), -0.5)
    )
    losses, *gradients = _gradients(objective, arguments)
    # A loss may be infinite, a gradient may not.
    found = [("loss", losses, losses.isnan())]
    found += [("gradient", gradient, ~gradient.isfinite()) for gradient in gradients]
    for what, tensor, wrong in found:
        rows = wrong.view(len(grid), -1).any(-1)
        if bool(rows.any()):
            raise AssertionError(
                f"{what} of target and candidate scores {grid[rows][0].tolist()} is "
                f"{tensor[rows][0].tolist()}"
            )


def _check_signs(objective: Objective, generator: torch.Generator) -> None:
    for _ in range(4):
        _, of_positive, of_negative = _gradients(objective, _random(generator, (_ROWS,)))
        require(of_positive <= 0, "a higher target score must never raise the loss (monotone=True)")
        require(
            of_negative >= 0, "a higher candidate score must never lower the loss (monotone=True)"
        )


def _check_factors(
    objective: Objective, from_factors: FromFactors, generator: torch.Generator
) -> None:
    """Losses and gradients from factors must be those from the scores they multiply out to."""
    shapes = ((_ROWS, 4), (_ROWS + _SAMPLES, 4), (_ROWS + _SAMPLES,))
    parts = [torch.randn(shape, generator=generator) for shape in shapes]
    arguments = _examples(generator)[2]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        queries, vectors, biases = leaves = [part.to(dtype).requires_grad_() for part in parts]
        product = InnerProduct(queries=queries, vectors=vectors, biases=biases)
        scored = arguments._replace(
            target_scores=product.target_scores(), candidate_scores=product.candidate_scores()
        )
        losses = from_factors(
            product,
            target_log_expected_count=scored.target_log_expected_count,
            log_expected_count=scored.log_expected_count,
            hits=scored.hits,
        )
        found, expected = (
            (each.detach(), *torch.autograd.grad(each.sum(), leaves))
            for each in (losses, _losses(objective, scored))
        )
        for left, right in zip(found, expected, strict=True):
            require_close(
                left,
                right,
                f"from_factors must give what the scores give, {dtype}",
                tolerance=tolerance,
                relative=True,
            )
