"""optc: compile a model, prove that it is right, serve it.

    artifact = optc.compile("path/to/model", recipe="int8-fused", output="artifacts/model")
    engine = optc.load("artifacts/model")
    for result in engine.generate(["def fib(n):"], optc.SamplingParams(temperature=0)):
        print(result.text)

Names are loaded when they are first used, so that ``import optc`` costs nothing and a serving
machine never imports what only a compile needs.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

# ONNX Runtime reports to Microsoft, and writes session files, from the moment that it is imported
# (from 1.29 on, on Linux). A user who wants that sets the variable to 0 (docs/onnxruntime.md).
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Threads of NumPy's products wait for the next one actively, for 27 ms (2^26 cycles), and keep
# a core from the threads of ONNX Runtime and PyTorch: a calibration took half as long again. 2^16
# cycles are enough. It is read when NumPy is loaded: import optc first.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "16")

if TYPE_CHECKING:
    from optc.api import compile as compile
    from optc.api import plan as plan
    from optc.api import plan_ladder as plan_ladder
    from optc.errors import ArtifactError as ArtifactError
    from optc.errors import BusyError as BusyError
    from optc.errors import EngineError as EngineError
    from optc.errors import GateError as GateError
    from optc.errors import InputError as InputError
    from optc.errors import OptcError as OptcError
    from optc.errors import RequestError as RequestError
    from optc.errors import RequestTypeError as RequestTypeError
    from optc.errors import UnavailableError as UnavailableError
    from optc.errors import UnsupportedError as UnsupportedError
    from optc.runtime.audio.wav import Sound as Sound
    from optc.runtime.diffusion.generator import ImageGenerator as ImageGenerator
    from optc.runtime.diffusion.load import load_image_generator as load_image_generator
    from optc.runtime.engine import Engine as Engine
    from optc.runtime.load import load as load
    from optc.runtime.outputs import RequestOutput as RequestOutput
    from optc.runtime.params import SamplingParams as SamplingParams
    from optc.runtime.requests.generation_request import GenerationRequest as GenerationRequest
    from optc.runtime.requests.prompts import Chat as Chat
    from optc.runtime.settings import ServeSettings as ServeSettings
    from optc.runtime.speech.load import load_transcriber as load_transcriber
    from optc.runtime.speech.transcriber import Transcriber as Transcriber
    from optc.runtime.tensors.classifier import Classifier as Classifier
    from optc.runtime.tensors.embedder import Embedder as Embedder
    from optc.runtime.tensors.engine import TensorEngine as TensorEngine
    from optc.runtime.tensors.load import load_tensors as load_tensors
    from optc.runtime.tensors.text_classifiers import Reranker as Reranker
    from optc.runtime.tensors.text_classifiers import TextClassifier as TextClassifier
    from optc.runtime.tensors.text_classifiers import TokenClassifier as TokenClassifier
    from optc.runtime.text_to_text.generator import TextToTextGenerator as TextToTextGenerator
    from optc.runtime.text_to_text.load import load_text_to_text as load_text_to_text
    from optc.system.options import CompileOptions as CompileOptions
    from optc.system.sources.dim import Dim as Dim

    __version__: str

_HOMES = {
    "compile": "optc.api",
    "plan": "optc.api",
    "plan_ladder": "optc.api",
    "Dim": "optc.system.sources.dim",
    "ArtifactError": "optc.errors",
    "BusyError": "optc.errors",
    "EngineError": "optc.errors",
    "GateError": "optc.errors",
    "InputError": "optc.errors",
    "OptcError": "optc.errors",
    "RequestError": "optc.errors",
    "RequestTypeError": "optc.errors",
    "UnavailableError": "optc.errors",
    "UnsupportedError": "optc.errors",
    "CompileOptions": "optc.system.options",
    "Engine": "optc.runtime.engine",
    "load": "optc.runtime.load",
    "ImageGenerator": "optc.runtime.diffusion.generator",
    "load_image_generator": "optc.runtime.diffusion.load",
    "RequestOutput": "optc.runtime.outputs",
    "SamplingParams": "optc.runtime.params",
    "GenerationRequest": "optc.runtime.requests.generation_request",
    "Chat": "optc.runtime.requests.prompts",
    "ServeSettings": "optc.runtime.settings",
    "Classifier": "optc.runtime.tensors.classifier",
    "Embedder": "optc.runtime.tensors.embedder",
    "Reranker": "optc.runtime.tensors.text_classifiers",
    "TensorEngine": "optc.runtime.tensors.engine",
    "TextClassifier": "optc.runtime.tensors.text_classifiers",
    "TokenClassifier": "optc.runtime.tensors.text_classifiers",
    "load_tensors": "optc.runtime.tensors.load",
    "Transcriber": "optc.runtime.speech.transcriber",
    "load_transcriber": "optc.runtime.speech.load",
    "Sound": "optc.runtime.audio.wav",
    "TextToTextGenerator": "optc.runtime.text_to_text.generator",
    "load_text_to_text": "optc.runtime.text_to_text.load",
}


#: What needs the packages of the ``compile`` extra.
_COMPILING = frozenset({"compile", "plan", "plan_ladder"})
#: What the modules of these import and do is not there on every system.
_ON_SOME = _COMPILING | {"load", "load_tensors", "Engine", "TensorEngine", "Embedder"}
_ON_SOME |= {"load_transcriber", "Transcriber", "Classifier", "Reranker", "TextClassifier"}
_ON_SOME |= {"load_image_generator", "ImageGenerator", "TokenClassifier"}
_ON_SOME |= {"load_text_to_text", "TextToTextGenerator"}


def __getattr__(name: str) -> object:
    if name in _ON_SOME:
        import_module("optc.system.supported").check_system(compiling=name in _COMPILING)
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("optc")
    elif name in _COMPILING:
        with import_module("optc.system.needs").compile_packages():
            value = getattr(import_module(_HOMES[name]), name)
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'optc' has no attribute {name!r}")
    globals()[name] = value  # the next access does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, "__version__"})
