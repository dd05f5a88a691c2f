"""Scores an engine's answers against the reference's: each token that the assistant says, and each
decision, teacher-forced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from optc.proof.conversations.scored import ScoredConversations
from optc.proof.conversations.sequences import Sequence
from optc.proof.gates.answers.decisions import Decided
from optc.proof.gates.answers.margins import margin_of
from optc.proof.gates.divergence import RowScores
from optc.proof.gates.scoring import Scoring, scoring
from optc.proof.gates.worst_contexts import WorstContexts, decoder
from optc.proof.reference.blockwise import BlockwiseReference
from optc.proof.reference.teacher_forcing import SingleSequence
from optc.runtime.executable.executable import Executable, Float32, Int32
from optc.system.progress import Progress, no_progress

#: Sequences run through the reference together if they are at least this share of the longest: a
#: run reads all weights again, and shorter ones are padded.
ALIKE = 0.8
#: Bytes of the engine's logits that wait for the reference's head.
WAITING_BYTES = 64 << 20


@dataclass(frozen=True)
class AnswerScores:
    """The scores of conversations.

    Attributes:
        rows: Figures of all tokens that the assistant says.
        worst: Where the models differ most.
        decided: All decisions.
    """

    rows: list[RowScores]
    worst: WorstContexts
    decided: list[Decided]


class AnswerReference:
    """The float model on conversations: its hidden states are kept for several engines.

    Args:
        reference: The open reference.
        conversations: What is scored.
    """

    def __init__(self, reference: BlockwiseReference, conversations: ScoredConversations) -> None:
        self.reference = reference
        self.conversations = conversations
        self._hidden: dict[int, Float32] | None = None

    def hidden(self, progress: Progress = no_progress) -> dict[int, Float32]:
        """Inputs of the head [rows, D] where answers are predicted, by sequence."""
        if self._hidden is None:
            found: dict[int, Float32] = {}
            groups = list(_alike(self.conversations.sequences))
            for done, (places, ids) in enumerate(groups):
                states = self.reference.run(ids).reshape(*ids.shape, -1)
                for row, place in enumerate(places):
                    rows = self.conversations.sequences[place].rows
                    found[place] = np.array(states[row, rows])
                progress("float32 answers", done + 1, len(groups))
            self._hidden = found
        return self._hidden


def score_answers(
    answers: AnswerReference, executable: Executable, progress: Progress = no_progress
) -> AnswerScores:
    """Run an engine over the conversations and compare it with the reference.

    Args:
        answers: The reference; runs once for several engines in turn.
        executable: The engine, with room for the longest sequence; its KV pools are replaced.
        progress: Told where it stands.
    """
    with scoring(answers.reference) as scorer:
        return _score(answers, executable, scorer, progress)


def _score(
    answers: AnswerReference, executable: Executable, scorer: Scoring, progress: Progress
) -> AnswerScores:
    hidden, sequences = answers.hidden(progress), answers.conversations.sequences
    scores = AnswerScores([], WorstContexts(decoder(answers.conversations.tokenizer_file)), [])
    single = _single(executable, answers.conversations)
    most = _most(executable.spec.vocab_size)
    waiting: list[_Rows] = []
    for place, sequence in enumerate(sequences):
        first = 0
        for logits in _logits(single, sequence):
            states = hidden[place][first : first + len(logits)]
            waiting.append(_Rows(place, sequence, first, states, logits))
            first += len(logits)
            if sum(len(rows.logits) for rows in waiting) >= most:
                _compare(scorer, waiting, scores)
                waiting = []
        progress("answers", place + 1, len(sequences))
    _compare(scorer, waiting, scores)
    return scores


def engine_answers(
    executable: Executable, conversations: ScoredConversations, progress: Progress = no_progress
) -> Iterator[tuple[Float32, Int32]]:
    """Logits [R, V] of an engine where the assistant speaks, and the tokens [R] that it says."""
    single = _single(executable, conversations)
    for place, sequence in enumerate(conversations.sequences):
        first = 0
        for logits in _logits(single, sequence):
            rows = sequence.rows[first : first + len(logits)]
            yield logits, sequence.ids[rows + 1]
            first += len(rows)
        progress("answers", place + 1, len(conversations.sequences))


@dataclass(frozen=True)
class _Rows:
    """Rows of one sequence that predict what the assistant says.

    Attributes:
        place: Number of the sequence.
        sequence: It.
        first: Which of its rows is the first one here.
        states: [R, D] inputs of the reference's head.
        logits: [R, V] the engine's.
    """

    place: int
    sequence: Sequence
    first: int
    states: Float32
    logits: Float32

    @property
    def rows(self) -> Int32:
        """[R] rows of the sequence."""
        return self.sequence.rows[self.first : self.first + len(self.logits)]


def _compare(scorer: Scoring, waiting: list[_Rows], scores: AnswerScores) -> None:
    """Take the reference's head over all rows at once, tile by tile of the vocabulary."""
    if not waiting:
        return
    states = np.concatenate([rows.states for rows in waiting])
    logits = np.concatenate([rows.logits for rows in waiting])
    targets = np.concatenate([rows.sequence.ids[rows.rows + 1] for rows in waiting])
    at = list(_decision_rows(waiting))
    expected = np.empty((len(at), logits.shape[1]), np.float32)

    def keep(first: int, tile: Float32) -> None:
        expected[:, first : first + tile.shape[1]] = tile[at]

    result, start = scorer.score(states, logits, targets, keep), 0
    scores.rows.append(result)
    places = {row: index for index, row in enumerate(at)}
    for rows in waiting:
        part = result.rows(start, start + len(rows.logits))
        scores.worst.add_rows(rows.place, rows.sequence.ids, rows.rows, part)
        for decision in rows.sequence.decisions:
            row = np.flatnonzero(rows.rows == decision.place - 1)
            if len(row):
                own = start + int(row[0])
                margin = margin_of(
                    decision, rows.sequence.where, expected[places[own]], logits[own]
                )
                scores.decided.append(Decided(margin, rows.sequence.ids[: decision.place + 1]))
        start += len(rows.logits)


