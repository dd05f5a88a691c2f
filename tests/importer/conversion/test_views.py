"""Views read the boxes that NumPy would cut out of the whole tensor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from optc.errors import InputError
from optc.importer.conversion.reordered import Interleaved, Swapped
from optc.importer.conversion.tensor import Tensor
from optc.importer.conversion.views import Cut, Joined, Renamed, Stacked
from tests.importer.conversion.arrays import ArrayTensor, whole

RANDOM = np.random.default_rng(0)
A, B, C = (RANDOM.standard_normal((n, 5)).astype(np.float32) for n in (4, 6, 4))
MATRICES = RANDOM.standard_normal((3, 6, 4)).astype(np.float32)


def tensor(array: np.ndarray, name: str = "t") -> Tensor:
    return ArrayTensor(name, array)


VIEWS = {
    "renamed": (Renamed("v", tensor(A)), A),
    "stacked": (Stacked("v", [tensor(A), tensor(C)]), np.stack([A, C])),
    "joined": (Joined("v", [tensor(A), tensor(B), tensor(C)], 0), np.concatenate([A, B, C])),
    "joined inside": (
        Joined("v", [tensor(MATRICES), tensor(2 * MATRICES)], 1),
        np.concatenate([MATRICES, 2 * MATRICES], 1),
    ),
    "cut": (Cut("v", tensor(B), 0, 2, 5), B[2:5]),
    "cut inside": (Cut("v", tensor(MATRICES), 2, 1, 3), MATRICES[:, :, 1:3]),
    "swapped": (Swapped("v", tensor(MATRICES), (1, 2)), MATRICES.swapaxes(1, 2)),
    "interleaved": (
        Interleaved("v", tensor(MATRICES), 1, inverse=False),
        np.concatenate([MATRICES[:, ::2], MATRICES[:, 1::2]], 1),
    ),
    "interleaved back": (
        Interleaved("v", tensor(MATRICES), 1, inverse=True),
        MATRICES[:, [0, 3, 1, 4, 2, 5]],
    ),
    "of views": (
        Cut("v", Joined("j", [Swapped("s", tensor(A), (0, 1)), tensor(A.T.copy())], 1), 1, 3, 6),
        np.concatenate([A.T, A.T], 1)[:, 3:6],
    ),
}


@pytest.mark.parametrize("kind", VIEWS)
def test_every_box_is_that_of_the_whole(kind: str) -> None:
    view, expected = VIEWS[kind]
    assert view.shape == expected.shape
    np.testing.assert_array_equal(whole(view), expected)
    ranges = [list(itertools.combinations(range(size + 1), 2)) for size in expected.shape]
    for box in itertools.product(*ranges):
        np.testing.assert_array_equal(
            view.read_box(box), expected[tuple(slice(*one) for one in box)], str(box)
        )
    np.testing.assert_array_equal(view.read_rows(1, 3), expected[1:3])


def test_a_box_of_experts_reads_its_own_numbers_only() -> None:
    class Counting(ArrayTensor):
        read = 0

        def read_box(self, box: tuple[tuple[int, int], ...]) -> np.ndarray:
            Counting.read += int(np.prod([stop - start for start, stop in box]))
            return super().read_box(box)

    experts = [Counting(f"e{i}", RANDOM.standard_normal((8, 4))) for i in range(6)]
    gate_up = Joined("v", [Stacked("gate", experts[:3]), Stacked("up", experts[3:])], 1)
    found = gate_up.read_box(((1, 2), (6, 10), (0, 4)))
    assert Counting.read == 16
    expected = np.concatenate([experts[1].array[6:], experts[4].array[:2]])[None]
    np.testing.assert_array_equal(found, expected.astype(np.float32))


def test_shapes_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"memory: b: .*\[6, 5\], and is stacked with a, which"):
        Stacked("v", [tensor(A, "a"), tensor(B, "b")])
    with pytest.raises(InputError, match=r"\[6, 5\], and is joined with a, which has \[4, 5\]"):
        Joined("v", [tensor(A, "a"), tensor(B, "b")], 1)
    with pytest.raises(InputError, match=r"axis 0 v takes 2 to 7"):
        Cut("v", tensor(B), 0, 2, 7)
    with pytest.raises(InputError, match=r"axis 1 of shape \[4, 5\] has no halves"):
        Interleaved("v", tensor(A), 1, inverse=False)
