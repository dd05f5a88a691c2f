"""A digest of an engine's interface, which backends put into the engine itself.

Kernels trust the shapes that they were compiled for: another spec would make them read and write
beyond their memory. The manifest's own digest tells damage, but not a manifest that says something
else of the engine than its build did.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, structs

from optc.artifact.jsonio import canonical_json
from optc.runtime.executable.executable import StepInterface


def spec_digest(spec: StepInterface, *more: Any) -> bytes:
    """sha256 of a spec and what else a backend wants to be the engine's own.

    Fields that have their defaults are left out: a new one, with a default, changes no digest.
    ``shared_kv`` is left out, too: it says how the engine goes with another one, is stated once
    both are built, and shapes are compared at load (`optc.runtime.executable.shared_kv`).

    Args:
        spec: The engine's.
        more: Structs, dataclasses, lists, mappings, texts and numbers.
    """
    return interface_digest(structs.replace(spec, shared_kv=()), *more)


def interface_digest(interface: Struct, *more: Any) -> bytes:
    """The same of any interface."""
    return hashlib.sha256(canonical_json(_plain([interface, *more]))).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return _given(value, structs.fields(value))
    if dataclasses.is_dataclass(value):
        return _given(value, dataclasses.fields(value))
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def _given(value: object, fields: Iterable[Any]) -> dict[str, Any]:
    """The fields that are not at their defaults."""
    every = ((f, getattr(value, f.name)) for f in fields)
    return {f.name: _plain(part) for f, part in every if part != f.default}
