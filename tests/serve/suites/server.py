"""A server for suites of others, as a process: models by the names that the suites ask for.

    python -m tests.serve.suites.server STATE

Its decoders answer any conversation with the same short sentence, and fill in the shortest of what
a grammar lets them write. STATE is the folder of files and batches.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from optc.runtime.engine import Engine
from optc.runtime.executable.executable import Float32, StepBatch, StepInterface
from optc.serve import server
from optc.serve.app import make_app
from optc.serve.models import ModelSource, ModelTable
from optc.serve.settings import HTTPSettings
from tests.runtime.support.toy import ToyExecutable, toy_spec
from tests.serve.scoring.toys import reranker
from tests.serve.suites.objects import with_objects
from tests.serve.tensors.toys import embedder, writer
from tests.serve.toys import TEMPLATE, tokenizer, toy_engine

#: What decoders say: no character twice, since each follows from the one before.
SAID = "Hi you."
#: What one says that thinks, behind its thoughts.
THOUGHT = "<think>Ah</think>"
#: What they rather write than anything else, where a grammar has no place for what they say.
_SHORT = '"}]'
#: By the names of OpenAI's, which its suite spells.
DECODERS = ("gpt-6-astra", "gpt-3.5-turbo-instruct")
#: One that thinks. Suites ask only some names for thoughts.
THINKER = "gpt-5-beside-claude-4"
RERANKER = "rerank-v4"
SPEC = toy_spec((0,), vocab=280, max_context=4096, max_rows=64, max_sequences=4)


class AnsweringExecutable(ToyExecutable):
    """Says a text behind whatever does not end in one of its tokens, then ends.

    Args:
        tokens: Of the text, no one twice.
        short: Tokens that it writes rather than others where it may not write its text.
    """

    def __init__(self, tokens: list[int], short: list[int], spec: StepInterface = SPEC) -> None:
        super().__init__(spec)
        self._next = dict(zip(tokens, [*tokens[1:], 1], strict=True))
        self._first, self._short = tokens[0], short

    def step(self, batch: StepBatch) -> Float32:
        logits = np.zeros((len(batch.logit_rows), self.spec.vocab_size), np.float32)
        logits[:, self._short] = 30
        for row, at in enumerate(batch.logit_rows):
            logits[row, self._next.get(int(batch.tokens[at]), self._first)] = 60
        return logits


def answering(said: str = SAID, special: tuple[str, ...] = ()) -> Engine:
    """An engine that says a text."""
    template = TEMPLATE + "".join(f"{{# {one} #}}" for one in special)
    spoken = tokenizer(template, special)
    tokens, short = (
        spoken.encode(text, add_special_tokens=False, parse_special=True) for text in (said, _SHORT)
    )
    return toy_engine(
        lambda: AnsweringExecutable(list(tokens), list(short)),
        template=template,
        special=special,
        kv_memory="4MiB",
    )


def main(state: Path) -> None:
    """Serve until SIGTERM."""
    table = ModelTable(
        [
            *(ModelSource(name, answering) for name in DECODERS),
            ModelSource(THINKER, lambda: answering(THOUGHT + SAID, ("<think>", "</think>"))),
            ModelSource("text-embedding-3-small", embedder),
            ModelSource(RERANKER, reranker),
            *(ModelSource(name, writer) for name in ("whisper-1", "gpt-4o-transcribe")),
        ]
    )
    vars(server)["make_app"] = lambda *given: with_objects(make_app(*given))
    settings = HTTPSettings(port=0, state=state, access_log=False)
    server.serve(table, settings, lambda url: print(f"serving suites at {url}/v1", file=sys.stderr))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
