"""Building an engine: lower, start the compiler's process, pack weights meanwhile, wait for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
from msgspec import structs, to_builtins

from optc.backend import BuildOptions, EngineBuild, SharedWeights
from optc.backends.tvm.compiling.link import linker_command
from optc.backends.tvm.engine_data import CpuEngineData, read_common
from optc.backends.tvm.engine_files import WEIGHTS_FILE, code_files
from optc.backends.tvm.fingerprint import fingerprint
from optc.backends.tvm.isa import Isa, isa_of
from optc.backends.tvm.lowering.costs import step_costs
from optc.backends.tvm.lowering.given_logits import with_given_logits
from optc.backends.tvm.lowering.lower_model import Lowered, lower_model
from optc.backends.tvm.program import Program
from optc.backends.tvm.runtime_libs import FFI_PACKAGE, copy_libraries, ffi_version
from optc.backends.tvm.weights.weights_file import (
    PackedWeight,
    Placed,
    laid_out_bytes,
    write_weights,
)
from optc.errors import UnsupportedError
from optc.system.hardware.platforms import this_platform
from optc.system.hardware.target import Target
from optc.system.processes.child_job import ChildJob
from optc.system.progress import tell

#: Compiles for CPUs.
COMPILER_MODULE = "optc.backends.tvm.compiling.compiler"
#: The compiler's process.
COMPILER = ChildJob(
    "optc.backends.tvm.compiling.child",
    "the compiler",
    where="tvm backend",
    hint="if memory ran out, free some; otherwise please report this model and recipe",
    timeout_s=1800.0,
)


def build_engine(
    model: ir.Model, target: Target, workdir: Path, options: BuildOptions
) -> EngineBuild:
    """Build ``model`` into ``workdir`` (see `optc.backend.StepBackend.build`).

    Raises:
        UnsupportedError: Nodes or a kernel configuration that the backend cannot take.
        UnavailableError: No kernel for the target, no linker, or the compiler crashed.
    """
    isa = isa_of(target)
    linker_command(target.platform)
    started = time.perf_counter()
    lowered = lower_model(model, target, options)
    lowered_at = time.perf_counter()
    tensors = [tensor for weight in lowered.weights for tensor in weight.tensors]
    program = replace(lowered.program, fingerprint=fingerprint(lowered.spec, tensors))
    lowered = replace(lowered, program=program)
    with compiling(with_given_logits(lowered.program), workdir) as finish:
        files, placed = pack_weights(lowered, workdir, options.shared)
        files += libraries_of(target, workdir, options.shared)
        packed_at = time.perf_counter()
        report = finish()
    weight_bytes = max((p.end for p in placed), default=0)
    report.update(
        lower_seconds=lowered_at - started,
        pack_seconds=packed_at - lowered_at,
        build_seconds=time.perf_counter() - started,
        weight_bytes=weight_bytes,
        zeros=lowered.sparse.to_json(),
    )
    return EngineBuild(
        files=(code_files(target.system).engine, *files),
        spec=lowered.spec,
        requires={FFI_PACKAGE: ffi_version()},
        backend_data=_backend_data(lowered, placed, isa, options.shared),
        report=report,
        warnings=tuple(lowered.sparse.lines()),
        weight_bytes=max((p.end for p in placed if options.shared is None or p.own), default=0),
    )


def pack_weights(
    lowered: Lowered, workdir: Path, shared: SharedWeights | None
) -> tuple[tuple[str, ...], list[Placed]]:
    """Write the weights, but for what another engine has; the files, and where each tensor lies.

    Raises:
        UnsupportedError: The other engine has no such weights.
    """
    if shared is None:
        weights = lowered.weights
        return (WEIGHTS_FILE,), write_weights(workdir / WEIGHTS_FILE, weights, _told(weights))
    known = {p.tensor: p for p in read_common(shared.data).weights}
    missing = [w for w in lowered.weights if any(t not in known for t in w.tensors)]
    if missing and not shared.partial:
        names = [t.name for weight in missing for t in weight.tensors if t not in known]
        raise UnsupportedError(
            f"the other engine lacks {len(names)} weights, such as {names[0]}",
            where="tvm backend",
            hint="engines that share weights must come from one recipe",
        )
    files: tuple[str, ...] = ()
    if missing:
        files = (WEIGHTS_FILE,)
        own = write_weights(workdir / WEIGHTS_FILE, missing)
        known |= {p.tensor: structs.replace(p, own=True) for p in own}
    return files, [known[tensor] for weight in lowered.weights for tensor in weight.tensors]


def libraries_of(target: Target, workdir: Path, shared: SharedWeights | None) -> tuple[str, ...]:
    """Copy the runtime libraries of an engine, unless the one whose weights it reads has them;
    returns their names."""
    if shared is not None and not _apart(target.platform, shared):
        return ()
    return copy_libraries(workdir, platform=target.platform)


def _apart(platform: str, shared: SharedWeights | None) -> bool:
    """True if an engine for ``platform`` reads the weights of one for another."""
    return shared is not None and platform not in ("", shared.platform or this_platform())


def _told(weights: Sequence[PackedWeight]) -> Callable[[int], None]:
    """Tells how many MiB of the weights are written: what rounds them works as they are read."""
    written, total = 0, laid_out_bytes(weights)

    def told(size: int) -> None:
        nonlocal written
        written += size
        tell("weights, MiB", written >> 20, total >> 20)

    return told


def _backend_data(
    lowered: Lowered, placed: list[Placed], isa: Isa, shared: SharedWeights | None
) -> dict[str, Any]:
    data = CpuEngineData(
        shared="." if shared is None else shared.folder,
        own_libraries=_apart(isa.platform, shared),
        features=tuple(isa.features),
        costs=step_costs(lowered.program, isa.peaks),
        ffi=ffi_version(),
        weights=tuple(placed),
    )
    plain: dict[str, Any] = to_builtins(data)
    return plain


@contextmanager
def compiling(
    program: Program, workdir: Path, compiler: str = COMPILER_MODULE
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Compile ``program`` into ``workdir``'s engine file in a process of its own.

    Args:
        program: What the engine computes.
        workdir: Where it goes.
        compiler: Module whose function ``compile_program`` does it.

    Gives a function that waits for the compiler and returns its report.

    Raises:
        UnsupportedError, UnavailableError: From that function: what the compiler says.
    """
    engine = workdir / code_files(Target(program.target, "cpu").system).engine
    request = {"program": program.to_json(), "engine": str(engine)}
    with COMPILER.started(json.dumps({**request, "compiler": compiler})) as finish:
        yield finish
