"""Windows of the gates' text for a compile that has no engine to ask for its limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from optc.compiling.resolving.limits import weight_count
from optc.ir.graph import width
from optc.proof.conversations.load import artifact_chat
from optc.proof.reference.text import EvalWindows, eval_windows

if TYPE_CHECKING:
    from optc.artifact.manifest import TokenizerEntry


def text_windows(
    reference: ir.Model,
    max_context: int,
    tokenizer: TokenizerEntry | None,
    artifact: Path,
    eval_text: Path | None,
) -> EvalWindows:
    """The windows that the gates score.

    Args:
        reference: The model in dense form.
        max_context: Longest sequence of the engines, in tokens.
        tokenizer: The artifact's; None gives random ids.
        artifact: Its folder.
        eval_text: None is the shipped one.

    Raises:
        InputError: The text is unusable.
    """
    return eval_windows(
        vocab_size=width(reference.graph.outputs[0]) or 0,
        max_context=max_context,
        parameters=weight_count(reference),
        tokenizer_file=None if tokenizer is None else artifact / tokenizer.files[0],
        bos=None if tokenizer is None else tokenizer.bos_token_id,
        eos=None if tokenizer is None else next(iter(tokenizer.eos_token_ids), None),
        text_file=eval_text,
        chat=artifact_chat(artifact, tokenizer),
    )
