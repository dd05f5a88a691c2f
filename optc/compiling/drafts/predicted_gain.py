"""The predicted gain of a draft, from both engines: acceptance measured, costs by bytes read.

The target continues prompts greedily, and the draft names the next token at every place of these
texts. Up to a draft's first wrong token its text is the target's, so that this tells exactly how
many tokens a pass of the target gives with any number of drafts. A draft step costs its share of
the bytes that a step of the target reads, for decoding is bound by them (Leviathan et al., 2023,
arXiv 2211.17192, section 3.3; drafts of fewer bits: QuantSpec, arXiv 2502.10424). The rows that
verify drafts choose experts of their own: a target with experts reads more for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from optc.compiling.building.built_engine import BuiltEngine
from optc.compiling.drafts.choose_layers import LEAST_SPEEDUP, MOST_DRAFTS, ROW_COST
from optc.proof.gates.continuation import continued
from optc.proof.reference.teacher_forcing import SingleSequence, window_logits
from optc.proof.roofline.costs import step_work
from optc.proof.roofline.estimate import CONTEXT, decode_work
from optc.proof.roofline.measurable import MeasurableBackend
from optc.runtime.executable.executable import Executable, Int32

#: Most prompts, and most tokens of a prompt and of its continuation.
PROMPTS, PROMPT_TOKENS, CONTINUED_TOKENS = 16, 64, 64

Agreement = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Prediction:
    """The predicted gain of a draft in greedy decoding of one sequence.

    Attributes:
        acceptance: Share of places where it names the target's next token.
        cost: Of a draft step, as a share of the bytes that a step of the target reads.
        drafts: Best number of drafts in a row.
        tokens_per_pass: Tokens that a pass of the target then gives.
        gain: Predicted speed, against plain decoding.
        tokens: How many were continued.
    """

    acceptance: float
    cost: float
    drafts: int
    tokens_per_pass: float
    gain: float
    tokens: int

    @property
    def pays(self) -> bool:
        """True if the gain is beyond the error of the prediction."""
        return self.gain >= LEAST_SPEEDUP

    def __str__(self) -> str:
        return (
            f"{self.gain:.2f} of plain decoding's speed ({self.drafts} drafts a step, "
            f"{self.acceptance:.0%} of places accepted, {self.tokens_per_pass:.2f} tokens a pass, "
            f"a draft step costs {self.cost:.2f} of the target's)"
        )

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return asdict(self)


@dataclass(frozen=True)
class GreedyTexts:
    """The greedy continuations of prompts by an engine.

    Attributes:
        ids: [P, S + N] prompts and their greedy continuations.
        prompt: S, tokens of each prompt.
    """

    ids: Int32
    prompt: int

    @classmethod
    def of(cls, executable: Executable, windows: Int32) -> GreedyTexts:
        """Continue the first tokens of evenly spaced windows [W, S + 1] of text; S + 1 at least
        2, and S at most the engine's context."""
        room = windows.shape[1] - 1
        prompt = max(1, min(PROMPT_TOKENS, room // 2))
        count = max(2, min(CONTINUED_TOKENS, room - prompt))
        chosen = np.linspace(0, len(windows) - 1, min(PROMPTS, len(windows))).astype(int)
        sequence = SingleSequence(executable, prompt + count - 1)
        texts = [continued(sequence, windows[index, :prompt], count) for index in chosen]
        return cls(np.stack(texts), prompt)

    def named_by(self, draft: Executable, owner: Executable | None = None) -> Agreement:
        """[P, N] whether another engine names each continued token, given all before it.

        Args:
            draft: The other engine.
            owner: The engine that said the texts, if ``draft`` drafts on its KV pools: it then
                reads the keys and values of ``owner`` of all tokens before the last.
        """
        if owner is not None:
            return self._named_on_pools(owner, draft)
        sequence = SingleSequence(draft, self.ids.shape[1] - 1)
        best = [
            np.concatenate([rows.argmax(1) for _, rows in window_logits(sequence, ids[:-1])])
            for ids in self.ids
        ]
        return np.stack(best)[:, self.prompt - 1 :] == self.ids[:, self.prompt :]

    def _named_on_pools(self, target: Executable, draft: Executable) -> Agreement:
        tokens = self.ids.shape[1] - 1
        said = SingleSequence(target, tokens)
        sequence = SingleSequence(draft, tokens, said)
        named = np.zeros((len(self.ids), tokens - self.prompt + 1), np.bool_)
        first = np.zeros(1, np.int32)
        for index, ids in enumerate(self.ids):
            for _ in window_logits(said, ids[:-1]):
                pass  # for the keys and values alone
            # From the end: a step puts the draft's own keys and values in the target's place.
            for place in range(tokens - 1, self.prompt - 2, -1):
                sequence.restart(place)
                best = sequence.feed(ids[place : place + 1], first).argmax(1)[0]
                named[index, place - self.prompt + 1] = best == ids[place + 1]
        return named


def tokens_per_pass(agreement: Agreement, drafts: int) -> float:
    """Tokens that a pass of the target gives with ``drafts`` drafts a step, prefills apart: those
    accepted up to the first wrong one, and the target's own.

    Args:
        agreement: [P, N] of N continued tokens, N at least 2; the prefill gives the first of them.
        drafts: At least 0.
    """
    passes = 0
    for row in agreement[:, 1:]:
        place = 0
        while place < len(row):
            tried = row[place : place + drafts]
            place += 1 + (len(tried) if tried.all() else int(tried.argmin()))
            passes += 1
    return (agreement.size - len(agreement)) / passes


def predict_gain(agreement: Agreement, cost: float, verifying: Sequence[float]) -> Prediction:
    """The best number of drafts in a row, and what it promises.

    Args:
        agreement: [P, N] places where the draft names the target's next token.
        cost: `draft_cost`.
        verifying: `verify_costs`.
    """
    tokens = {count: tokens_per_pass(agreement, count) for count in range(1, MOST_DRAFTS + 1)}
    gains = {count: each / (verifying[count] + count * cost) for count, each in tokens.items()}
    best = max(gains, key=lambda count: gains[count])
    share = float(agreement.mean())
    return Prediction(share, cost, best, tokens[best], gains[best], agreement.size)


def draft_cost(target: BuiltEngine, draft: BuiltEngine, engines: Sequence[BuiltEngine]) -> float:
    """Bytes that a draft step reads, as a share of those of a target's step: what the backend says
    of its kernels, or else all weights.

    Args:
        target: The engine that is drafted for.
        draft: The engine that drafts.
        engines: All of the artifact, among them those whose weights these read.
    """
    backend = target.request.backend
    if not isinstance(backend, MeasurableBackend):
        return _weights(draft, engines) / _weights(target, engines)
    specs = (draft.entry.spec, target.entry.spec)
    context = min(CONTEXT, *(spec.max_context for spec in specs))
    read = [
        backend.step_costs(built.entry.data).bytes_of(decode_work(built.entry.spec, context))
        for built in (draft, target)
    ]
    return read[0] / read[1]


def verify_costs(target: BuiltEngine) -> list[float]:
    """The cost of a step of the target that verifies 0 to `MOST_DRAFTS` drafts, as a share of one
    that verifies none: the bytes it reads and `ROW_COST` a draft. Of experts it reads those that
    its rows are expected to choose, if each is as likely as any other. A backend that states no
    costs of its kernels is taken to read the same bytes for any number of rows.
    """
    rows = range(1, MOST_DRAFTS + 2)
    backend, spec = target.request.backend, target.entry.spec
    read = [1.0 for _ in rows]
    if isinstance(backend, MeasurableBackend):
        costs = backend.step_costs(target.entry.data)
        context = min(CONTEXT, spec.max_context)
        read = [costs.bytes_of(step_work(spec, [n], [context], n)) for n in rows]
    return [one / read[0] + drafts * ROW_COST for drafts, one in enumerate(read)]


def _weights(engine: BuiltEngine, engines: Sequence[BuiltEngine]) -> int:
    owner = engine.weights.folder.rsplit("/", 1)[-1]
    return next(built.build.weight_bytes for built in engines if built.entry.name == owner)
