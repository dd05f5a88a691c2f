"""`replay`: the same requests on an engine, and how its answers differ from the receipts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from optc.errors import OptcError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.runtime.outputs import RequestOutput
from optc.runtime.receipts.receipt import AnswerReceipt, Receipt
from optc.runtime.requests.generation_request import GenerationRequest

#: Requests that are submitted ahead, in sequences that the engine serves at once.
_AHEAD = 4


@dataclass(frozen=True)
class Change:
    """A text that is not what the receipt says.

    Attributes:
        parted_at: Index of the first token that differs; where one of the texts ends if it is how
            the other one begins; the number of tokens if only the reason of the end differs.
        before: As of the receipt.
        after: As the engine answers now.
    """

    parted_at: int
    before: AnswerReceipt
    after: AnswerReceipt

    def to_json(self) -> dict[str, Any]:
        """As JSON takes it; texts are there if the receipt has its own."""
        ends = {"before": self.before, "after": self.after}
        return {
            "index": self.before.index,
            "parted_at": self.parted_at,
            **{name: _shown(one, self.before.text is not None) for name, one in ends.items()},
        }


@dataclass(frozen=True)
class Replayed:
    """A receipt and what came of it.

    Attributes:
        line: Of the log.
        receipt: It.
        changes: Texts that differ.
        refusal: Why the engine does not take the request; None is an answer.
    """

    line: int
    receipt: Receipt
    changes: tuple[Change, ...] = ()
    refusal: str | None = None


def replay(engine: Engine, receipts: Iterable[tuple[int, Receipt]]) -> Iterator[Replayed]:
    """Ask again, in batches that the engine makes, and compare; in the order of the log.

    Args:
        engine: Loaded without the artifact's own settings of sampling: receipts state what held.
        receipts: With the numbers of their lines.

    Raises:
        EngineError: The engine failed.
    """
    waiting: deque[tuple[int, Receipt, Handle | OptcError]] = deque()
    ahead = _AHEAD * engine.spec.max_sequences
    try:
        for line, receipt in receipts:
            waiting.append((line, receipt, _submit(engine, receipt)))
            if len(waiting) > ahead:
                yield _replayed(*waiting.popleft())
        while waiting:
            yield _replayed(*waiting.popleft())
    finally:  # an interrupt must not leave requests running
        for _, _, handle in waiting:
            if isinstance(handle, Handle):
                handle.cancel()


def compare(receipt: Receipt, output: RequestOutput) -> tuple[Change, ...]:
    """The texts of an output that are not what the receipt says."""
    found = []
    for before, one in zip(receipt.answers, output.completions, strict=True):
        after = AnswerReceipt.of(one, with_text=before.text is not None)
        parted_at = before.marks.parting(after.marks)
        if parted_at is None and before.finish_reason != after.finish_reason:
            parted_at = after.marks.tokens
        if parted_at is not None:
            found.append(Change(parted_at, before, after))
    return tuple(found)


def _submit(engine: Engine, receipt: Receipt) -> Handle | OptcError:
    prompt = list(receipt.prompt)
    try:
        return engine.submit(GenerationRequest(prompt, receipt.params, adapter=receipt.adapter))
    except RequestError as error:
        return error


def _replayed(line: int, receipt: Receipt, handle: Handle | OptcError) -> Replayed:
    if isinstance(handle, OptcError):
        return Replayed(line, receipt, refusal=handle.render())
    output = handle.result()
    if output.error is not None:
        return Replayed(line, receipt, refusal=output.error.render())
    return Replayed(line, receipt, compare(receipt, output))


def _shown(one: AnswerReceipt, with_text: bool) -> dict[str, Any]:
    shown = {"tokens": one.marks.tokens, "finish_reason": one.finish_reason}
    return {**shown, "text": one.text} if with_text else shown
