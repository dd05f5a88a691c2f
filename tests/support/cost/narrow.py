"""What tests compile for this machine is compiled for AVX2: LLVM needs half as long as for AVX-512.

An engine is a means for most tests, and says no less with narrower vectors; machines without
AVX-512 have run these tests with them all along. Tests whose subject engines are
(`tests.support.cost.subject`) compile for what the machine has, and so do commands that are
processes of their own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from optc.backends.tvm import TvmBackend
from optc.system.hardware.target import Target, host_features, known_targets
from tests.support.cost.subject import engines_are_subject

NARROW = "x86-64-v3"


def narrowed(target: Target) -> Target:
    """The target, or with fewer features the one called ``native``."""
    narrow = known_targets()[NARROW]
    if target.name != "native" or narrow.missing_on(host_features()):
        return target
    return replace(target, features=narrow.features)


def narrow_name() -> str:
    """The name of what means are compiled for here, for a process to be given."""
    return "native" if known_targets()[NARROW].missing_on(host_features()) else NARROW


def narrow_engines(patch: pytest.MonkeyPatch) -> None:
    """From now on TVM's engines are built so in this process."""
    build, build_tensors = TvmBackend.build, TvmBackend.build_tensors

    def chosen(target: Target) -> Target:
        return target if engines_are_subject() else narrowed(target)

    def step(backend: TvmBackend, model: Any, target: Target, *rest: Any) -> Any:
        return build(backend, model, chosen(target), *rest)

    def tensors(backend: TvmBackend, model: Any, face: Any, target: Target, *rest: Any) -> Any:
        return build_tensors(backend, model, face, chosen(target), *rest)

    patch.setattr(TvmBackend, "build", step)
    patch.setattr(TvmBackend, "build_tensors", tensors)
