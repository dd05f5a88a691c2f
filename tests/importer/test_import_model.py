"""`import_model`: what comes out, and one clear message for everything that cannot go in."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from optc.errors import InputError, OptcError, UnsupportedError
from optc.importer.import_model import import_model
from optc.importer.imported import ImportedModel
from optc.importer.safetensors import StoredTensor
from optc.ir.weights import LazyWeight
from optc.passes.canonicalize import Canonicalize
from tests.importer.decoders import build, config_of, error, reference, run, save, tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tied Llama in bfloat16 with a tokenizer file."""
    model = build(config_of("Llama", tie_word_embeddings=True))
    path = save(model, tmp_path_factory.mktemp("models") / "tiny", torch.bfloat16)
    (path / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def broken(folder: Path, tmp_path: Path) -> Path:
    """A copy of the model to break."""
    for file in folder.iterdir():
        os.link(file, tmp_path / file.name)
    return tmp_path


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config.update(changes)
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if v is not None})
    )


def edit_weights(folder: Path, **changes: torch.Tensor | None) -> None:
    file = folder / "model.safetensors"
    tensors = {**load_file(file), **changes}
    file.unlink()
    save_file({k: v for k, v in tensors.items() if v is not None}, file)


@pytest.fixture
def elements_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sizes of everything that is read from checkpoints."""
    sizes: list[int] = []
    read = StoredTensor.read_rows

    def counted(self: StoredTensor, start: int, stop: int) -> Any:
        rows = read(self, start, stop)
        sizes.append(rows.size)
        return rows

    monkeypatch.setattr(StoredTensor, "read_rows", counted)
    return sizes


def test_what_comes_out(folder: Path, elements_read: list[int]) -> None:
    imported = import_model(folder)
    assert (imported.name, imported.family, imported.max_context) == ("tiny", "llama", 128)
    assert imported.folder == folder
    assert imported.config["hidden_size"] == 48
    assert [f.name for f in imported.tokenizer_files] == [
        "generation_config.json",
        "tokenizer.json",
    ]
    assert imported.warnings == []
    assert imported.source_digest == digest(folder)
    check_graph(imported)
    Canonicalize().run(imported.model)
    assert elements_read == [], "importing and canonicalizing read weights"
    weight = imported.model.graph.initializers["model.layers.0.mlp.down_proj.weight"].const_value
    assert isinstance(weight, LazyWeight)
    assert (weight.transposed, weight.rows_shape) == (True, (48, 80))
    assert weight.read_rows(3, 5).shape == (2, 80)
    assert elements_read == [160]


def digest(folder: Path) -> str:
    lines = [
        f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("config.json", "model.safetensors")
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check_graph(imported: ImportedModel) -> None:
    graph = imported.model.graph
    assert imported.model.ir_version == 10
    assert graph.opset_imports[""] == 23
    assert [(v.name, str(v.shape), v.dtype) for v in (*graph.inputs, *graph.outputs)] == [
        ("input_ids", "[B,S]", ir.DataType.INT64),
        ("position_ids", "[B,S]", ir.DataType.INT64),
        ("logits", "[B,S,97]", ir.DataType.FLOAT),
    ]
    weights = [n for n, v in graph.initializers.items() if isinstance(v.const_value, LazyWeight)]
    assert "model.embed_tokens.weight" in weights
    assert "lm_head.weight" not in weights, "a tied head is the embedding"
    assert not any(node.metadata_props for node in graph), "stack traces hold paths"


def test_an_import_leaves_nothing_behind(
    folder: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in the folder of temporary files, under names that others can guess, nor in the
    environment."""
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    before = dict(os.environ)
    import_model(folder)
    assert not list(tmp_path.iterdir())
    assert dict(os.environ) == before


