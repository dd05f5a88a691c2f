"""Where a state lies in a block: every number once, in whole rows of tiles."""

from __future__ import annotations

import pytest

from optc.runtime.executable.recurrent_state import row_stride, rows_width, state_slots, state_width

SIZES = (1, 2, 8, 10, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256)


def lie(slots: int, key_dim: int, value_dim: int) -> bool:
    """True if halves of a state's rows lie in so many slots as pools want them."""
    numbers = key_dim * value_dim
    rows_of_a_tile, rest = divmod(key_dim // 2, slots // 16)
    width = numbers // 2 // slots
    return (
        key_dim % 2 == 0
        and rest == 0
        and rows_of_a_tile * value_dim == width * 16
        and width * slots * 2 == numbers
        and width % 8 == 0
    )


@pytest.mark.parametrize("key_dim", SIZES)
def test_states_lie_in_as_many_slots_as_they_can(key_dim: int) -> None:
    for value_dim in SIZES:
        can = [slots for slots in (16, 32, 64, 128) if lie(slots, key_dim, value_dim)]
        assert state_slots(key_dim, value_dim) == max(can, default=0), value_dim
        width = state_width(key_dim, value_dim)
        assert 2 * width * max(can, default=0) == (key_dim * value_dim if can else 0)


@pytest.mark.parametrize(
    ("key_dim", "value_dim", "slots", "width"),
    [
        (128, 128, 128, 64),  # Qwen3-Next
        (16, 16, 16, 8),
        (64, 64, 128, 16),
        (256, 16, 128, 16),
        (24, 24, 0, 0),
        (1, 256, 0, 0),
    ],
)
def test_states_of_models(key_dim: int, value_dim: int, slots: int, width: int) -> None:
    assert state_slots(key_dim, value_dim) == slots
    assert state_width(key_dim, value_dim) == width


@pytest.mark.parametrize("channels", [2, 30, 32, 34, 160, 6144])
def test_rows_of_a_convolution_have_half_of_the_channels_in_whole_vectors(channels: int) -> None:
    assert row_stride(channels) % 16 == 0
    assert 0 <= row_stride(channels) - channels // 2 < 16


@pytest.mark.parametrize("slots", [16, 32, 128])
@pytest.mark.parametrize("kernel", [2, 3, 4, 9])
@pytest.mark.parametrize("channels", [2, 34, 6144])
def test_the_fewest_numbers_of_a_slot_hold_the_rows(channels: int, kernel: int, slots: int) -> None:
    width, numbers = rows_width(channels, kernel, slots), (kernel - 1) * row_stride(channels)
    assert width % 8 == 0
    assert (width - 8) * slots < numbers <= width * slots
