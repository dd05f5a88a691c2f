"""``optc run --inputs speech.wav``: transcripts of sounds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from optc.artifact.artifact import read_manifest
from optc.artifact.tasks.transcription import TRANSCRIPTION_NAME
from optc.cli.options import stated
from optc.cli.output import print_json
from optc.errors import InputError
from optc.runtime.speech.load import load_transcriber
from optc.system.whole_file import write_whole

#: Options of ``optc run`` that count: how a decoder writes, and how it is served.
_WRITING = ("beam_width", "length_penalty", "regex", "grammar", "choice")
_SERVING = ("engine", "threads", "speculate", "num_speculative_tokens")


def writes_speech(artifact: Path) -> bool:
    """True if an artifact writes down speech."""
    return read_manifest(artifact).task.face == TRANSCRIPTION_NAME


def run_speech(
    artifact: Path, sound: Path, output: Path | None, options: Mapping[str, Any], as_json: bool
) -> None:
    """Write down one sound.

    Args:
        artifact: Its folder.
        sound: A WAV file.
        output: Where the text goes; None is stdout.
        options: The command's others: those count that say how the decoder writes and is served.
        as_json: Print one JSON object.

    Raises:
        InputError: A file cannot be read or written, or nothing drafts as wanted.
        RequestError: The decoder does not write so.
    """
    left = {**options, "choice": options["choice"] or None}
    served, how = stated(left, _SERVING), stated(left, _WRITING)
    with load_transcriber(artifact, **served) as loaded:
        started = time.perf_counter()
        found = loaded.transcribe(sound, **how)
        seconds = time.perf_counter() - started
        info = dict(loaded.info)
    if output is not None:
        try:
            write_whole(output, (found.text + "\n").encode())
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror or error}", where=str(output)
            ) from error
    if as_json:
        values = {"transcript": to_builtins(found), "seconds": seconds, "engine": info}
        print_json("run", values, [])
    elif output is None:
        click.echo(found.text)
