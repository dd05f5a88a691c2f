"""The lists of the options of ``optc distill`` and ``optc qat``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from optc.system.options.option import normalize, option
from optc.system.units import SIZE_HELP


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options that both commands have.

    Attributes:
        text: Files of the text to train on (``.jsonl`` or plain): much of it, such as the model
            was trained on.
        output: Folder to write.
        recipe: Recipe whose pipeline gives the student; None is the model as it is.
        set: Overrides ``pass.option=value`` of the recipe.
        trained: Folder of an earlier training of the same model and pruning, to begin from.
        calibration: Text for passes of the recipe that calibrate; None is the shipped one.
        calibration_cache: Folder where calibrations are kept and found again.
        heldout: Text that the student is judged on while it trains; None is the last twentieth of
            ``text``, on which it is not trained then.
        tokens: How many tokens it is trained on, ``840k`` or ``1.5m``.
        minutes: Train as many tokens as take so many minutes when nothing else runs; None is
            ``tokens``.
        rate: Largest learning rate.
        window: Tokens of a window.
        batch: Windows of a step.
        patience: Evaluations without gain after which training ends, of those behind its middle.
        precision: ``float32``, ``bfloat16`` (autocast), or ``auto``, which measures both.
        device: ``cpu``, ``cuda``, or ``auto``: a GPU if there is one.
        threads: CPU threads; None is all usable ones.
        max_ram: Most anonymous and shared memory (``"3GB"`` or bytes), on CPUs: a training that is
            predicted to need more is refused before its long stages, and one that takes more all
            the same is stopped.
        seed: Of the order of windows.
        allow_remote_code: Run Python code that a model folder brings.
        force: Replace a folder at ``output``.
    """

    text: Sequence[str] = option((), "Text to train on; repeated.", kind="texts", metavar="FILE")
    output: Path | None = option(None, "Folder to write.", kind="path", metavar="DIR", short="-o")
    recipe: str | Path | None = option(
        None, "Recipe that makes the student from MODEL.", metavar="NAME|FILE"
    )
    set: Sequence[str] = option(
        (), "Set an option of a pass; repeated.", kind="texts", metavar="PASS.OPTION=VALUE"
    )
    trained: Path | None = option(
        None, "Folder of an earlier training to start from.", kind="path", metavar="FOLDER"
    )
    calibration: Path | None = option(
        None, "Text for passes that calibrate [shipped].", kind="path", metavar="FILE"
    )
    calibration_cache: Path | None = option(
        None, "Folder that caches calibration statistics.", kind="path", metavar="DIR"
    )
    heldout: Path | None = option(
        None, "Evaluation text [the last twentieth of --text].", kind="path", metavar="FILE"
    )
    tokens: str = option(
        "840k", "Number of tokens to train on.", metavar="840k|1.5m", show_default=True
    )
    minutes: str | None = option(
        None, "Train for N minutes of an idle machine instead.", metavar="N"
    )
    rate: str = option("2e-4", "Peak learning rate.", metavar="R", show_default=True)
    window: int = option(
        512, "Tokens in a training sequence.", kind="count", metavar="N", show_default=True
    )
    batch: int = option(
        4, "Batch size, in sequences.", kind="count", metavar="N", show_default=True
    )
    patience: int = option(
        3,
        "Early stopping: evaluations without improvement.",
        kind="count",
        metavar="N",
        show_default=True,
    )
    precision: str = option(
        "auto",
        "Precision of matrix products; auto measures which is faster.",
        choices=("auto", "float32", "bfloat16"),
        show_default=True,
    )
    device: str = option(
        "auto", "Device to train on.", choices=("auto", "cpu", "cuda"), show_default=True
    )
    threads: int | None = option(None, "Number of CPU threads [all].", kind="count", metavar="N")
    max_ram: str | int | None = option(None, f"Memory limit, {SIZE_HELP}.", metavar="SIZE")
    seed: int = option(
        1, "Seed of the order of sequences.", kind="count", metavar="N", show_default=True
    )
    allow_remote_code: bool = option(False, "Run Python code from model folders.", kind="flag")
    force: bool = option(False, "Overwrite a folder that exists.", kind="flag")

    def __post_init__(self) -> None:
        normalize(self)


@dataclass(frozen=True, kw_only=True)
class DistillOptions(TrainingOptions):
    """Options of ``optc distill``. Its windows are short: attention takes less time in them, and
    the same tokens give more steps.

    Attributes:
        teacher: Folder of the teacher; None is the model before the recipe's passes.
        lora: Train so many ranks beside each linear layer's weights; None trains all weights.
        hidden_loss: Weight of the relative squared error of the last hidden states, beside the
            divergence of the logits.
    """

    window: int = option(
        128, "Tokens in a training sequence.", kind="count", metavar="N", show_default=True
    )
    batch: int = option(
        8, "Batch size, in sequences.", kind="count", metavar="N", show_default=True
    )
    teacher: Path | None = option(
        None, "Folder of the teacher [MODEL, unpruned].", kind="path", metavar="FOLDER"
    )
    lora: int | None = option(
        None, "Train only LoRA adapters of this rank.", kind="count", metavar="RANK"
    )
    hidden_loss: str = option(
        "0", "Weight of the loss on the last hidden states.", metavar="W", show_default=True
    )


@dataclass(frozen=True, kw_only=True)
class QatOptions(TrainingOptions):
    """Options of ``optc qat``. Its rate is larger: a weight of few bits must move half a step.

    Attributes:
        scale_rate: Learning rate of the logarithms of scales, over that of the weights.
    """

    rate: str = option("5e-4", "Peak learning rate.", metavar="R", show_default=True)
    scale_rate: str = option(
        "1", "Learning rate of scales, relative to that of weights.", metavar="X", show_default=True
    )
