"""Products of matrices have one thread inside the block, and as many as before behind it; threads
wait shortly for the next product, unless the user says how long."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from optc.system.hardware.blas_threads import one_blas_thread


def blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_one_thread_inside_and_as_before_behind() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert 2 in blas_threads()
        with one_blas_thread():
            assert blas_threads() == {1}
        assert 2 in blas_threads()


@pytest.mark.parametrize("chosen", [None, "26"])
def test_openblas_is_told_how_long_to_wait_before_numpy_is_loaded(chosen: str | None) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    if chosen is not None:
        environment["OPENBLAS_THREAD_TIMEOUT"] = chosen
    code = (
        "import os, sys, optc; assert 'numpy' not in sys.modules; "
        "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == (chosen or "16")
