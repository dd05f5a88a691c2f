"""One adapter for the packages ``tensorrt`` and ``tensorrt_rtx``.

What a package can do is probed by the names that it has, never by its version: TensorRT 10.15,
11 and TensorRT-RTX differ in what they kept, and enumerations differ in their values.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from optc.errors import UnavailableError

#: TensorRT-RTX builds for GPUs that the machine lacks, TensorRT for the one that is there.
RTX, FULL = "tensorrt_rtx", "tensorrt"
#: Packages in order of preference.
PACKAGES = (RTX, FULL)
#: GPUs that TensorRT-RTX has kernels for, as its members of ``ComputeCapability`` call them.
RTX_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
#: Distributions that bring a package, by the CUDA version that they are for.
_DISTRIBUTIONS = {
    "tensorrt_rtx": ("tensorrt-rtx-cu13", "tensorrt-rtx-cu12", "tensorrt-rtx"),
    "tensorrt": ("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
}
#: Commands that install a package.
INSTALL = {RTX: "pip install 'optc[tensorrt]'", FULL: "pip install 'optc[tensorrt-full]'"}


@dataclass(frozen=True)
class Capabilities:
    """The abilities of a TensorRT package.

    Attributes:
        ahead_of_time: Engines for GPUs that are named, not only for the one that is there.
        weakly_typed: Networks may leave types to the builder (we never do).
        attention: Attention is a layer of its own, with fused kernels.
        kv_update: Keys and values are written in place, and outputs may alias inputs.
        validity: An engine's header can be checked before the engine is loaded.
        runtime_cache: Kernels compiled on the target can be kept from run to run.
    """

    ahead_of_time: bool
    weakly_typed: bool
    attention: bool
    kv_update: bool
    validity: bool
    runtime_cache: bool

    def to_json(self) -> dict[str, bool]:
        """For the report."""
        return asdict(self)


@dataclass(frozen=True)
class Provider:
    """A TensorRT package that was loaded.

    Attributes:
        package: Name of the Python package.
        version: Its version.
        module: The package.
        capabilities: What it can do.
    """

    package: str
    version: str
    module: Any
    capabilities: Capabilities


def installed_packages() -> tuple[str, ...]:
    """The TensorRT packages that are installed, the preferred one first; nothing is imported."""
    return tuple(name for name in PACKAGES if importlib.util.find_spec(name))


def installed_version(package: str) -> str | None:
    """Version of an installed TensorRT package; None if there is none. Nothing is imported."""
    for name in _DISTRIBUTIONS[package]:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def missing_reason() -> str:
    """Empty if a TensorRT package is installed, else how to get one."""
    if installed_packages():
        return ""
    return f"no TensorRT package is installed ({INSTALL[RTX]}, or for sm_90 {INSTALL[FULL]})"


def load_provider(package: str) -> Provider:
    """Import one of `PACKAGES`.

    Raises:
        UnavailableError: It is not installed, cannot be loaded, or lacks layers that decoders need.
    """
    if package not in installed_packages():
        raise UnavailableError(
            f"the package {package} is not installed",
            where="tensorrt backend",
            hint=INSTALL[package],
        )
    try:
        module = importlib.import_module(package)
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"the package {package} cannot be loaded: {error}", where="tensorrt backend"
        ) from error
    return adapt(package, module)


def adapt(package: str, module: Any) -> Provider:
    """The adapter of a package that is loaded.

    Raises:
        UnavailableError: It lacks layers that decoders need; names them.
    """
    capabilities = probe(module)
    missing = [
        what
        for what, present in (
            ("attention", capabilities.attention),
            ("key-value cache updates", capabilities.kv_update),
        )
        if not present
    ]
    release = str(module.__version__)
    if missing:
        raise UnavailableError(
            f"{package} {release} has no layer for {' and '.join(missing)}",
            where="tensorrt backend",
            hint="TensorRT 10.15 or newer, or TensorRT-RTX 1.7 or newer",
        )
    return Provider(package, release, module, capabilities)


def probe(module: Any) -> Capabilities:
    """The abilities of ``module``, by the names that it has."""
    network = module.INetworkDefinition
    engine, runtime = module.ICudaEngine, module.Runtime
    return Capabilities(
        ahead_of_time=hasattr(module, "ComputeCapability"),
        weakly_typed=hasattr(module.BuilderFlag, "FP16"),
        attention=hasattr(network, "add_attention"),
        kv_update=hasattr(network, "add_kv_cache_update")
        and hasattr(engine, "get_aliased_input_tensor"),
        validity=hasattr(runtime, "get_engine_validity"),
        runtime_cache=hasattr(getattr(module, "IRuntimeConfig", None), "create_runtime_cache"),
    )


def create_network(provider: Provider, builder: Any) -> Any:
    """A strongly typed network: the model's types are what is computed in, always."""
    flag = provider.module.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    return builder.create_network(1 << int(flag))


def set_architectures(provider: Provider, config: Any, architectures: Sequence[str]) -> None:
    """Build for the GPUs ``architectures`` (``sm_89``), one engine for all of them. A package that
    builds for the GPU that is there needs nothing set (`optc.backends.tensorrt.targets.lacks`).

    Raises:
        UnavailableError: The package knows no such GPU.
    """
    if not provider.capabilities.ahead_of_time:
        return
    known = provider.module.ComputeCapability.__members__
    config.num_compute_capabilities = len(architectures)
    for index, architecture in enumerate(architectures):
        name = member_name(architecture)
        if name not in known or not config.set_compute_capability(known[name], index):
            raise UnavailableError(
                f"{provider.package} {provider.version} has no kernels for {architecture}",
                where="tensorrt backend",
                hint=f"one of {', '.join(RTX_ARCHITECTURES)}",
            )


def member_name(architecture: str) -> str:
    """``SM89`` for ``sm_89``, as TensorRT calls it."""
    return architecture.replace("_", "").upper()
