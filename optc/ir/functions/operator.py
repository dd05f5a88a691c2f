"""`Operator`: one operator of the ``optc`` domain and how its body is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

AttributeValue = int | float | str
Attributes = Mapping[str, AttributeValue]

#: ``body(attributes, present)`` gives the statements of the function as ONNX text.
Body = Callable[[Attributes, frozenset[str]], str]

#: ONNX element type names of an output, by the ONNX text spelling.
FLOAT = "float"
INT8 = "int8"


@dataclass(frozen=True)
class Operator:
    """One operator of the normal form.

    Attributes:
        name: Operator type in the domain ``optc``.
        inputs: Formal input names; the optional ones end in ``?``.
        outputs: Formal output names with their element type, ``name: float``, in which an attribute
            may stand, ``name: int{bits}``; those that there are only with an optional input name
            it, ``name: float if input``.
        attributes: Every attribute with its type; all are stated on every node.
        defaults: More attributes, and the value that each has where a node does not state it; a
            node states them only where they have another.
        body: Writes the function's statements for one configuration.
        inert: Attributes that the meaning does not depend on (they share an overload).
        opset: Version of the standard operators that the body needs at least.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, type]
    body: Body
    inert: frozenset[str] = frozenset()
    opset: int = 23
    defaults: Mapping[str, AttributeValue] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Formal input names without the mark of the optional ones."""
        return tuple(name.removesuffix("?") for name in self.inputs)

    def results(self, attributes: Attributes, present: frozenset[str]) -> dict[str, str]:
        """Formal output names of a node with these attributes, where the inputs ``present`` are
        given, and the element type of each as ONNX text spells it."""
        found, values = {}, {**self.defaults, **attributes}
        for output in self.outputs:
            name, kind = output.split(": ")
            kind, _, condition = kind.partition(" if ")
            if not condition or condition in present:
                found[name] = kind.format(**values)
        return found

    def stated(self, attributes: Attributes) -> dict[str, AttributeValue]:
        """The attributes that a node states: none that has its default value."""
        return {
            name: value
            for name, value in attributes.items()
            if name not in self.defaults or value != self.defaults[name]
        }

    def check(self, attributes: Attributes) -> None:
        """Raise `ValueError` unless exactly the declared attributes, typed, are given; those that
        have defaults may be absent."""
        if set(attributes) - set(self.defaults) != set(self.attributes):
            raise ValueError(
                f"optc::{self.name} takes {sorted(self.attributes)}, got {sorted(attributes)}"
            )
        kinds = {**self.attributes, **{name: type(v) for name, v in self.defaults.items()}}
        for key, kind in ((key, kinds[key]) for key in attributes):
            if not isinstance(attributes[key], kind):
                raise ValueError(f"optc::{self.name}: {key}={attributes[key]!r} is not {kind}")


def integer(name: str, value: int) -> str:
    """Statement: a scalar int64 constant."""
    return f"{name} = Constant <value_int: int = {value}> ()"


def integers(name: str, values: tuple[int, ...]) -> str:
    """Statement: a 1-D int64 constant."""
    return f"{name} = Constant <value_ints: ints = [{', '.join(map(str, values))}]> ()"


def real(name: str, value: float) -> str:
    """Statement: a scalar float32 constant."""
    return f"{name} = Constant <value_float: float = {literal(value)}> ()"


def literal(value: float) -> str:
    """A float as ONNX text reads it: always with a point or an exponent."""
    return repr(float(value))
