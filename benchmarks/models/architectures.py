"""Random models of many architectures: compiled in float32 and int8, beside PyTorch."""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import optc
from benchmarks.models.architecture import Architecture, Named
from benchmarks.models.class_kinds import of_classes
from benchmarks.models.library_kinds import of_libraries
from benchmarks.models.plain_kinds import of_plain
from benchmarks.models.random_weights import enliven, is_alive
from benchmarks.models.transformers_kinds import of_transformers
from optc.importer.tensors.modules.dimensions import Dynamic
from optc.system.sources.dim import Dim

#: Sizes of batches at which outputs are compared.
BATCHES = (1, 2, 5)
#: The recipe that is judged by its largest error.
EXACT = "tensors-fp32"


def kinds() -> list[Architecture]:
    """Every architecture, one of each library and task after the other: those that are measured
    first are of widely differing kinds."""
    found = [*of_plain(), *of_classes(), *of_transformers(), *of_libraries()]
    groups: dict[tuple[str, str], int] = {}
    turns = []
    for one in found:
        turn = groups.get((one.library, one.task), 0)
        groups[one.library, one.task] = turn + 1
        turns.append(turn)
    return [one for _, one in sorted(zip(turns, found, strict=True), key=lambda pair: pair[0])]


def warm() -> None:
    """Import and make what every row needs, once for all child processes; no thread is left."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="optc-models-") as folder:
        x = torch.randn(2, 3)
        batch = {"x": {0: Dim("batch", 1, 8)}}
        _compared(Named(torch.nn.Linear(3, 4)), (x,), batch, EXACT, Path(folder))


def measured(one: Architecture, recipe: str, timeout_s: float) -> dict[str, Any]:
    """The part of a row that a recipe gives, made by a child process that may take so long."""
    with tempfile.TemporaryDirectory(prefix="optc-models-") as folder:
        kept = Path(folder) / "row.json"
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=_prove, args=(one, recipe, Path(folder), kept))
        child.start()
        child.join(timeout_s)
        late = child.is_alive()
        if late:
            child.kill()
            child.join()
        row: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"trying": "start"}
        stage = row.pop("trying")
        if stage and "error" not in row:
            row["error"] = f"{stage}: {'took too long' if late else f'exit code {child.exitcode}'}"
        return row


def _prove(one: Architecture, recipe: str, folder: Path, kept: Path) -> None:
    row: dict[str, Any] = {}

    def trying(stage: str) -> None:
        row["trying"] = stage
        kept.write_text(json.dumps(row))

    try:
        trying("build")
        torch.manual_seed(0)
        module, args, dynamic = one.build()
        enliven(module, args)
        with torch.no_grad():  # what PyTorch does not run is no model
            found = [list(module(*one).values()) for one in (args, _others(args, len(args[0])))]
        if not is_alive(*found):
            raise ValueError("its outputs are not finite, or the same whatever its input")
        row["parameters"] = sum(one.numel() for one in module.parameters())
        trying(recipe)
        row[recipe] = _compared(module, args, dynamic, recipe, folder)
        trying("")
    except Exception as error:  # noqa: BLE001 - whatever an architecture raises is its row's reason
        text = " ".join(str(error).split())
        row["error"] = f"{row['trying']}: {type(error).__name__}: {text}"[:400]
        trying("")


def _compared(
    module: Any, args: tuple[Any, ...], dynamic: Dynamic, recipe: str, folder: Path
) -> dict[str, Any]:
    """Largest error relative to the outputs' largest value, and least cosine, over all batches."""
    made = optc.compile(
        module, recipe, folder / recipe, args=args, dynamic=dynamic, gate=["none"], force=True
    )
    error, cosine = 0.0, 1.0
    with optc.load_tensors(made.path) as engine:
        for batch in BATCHES:
            torch.manual_seed(batch)
            call = _others(args, batch)
            with torch.no_grad():
                wanted = module(*call)
            found = engine(*[one.numpy() for one in call])
            ours = [array for array in found.values() if array.dtype.kind == "f"]
            theirs = [one.numpy() for one in wanted.values() if one.is_floating_point()]
            for a, b in zip(ours, theirs, strict=True):
                if not np.isfinite(a).all():
                    raise ValueError("an output of the artifact is not finite")
                scale = max(float(np.abs(b).max()), 1e-30)
                error = max(error, float(np.abs(a - b).max()) / scale)
                norms = float(np.linalg.norm(a.ravel()) * np.linalg.norm(b.ravel()))
                cosine = min(cosine, float(a.ravel() @ b.ravel()) / max(norms, 1e-30))
    passes = [run.name for run in made.manifest.passes]
    named = made.manifest.recipe["name"]  # that which takes the model
    return {"error": error, "cosine": cosine, "passes": passes, "recipe": named}


def _others(args: tuple[Any, ...], batch: int) -> tuple[Any, ...]:
    return tuple(_other(one, batch) for one in args)


def _other(example: Any, batch: int) -> Any:
    """Another input such as the example, of another batch."""
    if example.is_floating_point():
        return torch.randn(batch, *example.shape[1:])
    rows = example[torch.randint(0, len(example), (batch,))]  # boxes and ids stay what they are
    return rows[:, torch.randperm(rows.shape[1])] if rows.dim() > 1 else rows
