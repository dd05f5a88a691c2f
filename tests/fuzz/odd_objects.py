"""Python objects that a program may hand in by mistake, where JSON has no form for them."""

from __future__ import annotations

import array
import itertools
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np


class Short(list[int]):
    """A list that says it is shorter than it is."""

    def __len__(self) -> int:
        return 1


class Long(list[int]):
    """A list that says it is longer than it is."""

    def __len__(self) -> int:
        return 5


class Text(str):
    """A text of another class."""


class Number(int):
    """A number of another class."""


def odd_object(random: Random) -> Any:
    """One of many, new each time: iterators are used up."""
    kind = random.choice((_plain, _numbers, _arrays, _mappings, _lists))
    return random.choice(kind())


def _plain() -> list[Any]:
    texts = [b"abc", bytearray(b"abc"), memoryview(b"abc"), Text("abc"), "a" * 200_000, "[" * 5000]
    return [object(), object, print, NotImplemented, ..., Exception("x"), Path("/"), *texts]


def _numbers() -> list[Any]:
    exact = [Decimal("1.5"), Decimal("NaN"), Decimal("1e999"), Fraction(1, 3), Fraction(10**400, 3)]
    return [*exact, 1 + 2j, Number(3), np.int64(3), np.float32(0.5), np.float64("nan"), np.True_]


def _arrays() -> list[Any]:
    values: tuple[Any, ...] = ([1, 2], [1.5], [[1, 2]], 1, [], ["a"], [None], [True], [1j])
    kinds = (([2**63], np.uint64), ([-1], np.int8), ([1], "M8[s]"), ([1, 2], ">i8"))
    return [
        *(np.array(value) for value in values),
        *(np.array(value, kind) for value, kind in kinds),
        np.ma.masked_array([1, 2], [True, False]),
        np.ma.masked,
        np.str_("ab"),
        np.zeros(2, [("a", "i4")]),
        np.matrix([[1, 2]]),
        np.arange(20)[::2],
        np.broadcast_to(1, (9,)),
        array.array("i", [1]),
        array.array("d", [1.5]),
    ]


def _mappings() -> list[Any]:
    biases: list[Any] = [{"1": 1.0}, {}, {1: None}, {None: 1}, {1.0: 1.0}, {(1,): 1}, {True: 1.0}]
    biases += [{10**30: 1.0}, {-1: 1.0}, {1: float("nan")}, {1: "x"}]
    return [OrderedDict({1: 1.0}), MappingProxyType({1: 1.0}), *biases]


def _lists() -> list[Any]:
    lists: list[Any] = [[[1, 2]], ["a", 1], [1, None], [1.0], [True], [10**30], ["é", "\ud800"]]
    long = [["a"] * 2000, ["a" * 10_000], [1] * 100_000]
    others = [
        (1, 2, 3),
        range(3),
        range(10**12),
        deque([1, 2]),
        {1, 2},
        Short([5] * 200),
        Long([5]),
    ]
    return [*lists, *long, *others, (i for i in (1, 2)), itertools.count(), iter([])]
