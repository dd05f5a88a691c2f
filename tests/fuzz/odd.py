"""Odd values: what damaged files and wrong callers hold where something else is meant."""

from __future__ import annotations

from random import Random
from typing import Any

#: Numbers at the borders of types and of sense.
NUMBERS: tuple[int | float, ...] = (
    *(0, 1, -1, 2, 3, 7, 255, 256, 65535, 65536, 10**6, 10**7, 10**9),
    *(2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30, 10**400),
    *(-2, -4096, -(2**31), -(2**63), -(2**64), -(10**30)),
    *(0.0, -0.0, 0.5, 1.0, -1.5, 1e-320, 1e38, 1e39, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
)


def words(text: str) -> list[str]:
    """The words of a text: for long lists of short texts without blanks."""
    return text.split()


TEXTS = (
    *(
        "",
        " ",
        "\x00",
        "a\x00b",
        "\n",
        "\r\n",
        "\ud800",
        "a\udfffb",
        "\ufeff",
        "\u202e",
        "\x1b[31m",
    ),
    *("a" * 300, "é" * 5000, "$(x)", "C:\\x", "{{ 1 }}"),
    *words("a 0 1 -1 null true None nan é 日本語 🙂 %s%n {0} [[ ]] <s> </s> float32 int8"),
    *words("../../etc/passwd /etc/hostname / . .. a/../b __class__ __proto__"),
)
#: JSON texts that no Python value gives.
RAW = (
    *words("NaN Infinity -Infinity 1e400 -1e400 -0 1E5 0x10 01 +1 'a' tru , { } [ [1,] //"),
    *("\x00", "\ufeff", '"', "", "1" * 5000, '"\n"', '{"a":1,"a":2}'),
    *words(r'"\ud800" "\udc00\ud800" "\u0000"'),
    *("[" * depth + "]" * depth for depth in (60, 900, 3000, 100_000)),
    *('{"a":' * depth + "1" + "}" * depth for depth in (60, 900, 3000, 100_000)),
)


def odd_value(random: Random) -> Any:
    """A value that JSON has a form for, if NaN is one."""
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind < 5:
        return random.choice(TEXTS)
    if kind < 6:
        return random.choice((None, True, False))
    return odd_container(random)


def odd_container(random: Random) -> Any:
    """A list or an object, mostly of one odd value."""
    inner = random.choice((*NUMBERS, *TEXTS, None, True))
    return random.choice(
        (
            [],
            {},
            [[]],
            [{}],
            {"": {}},
            [inner],
            [inner, inner],
            [[inner]],
            {"a": inner},
            [inner] * 999,
        )
    )
