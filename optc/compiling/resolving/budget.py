"""``--budget`` as the pass takes it: a speed with the pace at which this machine reads."""

from __future__ import annotations

WHERE = "--budget"


def measured_budget(text: str) -> str:
    """``text``, where it is a speed without a pace with the one that is measured here.

    Raises:
        UnavailableError: It has to be measured and cannot be.
    """
    budget, comma, rest = text.partition(",")
    if not budget.strip().endswith("tok/s"):
        return text
    from optc.proof.roofline.this_machine import measure_machine

    read = measure_machine(WHERE).ceilings()["read"].best
    return f"{budget.strip()}@{read / 1e9:.2f}GB/s{comma}{rest}"
