"""`DynamoEngine`: an artifact's engine behind Dynamo's contract of backends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynamo.common.backend import EngineConfig, LLMEngine, LlmRegistration, WorkerConfig
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.publisher import ComponentSnapshot, ZmqSource
from dynamo.common.utils.token_ids import token_ids_to_list
from dynamo.llm.exceptions import InvalidArgument

from optc.errors import BusyError, InputError, OptcError, RequestError
from optc.runtime.engine import Engine
from optc.runtime.handle import Handle
from optc.serve.answering.pace import Pace
from optc.serve.metrics import kv_use
from optc.serve.on_dynamo.chunks import chunks_of
from optc.serve.on_dynamo.model_folder import write_model_folder
from optc.serve.on_dynamo.request import read_request
from optc.system.scratch import Scratch

#: Seconds between two reports of how full the cache is.
_REPORT_S = 0.5


@dataclass(frozen=True)
class Served:
    """A worker's model, and the names it is served under.

    Attributes:
        open: Loads the engine.
        name: What requests call it.
        adapters: Folders of its LoRA adapters by name.
        events: Address of its events of cached prefixes; None publishes none.
    """

    open: Callable[[], object]
    name: str
    adapters: Mapping[str, Path] = field(default_factory=dict)
    events: str | None = None


class DynamoEngine(LLMEngine):
    """One engine. Dynamo's worker calls all of it from one event loop.

    Args:
        served: What it serves.
    """

    def __init__(self, served: Served) -> None:
        self._served = served
        self._engine: Engine | None = None
        self._folder = Scratch("dynamo")
        self._pace = Pace()
        self._running: dict[str, Handle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reports: asyncio.Future[None] | None = None
        #: Why it could not be loaded: Dynamo's worker passes on its text alone.
        self.failure: OptcError | None = None

    @property
    def folder(self) -> Path:
        """The folder of the files by which frontends encode, once it has started."""
        return Path(self._folder.name)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[DynamoEngine, WorkerConfig]:
        """Not a way to make one: ``optc dynamo-worker`` reads the arguments.

        Raises:
            InputError: Always.
        """
        raise InputError("this engine is made by 'optc dynamo-worker'", where="dynamo")

    async def start(self, worker_id: int) -> EngineConfig:
        """Load the engine.

        Raises:
            OptcError: It cannot be loaded, or its model has no tokenizer.
        """
        self._loop = asyncio.get_running_loop()
        try:
            engine = await self._load()
        except OptcError as error:
            self.failure = error
            raise
        write_model_folder(engine, self.folder)
        plan, spec = engine.kv_plan, engine.spec
        return EngineConfig(
            model=str(self.folder),
            served_model_name=self._served.name,
            model_aliases=list(self._served.adapters),
            llm=LlmRegistration(
                context_length=plan.max_context,
                kv_cache_block_size=plan.block_size,
                total_kv_blocks=min(plan.blocks),
                max_num_seqs=engine.settings.max_sequences or spec.max_sequences,
                max_num_batched_tokens=engine.settings.step_rows(spec.max_rows),
            ),
        )

    async def _load(self) -> Engine:
        engine = await asyncio.to_thread(self._served.open)
        if not isinstance(engine, Engine):
            raise InputError("no model that writes texts", where=self._served.name)
        self._engine = engine
        if engine.tokenizer is None:
            raise InputError("no tokenizer, which Dynamo's frontend needs", where=self._served.name)
        for name, folder in self._served.adapters.items():
            await asyncio.to_thread(engine.load_adapter, name, folder)
        return engine

    async def generate(
        self, request: Mapping[str, Any], context: Any
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The chunks of an answer.

        Raises:
            InvalidArgument: Something is wrong with the request, or there is no room.
        """
        engine = self._engine
        assert engine is not None
        try:
            given = {**request, "token_ids": token_ids_to_list(request["token_ids"])}
            begin = None if engine.tokenizer is None else engine.tokenizer.bos_token_id
            handle = await engine.asubmit(read_request(given, self._served.adapters, begin))
            self._running[context.id()] = handle
            async for chunk in chunks_of(handle, self._pace):
                yield chunk
        except (RequestError, BusyError) as error:
            raise InvalidArgument(str(error)) from error
        finally:
            self._running.pop(context.id(), None)

    async def abort(self, context: Any) -> None:
        """End a request whose client has left."""
        if (handle := self._running.get(context.id())) is not None:
            handle.cancel()

    async def cleanup(self) -> None:
        """Release the engine; again has no effect."""
        if self._reports is not None:
            self._reports.cancel()
            self._reports = None
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)
            self._engine = None
        self._folder.cleanup()

    async def kv_event_sources(self) -> list[ZmqSource]:
        """The address at which the engine publishes its prefixes."""
        return [] if self._served.events is None else [ZmqSource(endpoint=self._served.events)]

    def component_metrics_dp_ranks(self) -> list[int]:
        """One engine, which tells how full it is."""
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        """Report to Dynamo from now on. Another thread than the event loop's may call it."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin_reports, publisher)

    async def health_check_payload(self) -> dict[str, Any] | None:
        """A request of one token, by which Dynamo probes an idle worker."""
        engine = self._engine
        if engine is None or engine.tokenizer is None:
            return None
        begin = engine.tokenizer.bos_token_id
        probe: dict[str, Any] = build_health_check_payload(0 if begin is None else begin)
        return probe

    def _begin_reports(self, publisher: Any) -> None:
        self._reports = asyncio.ensure_future(self._report(publisher))

    async def _report(self, publisher: Any) -> None:
        while self._engine is not None:
            metrics, total = self._engine.metrics(), min(self._engine.kv_plan.blocks)
            looked = metrics.prefix_lookup_tokens
            publisher.publish(
                0,
                ComponentSnapshot(
                    kv_used_blocks=round(kv_use(metrics) * total),
                    kv_total_blocks=total,
                    gpu_cache_usage=kv_use(metrics),
                    kv_cache_hit_rate=metrics.prefix_hit_tokens / looked if looked else None,
                    dp_rank=0,
                ),
            )
            await asyncio.sleep(_REPORT_S)


async def work(engine: DynamoEngine, config: WorkerConfig) -> None:
    """Serve until SIGTERM or SIGINT, which Dynamo's worker handles.

    Raises:
        OptcError: The engine cannot be loaded.
    """
    from dynamo.common.backend import Worker

    try:
        await Worker(engine, config).run()
    except Exception:  # whatever the worker makes of it
        if engine.failure is not None:
            raise engine.failure from None
        raise
