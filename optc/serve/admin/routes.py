"""``/admin/models`` and what may be done with them; ``/v1/load_lora_adapter`` as vLLM has it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from optc.serve.admin.bodies import (
    LoadAdapterBody,
    LoadModelBody,
    SwapModelBody,
    UnloadAdapterBody,
    UnloadModelBody,
)
from optc.serve.api_errors import APIError
from optc.serve.asking.read_body import read_body, validated
from optc.serve.context import service_of
from optc.serve.models import AdapterSource, ModelSource, ServedModel
from optc.serve.service import Service
from optc.serve.tensors.served import ServedTensors
from optc.system.logs.logger import logger

_LOG = logger(__name__)
#: How often an engine is asked whether it is idle.
_LOOK_S = 0.05


async def list_loaded(request: Request) -> Response:
    """All models, with what computes them and how much they do."""
    service = _service(request)
    found = [_described(one) for one in service.models.listed]
    return JSONResponse({"object": "list", "data": found})


async def load_model(request: Request) -> Response:
    """Load an artifact, whose model may be asked from then on."""
    service = _service(request)
    body = await _body(request, LoadModelBody)
    path = _place(service, body["artifact"], "artifact")
    name = body.get("name") or path.name
    opener = service.models.opener
    if opener is None:
        raise APIError(400, "this server loads no further artifacts", "artifact")
    async with service.models.changing:
        _check_free(service, name)
        source = ModelSource(name, lambda: opener(path))
        await asyncio.to_thread(service.models.add, source)
    _LOG.warning("the model %r has been loaded from %s", name, path)
    return JSONResponse(_described(service.models.any(name)))


async def swap_model(request: Request) -> Response:
    """Let a model go on with the weights of another artifact, between two requests."""
    service = _service(request)
    body = await _body(request, SwapModelBody)
    path = _place(service, body["artifact"], "artifact")
    async with service.models.changing:
        model = service.models.find(body["name"])
        if model.adapter is not None:
            raise APIError(400, f"{model.name!r} is an adapter: swap {model.base!r}", "name")
        await asyncio.to_thread(service.models.swap, model, path)
    _LOG.warning("the model %r has got the weights of %s", model.name, path)
    return JSONResponse(_described(service.models.find(model.name)))


async def unload_model(request: Request) -> Response:
    """Take no more requests for a model, let those that run end, and free its memory."""
    service = _service(request)
    body = await _body(request, UnloadModelBody)
    async with service.models.changing:
        model = service.models.any(body["name"])
        if isinstance(model, ServedTensors):
            service.models.remove_tensors(model)
        elif model.adapter is not None:
            raise APIError(400, "this is an adapter: use /v1/unload_lora_adapter", "name")
        else:
            service.models.remove(model.name)
    await _idle(model, service.settings.drain_s)
    close = model.close if isinstance(model, ServedTensors) else model.engine.close
    await asyncio.to_thread(close)
    _LOG.warning("the model %r has been unloaded", model.name)
    return JSONResponse({"id": model.name, "object": "model", "deleted": True})


async def load_adapter(request: Request) -> Response:
    """Load an adapter between two steps of its model."""
    service = _service(request)
    body = await _body(request, LoadAdapterBody)
    folder = _place(service, body["lora_path"], "lora_path")
    name = body["lora_name"]
    async with service.models.changing:
        _check_free(service, name)
        base = service.models.find(body.get("model") or _only(service))
        await asyncio.to_thread(service.models.add_adapter, base, AdapterSource(name, folder))
    _LOG.warning("the adapter %r has been loaded from %s", name, folder)
    return JSONResponse(_described(service.models.find(name)))


async def unload_adapter(request: Request) -> Response:
    """Take no more requests for an adapter; those that run go on to their end."""
    service = _service(request)
    body = await _body(request, UnloadAdapterBody)
    async with service.models.changing:
        model = service.models.find(body["lora_name"])
        if model.adapter is None:
            raise APIError(400, f"{model.name!r} is no adapter", "lora_name")
        service.models.remove_adapter(model)
    _LOG.warning("the adapter %r has been unloaded", model.name)
    return JSONResponse({"id": model.name, "object": "model", "deleted": True})


#: What each path does, with its method and the class of its body.
Handler = Callable[[Request], Any]
ADMIN: Mapping[str, tuple[str, Handler, type[BaseModel] | None]] = {
    "/admin/models": ("GET", list_loaded, None),
    "/admin/models/load": ("POST", load_model, LoadModelBody),
    "/admin/models/swap": ("POST", swap_model, SwapModelBody),
    "/admin/models/unload": ("POST", unload_model, UnloadModelBody),
    "/v1/load_lora_adapter": ("POST", load_adapter, LoadAdapterBody),
    "/v1/unload_lora_adapter": ("POST", unload_adapter, UnloadAdapterBody),
}


def _service(request: Request) -> Service:
    """The service, if it may be changed.

    Raises:
        APIError: Admin routes are off, or the server loads or stops.
    """
    service = service_of(request)
    if not service.settings.admin_keys:
        message = "admin routes are off: --admin-key-file or OPTC_ADMIN_KEY turns them on"
        raise APIError(404, message, None, "unsupported_route")
    service.check()
    return service


async def _body(request: Request, kind: type[BaseModel]) -> dict[str, Any]:
    def checked(body: dict[str, Any]) -> dict[str, Any]:
        validated(kind, body)
        return body

    most = service_of(request).settings.limits.body_bytes
    return await read_body(request, most, checked)


def _place(service: Service, given: str, field: str) -> Path:
    """A path below the admin folder.

    Raises:
        APIError: There is no such folder, or the path leads out of it or nowhere.
    """
    folder = service.settings.admin_folder
    if folder is None:
        raise APIError(400, "nothing may be loaded: --admin-folder says from where", field)
    try:
        path = (folder / given).resolve()
        inside = path.is_relative_to(folder.resolve()) and path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        inside = False
    if not inside:
        raise APIError(400, f"{given[:256]!r} is no folder below the admin folder", field)
    return path


def _check_free(service: Service, name: str) -> None:
    if name in [one.name for one in service.models.listed]:
        raise APIError(409, f"there is a model {name!r} already", "name")


def _only(service: Service) -> str | None:
    """The model that adapters are for where none is named; None where there are several."""
    names = list(service.models.engines)
    return names[0] if len(names) == 1 else None


async def _idle(model: ServedModel | ServedTensors, seconds: float) -> None:
    """Wait until nothing runs, for so long at most."""
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + seconds
    while loop.time() < ends_s and _is_busy(model):
        await asyncio.sleep(_LOOK_S)


def _is_busy(model: ServedModel | ServedTensors) -> bool:
    if isinstance(model, ServedTensors):
        return bool(model.queue.running + model.queue.waiting)
    health = model.engine.health()
    return health.alive and bool(health.running + health.waiting)


def _described(model: ServedModel | ServedTensors) -> dict[str, Any]:
    """An entry of ``/v1/models``, with what computes it and how much it does."""
    if isinstance(model, ServedTensors):
        queue = model.queue
        return {
            **model.to_json(),
            "engine": model.engine.info.get("name"),
            "adapters": [],
            "state": "ready" if queue.has_room else "busy",
            "running": queue.running,
            "waiting": queue.waiting,
        }
    health = model.engine.health()
    return {
        **model.to_json(),
        "artifact": model.origin.artifact or None,
        "engine": model.origin.engine or None,
        "adapters": list(model.engine.adapters) if model.adapter is None else [],
        "state": health.state,
        "running": health.running,
        "waiting": health.waiting,
    }
