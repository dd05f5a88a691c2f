"""``/v1/audio/transcriptions`` and ``/v1/audio/translations``: sounds become texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from optc.runtime.audio.wav import Sound, parse_wav
from optc.runtime.speech.transcriber import Transcriber
from optc.runtime.speech.transcript import Segment, Transcript
from optc.runtime.speech.wanted import WantedChanges
from optc.runtime.structured.structure import MAX_CHOICES
from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import bounded
from optc.serve.context import service_of
from optc.serve.event_stream import unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.tensors.served import transcriber_of

#: Fields that change what is computed, and that the models here do not have.
_UNKNOWN = ("prompt", "stream", "chunking_strategy", "include[]")
#: Clients name a list in either way.
_CHOICE = ("choice", "choice[]")
#: Texts of a choice are a field each.
_FIELDS = MAX_CHOICES + 16
_FORMATS = ("json", "text", "verbose_json", "srt", "vtt")


async def transcriptions(request: Request) -> Response:
    """The words of a sound."""
    return await _answer(request, "transcribe")


async def translations(request: Request) -> Response:
    """The words of a sound in English."""
    return await _answer(request, "translate")


async def _answer(request: Request, task: str) -> Response:
    service, facts = service_of(request), facts_of(request)
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise APIError(415, "send a form (multipart/form-data) with 'file' and 'model'")
    with service.preparing():
        body = bounded(request, service.settings.limits.file_bytes)
        try:
            parser = MultiPartParser(request.headers, body, max_files=1, max_fields=_FIELDS)
            form = await parser.parse()
        except MultiPartException as error:
            raise APIError(400, f"the form cannot be read: {error.message}") from error
        try:
            model = service.models.find_tensors(_text(form, "model"))
            facts["model"] = model.name
            transcriber = transcriber_of(model)
            shown, wanted = _shown(form), _wanted(form, task)
            sound = await _sound(form)
        finally:
            await form.close()
        work = _work(transcriber, sound, wanted, shown)
        return await unless_left(request.receive, model.queue.run(work))


def _work(
    transcriber: Transcriber, sound: Sound, wanted: WantedChanges, shown: str
) -> Callable[[], Response]:
    def work() -> Response:
        found = transcriber.transcribe(sound, **wanted)
        if shown == "json":
            return JSONResponse({"text": found.text})
        if shown == "verbose_json":
            return JSONResponse(_verbose(found, wanted["task"]))
        if shown == "text":
            return PlainTextResponse(found.text + "\n")
        return PlainTextResponse(_subtitles(found, shown))

    return work


async def _sound(form: FormData) -> Sound:
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise APIError(400, "file is missing", "file")
    data = await file.read()
    return await asyncio.to_thread(parse_wav, data, file.filename or "file")


def _shown(form: FormData) -> str:
    for name in _UNKNOWN:
        if form.get(name):
            raise APIError(400, f"{name}: the models here do not take it", name)
    shown = _text(form, "response_format") or "json"
    if shown not in _FORMATS:
        raise APIError(400, f"response_format: one of {', '.join(_FORMATS)}", "response_format")
    return shown


def _wanted(form: FormData, task: str) -> WantedChanges:
    grains = form.getlist("timestamp_granularities[]")
    if any(grain != "segment" for grain in grains):
        name = "timestamp_granularities"
        raise APIError(400, f"{name}: the models here give times of segments", name)
    shown = _text(form, "response_format") or "json"
    wanted: WantedChanges = {
        "language": _text(form, "language"),
        "task": task,
        "temperature": _number(form, "temperature", 0.0),
        "timestamps": shown not in ("json", "text"),
        "length_penalty": _number(form, "length_penalty", 1.0),
        "regex": _text(form, "regex"),
        "grammar": _text(form, "grammar"),
    }
    if width := _text(form, "beam_width"):
        if not width.isdecimal():
            raise APIError(400, "beam_width: give a number of beams", "beam_width")
        wanted["beam_width"] = int(width)
    if choice := [str(one) for name in _CHOICE for one in form.getlist(name)]:
        wanted["choice"] = choice
    return wanted


def _number(form: FormData, name: str, usual: float) -> float:
    try:
        return float(_text(form, name) or usual)
    except ValueError as error:
        raise APIError(400, f"{name}: give a number", name) from error


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) and value else None


def _verbose(found: Transcript, task: str) -> dict[str, Any]:
    return {
        "task": task,
        "language": found.language or "",
        "duration": found.seconds,
        "text": found.text,
        "segments": [
            {"id": index, "start": one.start, "end": one.end, "text": one.text}
            for index, one in enumerate(found.segments)
        ],
    }


def _subtitles(found: Transcript, kind: str) -> str:
    """Segments as SubRip or WebVTT has them."""
    mark = "," if kind == "srt" else "."
    blocks = [] if kind == "srt" else ["WEBVTT"]
    for index, one in enumerate(found.segments, 1):
        number = f"{index}\n" if kind == "srt" else ""
        blocks.append(f"{number}{_times(one, mark)}\n{one.text}")
    return "\n\n".join(blocks) + "\n"


def _times(segment: Segment, mark: str) -> str:
    return " --> ".join(_clock(seconds, mark) for seconds in (segment.start, segment.end))


def _clock(seconds: float, mark: str) -> str:
    whole = round(seconds * 1000)
    minutes, rest = divmod(whole, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{mark}{rest % 1000:03}"
