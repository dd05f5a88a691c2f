"""Tables of the findings of ``optc compile --bisect``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optc.cli.output import figure, table

if TYPE_CHECKING:
    from rich.table import Table

_CAUSES = {
    "weight": "the weight {tensor}: in float, {restored_db:.3g} dB",
    "activation": "rounding of the activation {tensor}",
    "node": "what the node computes: {tensor}",
}


def bisect_tables(found: Mapping[str, Any] | None) -> list[Table]:
    """Divergence after each pass, and the pass, node and tensor where it begins.

    Args:
        found: ``bisect`` of a report; None where there is none.
    """
    if found is None:
        return []
    passes = table("after each pass", "pass", "mean KL", numbers=("mean KL",))
    for entry in found["passes"]:
        passes.add_row(entry["name"], figure(entry["kl"]))
    rows = table("divergence begins", "", "")
    rows.show_header = False
    for key, text in _facts(found).items():
        rows.add_row(key, text)
    return [passes, rows]


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    layers = ", ".join(figure(value, 3) for value in found["sqnr_by_layer"])
    by_layer = {"SQNR by layer, dB": layers}
    if found["pass"] is None:
        return {"pass": "none changes what is computed", **by_layer}
    kl = f"KL {figure(found['kl_before'])} before, {figure(found['kl_after'])} after"
    if found["pass"] == "build":
        return {"pass": f"none, but the engine's build: {kl}", **by_layer}
    facts = {"pass": f"{found['pass']}: {kl}"}
    if found["node"] is None:
        return {**facts, "node": "nothing in it can be compared", **by_layer}
    stands = "" if found["outlier"] else ", which is no outlier"
    block = "" if found["block"] is None else f"layer {found['block']}, "
    levels = f"{figure(found['sqnr_db'], 3)} dB, its peers {figure(found['peers_db'], 3)}{stands}"
    facts["node"] = f"{found['node']} ({block}{found['operator']}): {levels}"
    facts["tensor"] = _CAUSES[found["cause"]].format_map(found)
    if found["kl_restored"] is not None:
        facts["tensor"] += f" and KL {figure(found['kl_restored'])}"
    names = ", ".join(f"{s['node']} ({figure(s['sqnr_db'], 3)} dB)" for s in found["suspects"])
    return facts | ({"also": names} if names else {}) | by_layer
