"""`make_app`: the ASGI application of a server."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from optc.errors import OptcError
from optc.serve.admin.routes import ADMIN
from optc.serve.api_errors import APIError
from optc.serve.batches.batches_route import add_batch, cancel_batch, list_batches, one_batch
from optc.serve.batches.files_route import (
    add_file,
    file_content,
    list_files,
    one_file,
    remove_file,
)
from optc.serve.batches.store import Store
from optc.serve.event_stream import ClientLeftError
from optc.serve.guards.access_log import AccessLog
from optc.serve.guards.hosts import HostGuard
from optc.serve.guards.keys import KeyGuard
from optc.serve.guards.refusal import (
    on_api_error,
    on_bug,
    on_http_error,
    on_left,
    on_optc_error,
)
from optc.serve.messages.route import count_tokens, messages
from optc.serve.metrics import EngineCollector, HTTPCounters
from optc.serve.openapi import openapi
from optc.serve.page.routes import page, status
from optc.serve.responses.kept import Kept
from optc.serve.responses.route import (
    cancel_response,
    input_tokens,
    one_response,
    remove_response,
    responses,
)
from optc.serve.routes.generating import chat_completions, completions, generate
from optc.serve.routes.metrics import metrics
from optc.serve.routes.models import list_models, one_model
from optc.serve.routes.probes import health, load, ready, version
from optc.serve.routes.tokens import detokenize, tokenize
from optc.serve.routes.unsupported import REASONS, unsupported
from optc.serve.scoring.routes import SCORING
from optc.serve.service import Service
from optc.serve.tensors.embeddings import embeddings
from optc.serve.tensors.infer import INFERENCE
from optc.serve.tensors.transcriptions import transcriptions, translations

_ROUTES = [
    Route("/v1/completions", completions, methods=["POST"]),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/inference/v1/generate", generate, methods=["POST"]),
    Route("/v1/embeddings", embeddings, methods=["POST"]),
    Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
    Route("/v1/audio/translations", translations, methods=["POST"]),
    *(Route(path, handler, methods=[way]) for path, (way, handler) in INFERENCE.items()),
    *(Route(path, handler, methods=["POST"]) for path, (handler, _) in SCORING.items()),
    *(Route(path, unsupported, methods=["POST"]) for path in REASONS),
    Route("/v1/responses", responses, methods=["POST"]),
    Route("/v1/responses/input_tokens", input_tokens, methods=["POST"]),
    Route("/v1/responses/{name}", one_response, methods=["GET"]),
    Route("/v1/responses/{name}", remove_response, methods=["DELETE"]),
    Route("/v1/responses/{name}/cancel", cancel_response, methods=["POST"]),
    Route("/v1/messages", messages, methods=["POST"]),
    Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
    Route("/v1/files", add_file, methods=["POST"]),
    Route("/v1/files", list_files, methods=["GET"]),
    Route("/v1/files/{name}", one_file, methods=["GET"]),
    Route("/v1/files/{name}", remove_file, methods=["DELETE"]),
    Route("/v1/files/{name}/content", file_content),
    Route("/v1/batches", add_batch, methods=["POST"]),
    Route("/v1/batches", list_batches, methods=["GET"]),
    Route("/v1/batches/{name}", one_batch),
    Route("/v1/batches/{name}/cancel", cancel_batch, methods=["POST"]),
    Route("/v1/models", list_models),
    Route("/v1/models/{name:path}", one_model),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/detokenize", detokenize, methods=["POST"]),
    *(Route(path, handler, methods=[way]) for path, (way, handler, _) in ADMIN.items()),
    Route("/", page),
    Route("/status", status),
    Route("/health", health),
    Route("/ready", ready),
    Route("/load", load),
    Route("/version", version),
    Route("/metrics", metrics),
    Route("/openapi.json", openapi),
]


def make_app(
    service: Service, log: Callable[[str], None] | None = None, store: Store | None = None
) -> Starlette:
    """The application that serves a `Service`.

    Args:
        service: What it serves.
        log: Takes the line of each request; None writes none.
        store: Of files and batches; None keeps none.
    """
    settings = service.settings
    registry = CollectorRegistry()
    registry.register(
        EngineCollector(
            service.models, settings.metrics_prefix, service.objectives, service.published
        )
    )
    counters = HTTPCounters(registry, settings.metrics_prefix)
    guards = [Middleware(AccessLog, write=log, count=counters.count)]
    if service.tracing is not None:
        from optc.serve.tracing.middleware import TracedRequests  # of the extra 'otel'

        guards.append(Middleware(TracedRequests, tracing=service.tracing))
    if settings.hosts:
        guards.append(Middleware(HostGuard, hosts=settings.hosts))
    if settings.origins:
        guards.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.origins),
                allow_methods=["GET", "POST", "DELETE"],
                allow_headers=["*"],
                expose_headers=["x-request-id"],
            )
        )
    guards.append(Middleware(KeyGuard, keys=settings.keys, admin_keys=settings.admin_keys))
    app = Starlette(
        routes=_ROUTES,
        middleware=guards,
        exception_handlers={
            APIError: on_api_error,
            OptcError: on_optc_error,
            HTTPException: on_http_error,
            ClientLeftError: on_left,
            Exception: on_bug,
        },
    )
    app.state.service = service
    app.state.registry = registry
    app.state.responses = Kept()
    app.state.store = store
    return app
