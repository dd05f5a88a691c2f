"""``/v1/audio/…`` gives what the transcriber does, to the official client as well."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest

from tests.serve.clients import openai_client
from tests.serve.conftest import Api, MakeApi
from tests.serve.tensors.toys import embedder, writer
from tests.serve.toys import toy_engine

PATH = "/v1/audio/transcriptions"


def wav(seconds: float = 0.5) -> bytes:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, 1000, 0, "NONE", ""))
        file.writeframes(b"\1\2" * int(1000 * seconds))
    return made.getvalue()


@pytest.fixture
def api(make_api: MakeApi) -> Api:
    return make_api({"writer": writer(), "toy": toy_engine(), "embedder": embedder()})


def post(api: Api, path: str = PATH, data: bytes | None = None, **fields: Any) -> Any:
    files = {"file": ("a.wav", wav() if data is None else data)}
    return api.http.post(path, data={"model": "writer", **fields}, files=files)


def test_the_official_client(api: Api) -> None:
    client = openai_client(api)
    found = client.audio.transcriptions.create(model="writer", file=("a.wav", wav()))
    assert found.text == "hello world"
    english = client.audio.translations.create(model="writer", file=("a.wav", wav()))
    assert english.text == "goodbye world"
    whole = client.audio.transcriptions.create(
        model="writer",
        file=("a.wav", wav()),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )
    assert (whole.language, whole.duration, whole.text) == ("de", 0.5, "hello world")
    (segment,) = whole.segments
    assert (segment.start, segment.end, segment.text) == (0.0, 0.4, "hello world")
    assert api.log[-1]["model"] == "writer"


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("text", "hello world\n"),
        ("srt", "1\n00:00:00,000 --> 00:00:00,400\nhello world\n"),
        ("vtt", "WEBVTT\n\n00:00:00.000 --> 00:00:00.400\nhello world\n"),
    ],
)
def test_other_forms(api: Api, shown: str, text: str) -> None:
    answer = post(api, response_format=shown, language="en")
    assert (answer.status_code, answer.text) == (200, text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_format": "xml"}, "response_format: one of json, text"),
        ({"language": "fr"}, "does not know it"),
        ({"temperature": "hot"}, "temperature: give a number"),
        ({"temperature": "-1"}, "temperature"),
        ({"beam_width": "2"}, "this decoder writes whole batches"),
        ({"beam_width": "wide"}, "beam_width: give a number of beams"),
        ({"length_penalty": "long"}, "length_penalty: give a number"),
        ({"choice": ["a", "b"]}, "this decoder writes whole batches"),
        ({"regex": "a", "response_format": "srt"}, "times are no part of a structure's text"),
        ({"prompt": "names"}, "prompt: the models here do not take it"),
        ({"timestamp_granularities[]": "word"}, "give times of segments"),
        ({"model": "embedder"}, "writes down no speech; ask /v1/embeddings"),
        ({"model": "toy"}, "writes texts"),
        ({"data": b"no sound"}, "is no WAV file"),
        ({"data": b""}, "is no WAV file"),
    ],
)
def test_what_cannot_be_written_down(api: Api, fields: dict[str, Any], message: str) -> None:
    answer = post(api, **fields)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_what_is_no_form(api: Api) -> None:
    assert api.http.post(PATH, json={"model": "writer"}).status_code == 415
    answer = api.http.post(PATH, data={"model": "writer"}, files={"other": ("a", b"")})
    assert "file is missing" in answer.json()["error"]["message"]


def test_other_routes_say_where_to_ask(api: Api) -> None:
    for path in ("/v1/embeddings", "/v1/completions"):
        error = api.error(path, model="writer", input="a", prompt="a")
        assert "ask /v1/audio/transcriptions" in error["message"]
    answer = api.http.get("/v2/models/writer")
    assert "takes no tensors by name" in answer.json()["error"]["message"]
