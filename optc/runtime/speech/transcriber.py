"""`Transcriber`: speech becomes text."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.audio.conventions import TRANSCRIBE, Conventions
from optc.runtime.audio.resample import resample
from optc.runtime.encoded.request import Encoded
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.rules import SpeechRules
from optc.runtime.speech.sounds import Speech, cut, sound_of
from optc.runtime.speech.tensor_writer import TensorWriter
from optc.runtime.speech.transcript import Segment, Transcript
from optc.runtime.speech.wanted import Wanted, WantedChanges
from optc.runtime.speech.windows import Place, Span
from optc.runtime.speech.write import Transcription, Writer, Writing
from optc.system.closing import Closing

if TYPE_CHECKING:
    import tokenizers

Float32 = npt.NDArray[np.float32]


@dataclass
class _Job:
    """A sound on its way."""

    features: Float32
    frames: int
    seconds: float
    timestamps: bool
    language: int | None
    at: int = 0
    tokens: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


class Transcriber(Closing):
    """A model that writes down speech.

        with optc.load("artifacts/whisper-base-speech-int8") as transcriber:
            print(transcriber.transcribe("speech.wav"))

    Calls of several threads run side by side.

    Attributes:
        info: The engines' names, backend and target, and why others were not taken.
        conventions: Of the model's features and tokens.
    """

    def __init__(
        self,
        encoder: TensorsExecutable,
        writer: Writer,
        conventions: Conventions,
        tokenizer: tokenizers.Tokenizer,
        info: Mapping[str, Any],
    ) -> None:
        self._engines: tuple[TensorsExecutable, Writer] | None = (encoder, writer)
        self._tokenizer = tokenizer
        self._codes = {token: code for code, token in conventions.languages.items()}
        self.conventions = conventions
        self.info = info

    def transcribe(self, speech: Speech, **wanted: Unpack[WantedChanges]) -> Transcript:
        """The transcript of one sound.

        Args:
            speech: A WAV file, an `optc.Sound`, or f32[n] at the model's own rate.
            **wanted: Fields of `Wanted` that differ from its defaults.

        Raises:
            InputError: The file is none.
            RequestError: A value of ``wanted`` is not usable, or the engine is closed.
        """
        return self.transcribe_all([speech], **wanted)[0]

    def transcribe_all(
        self, speeches: Sequence[Speech], **wanted: Unpack[WantedChanges]
    ) -> list[Transcript]:
        """Transcripts in the order of the sounds, whose windows run together; else as
        `transcribe`."""
        how, known = Wanted(**wanted), self.conventions
        language = known.language(how.language)
        if how.timestamps or not known.languages:
            known.prompt(language, how.task, timestamps=how.timestamps)  # refuses what it cannot
        jobs = [self._job(speech, how, language) for speech in speeches]
        with closing(self._running()[1].session()) as session:
            waiting = deque(job for job in jobs if job.at < job.frames)
            running: dict[Transcription, _Job] = {}
            while waiting or running:
                free = min(how.batch_size - len(running), len(waiting))
                some = [waiting.popleft() for _ in range(free)]
                begun = self._begin(some, how)
                running |= dict(zip(begun, some, strict=True))
                session.submit(begun)
                ended = session.wait()
                job = running.pop(ended)
                self._take(job, ended, how)
                if job.at < job.frames:
                    waiting.append(job)
        return [self._transcript(job) for job in jobs]

    def likeliest(self, speech: Speech, transcript: Transcript) -> list[int]:
        """The likeliest token at each place of a transcript of one window, and behind it, given
        the tokens before."""
        inputs = self._inputs(speech)
        encoder, writer = self._running()
        prompt = self.prompt(transcript)
        rules = SpeechRules(self.conventions, len(prompt), timestamps=False)
        encoded = Encoded(encoder.run(inputs), 0)
        return writer.likeliest(encoded, rules, [*prompt, *transcript.tokens])

    def calls(
        self, speech: Speech, transcript: Transcript
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inputs of the encoder for one window, and of a step of the decoder that reads all of its
        transcript, where that is an engine of named tensors."""
        inputs = self._inputs(speech)
        encoder, writer = self._running()
        if not isinstance(writer, TensorWriter):
            raise TypeError("the decoder takes no named tensors")
        tokens = [*self.prompt(transcript), *transcript.tokens]
        return inputs, writer.decoder.inputs(Encoded(encoder.run(inputs), 0), tokens)

    def prompt(self, transcript: Transcript) -> list[int]:
        """The tokens before a transcript without times."""
        language = self.conventions.language(transcript.language)
        return self.conventions.prompt(language, TRANSCRIBE, timestamps=False)

    def close(self) -> None:
        """Free the engines."""
        engines, self._engines = self._engines, None
        for engine in engines or ():
            engine.close()

    def _inputs(self, speech: Speech) -> dict[str, Float32]:
        """The encoder's for the first window of a sound."""
        features = self._job(speech, Wanted(), None).features
        return {"input_features": cut(features, 0, self.conventions.features.frames)[None]}

    def _job(self, speech: Speech, how: Wanted, language: int | None) -> _Job:
        features = self.conventions.features
        sound = sound_of(speech, features.rate)
        samples = resample(sound.samples, sound.rate, features.rate)
        frames = -(-len(samples) // features.hop)
        timed = how.timestamps or (
            frames > features.frames and self.conventions.no_timestamps is not None
        )
        if timed:
            how.check_no_structure(f"the sound has {sound.seconds:.1f} seconds")
        values = features.features(samples) if frames else np.zeros((1, 0), np.float32)
        return _Job(values, frames, sound.seconds, timed, language)

    def _begin(self, jobs: Sequence[_Job], how: Wanted) -> list[Transcription]:
        """Transcripts of the next window of each job."""
        if not jobs:
            return []
        frames = self.conventions.features.frames
        inputs = np.stack([cut(job.features, job.at, frames) for job in jobs])
        states = self._running()[0].run({"input_features": inputs})
        return [
            Transcription(
                Encoded(states, row), self._writing(job, how), job.language, _seed(how, job)
            )
            for row, job in enumerate(jobs)
        ]

    def _writing(self, job: _Job, how: Wanted) -> Writing:
        prompt = partial(self.conventions.prompt, task=how.task, timestamps=job.timestamps)
        hears = how.no_speech_threshold is not None
        known = self.conventions
        return Writing(known, prompt, job.timestamps, how.params, how.of_steps, hears)

    def _running(self) -> tuple[TensorsExecutable, Writer]:
        """Encoder, and who writes."""
        if self._engines is None:
            raise RequestError("the engine is closed", where="speech", hint="load it again")
        return self._engines

    def _take(self, job: _Job, written: Transcription, how: Wanted) -> None:
        job.language = written.language
        known, features = self.conventions, self.conventions.features
        left = min(features.frames, job.frames - job.at)
        silent = (
            how.no_speech_threshold is not None
            and written.no_speech > how.no_speech_threshold
            and written.logprob < how.logprob_threshold
        )
        start, job.at = job.at, job.at + left
        if silent:
            return
        if not job.timestamps or known.first_time is None:
            job.tokens += written.tokens
            return
        seconds = features.hop / features.rate
        place = Place(start, left, seconds, known.precision, known.first_time)
        spans, heard = place.spans(written.tokens)
        job.at = start + heard
        job.spans += spans
        job.tokens += [token for span in spans for token in span.tokens]

    def _transcript(self, job: _Job) -> Transcript:
        segments = tuple(
            Segment(
                min(span.start, job.seconds), min(span.end, job.seconds), self._text(span.tokens)
            )
            for span in job.spans
        )
        code = None if job.language is None else self._codes.get(job.language)
        text = self._text(job.tokens)
        return Transcript(text, code, segments, tuple(job.tokens), job.seconds)

    def _text(self, tokens: Sequence[int]) -> str:
        first = self.conventions.first_time
        said = [token for token in tokens if first is None or token < first]
        return str(self._tokenizer.decode(said, skip_special_tokens=True)).strip()

    def __repr__(self) -> str:
        """The engine's name."""
        return f"<optc.Transcriber {self.info.get('name', '')}>"


def _seed(how: Wanted, job: _Job) -> int:
    """Of the draws of a job's next window."""
    return int(np.random.SeedSequence([how.seed, job.at]).generate_state(1, np.uint64)[0])
