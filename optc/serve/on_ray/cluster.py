"""`RayCluster`: starts replicas on Ray, and reaches them."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig
from ray.serve.exceptions import RayServeException

from optc.errors import InputError, OptcError, ReplicaLostError, UnavailableError
from optc.runtime.requests.generation_request import GenerationRequest
from optc.serve.on_ray.deployment import RayReplica
from optc.serve.replicas.options import ReplicaOptions
from optc.serve.replicas.replica import Open
from optc.serve.replicas.wire import Described, Message, Report

#: Seconds that replicas have for a report.
_REPORT_S = 5.0
#: Requests that Ray lets a replica have: its engine bounds them itself.
_ONGOING = 10_000
#: Memory of Ray's object store, which nothing large goes through.
_STORE_BYTES = 128 << 20


class RayCluster:
    """The cluster that ``RAY_ADDRESS`` names, or one of this machine alone, which ends with this
    process. It is made on the main thread, before the server handles signals: Ray sets handlers of
    its own when it begins, which those of the server must replace.

    Args:
        options: How many replicas each model has.
        cpus: Of each replica.
        drain_s: Seconds that a replica has to end its answers when it is told to stop.

    Raises:
        InputError: A replica would have more CPUs than this machine, where it is to run.
        UnavailableError: The cluster is not to be reached.
    """

    def __init__(self, options: ReplicaOptions, cpus: int, drain_s: float) -> None:
        self._options = options
        self._cpus = cpus
        self._drain_s = drain_s
        self._own = not os.environ.get("RAY_ADDRESS")
        here = os.cpu_count() or 1
        if self._own and cpus > here:
            raise InputError(
                f"{cpus} CPUs for a replica on a machine with {here}",
                where="ray",
                hint=f"at most {here}, or RAY_ADDRESS, which names a cluster",
            )
        self._join()

    def start(self, open_engine: Open, adapters: Mapping[str, Path]) -> RayReplicas:
        """Start the replicas of a model, and wait until they are loaded.

        Args:
            open_engine: Loads the engine of each, in its process.
            adapters: Folders of its adapters by name.

        Raises:
            UnavailableError: The replicas do not start.
        """
        name = f"optc-{uuid.uuid4().hex[:12]}"
        deployment = serve.deployment(RayReplica, **self._settings())
        try:
            handle = serve.run(deployment.bind(open_engine, adapters), name=name, route_prefix=None)
        except RuntimeError as error:  # the application failed
            raise UnavailableError(
                f"the replicas do not start: {_why(name) or _reason(error)}",
                where="ray",
                hint="Ray's log of them: logs/serve in /tmp/ray/session_latest of their machine",
            ) from error
        return RayReplicas(handle, name)

    def close(self) -> None:
        """End Ray where it was started here, else leave the cluster."""
        if self._own:
            serve.shutdown()
        ray.shutdown()

    def _join(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        more: dict[str, Any] = {}
        if self._own:
            os.environ.setdefault("RAY_worker_niceness", "0")  # 15: all else would go before
            most = self._options.most
            more = {
                "address": "local",
                "num_cpus": max(os.cpu_count() or 1, most * self._cpus),
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
            }
        try:
            ray.init(namespace="optc", log_to_driver=False, logging_level="WARNING", **more)
            serve.start(proxy_location="Disabled")
        except Exception as error:
            raise UnavailableError(
                f"Ray is not to be reached: {_reason(error)}",
                where="ray",
                hint="RAY_ADDRESS names a cluster; without it one is started here",
            ) from error

    def _settings(self) -> dict[str, Any]:
        """The keywords of a deployment."""
        options = self._options
        settings: dict[str, Any] = {"num_replicas": options.least}
        if options.most > options.least:
            policy = AutoscalingPolicy(policy_function="optc.serve.on_ray.deployment:scaled")
            settings = {
                "autoscaling_config": AutoscalingConfig(
                    min_replicas=options.least,
                    initial_replicas=options.least,
                    max_replicas=options.most,
                    policy=policy,
                )
            }
        return settings | {
            "name": "replica",
            "ray_actor_options": {"num_cpus": self._cpus, "num_gpus": options.gpus},
            "max_ongoing_requests": _ONGOING,
            "max_constructor_retry_count": 1,  # what cannot be loaded once cannot be later
            "graceful_shutdown_timeout_s": self._drain_s,
            "graceful_shutdown_wait_loop_s": 0.2,
            "request_router_config": RequestRouterConfig(
                request_router_class="optc.serve.on_ray.router:InOrder"
            ),
            "logging_config": {"enable_access_log": False},
        }


class RayReplicas:
    """The replicas of a model (`optc.serve.replicas.wire.Replicas`).

    Args:
        handle: Of their deployment.
        name: Of their application, which is theirs alone.
    """

    def __init__(self, handle: Any, name: str) -> None:
        self._handle = handle
        self._name = name

    async def ask(
        self, request: GenerationRequest, order: Sequence[str]
    ) -> AsyncGenerator[Message, None]:
        """The messages of an answer.

        Raises:
            ReplicaLostError: While it is read: the replica is gone.
        """
        response = self._handle.options(method_name="answer", stream=True).remote(
            request, list(order)
        )
        ended = False
        try:
            async with aclosing(_messages(response)) as messages:
                async for message in messages:
                    yield message
            ended = True
        finally:
            if not ended:
                response.cancel()

    async def reports(self, numbers: Mapping[str, int]) -> list[Report]:
        """Reports of those that answer in time."""
        asked = self._handle.broadcast("report", dict(numbers))
        try:
            found = await asked.results_async(timeout_s=_REPORT_S, return_exceptions=True)
        except (RayError, RayServeException):  # none is there
            return []
        return [one for one in found if isinstance(one, Report)]

    async def describe(self) -> Described:
        """The engine of any of them.

        Raises:
            ReplicaLostError: It is gone.
        """
        try:
            described: Described = await self._handle.describe.remote(None, [])
        except RayError as error:
            raise ReplicaLostError(f"a replica is gone: {_reason(error)}") from error
        return described

    def close(self) -> None:
        """End all of them."""
        serve.delete(self._name)


async def _messages(response: Any) -> AsyncGenerator[Message, None]:
    """The messages of a call, with Ray's errors as those of here."""
    try:
        async for message in response:
            yield message
    except OptcError:
        raise
    except (RayError, RayServeException) as error:
        raise ReplicaLostError("the replica that computed the answer is gone") from error


def _why(name: str) -> str:
    """The last error in what Ray says of an application that failed; empty where there is none."""
    found = serve.status().applications.get(name)
    said = [one.message for one in found.deployments.values()] if found is not None else []
    errors = re.findall(r"^[\w.]*Error: (.+)$", "\n".join(said), re.MULTILINE)
    return str(errors[-1])[:500] if errors else ""


def _reason(error: BaseException) -> str:
    """The last line of a message that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:500] if lines else type(error).__name__
