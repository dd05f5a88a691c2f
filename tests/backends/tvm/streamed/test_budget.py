"""How much of the weights stays in memory, and limits that cannot work."""

from __future__ import annotations

import pytest

from optc.backends.tvm.streamed import budget
from optc.backends.tvm.streamed.budget import resident_bytes
from optc.backends.tvm.weights.weights_file import Placed
from optc.errors import InputError
from optc.system import available

MIB = 1 << 20
WEIGHTS = [Placed("a", "uint8", (30 * MIB,), 0), Placed("b", "float32", (MIB,), 30 * MIB)]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> int:
    for module in (available, budget):
        monkeypatch.setattr(module, "available_memory", lambda: 20 * MIB)
    return 20 * MIB


@pytest.mark.usefixtures("left")
def test_weights_that_do_not_fit_get_half_of_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("WARNING"):
        assert resident_bytes(None, WEIGHTS) == 10 * MIB
    assert "34.0 MiB, more memory than is left: 10.0 MiB of them stay" in caplog.text


def test_weights_that_fit_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(available, "available_memory", lambda: 34 * MIB)
    assert resident_bytes(None, WEIGHTS) is None


@pytest.mark.usefixtures("left")
def test_what_is_asked_for_counts() -> None:
    assert resident_bytes(7 * MIB, WEIGHTS) == 7 * MIB
    assert resident_bytes(20 * MIB, WEIGHTS) == 20 * MIB
    assert resident_bytes(34 * MIB, WEIGHTS) is None  # all of them: nothing to be read


@pytest.mark.usefixtures("left")
def test_more_than_is_left_is_refused_with_the_reason() -> None:
    with pytest.raises(InputError, match=r"30\.0 MiB of weights cannot stay in memory: 20\.0 MiB"):
        resident_bytes(30 * MIB, WEIGHTS)
