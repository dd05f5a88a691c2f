"""`EagleModel`: a layer drafts by the target's last hidden states (Li et al., 2024, 2401.15077).

A row of the layer reads a token and the target's hidden state of the token before it. The target's
steps give these states for every row that they compute. Behind the last of them, the layer's own
guesses stand in their place, so that drafts are a chain, and a row that was computed with a guess
is computed again once the state is known.

A state that no step has computed reads as zeros: of the token before the first, and of tokens whose
keys and values the target has found in its prefix cache while the layer's own cache has forgotten
them. The layer is trained with such rows, and no draft changes the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from optc.errors import InputError
from optc.runtime.executable.executable import Executable, Float32, HiddenExecutable, StepBatch
from optc.runtime.kv.kv_plan import KVPlan
from optc.runtime.requests.request import Request
from optc.runtime.scheduling.chunks import Chunk
from optc.runtime.speculative.drafters.draft_model import DraftModel
from optc.runtime.speculative.drafters.drafted_text import DraftedText


class EagleModel(DraftModel):
    """A `DraftModel` whose engine reads features. Not thread-safe.

    States of a request are kept while it lives, 4 D bytes a token: memory is taken as they are
    written.

    Args:
        executable: The layer's engine, as of `DraftModel`.
        plan: Sizes of its KV pools.
        target: The engine that it drafts for.
        token_budget: As of `DraftModel`.
        prefix_cache: As of `DraftModel`.
        least_chance: As of `DraftModel`.

    Raises:
        InputError: One of the engines is none of these, or their widths differ.
    """

    def __init__(
        self,
        executable: Executable,
        plan: KVPlan,
        target: Executable,
        *,
        token_budget: int,
        prefix_cache: bool = True,
        least_chance: float = 0.0,
    ) -> None:
        own, width = executable.spec, target.spec.hidden_size
        fits = own.features and own.hidden_size == width > 0
        if not fits or not isinstance(target, HiddenExecutable):
            raise InputError(
                f"the layer reads hidden states of {own.hidden_size} values, the target gives "
                f"{width}",
                where="speculate",
                hint="compile the artifact again with --eagle FOLDER",
            )
        if not isinstance(executable, HiddenExecutable) or own.hidden_rows != "logits":
            raise InputError(
                "the layer's engine gives no guesses of the rows whose logits are wanted",
                where="speculate",
                hint="compile the artifact again with --eagle FOLDER",
            )
        super().__init__(
            executable,
            plan,
            token_budget=token_budget,
            prefix_cache=prefix_cache,
            least_chance=least_chance,
        )
        self._layer: HiddenExecutable = executable
        self._target: HiddenExecutable = target
        self._width = width
        self._states: dict[int, Float32] = {}

    def note_step(self, chunks: Sequence[Chunk[Request]]) -> None:
        """Keep the hidden states of the target's step over ``chunks``, which was the last; where
        others draft a tree, those of the known tokens."""
        hidden, first = self._target.hidden_states(), 0
        for chunk in chunks:
            request = chunk.request
            count = chunk.rows - (0 if request.draft_parents is None else chunk.drafted)
            if not request.is_beam:
                states = self._states_of(request)
                states[chunk.start : chunk.start + count] = hidden[first : first + count]
            first += chunk.rows

    def forget(self, request: Request) -> None:
        """Drop the states and free the blocks of a request that ended."""
        self._states.pop(request.id, None)
        super().forget(request)

    def _states_of(self, request: Request) -> Float32:
        """[max_length, D] states by token; those of a prompt that it shares are known already."""
        states = self._states.get(request.id)
        if states is None:
            # Zeroed memory is not taken before it is written.
            states = np.zeros((request.max_length, self._width), np.float32)
            leader = self._states.get(request.leader_id)
            if leader is not None:
                states[: request.num_prompt] = leader[: request.num_prompt]
            self._states[request.id] = states
        return states

    def _resume(self, request: Request) -> DraftedText:
        """As of `DraftModel`; drafts that hold are computed again, with the target's states."""
        self._states_of(request)
        text = self._texts.get(request.id)
        if text is not None:
            text.written = text.num_computed
        return super()._resume(request)

    def _compute(self, chunks: Sequence[Chunk[DraftedText]], batch: StepBatch) -> Float32:
        """Compute rows behind their states, and keep the guess of each chunk's last row."""
        features = np.concatenate([self._features(chunk) for chunk in chunks])
        logits = self.executable.step(replace(batch, features=features))
        complete = [chunk.request for chunk in chunks if chunk.completes]
        if complete:  # else all states are known, and the row that the step gives is of no use
            for text, guess in zip(complete, self._layer.hidden_states(), strict=True):
                self._states[text.id][text.num_tokens - 1] = guess
        return logits

    def _features(self, chunk: Chunk[DraftedText]) -> Float32:
        """[rows, D] for each row the state of the token before."""
        states, start, stop = self._states[chunk.request.id], chunk.start, chunk.start + chunk.rows
        if start:
            return states[start - 1 : stop - 1]
        return np.concatenate([np.zeros((1, self._width), np.float32), states[: stop - 1]])