def test_the_graph_depends_on_the_model_only(
    folder: Path,
    broken: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two imports are equal to the byte, with an export each; tensors that are not used are a
    warning, as are other sets of weights."""
    (broken / "pytorch_model.bin").touch()
    (broken / "tiny.gguf").touch()
    edit_weights(
        broken,
        **{
            "extra.weight": torch.ones(3),
            "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
        },
    )
    first = import_model(folder)
    monkeypatch.setenv("OPTC_CACHE", str(tmp_path_factory.mktemp("empty")))
    second = import_model(broken)
    assert second.warnings == [
        "weights are those of model.safetensors, as transformers reads them; those of "
        "pytorch_model.bin and 1 more beside are not read",
        "1 tensors of the checkpoint are not used, extra.weight first",
    ]
    for imported in (first, second):
        Canonicalize().run(imported.model)
    texts = [ir.to_proto(m.model).SerializeToString() for m in (first, second)]
    assert texts[0] == texts[1]


def test_importing_the_importer_is_cheap() -> None:
    code = "import sys, optc.importer; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def raises(folder: Path, message: str, kind: type[OptcError] = InputError) -> OptcError:
    with pytest.raises(kind, match=message) as caught:
        import_model(folder)
    assert caught.value.where, "says where"
    return caught.value


def test_no_such_folder(tmp_path: Path) -> None:
    raises(tmp_path / "none", "no such model folder")


@pytest.mark.parametrize(
    ("name", "message"),
    [("model.bin", "no model's folder"), ("model.onnx", "this is an ONNX model")],
)
def test_files_that_are_no_folders(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x")
    raises(tmp_path / name, message, UnsupportedError)


def test_config_missing_or_broken(broken: Path) -> None:
    (broken / "config.json").unlink()
    raises(broken, "this is weights without config.json")
    for text, message in (("{", "not readable as JSON"), ("[]", "not a JSON object")):
        (broken / "config.json").write_text(text)
        raises(broken, message)


@pytest.mark.parametrize(
    ("changes", "message", "kind"),
    [
        ({"architectures": None}, "architectures is missing", InputError),
        ({"model_type": None}, "model_type is missing", InputError),
        (
            {"architectures": ["T5Model"], "model_type": "t5"},
            "T5Model is not a decoder-only language model",
            UnsupportedError,
        ),
        (
            {"auto_map": {"AutoModelForCausalLM": "modeling_x.X"}},
            "auto_map names Python code.*allow it with --allow-remote-code",
            UnsupportedError,
        ),
        (
            {"quantization_config": {"quant_method": "hqq"}},
            r"quantized already, by hqq",
            UnsupportedError,
        ),
        ({"model_type": "no-such-type"}, "transformers does not accept this config", InputError),
        (
            {"hidden_size": "many"},
            "does not accept this config: .*hidden_size.*: .*str",
            InputError,
        ),
        ({"eos_token_id": "2"}, "does not accept this config: .*eos_token_id.*: .*'2'", InputError),
        ({"hidden_act": "no-such-function"}, "transformers cannot build a model", InputError),
        ({"max_position_embeddings": 0}, "max_position_embeddings: 0 is less than 1", InputError),
    ],
)
def test_configs_that_are_refused(
    changes: dict[str, Any], message: str, kind: type[OptcError], broken: Path
) -> None:
    edit_config(broken, **changes)
    raises(broken, message, kind)


def test_code_that_only_processors_ask_for_never_runs(broken: Path) -> None:
    """Nothing of it is needed, so that nobody has to allow it."""
    trace = broken / "it ran"
    evil = f"open({str(trace)!r}, 'w').close()\n"
    (broken / "custom_generate").mkdir()
    for name in ("evil.py", "custom_generate/generate.py"):
        (broken / name).write_text(evil)
    for name in ("processor_config.json", "preprocessor_config.json", "generation_config.json"):
        (broken / name).write_text(json.dumps({"auto_map": {"AutoProcessor": "evil.Processor"}}))
    import_model(broken)
    assert not trace.exists()


def test_code_of_the_tokenizer_is_refused_by_every_import(broken: Path) -> None:
    """Also of drafts and references, and before anything is built."""
    (broken / "tokenizer_config.json").write_text('{"auto_map": ["evil.Tokenizer", null]}')
    error = raises(broken, "auto_map names Python code", UnsupportedError)
    assert error.where == str(broken / "tokenizer_config.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model.norm.weight", float("nan")),
        ("model.embed_tokens.weight", float("inf")),
        ("model.layers.0.mlp.up_proj.weight", float("-inf")),
        ("model.layers.0.mlp.up_proj.weight", float("nan")),
    ],
)
def test_weights_that_are_not_finite(name: str, value: float, broken: Path) -> None:
    tensor = load_file(broken / "model.safetensors")[name].clone()
    tensor.view(-1)[-1] = value
    edit_weights(broken, **{name: tensor})
    error = raises(broken, "the weight holds NaN or infinities")
    assert error.where == f"{broken / 'model.safetensors'}: {name}"


def test_unused_tensors_may_hold_anything(broken: Path) -> None:
    edit_weights(broken, other=torch.tensor([float("nan")]))
    assert import_model(broken).warnings == [
        "1 tensors of the checkpoint are not used, other first"
    ]


def test_more_layers_than_the_checkpoint_holds(broken: Path) -> None:
    edit_config(broken, num_hidden_layers=60_000, layer_types=None)
    raises(broken, "num_hidden_layers is 60000, the checkpoint holds tensors of 1 layers")


def test_some_more_layers_than_the_checkpoint_holds(broken: Path) -> None:
    edit_config(broken, num_hidden_layers=2, layer_types=None)
    raises(broken, "num_hidden_layers is 2, the checkpoint holds tensors of 1 layers")


def test_truncated_weights(broken: Path) -> None:
    file = broken / "model.safetensors"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-100])
    raises(broken, r"model\.safetensors: .*truncated: the tensor ends at byte")


def test_missing_tensor(broken: Path) -> None:
    edit_weights(broken, **{"model.norm.weight": None})
    raises(broken, r"model\.norm\.weight: the checkpoint lacks this tensor")


@pytest.mark.parametrize(("kind", "name"), [(torch.int8, "I8"), (torch.bool, "BOOL")])
def test_a_tensor_of_another_type_is_not_called_missing(
    broken: Path, kind: torch.dtype, name: str
) -> None:
    edit_weights(broken, **{"model.norm.weight": torch.ones(48, dtype=kind)})
    problem = rf"the tensor is {name}, and config\.json states no quantization"
    raises(broken, rf"model\.safetensors: model\.norm\.weight: {problem}")


def test_wrong_shape(broken: Path) -> None:
    edit_config(broken, intermediate_size=96)
    raises(broken, r"shape \[80, 48\], the config says \[96, 48\]")


def test_tied_tensors_that_differ_are_both_used_as_by_transformers(broken: Path) -> None:
    edit_weights(broken, **{"lm_head.weight": torch.randn(97, 48)})
    model = transformers.AutoModelForCausalLM.from_pretrained(broken, dtype=torch.float32)
    assert agrees(broken, model) == [
        "the config ties this tensor to model.embed_tokens.weight, but the checkpoint has another "
        f"({broken / 'model.safetensors'}: lm_head.weight): both are used, untied"
    ]


def agrees(folder: Path, model: transformers.PreTrainedModel) -> list[str]:
    """The warnings of an import, which has the logits of ``model``."""
    imported = import_model(folder)
    Canonicalize().run(imported.model)
    assert error(run(imported.model, tokens()), reference(model, tokens())) < 1e-4
    return imported.warnings


def test_a_wrapper_may_say_in_its_text_part_that_nothing_is_tied(tmp_path: Path) -> None:
    """As Mistral Small 3.1, whose class says by itself that the head is the embedding."""
    model = build(config_of("Mistral", tie_word_embeddings=False))
    save(model, tmp_path)
    renamed = {
        f"language_model.{name}": tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    (tmp_path / "model.safetensors").unlink()
    save_file(renamed, tmp_path / "model.safetensors")
    text = json.loads((tmp_path / "config.json").read_text())
    assert text.pop("tie_word_embeddings", False) is False
    wrapper = {
        "architectures": ["Mistral3ForConditionalGeneration"],
        "model_type": "mistral3",
        "text_config": {**text, "tie_word_embeddings": False},
        "vision_config": {"model_type": "pixtral", "hidden_size": 32, "num_hidden_layers": 1},
    }
    (tmp_path / "config.json").write_text(json.dumps(wrapper))
    warnings = agrees(tmp_path, model)
    assert warnings[0].startswith("the text part of Mistral3ForConditionalGeneration: 0 tensors")
    assert [text for text in warnings if text.endswith("both are used, untied")]


def test_unknown_attention_is_named(tmp_path: Path) -> None:
    """An encoder is no decoder, though transformers builds one of it."""
    config = transformers.BertConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        pad_token_id=0,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    raises(
        save(model, tmp_path / "encoder"),
        "attention that is not causal is not supported",
        UnsupportedError,
    )


def test_a_base_class_is_named_with_its_model(broken: Path) -> None:
    edit_config(broken, architectures=["LlamaModel"])
    error = raises(broken, "LlamaModel is not a decoder-only language model", UnsupportedError)
    assert error.hint == "it is the base of LlamaForCausalLM: save that one, which has a head"
