"""An operator, found by the entry point `optc.operators`."""

from __future__ import annotations

from optc.ir.functions.operator import Attributes, Operator, literal


def _times(attributes: Attributes, present: frozenset[str]) -> str:
    factor = literal(float(attributes["factor"]))
    return f"f = Constant <value_float: float = {factor}> ()\n y = Mul (x, f)"


OPERATORS = (Operator("ElsewhereTimes", ("x",), ("y: float",), {"factor": float}, _times),)
