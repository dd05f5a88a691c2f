"""``/v2``: the Open Inference Protocol, for models of named tensors.

https://github.com/kserve/open-inference-protocol
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.errors import EngineError
from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import read_body, read_bytes, read_json, validated
from optc.serve.bodies.base import Body, Json
from optc.serve.context import service_of
from optc.serve.event_stream import unless_left
from optc.serve.guards.access_log import facts_of
from optc.serve.tensors.served import ServedTensors, tensors_of
from optc.serve.tensors.wire import Array, decoded, described, encoded

#: Bytes of the JSON before binary data.
LENGTH = "inference-header-content-length"
_BINARY = "binary_tensor_data"


class InferInput(Body):
    """A named tensor."""

    name: str
    shape: list[int] = Field(max_length=64)
    datatype: str
    parameters: Json | None = None
    data: list[Any] | None = None


class InferOutput(Body):
    """An output that is wanted."""

    name: str
    parameters: Json | None = None


class InferBody(Body):
    """Inputs of a model of named tensors."""

    id: str | None = None
    parameters: Json | None = None
    inputs: list[InferInput]
    outputs: list[InferOutput] | None = None


async def server(request: Request) -> Response:
    """The server, and what it adds to the protocol."""
    return JSONResponse({"name": "optc", "version": version("optc"), "extensions": [_BINARY]})


async def live(request: Request) -> Response:
    """Does the server live?"""
    return JSONResponse({"live": True})


async def ready(request: Request) -> Response:
    """Does the server take requests now?"""
    is_ready = service_of(request).state == "ready"
    return JSONResponse({"ready": is_ready}, 200 if is_ready else 503)


async def one_model(request: Request) -> Response:
    """Inputs and outputs of a model."""
    model = _model(request)
    engine = tensors_of(model)
    return JSONResponse(
        {
            "name": model.name,
            "versions": ["1"],
            "platform": f"optc_{engine.info.get('backend', 'engine')}",
            "inputs": [described(one) for one in engine.inputs],
            "outputs": [described(one) for one in engine.outputs],
        }
    )


async def model_ready(request: Request) -> Response:
    """Does a model take requests now?"""
    model = _model(request)
    is_ready = service_of(request).state == "ready" and model.queue.has_room
    return JSONResponse({"name": model.name, "ready": is_ready}, 200 if is_ready else 503)


async def infer(request: Request) -> Response:
    """Outputs of a model."""
    service, facts = service_of(request), facts_of(request)
    most = service.settings.limits.body_bytes
    with service.preparing():
        model = _model(request)
        facts["model"] = model.name
        if LENGTH in request.headers:
            data = await read_bytes(request, most)
            head, raw = _parted(data, request.headers[LENGTH])
            work = read_json(head, lambda body: _work(body, model, raw))
        else:
            empty = memoryview(b"")
            work = await read_body(request, most, lambda body: _work(body, model, empty))
        return await unless_left(request.receive, model.queue.run(work))


def _model(request: Request) -> ServedTensors:
    return service_of(request).models.find_tensors(request.path_params["name"])


def _parted(data: bytes, length: str) -> tuple[bytes, memoryview]:
    """The JSON and what lies behind it."""
    if not length.isdecimal() or int(length) > len(data):
        raise APIError(400, f"the header {LENGTH} is no length of JSON in the body")
    return data[: int(length)], memoryview(data)[int(length) :]


def _work(body: dict[str, Any], model: ServedTensors, raw: memoryview) -> Callable[[], Response]:
    """The function that computes the answer.

    Raises:
        APIError: The body is wrong.
    """
    validated(InferBody, body)
    engine = tensors_of(model)
    inputs = _inputs(body["inputs"], raw)
    wanted = _wanted(body, model)

    def work() -> Response:
        try:
            found = engine.run(inputs)
        except EngineError as error:  # such as an index beyond a table
            raise APIError(400, error.message, "inputs") from error
        pairs = [encoded(name, found[name], binary) for name, binary in wanted.items()]
        head: dict[str, Any] = {"model_name": model.name, "model_version": "1"}
        if body.get("id") is not None:
            head["id"] = body["id"]
        head["outputs"] = [entry for entry, _ in pairs]
        return _answer(head, [data for _, data in pairs])

    return work


def _inputs(given: list[dict[str, Any]], raw: memoryview) -> dict[str, Array]:
    found: dict[str, Array] = {}
    at = 0
    for one in given:
        size = (one.get("parameters") or {}).get("binary_data_size")
        if one["name"] in found:
            raise APIError(400, f"the input {one['name'][:64]!r} stands twice", "inputs")
        if size is None:
            found[one["name"]] = decoded(one, None)
            continue
        if type(size) is not int or not 0 <= size <= len(raw) - at:
            message = "binary_data_size is no number of bytes that the body has left"
            raise APIError(400, message, "inputs")
        found[one["name"]] = decoded(one, raw[at : at + size])
        at += size
    if at != len(raw):
        raise APIError(400, f"{len(raw) - at} bytes behind the JSON are no input's", "inputs")
    return found


def _wanted(body: Mapping[str, Any], model: ServedTensors) -> dict[str, bool]:
    """Names of the wanted outputs, each with True if it is wanted as bytes."""
    every = bool((body.get("parameters") or {}).get("binary_data_output"))
    names = [one.name for one in tensors_of(model).outputs]
    asked = body.get("outputs")
    if not asked:
        return dict.fromkeys(names, every)
    for one in asked:
        if one["name"] not in names:
            message = f"there is no output {one['name'][:64]!r}; there are: {', '.join(names)}"
            raise APIError(400, message, "outputs")
        if "classification" in (one.get("parameters") or {}):
            raise APIError(400, "classification is not supported", "outputs")
    return {
        one["name"]: bool((one.get("parameters") or {}).get("binary_data", every)) for one in asked
    }


def _answer(head: Mapping[str, Any], raws: list[bytes]) -> Response:
    if not any(raws):
        return JSONResponse(head)
    text = json.dumps(head).encode()
    headers = {LENGTH: str(len(text))}
    return Response(b"".join([text, *raws]), 200, headers, "application/octet-stream")


#: What each path does, with its method. Names of models may hold slashes.
INFERENCE: Mapping[str, tuple[str, Callable[[Request], Any]]] = {
    "/v2": ("GET", server),
    "/v2/health/live": ("GET", live),
    "/v2/health/ready": ("GET", ready),
    "/v2/models/{name:path}/ready": ("GET", model_ready),
    "/v2/models/{name:path}/infer": ("POST", infer),
    "/v2/models/{name:path}": ("GET", one_model),
}
