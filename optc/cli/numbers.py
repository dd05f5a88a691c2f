"""The precision of the numbers of ``--json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Significant digits of times, rates, shares and the like: more is noise of the measurement.
DIGITS = 6
#: What is printed as it is: verdicts must not contradict their values, a manifest must keep its
#: digest and a report what the file says; scores are compared between runs to the last bit.
EXACT = frozenset(
    {
        "gates",
        "manifest",
        "report",
        "perplexity",
        "reference_perplexity",
        "kl_mean",
        "kl_p99",
        "kl_max",
        "top1_agreement",
        "top5_agreement",
        "cumulative_logprob",
    }
)


def rounded(value: Any) -> Any:
    """A JSON value whose fractions have `DIGITS` significant digits, but for those under `EXACT`.

    Whole numbers stay whole, however many digits they have: they are counts.
    """
    if isinstance(value, float):
        return value if value.is_integer() else float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {k: v if k in EXACT else rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
