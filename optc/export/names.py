"""Which parameters of the model's class a weight of an engine is, by its name.

Passes that put weights below each other name the result by what they have in common, and by what
each has on its own: ``layers.0.q_proj+k_proj+v_proj.weight``.
"""

from __future__ import annotations

from collections.abc import Container

#: What passes and backends add to a parameter's name.
_ADDED = (".quantized", ".transposed", ".rows")
_WEIGHT, _BIAS = ".weight", ".bias"


def parameters_of(name: str, known: Container[str]) -> list[str]:
    """The parameters that lie below each other in a weight called ``name``; empty if it is none.

    Args:
        name: In the graph that the engine was built from.
        known: Names of the class's parameters.
    """
    plain = name
    while plain not in known and (end := next((e for e in _ADDED if plain.endswith(e)), "")):
        plain = plain.removesuffix(end)
    if plain in known:
        return [plain]
    if "+" in plain:
        return _merged(plain, known)
    return []


def biases_of(name: str, known: Container[str]) -> list[str]:
    """The biases that lie behind each other in one called ``name``, of a merged weight, whether the
    class has them or not; empty if it is none."""
    weights = parameters_of(name.removesuffix(_BIAS), known) if name.endswith(_BIAS) else []
    if not all(weight.endswith(_WEIGHT) for weight in weights):
        return []
    return [weight.removesuffix(_WEIGHT) + _BIAS for weight in weights]


def _merged(name: str, known: Container[str]) -> list[str]:
    first, *middle, last = name.split("+")
    begin, end = first.split("."), last.split(".")
    for shared in range(len(begin)):
        for tail in range(len(end)):
            head = ".".join([*begin[:shared], ""]) if shared else ""
            rest = ".".join(["", *end[len(end) - tail :]]) if tail else ""
            own = [".".join(begin[shared:]), *middle, ".".join(end[: len(end) - tail])]
            found = [head + one + rest for one in own]
            if all(one in known for one in found):
                return found
    return []
