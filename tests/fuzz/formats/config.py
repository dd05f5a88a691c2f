"""config.json of a model, up to the export."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.fuzz.edits import edit_json
from tests.fuzz.form import FileFormat, Materials, read_files
from tests.fuzz.odd import NUMBERS, words

_FILE = "config.json"
_ROPES = [
    {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 32}
    for kind in ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "none", "")
]
_NUMBERS = words("""
num_labels num_hidden_layers num_attention_heads num_key_value_heads hidden_size head_dim vocab_size
intermediate_size max_position_embeddings pad_token_id rms_norm_eps sliding_window
""")
#: Values that have been seen to do harm, or that lead into other code.
KNOWN: dict[str, list[Any]] = {
    **{key: [*NUMBERS, None, "8", [1], 8.0] for key in _NUMBERS},
    "architectures": [
        3,
        [[]],
        [None],
        ["LlamaModel"],
        ["GPT2LMHeadModel"],
        ["Qwen2ForCausalLM"],
        "",
    ],
    "model_type": ["gpt2", "qwen2", "qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "mixtral"],
    "rope_parameters": [*_ROPES, {"full_attention": _ROPES[1]}, None, [], "yarn"],
    "rope_scaling": [*_ROPES, None, {"type": "linear"}],
    "layer_types": [
        ["full_attention"],
        ["sliding_attention"],
        ["x"],
        [None],
        1,
        ["full_attention"] * 9,
    ],
    "auto_map": [{"AutoConfig": "evil.Config"}, {"AutoModelForCausalLM": "x"}, [], 1, ""],
    "quantization_config": [{"quant_method": "gptq"}, {}, [1], "awq", 3],
    "hidden_act": ["gelu", "relu", "swish", "", None, 3, ["silu"]],
    "id2label": [{"0": "a"}, {"x": "a"}, [], {str(i): "" for i in range(3)}],
    "dtype": ["bfloat16", "float8", "", None, 16, "torch.float16", "__class__"],
    "text_config": [{}, {"model_type": "llama"}, [], None, {"max_position_embeddings": -1}],
    "attn_implementation": ["flash_attention_2", "eager", 1],
    "tie_word_embeddings": [True, False, None, "no"],
    "layer_norm_eps": [0, -1, None],
    "pruned_heads": [{"0": [1]}, {"x": 1}],
    "torch_dtype": ["float32", 1],
    "transformers_version": [1, None, "x"],
    "attribute_map": [{"hidden_size": "x"}],
}


class _Captured(BaseException):
    """Raised where the export would begin: the config was taken."""


class Config(FileFormat):
    """The importer up to the export, which is replaced: that takes seconds."""

    name = "config"
    needs = frozenset({"model"})

    def prepare(self, materials: Materials) -> None:
        super().prepare(materials)
        from optc.importer import hugging_face

        def stop(*arguments: object, **options: object) -> NoReturn:
            raise _Captured

        hugging_face.export_decoder = stop  # type: ignore[attr-defined]

    def read(self, materials: Materials) -> list[dict[str, bytes]]:
        return [read_files(materials.model, _FILE, "model.safetensors")]

    def targets(self, files: Any) -> list[str]:
        return [_FILE]

    def edit_file(self, random: Random, name: str, data: bytes) -> bytes:
        return edit_json(random, data, KNOWN)

    def check(self, folder: Path) -> None:
        from optc.importer.hugging_face import import_folder

        try:
            import_folder(folder, allow_remote_code=False)
        except _Captured:
            return
