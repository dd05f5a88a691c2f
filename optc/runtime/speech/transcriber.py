"""`Transcriber`: speech becomes text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError
from optc.runtime.audio.conventions import TRANSCRIBE, Conventions
from optc.runtime.audio.resample import resample
from optc.runtime.audio.wav import Sound, read_wav
from optc.runtime.executable.tensors import TensorsExecutable
from optc.runtime.speech.rules import forbid
from optc.runtime.speech.step import DecoderBatch, Run
from optc.runtime.speech.transcript import Segment, Transcript
from optc.runtime.speech.windows import Place, Span
from optc.runtime.speech.write import Writing, Written, detect_language, write

if TYPE_CHECKING:
    import tokenizers

Float32 = npt.NDArray[np.float32]
#: What is taken for speech.
Speech = str | Path | Sound | Float32


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Settings for writing down speech.

    Attributes:
        language: Its code, such as ``en``; None finds it out where the model knows several.
        task: ``transcribe``, or ``translate`` into English where the model can.
        timestamps: Give times of segments. Sounds longer than the model's window always get them.
        temperature: 0 takes the likeliest token each time.
        seed: Of draws at a temperature.
        no_speech_threshold: A window is silent where the model says so with more than this
            probability, and its transcript is unlikely; None hears out all.
        logprob_threshold: Mean logarithm of probabilities below which a transcript is unlikely.
        batch_size: Windows that run together.
    """

    language: str | None = None
    task: str = TRANSCRIBE
    timestamps: bool = False
    temperature: float = 0.0
    seed: int = 0
    no_speech_threshold: float | None = 0.6
    logprob_threshold: float = -1.0
    batch_size: int = 4

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise RequestError(
                f"the temperature is {self.temperature}", where="temperature", hint="0 to 10"
            )
        if self.batch_size < 1:
            raise RequestError(
                f"{self.batch_size} windows at once", where="batch_size", hint="at least 1"
            )


class WantedChanges(TypedDict, total=False):
    """Fields of `Wanted`."""

    language: str | None
    task: str
    timestamps: bool
    temperature: float
    seed: int
    no_speech_threshold: float | None
    logprob_threshold: float
    batch_size: int


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


class Transcriber:
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
        decoder: TensorsExecutable,
        conventions: Conventions,
        tokenizer: tokenizers.Tokenizer,
        info: Mapping[str, Any],
    ) -> None:
        self._engines: tuple[TensorsExecutable, ...] = (encoder, decoder)
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
        while pending := [job for job in jobs if job.at < job.frames]:
            kind = pending[0].timestamps
            some = [job for job in pending if job.timestamps == kind][: how.batch_size]
            self._window(some, how)
        return [self._transcript(job) for job in jobs]

    def likeliest(self, speech: Speech, transcript: Transcript) -> list[int]:
        """The likeliest token at each place of a transcript of one window, and behind it, given
        the tokens before."""
        _, step = self.calls(speech, transcript)
        first = len(self.prompt(transcript)) - 1
        logits = self._running()[1](step)["logits"][0, first:]
        for place, row in enumerate(logits):
            forbid(row, transcript.tokens[:place], self.conventions, timestamps=False)
        return [int(token) for token in logits.argmax(axis=-1)]

    def calls(
        self, speech: Speech, transcript: Transcript
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Inputs of the encoder for one window, and of a step of the decoder that reads all of its
        transcript."""
        job = self._job(speech, Wanted(), None)
        frames = self.conventions.features.frames
        inputs = {"input_features": _cut(job.features, 0, frames)[None]}
        encoder, decoder = self._running()
        tokens = np.array([[*self.prompt(transcript), *transcript.tokens]], np.int64)
        return inputs, DecoderBatch(decoder, encoder(inputs)).inputs(tokens)

    def prompt(self, transcript: Transcript) -> list[int]:
        """The tokens before a transcript without times."""
        language = self.conventions.language(transcript.language)
        return self.conventions.prompt(language, TRANSCRIBE, timestamps=False)

    def close(self) -> None:
        """Free the engines."""
        for engine in self._engines:
            engine.close()
        self._engines = ()

    def _job(self, speech: Speech, how: Wanted, language: int | None) -> _Job:
        features = self.conventions.features
        sound = _sound(speech, features.rate)
        samples = resample(sound.samples, sound.rate, features.rate)
        frames = -(-len(samples) // features.hop)
        timed = how.timestamps or (
            frames > features.frames and self.conventions.no_timestamps is not None
        )
        values = features.features(samples) if frames else np.zeros((1, 0), np.float32)
        return _Job(values, frames, sound.seconds, timed, language)

    def _window(self, jobs: Sequence[_Job], how: Wanted) -> None:
        """Write down the next window of each job."""
        encoder, decoder = self._running()
        frames = self.conventions.features.frames
        inputs = np.stack([_cut(job.features, job.at, frames) for job in jobs])
        cross = dict(encoder({"input_features": inputs}))
        self._find_languages(decoder, cross, jobs)
        prompts = [
            self.conventions.prompt(job.language, how.task, timestamps=job.timestamps)
            for job in jobs
        ]
        writing = Writing(jobs[0].timestamps, how.temperature, how.seed)
        found = write(decoder, cross, prompts, self.conventions, writing)
        for job, written in zip(jobs, found, strict=True):
            self._take(job, written, how)

    def _running(self) -> tuple[Run, Run]:
        """Encoder and decoder."""
        if not self._engines:
            raise RequestError("the engine is closed", where="speech", hint="load it again")
        encoder, decoder = self._engines
        return encoder.run, decoder.run

    def _find_languages(
        self, decoder: Run, cross: Mapping[str, Float32], jobs: Sequence[_Job]
    ) -> None:
        if not self.conventions.languages or all(job.language is not None for job in jobs):
            return
        found = detect_language(decoder, cross, self.conventions)
        for job, token in zip(jobs, found, strict=True):
            if job.language is None:
                job.language = token

    def _take(self, job: _Job, written: Written, how: Wanted) -> None:
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

    def __enter__(self) -> Self:
        """The transcriber, which is closed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """The engine's name."""
        return f"<optc.Transcriber {self.info.get('name', '')}>"


def _sound(speech: Speech, rate: int) -> Sound:
    if isinstance(speech, Sound):
        return speech
    if isinstance(speech, str | Path):
        return read_wav(Path(speech))
    if not isinstance(speech, np.ndarray) or speech.ndim != 1 or speech.dtype.kind != "f":
        raise RequestError(
            "is no sound",
            where="speech",
            hint=f"a WAV file, optc.Sound(samples, rate), or floats [n] at {rate} a second",
        )
    return Sound(speech.astype(np.float32, copy=False), rate)


def _cut(features: Float32, at: int, frames: int) -> Float32:
    """f32[mels, frames] from frame ``at``; zeros follow the end, as Whisper was trained."""
    found = features[:, at : at + frames]
    return np.pad(found, ((0, 0), (0, frames - found.shape[1])))
