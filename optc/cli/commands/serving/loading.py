"""Loads the models of ``optc serve``: in its own process, or in replicas on Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optc.cli.commands.serving.sources import Load
from optc.errors import InputError
from optc.runtime.settings import ServeSettings
from optc.system.hardware.target import usable_threads
from optc.system.needs import ray_packages

if TYPE_CHECKING:
    from optc.runtime.engine import Engine
    from optc.runtime.tensors.engine import TensorEngine
    from optc.serve.on_ray.cluster import RayCluster
    from optc.serve.settings import HTTPSettings

#: Why an option is refused beside replicas.
_REFUSED = {
    "kv_events": "replicas of one machine would publish at one address; the server routes itself",
    "sleep_after": "replicas that nobody needs are ended, by replicas=N-M",
}


@contextmanager
def loading(text: str | None, engines: ServeSettings, server: HTTPSettings) -> Iterator[Load]:
    """A function that loads models. Replicas are gone behind the block.

    Args:
        text: As of ``--ray``; None loads models in this process.
        engines: How they serve.
        server: How the server does.

    Raises:
        InputError: It is no number of replicas, or an option does not go with it.
        UnavailableError: Ray is not installed.
    """
    if text is None:
        yield partial(_here, engines)
        return
    from optc.serve.replicas.options import parse_replicas

    options = parse_replicas(text, "--ray")
    for name, reason in _REFUSED.items():
        if getattr(engines, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"does not go with --ray: {reason}", where=option)
    if server.admin_folder is not None:
        raise InputError("does not go with --ray: its models are given", where="--admin-folder")
    with ray_packages():
        from optc.serve.on_ray.cluster import RayCluster
    if options.cpus is None and engines.threads is not None:
        options = replace(options, cpus=engines.threads)
    cpus = options.share(usable_threads())
    with redirect_stdout(sys.stderr):  # where Ray says what happens: stdout is for our lines alone
        cluster = RayCluster(options, cpus, server.drain_s)
        try:
            yield partial(_there, cluster, replace(engines, threads=engines.threads or cpus))
        finally:
            cluster.close()


def _here(
    settings: ServeSettings, path: Path, adapters: Mapping[str, Path]
) -> Engine | TensorEngine:
    from optc.runtime.load import load

    return load(path, settings)


def _there(
    cluster: RayCluster, settings: ServeSettings, path: Path, adapters: Mapping[str, Path]
) -> Engine:
    from optc.serve.replicas.engine import open_artifact, replicated

    each = replace(settings, answer_cache=None)  # which the server has, for all of them
    folder = path.resolve()
    found = {name: one.resolve() for name, one in adapters.items()}
    opened = partial(open_artifact, folder, each)
    return replicated(folder, settings, partial(cluster.start, opened, found))
