from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optc.backends.tensorrt import provider
from optc.errors import UnavailableError


class _Config:
    """What a builder's configuration does with GPUs."""

    def __init__(self) -> None:
        self.num_compute_capabilities = 0
        self.set: list[tuple[str, int]] = []

    def set_compute_capability(self, member: str, index: int) -> bool:
        self.set.append((member, index))
        return True


def _module(*, rtx: bool, network: tuple[str, ...], version: str) -> Any:
    def having(*names: str) -> type:
        return type("Having", (), dict.fromkeys(names))

    module = SimpleNamespace(
        __version__=version,
        INetworkDefinition=having(*network),
        ICudaEngine=having("get_aliased_input_tensor"),
        Runtime=having("get_engine_validity") if rtx else having(),
        BuilderFlag=having() if rtx else having("FP16"),
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=0 if rtx else 1),
    )
    if rtx:
        module.ComputeCapability = SimpleNamespace(__members__={"SM89": "SM89", "SM120": "SM120"})
        module.IRuntimeConfig = having("create_runtime_cache")
    return module


_BOTH = ("add_attention", "add_kv_cache_update")


def test_capabilities_are_those_of_the_names_that_a_package_has() -> None:
    rtx = provider.probe(_module(rtx=True, network=_BOTH, version="1.7.1"))
    full = provider.probe(_module(rtx=False, network=_BOTH, version="10.16.0"))
    assert rtx.ahead_of_time
    assert rtx.runtime_cache
    assert rtx.validity
    assert not rtx.weakly_typed
    assert not full.ahead_of_time
    assert not full.runtime_cache
    assert full.weakly_typed
    assert rtx.attention
    assert full.kv_update


def test_a_release_without_the_layers_is_refused_by_name() -> None:
    module = _module(rtx=False, network=("add_attention",), version="10.14.1")
    with pytest.raises(UnavailableError, match=r"10\.14\.1 has no layer for key-value cache"):
        provider.adapt("tensorrt", module)


def test_several_gpus_are_set_on_one_engine() -> None:
    adapted = provider.adapt("rtx", _module(rtx=True, network=_BOTH, version="1.7.1"))
    config = _Config()
    provider.set_architectures(adapted, config, ("sm_89", "sm_120"))
    assert config.num_compute_capabilities == 2
    assert config.set == [("SM89", 0), ("SM120", 1)]


def test_gpus_without_kernels_are_refused_with_those_that_have() -> None:
    adapted = provider.adapt("rtx", _module(rtx=True, network=_BOTH, version="1.7.1"))
    with pytest.raises(UnavailableError, match=r"no kernels for sm_90 \(one of sm_75, sm_80"):
        provider.set_architectures(adapted, _Config(), ("sm_90",))


def test_full_tensorrt_builds_for_the_gpu_that_is_there_without_being_told() -> None:
    adapted = provider.adapt("tensorrt", _module(rtx=False, network=_BOTH, version="11.4"))
    config = _Config()
    provider.set_architectures(adapted, config, ("sm_90",))
    assert (config.num_compute_capabilities, config.set) == (0, [])


def test_strong_typing_is_asked_for_by_name() -> None:
    flags: list[int] = []
    builder = SimpleNamespace(create_network=flags.append)
    for rtx in (True, False):
        adapted = provider.adapt("any", _module(rtx=rtx, network=_BOTH, version="11"))
        provider.create_network(adapted, builder)
    assert flags == [1 << 0, 1 << 1]


def test_without_a_package_the_reason_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider, "PACKAGES", ("no_such_package",))
    assert "pip install 'optc[tensorrt]'" in provider.missing_reason()
    assert "for sm_90 pip install 'optc[tensorrt-full]'" in provider.missing_reason()
    assert provider.installed_packages() == ()
    for package, extra in (("tensorrt", "tensorrt-full"), ("tensorrt_rtx", "tensorrt")):
        with pytest.raises(UnavailableError, match=f"the package {package} is not inst") as raised:
            provider.load_provider(package)
        assert raised.value.hint == f"pip install 'optc[{extra}]'"


def test_the_package_that_is_named_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine runs with the package that built it, also where both are installed."""
    monkeypatch.setattr(provider, "installed_packages", lambda: provider.PACKAGES)
    made = {
        "tensorrt": _module(rtx=False, network=_BOTH, version="11.4.0"),
        "tensorrt_rtx": _module(rtx=True, network=_BOTH, version="1.7.1"),
    }
    monkeypatch.setattr(provider.importlib, "import_module", made.__getitem__)
    for package, module in made.items():
        found = provider.load_provider(package)
        assert (found.package, found.module) == (package, module)


def test_a_package_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libnvinfer.so.11: cannot open shared object file")

    monkeypatch.setattr(provider, "installed_packages", lambda: provider.PACKAGES)
    monkeypatch.setattr(provider.importlib, "import_module", broken)
    with pytest.raises(UnavailableError, match=r"tensorrt cannot be loaded: libnvinfer\.so\.11"):
        provider.load_provider("tensorrt")


#: Names of TensorRT's Python package that a build and a run use.
USED = {
    "Builder": (
        "build_serialized_network",
        "create_builder_config",
        "create_network",
        "create_optimization_profile",
    ),
    "BuilderFlag": ("SPARSE_WEIGHTS",),
    "IBuilderConfig": ("add_optimization_profile", "get_flag", "profiling_verbosity", "set_flag"),
    "ICudaEngine": (
        "create_execution_context",
        "get_aliased_input_tensor",
        "get_tensor_name",
        "num_io_tensors",
    ),
    "IExecutionContext": (
        "execute_async_v3",
        "set_input_shape",
        "set_optimization_profile_async",
        "set_tensor_address",
    ),
    "IHostMemory": ("nbytes",),
    "ILogger": ("log",),
    "INetworkDefinition": ("get_input", "num_inputs", "num_layers"),
    "IOptimizationProfile": ("set_shape",),
    "NetworkDefinitionCreationFlag": ("STRONGLY_TYPED",),
    "OnnxParser": ("get_error", "num_errors", "parse_from_file"),
    "ParserError": ("desc", "node_name", "node_operator"),
    "ProfilingVerbosity": ("DETAILED",),
    "Runtime": ("deserialize_cuda_engine",),
}


@pytest.mark.parametrize("package", provider.PACKAGES)
def test_an_installed_package_has_the_names_that_are_used(package: str) -> None:
    if package not in provider.installed_packages():
        pytest.skip(f"the package {package} is not installed")
    found = provider.load_provider(package)
    assert [
        f"{of}.{name}"
        for of, names in USED.items()
        for name in names
        if not hasattr(getattr(found.module, of), name)
    ] == []
    assert found.capabilities.ahead_of_time == (package == provider.RTX)
