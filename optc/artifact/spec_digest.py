"""A digest of an engine's spec, which backends put into the engine itself.

Kernels trust the shapes that they were compiled for: another spec would make them read and write
beyond their memory. The manifest's own digest tells damage, but not a manifest that says something
else of the engine than its build did.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from optc.artifact.jsonio import canonical_json
from optc.executable.executable import EngineSpec


def spec_digest(spec: EngineSpec, *more: Any) -> bytes:
    """sha256 of a spec and what else a backend wants to be the engine's own.

    Fields that have their defaults are left out: a new one, with a default, changes no digest.
    ``shared_kv`` is left out, too: it says how the engine goes with another one, is stated once
    both are built, and shapes are compared at load (`optc.executable.shared_kv`).

    Args:
        spec: The engine's.
        more: Dataclasses, lists, mappings, texts and numbers.
    """
    return hashlib.sha256(canonical_json(_plain([replace(spec, shared_kv=()), *more]))).digest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        given = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(part) for f, part in given if part != f.default}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
