"""The distribution of the divergence of single tokens: counts in bins of equal ratio, quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optc.proof.gates.divergence import RowScores

#: Where the second bin begins, in nats; the first one takes all below, exact zeros too.
FIRST = 1e-8
#: Bins of a factor of ten, and factors of ten from `FIRST` on; the last bin takes all above.
BINS_PER_DECADE = 4
DECADES = 10
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}


def kl_distribution(parts: Sequence[RowScores]) -> dict[str, Any]:
    """The distribution of the KL of all rows of all parts; there must be at least one row.

    Returns:
        JSON values: ``first``, ``bins_per_decade`` and ``counts``, of which ``counts[i]`` is the
        number of rows from ``first * 10 ** ((i - 1) / bins_per_decade)`` on, up to the next such
        bound; and the quantiles ``p50``, ``p90``, ``p99`` and ``p99_9`` in nats, null where they
        are not finite.
    """
    kl = np.concatenate([part.kl for part in parts])
    # what is not a number is the worst of all, as in the worst contexts
    kl = np.where(np.isnan(kl), np.inf, kl)
    bounds = FIRST * 10.0 ** (np.arange(BINS_PER_DECADE * DECADES + 1) / BINS_PER_DECADE)
    counts = np.bincount(np.searchsorted(bounds, kl, side="right"), minlength=len(bounds) + 1)
    # "higher" gives a row's own value: between a finite and an infinite one there is no mean
    quantiles = np.quantile(kl, list(_QUANTILES.values()), method="higher")
    return {
        "first": FIRST,
        "bins_per_decade": BINS_PER_DECADE,
        "counts": counts.tolist(),
        **{
            name: float(value) if np.isfinite(value) else None
            for name, value in zip(_QUANTILES, quantiles, strict=True)
        },
    }
