"""Going ahead of the kernels of a step."""

from __future__ import annotations

from collections.abc import Sequence

from optc.backends.tvm.streamed.step_order import StepOrder, Uses

#: Weights 100 and above are experts'.
EXPERTS = 100


class Driver:
    """Runs steps; ``asked`` are the weights that each call asked for ahead, by call."""

    def __init__(self, window: int, size: int = 10) -> None:
        self.order = StepOrder(lambda uses: max(uses) >= EXPERTS, window)
        self.size = size
        self.asked: list[list[Uses]] = []

    def step(self, calls: Sequence[int]) -> list[list[int]]:
        self.order.begin_step()
        found = []
        for call in calls:
            asked: list[int] = []

            def ask(uses: Uses, room: int, asked: list[int] = asked) -> int:
                asked.append(uses[0])
                return min(self.size, room)

            self.order.use((call,))
            self.order.go_ahead(call >= EXPERTS, ask)
            found.append(asked)
        return found


def test_the_first_step_foretells_nothing() -> None:
    assert Driver(100).step([1, 2, 3]) == [[], [], []]


def test_a_window_of_the_next_calls_is_asked_for_once() -> None:
    driver = Driver(window=20)
    driver.step([1, 2, 3, 4, 5])
    assert driver.step([1, 2, 3, 4, 5]) == [[2, 3], [4], [5], [1], [2]]
    assert driver.step([1, 2, 3, 4, 5]) == [[3], [4], [5], [1], [2]]


def test_calls_that_need_nothing_take_no_room() -> None:
    driver = Driver(window=20, size=0)
    driver.step([1, 2, 3])
    assert driver.step([1, 2, 3]) == [[2, 3, 1], [2], [3]]


def test_a_part_is_asked_for_where_there_is_no_room_for_all() -> None:
    driver = Driver(window=15)
    driver.step([1, 2, 3, 4])
    assert driver.step([1, 2, 3, 4]) == [[2, 3], [4], [1], [2]]


def test_experts_are_asked_for_once_the_router_has_run() -> None:
    """Up and down of a mixture are 100 and 101; those of the next layer are not yet chosen."""
    driver, layers = Driver(window=1000), [1, 100, 101, 2, 102, 103]
    driver.step(layers)
    assert driver.step(layers) == [[], [101, 2], [], [], [103, 1], []]


def test_experts_behind_other_weights_are_of_another_mixture() -> None:
    driver, layers = Driver(window=1000), [1, 100, 2, 101]
    driver.step(layers)
    assert driver.step(layers) == [[], [2], [], [1]]


def test_a_mixture_at_the_end_of_a_step_says_nothing_of_the_next_steps_first_one() -> None:
    driver = Driver(window=1000)
    driver.step([100, 101])
    assert driver.step([100, 101]) == [[101], []]


def test_a_step_in_another_order_is_learned_anew() -> None:
    driver = Driver(window=20)
    driver.step([1, 2, 3])
    assert driver.step([1, 7, 3, 4]) == [[2, 3], [], [1, 2], []]
    assert driver.step([1, 7, 3, 4]) == [[7, 3], [4], [1], [7]]


def test_steps_without_weights_change_nothing() -> None:
    driver = Driver(window=20)
    driver.step([1, 2, 3])
    driver.step([])
    assert driver.step([1, 2, 3])[0] == [2, 3]
