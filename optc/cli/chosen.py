"""The engine of an artifact that a command has run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optc.runtime.engine_info import EngineInfo


def chosen_json(info: EngineInfo | None) -> dict[str, Any]:
    """The keys ``engine`` and ``target`` of a command's JSON object; null where there is none."""
    if info is None:
        return {"engine": None, "target": None}
    return {"engine": info.to_json(), "target": info.target}


def chosen_text(info: EngineInfo) -> str:
    """One line for reading."""
    others = "".join(f"; not {other.name}: {other.reason}" for other in info.rejected)
    return f"engine {info.name} ({info.backend} for {info.target}){others}"
