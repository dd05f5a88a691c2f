"""Products of matrices have one thread inside the block, and as many as before behind it."""

from __future__ import annotations

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from optc.blas_threads import one_blas_thread


def blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_one_thread_inside_and_as_before_behind() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert 2 in blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
        assert 2 in blas_threads()
