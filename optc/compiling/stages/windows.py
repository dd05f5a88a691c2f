"""Windows of the text that judges a generator of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optc.artifact.manifest import TokenizerEntry
from optc.artifact.writer import ArtifactWriter
from optc.backend import BuildOptions
from optc.compiling.judging.text_windows import text_windows
from optc.compiling.lowering.lowering import Lowered
from optc.compiling.stages.row import Done
from optc.system.options import CompileOptions

if TYPE_CHECKING:
    from optc.proof.reference.text import EvalWindows


def windows_of(done: Done) -> EvalWindows:
    """Those of a compile whose model was lowered, with its tokenizer and its longest sequence."""
    context, folder = done[BuildOptions].max_context, done[ArtifactWriter].folder
    text, entry = done[CompileOptions].eval_text, done.get(TokenizerEntry)
    return text_windows(done[Lowered].reference, context, entry, folder, text)
