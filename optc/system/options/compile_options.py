"""`CompileOptions`: what a user asks of a compile. The one list of its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from optc.system.options.option import normalize, option
from optc.system.units import SIZE_HELP

#: Chosen by what was measured.
Auto = Literal["auto"]
AUTO: Auto = "auto"
#: What of `CompileOptions` a plan depends on.
PLANNED = (
    "recipe",
    "objective",
    "ladder",
    "gate",
    "set",
    "calibration",
    "budget",
    "calibration_cache",
    "max_context",
    "medusa",
    "adapters",
    "base",
    "allow_remote_code",
)


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """Options of ``optc compile`` and `optc.compile`.

    Paths may be given as text, and one text where several are possible.

    Attributes:
        recipe: Name of a shipped recipe, or path of a YAML file. ``auto`` tries several and takes
            the one that is best by ``objective`` of those whose engines hold the gates; its gates
            are those of ``gate`` alone, ``kl_mean=0.01`` where it names none, and of models that
            do not generate text those of the task's int8 recipe.
        objective: What ``auto`` looks for: the fastest ``decode`` (the default) of one sequence,
            the fastest ``prefill``, the least ``size`` of the artifact, or the least ``memory`` at
            run time with one sequence of the whole context. Of models that do not generate text:
            the measured ``speed`` (the default), or ``size``.
        ladder: Recipes that ``auto`` tries, names or files; ``all`` stands for all general recipes
            of the backend or the task, which is the default.
        output: Folder to write; None is ``artifacts/<model>-<recipe>``.
        backend: Instead of the recipe's: ``BACKEND`` or ``BACKEND:TARGET``; a sequence of them
            gives as many engines in one artifact, of which `optc.load` picks.
        target: Of backends that name none: ``native`` (the default), or a name that
            `optc.system.hardware.target.known_targets` gives.
        set: Overrides ``pass.option=value``.
        gate: Overrides ``name=bound``; the bound ``none`` reports without judging, and ``none``
            alone does so for all gates.
        calibration: Text for passes that calibrate; None is the shipped one.
        calibration_cache: Folder where calibrations are kept and found again, or ``none``; None is
            what the environment variable ``OPTC_CALIBRATION_CACHE`` names, or the user's cache.
        budget: What all weights together may take: ``3.5bpw`` (bits of a weight, head, embedding
            and scales included), ``6.5MB``, or the speed ``40tok/s`` of decoding one sequence at
            the pace at which this machine reads, which is measured; ``40tok/s@50GB/s`` states it.
            Formats are chosen by what each weight loses (the pass ``allocate-bits``);
            ``2.5bpw,prune`` may take neurons out of MLPs too (``prune-to-budget``).
        eval_text: Text for the gates (``.jsonl`` or plain); None is the shipped one.
        max_context: Longest sequence in tokens; None is the model's own, within 32,768.
        max_ram: Most anonymous and shared memory of all processes together (``"3GB"`` or bytes);
            a compile that is predicted to need more is refused before its long stages, and one
            that takes more all the same is stopped.
        device: Where the float32 model runs that text calibrates with and that gates compare with:
            ``cpu``, or ``cuda`` for a GPU by PyTorch. Engines are built and measured as without it.
        draft: Folder of a smaller model with the same tokenizer, which drafts tokens for this one
            (``optc.load(..., speculate="draft")``), compiled with the same recipe; or a draft made
            of this model itself: ``self:bits=2`` by a recipe of fewer bits, ``depth=0.5`` or
            ``width=0.5`` of fewer layers or neurons, joined by commas, with ``distill=10m`` trained
            for ten minutes on this model's predictions; ``self:auto`` makes the one that is
            predicted to gain most, or none.
        draft_text: Files of the text that ``distill=10m`` trains on (``.jsonl`` or plain): much of
            it, such as the model was trained on; none is the text to calibrate with.
        medusa: Folder of Medusa heads for this model (``examples/training/train_medusa.py`` trains
            them), which draft tokens with ``optc.load(..., speculate="medusa")``.
        eagle: Folder of a layer that drafts by this model's hidden states
            (``examples/training/train_eagle.py`` trains it), with
            ``optc.load(..., speculate="eagle")``; it becomes an engine beside the model's, which
            reads the model's own embedding and head.
        trained: Folder that ``optc distill`` or ``optc qat`` wrote for this model and recipe: its
            weights take the place of the model's, behind the passes that remove weights.
        base: Where the model is an adapter by PEFT: the model that it was trained for, named as
            models are; None is the one that the adapter names. Both are merged.
        adapters: Room for LoRA adapters at run time: ``max=8,rank=16``.
        self_draft: Also build an engine of so many of the model's first layers and its head, on
            the same weights, which drafts tokens (``optc.load(..., speculate="self")``); ``"auto"``
            chooses how many by the gates' text, or builds none and warns if no number pays.
        no_gates: Measure nothing; the artifact is marked as ungated.
        bisect: Run the model after every pass over a few windows of the gates' text, and name the
            pass, the node and the tensor where the divergence from the source model begins.
        allow_unmeasured: Let gates through that cannot be measured on this machine.
        keep_failed: Keep a result that failed its gates as ``<output>.failed``.
        allow_remote_code: Run Python code that the model folder brings.
        dump_dir: Write the graph after every pass here, as ONNX text without weights.
        force: Replace an artifact at ``output``, once the new one is complete.
    """

    recipe: str | Path = option(
        "int8-fused",
        "Recipe, by name or file; auto finds the best that holds the gates.",
        metavar="NAME|FILE|auto",
        show_default=True,
    )
    objective: str | None = option(
        None,
        "What auto optimizes [decode; speed of models that are no decoders].",
        metavar="decode|prefill|speed|size|memory",
    )
    ladder: Sequence[str] = option(
        (),
        "A recipe that auto tries; repeat it for several [all].",
        kind="texts",
        metavar="NAME|FILE|all",
    )
    output: Path | None = option(
        None,
        "Folder of the artifact [artifacts/MODEL-RECIPE].",
        kind="path",
        metavar="DIR",
        short="-o",
    )
    backend: str | Sequence[str] | None = option(
        None,
        "Backend to build with [the recipe's]; repeat it for several engines in one artifact.",
        kind="texts",
        metavar="BACKEND[:TARGET]",
    )
    target: str | None = option(
        None,
        "Target of backends that name none; 'optc targets' lists them [native].",
        metavar="T,…",
    )
    set: Sequence[str] = option(
        (), "Set an option of a pass; repeated.", kind="texts", metavar="PASS.OPTION=VALUE"
    )
    gate: Sequence[str] = option(
        (),
        "Change the bound of a gate; none measures all gates and fails on none.",
        kind="texts",
        metavar="NAME=BOUND|none",
    )
    calibration: Path | None = option(
        None, "Calibration data [a text that ships with optc].", kind="path", metavar="FILE"
    )
    calibration_cache: Path | None = option(
        None,
        "Folder that caches calibration statistics, or none [user's cache].",
        kind="path",
        metavar="DIR",
    )
    budget: str | None = option(
        None,
        "Budget of the weights: bits per weight, a size, or a decode speed; may prune for it.",
        metavar="3.5bpw|6.5MB|40tok/s[,prune]",
    )
    eval_text: Path | None = option(
        None,
        "Evaluation text of the gates, .jsonl or plain [a text that ships with optc].",
        kind="path",
        metavar="FILE",
    )
    max_context: int | None = option(
        None, "Maximum sequence length in tokens [the model's].", kind="count", metavar="N"
    )
    max_ram: str | int | None = option(
        None, f"Memory limit of the compile, {SIZE_HELP}.", metavar="SIZE"
    )
    device: str = option(
        "cpu",
        "Device of calibration and of the float32 reference of the gates.",
        metavar="cpu|cuda",
        choices=("cpu", "cuda"),
        show_default=True,
    )
    draft: str | Path | None = option(
        None,
        "Draft model for speculative decoding: a folder, or one that is made of the model.",
        metavar="FOLDER|self:bits=2|self:auto",
    )
    draft_text: Sequence[str] = option(
        (), "Training text of a draft with distill=; repeated.", kind="texts", metavar="FILE"
    )
    medusa: Path | None = option(
        None, "Folder of Medusa heads for speculative decoding.", kind="path", metavar="FOLDER"
    )
    eagle: Path | None = option(
        None,
        "Folder of an EAGLE-style layer for speculative decoding.",
        kind="path",
        metavar="FOLDER",
    )
    trained: Path | None = option(
        None,
        "Folder of weights that 'optc distill' or 'optc qat' trained.",
        kind="path",
        metavar="FOLDER",
    )
    base: Path | None = option(
        None,
        "Base model, if MODEL is an adapter saved by PEFT [as the adapter says].",
        kind="path",
        metavar="MODEL",
    )
    adapters: str | None = option(
        None, "Reserve slots for LoRA adapters at run time.", metavar="max=8,rank=16"
    )
    self_draft: int | Auto | None = option(
        None,
        "Also build the first LAYERS as a draft model; auto measures how many pay.",
        kind="count_or_auto",
        metavar="LAYERS|auto",
    )
    no_gates: bool = option(
        False, "Skip the gates; the artifact is marked as ungated.", kind="flag"
    )
    bisect: bool = option(
        False, "Find the pass, node and tensor where the outputs begin to diverge.", kind="flag"
    )
    allow_unmeasured: bool = option(
        False, "Accept gates that this machine cannot measure.", kind="flag"
    )
    keep_failed: bool = option(
        False, "Keep an artifact that failed its gates as OUTPUT.failed.", kind="flag"
    )
    allow_remote_code: bool = option(False, "Run Python code from the model folder.", kind="flag")
    dump_dir: Path | None = option(
        None, "Folder to dump the graph to after every pass.", kind="path", metavar="DIR"
    )
    force: bool = option(False, "Overwrite an artifact that exists.", kind="flag")

    def __post_init__(self) -> None:
        normalize(self)
