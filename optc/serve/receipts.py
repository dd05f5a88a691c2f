"""`Receipts`: a file to which a line is added for each answer, by which it can be computed again
(`optc.runtime.receipts`)."""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import replace
from pathlib import Path

from optc.errors import InputError, OptcError
from optc.runtime.handle import Handle
from optc.runtime.receipts.receipt import AnswerReceipt, Receipt, is_repeatable
from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.lines import LineWriter
from optc.serve.models import ServedModel

#: Whoever reads it knows what was asked.
_OWNER_ONLY = 0o600
_SEED_BITS = 63
#: Seconds that a disk has for the last ones.
_CLOSE_S = 10.0


class Receipts:
    """Adds receipts to a file.

    Args:
        path: The file; made if there is none.
        with_text: Receipts hold the texts of answers, too.

    Raises:
        InputError: It cannot be written.
    """

    def __init__(self, path: Path, *, with_text: bool = False) -> None:
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, _OWNER_ONLY)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InputError(f"cannot write {path}: {reason}", where="--receipts") from error
        self._with_text = with_text
        self._lines = LineWriter(self._descriptor, str(path))

    def watch(
        self, handle: Handle, request: GenerationRequest, model: ServedModel, request_id: str
    ) -> None:
        """Add the receipt of a request once it has ended.

        Args:
            handle: Of it.
            request: With its seed.
            model: That answers.
            request_id: Of HTTP.
        """

        def line() -> str | None:
            return self._line(handle, request, model, request_id)

        handle.add_done_callback(lambda _: self._lines(line))

    def close(self) -> None:
        """Write what is left."""
        if self._lines.close(_CLOSE_S):
            os.close(self._descriptor)

    def _line(
        self, handle: Handle, request: GenerationRequest, model: ServedModel, request_id: str
    ) -> str | None:
        try:
            output = handle.result(0)
        except OptcError:  # there is no answer
            return None
        if not is_repeatable(output):
            return None
        engine = model.engine
        params = request.params.with_defaults(engine.defaults)
        if params.max_tokens is None:  # the context of another engine may be another one
            params = params.changed(max_tokens=engine.max_context - output.prompt_tokens)
        answers = [AnswerReceipt.of(one, with_text=self._with_text) for one in output.completions]
        origin, served_by = model.origin, handle.served_by
        if served_by is not None and served_by.digest:  # weights may have been swapped before it
            origin = replace(origin, artifact=served_by.digest)
        receipt = Receipt(
            origin,
            output.prompt_token_ids,
            params,
            tuple(answers),
            time.time(),
            model.name,
            request.adapter,
            request_id,
        )
        return json.dumps(receipt.to_json())


def seeded(request: GenerationRequest) -> GenerationRequest:
    """The same with a seed, which another run can be given."""
    params = request.params
    if params.seed is not None:
        return request
    return replace(request, params=params.changed(seed=secrets.randbits(_SEED_BITS)))
