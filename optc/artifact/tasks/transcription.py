"""Transcription: speech becomes text, judged beside the transcripts of the source."""

from __future__ import annotations

from optc.artifact.tasks.task import ENCODER, SPEED, TARGET, Measure, Task

#: Name of the task, and of its face.
TRANSCRIPTION_NAME = "transcription"
#: Source of measures: transcripts of sounds.
TRANSCRIPTS = "transcripts"

TRANSCRIPTION = Task(
    name=TRANSCRIPTION_NAME,
    face=TRANSCRIPTION_NAME,
    reference="the PyTorch model in float32, decoded greedily",
    roles={TARGET: "tensors", ENCODER: "tensors"},
    measures=(
        Measure(
            "token_agreement",
            "tokens of the reference's transcripts that are the engine's likeliest, given those "
            "before",
            TRANSCRIPTS,
            upper=False,
            ideal=1,
        ),
        Measure(
            "transcript_agreement",
            "sounds whose greedy tokens are the reference's",
            TRANSCRIPTS,
            upper=False,
            ideal=1,
        ),
        Measure(
            "word_error_rate",
            "words that differ from the reference's transcripts, over their words",
            TRANSCRIPTS,
            upper=True,
            ideal=0,
        ),
        Measure(
            "word_error_rate_added",
            "words that are wrong beside what is said, over all words, more than in the "
            "reference's transcripts; where nobody knows what is said, these stand for it",
            TRANSCRIPTS,
            upper=True,
            ideal=0,
        ),
        Measure(
            "transcription_speedup",
            "transcription, times the speed of the float32 graphs in ONNX Runtime",
            SPEED,
            upper=False,
        ),
    ),
)