def _most(vocab_size: int) -> int:
    """Rows of logits that `WAITING_BYTES` hold, at least one."""
    return max(1, WAITING_BYTES // (4 * vocab_size))


def _single(executable: Executable, conversations: ScoredConversations) -> SingleSequence:
    return SingleSequence(executable, max(len(one.ids) for one in conversations.sequences) - 1)


def _decision_rows(waiting: list[_Rows]) -> list[int]:
    """The waiting rows, in order, by which some decision is made."""
    found, start = [], 0
    for rows in waiting:
        wanted = {decision.place - 1 for decision in rows.sequence.decisions}
        found += [start + i for i, row in enumerate(rows.rows.tolist()) if row in wanted]
        start += len(rows.logits)
    return found


def _logits(single: SingleSequence, sequence: Sequence) -> Iterator[Float32]:
    """Logits [R, V] of the rows that predict what the assistant says, a copy for each chunk."""
    spec, rows = single.spec, sequence.rows
    size = min(spec.max_rows, spec.max_logit_rows)
    single.restart()
    most, start, stop = _most(spec.vocab_size), 0, int(rows[-1]) + 1
    while start < stop:
        ahead = rows[rows >= start]
        end = min(start + size, int(ahead[min(most, len(ahead)) - 1]) + 1)
        chunk, wanted = sequence.ids[start:end], ahead[ahead < end] - start
        start = end
        # An engine gives one row at least.
        asked = wanted if len(wanted) else np.zeros(1, np.int32)
        logits = single.feed(chunk, asked)
        if len(wanted):
            yield np.array(logits)


def _alike(sequences: tuple[Sequence, ...]) -> Iterator[tuple[list[int], Int32]]:
    """Sequences of about the same length: their numbers, and their ids [W, S], padded at the end,
    where nothing is scored."""
    order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i].ids))
    while order:
        longest = len(sequences[order[0]].ids)
        places = [i for i in order if len(sequences[i].ids) >= ALIKE * longest]
        ids = np.zeros((len(places), longest - 1), np.int32)
        for row, place in enumerate(places):
            own = sequences[place].ids[:-1]
            ids[row, : len(own)] = own
        yield places, ids
        order = order[len(places) :]
