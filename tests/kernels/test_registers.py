"""A single number inside a kernel, read without a question."""

import numpy as np
import pytest

from widemax.kernels.compiling import njit
from widemax.kernels.registers import peek


@njit()
def _peek(table, row, column):
    return peek(table, row, column)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint64])
def test_a_single_number_of_any_kind(dtype):
    table = np.arange(12).reshape(3, 4).astype(dtype)
    assert _peek(table, 2, 1) == 9
