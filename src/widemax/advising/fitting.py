"""What single operations cost, from measurements of several of them together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PULL = 0.1
_LEAST = 0.1
_ROUNDS = 2000


def fitted_costs(
    matrix: NDArray[np.float64],
    seconds: NDArray[np.float64],
    typical: NDArray[np.float64],
    *,
    pull: float = _PULL,
) -> NDArray[np.float64]:
    """Return the cost of each operation: no error is large as a ratio, none is below a tenth.

    ``matrix`` [N, K] has how often each of N measurements did each operation. A weak pull towards a
    ``typical`` machine [K], made as fast as this one, decides what is left open.

    >>> costs = fitted_costs(np.array([[1.0, 0.0], [1.0, 9.0]]), np.array([2.0, 20.0]), np.ones(2))
    >>> costs.round(1).tolist()
    [2.0, 2.0]
    """
    scale = float(np.exp(np.log(seconds / (matrix @ typical)).mean()))
    unit = typical * scale
    terms = matrix * unit / seconds[:, None]
    equations = np.concatenate([terms, pull * np.eye(len(unit))])
    wanted = np.append(np.ones(len(seconds)), np.full(len(unit), pull))
    # Coordinate by coordinate, so that no operation becomes a gain.
    factors, squares = np.ones(len(unit)), (equations**2).sum(0)
    for _ in range(_ROUNDS):
        for place in range(len(unit)):
            rest = wanted - equations @ factors + equations[:, place] * factors[place]
            factors[place] = max(_LEAST, float(equations[:, place] @ rest) / squares[place])
    fitted: NDArray[np.float64] = factors * unit
    return fitted
