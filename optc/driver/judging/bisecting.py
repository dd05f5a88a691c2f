"""Which pass, node and tensor of a compile its divergence begins in: ``optc compile --bisect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optc.driver.compiling.limits import weight_count
from optc.driver.compiling.lowering import CANONICALIZE, Lowered
from optc.driver.compiling.options import ResolvedOptions
from optc.gates.bisect.bisect import bisect
from optc.gates.bisect.stages import Stage
from optc.ir.graph import width
from optc.reference.text import eval_windows
from optc.target import usable_threads

if TYPE_CHECKING:
    from optc.artifact import TokenizerEntry


def bisect_passes(
    options: ResolvedOptions,
    lowered: Lowered,
    max_context: int,
    tokenizer: TokenizerEntry | None,
    artifact: Path,
) -> dict[str, Any]:
    """Run the models after all passes on the gates' text and compare them.

    Args:
        options: What was asked for.
        lowered: With its stages.
        max_context: Longest sequence of the engines, in tokens.
        tokenizer: The artifact's; None scores random ids.
        artifact: Its folder.

    Returns:
        JSON values, `optc.gates.bisect.bisect.Bisection.to_json`.

    Raises:
        InputError: The evaluation text is unusable.
        UnsupportedError: The model cannot be cut at its layers.
    """
    reference = lowered.reference
    windows = eval_windows(
        vocab_size=width(reference.graph.outputs[0]) or 0,
        max_context=max_context,
        parameters=weight_count(reference),
        tokenizer_file=None if tokenizer is None else artifact / tokenizer.files[0],
        bos=None if tokenizer is None else tokenizer.bos_token_id,
        eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
        text_file=options.asked.eval_text,
    )
    stages = [Stage(CANONICALIZE, reference)]
    stages += [Stage(name, model) for name, model in lowered.stages]
    found = bisect(stages, windows, threads=usable_threads(), progress=options.progress)
    return found.to_json()
