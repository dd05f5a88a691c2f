"""The kinds of files and folders that are taken for models. A new one is a line here."""

from __future__ import annotations

from optc.system.sources.kind import Kind

_ORIGINAL = "compile the model that it was made from: its folder with config.json and safetensors"
_SAVE = (
    "load it with the framework that wrote it, and save it as safetensors with transformers: "
    "save_pretrained"
)
_OLD_SAVE = (
    "transformers before version 5 converts it: AutoModelForCausalLM.from_pretrained(FOLDER, {}) "
    "and save_pretrained"
)
_POOLED = "of these optc compiles those that list a Transformer and a Pooling in modules.json"

#: Formats of weights, most telling first. They are looked for where no weights are that optc reads.
WEIGHTS = (
    Kind("a TensorRT-LLM engine", _ORIGINAL, ("rank*.engine",)),
    Kind("a TensorRT engine", _ORIGINAL, ("*.engine", "*.plan", "*.trt")),
    Kind("a model of MLC", _ORIGINAL, ("mlc-chat-config.json", "params_shard_*.bin")),
    Kind(
        "a model of OpenVINO",
        _ORIGINAL,
        ("openvino*.xml", "openvino*.bin", "openvino/*.xml"),
    ),
    Kind("a model of Core ML", _ORIGINAL, ("*.mlpackage/", "*.mlmodelc/", "*.mlmodel")),
    Kind("a model of LiteRT", _ORIGINAL, ("*.tflite", "*.litertlm", "*.task")),
    Kind(
        "an ONNX model",
        _ORIGINAL,
        ("*.onnx", "*.onnx_data", "onnx/*.onnx", "genai_config.json"),
    ),
    Kind(
        "a model of CTranslate2",
        _ORIGINAL,
        ("vocabulary.json", "vocabulary.txt", "shared_vocabulary.*"),
        also=("model.bin",),
    ),
    Kind("a model of NeMo", _SAVE, ("*.nemo", "model_weights.ckpt", "model_weights/")),
    Kind(
        "the checkpoint of a distributed training",
        "put its parts together first: with zero_to_fp32.py for DeepSpeed, with 'accelerate "
        "merge-weights' for FSDP",
        ("*.distcp", "*/*.distcp", "global_step*/", "mp_rank_*", "zero_*", "pytorch_model_fsdp*"),
    ),
    Kind(
        "weights in the layout of who published the model (consolidated)",
        "give the folder of the same model for transformers, or convert it with transformers' "
        "script of that family (convert_…_weights_to_hf.py)",
        ("consolidated*", "original/consolidated*", "params.json"),
    ),
    Kind("weights of Keras", _SAVE, ("*.keras", "*.weights.h5")),
    Kind(
        "weights of TensorFlow",
        _OLD_SAVE.format("from_tf=True"),
        ("tf_model*.h5", "*.h5", "saved_model.pb", "*/saved_model.pb", "*.ckpt.index", "*.ckpt-*"),
    ),
    Kind(
        "weights of Flax",
        _OLD_SAVE.format("from_flax=True"),
        ("flax_model*", "*.msgpack"),
    ),
    Kind("weights of rust-bert", _ORIGINAL, ("*.ot",)),
    Kind(
        "weights of PyTorch under another name than transformers gives them",
        "if they are one dictionary of tensors by the names of transformers' class, call the file "
        "pytorch_model.bin; else load the model and save it with save_pretrained",
        ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl"),
    ),
)

#: Kinds of folders that are no model although they may hold one's files, most telling first.
OTHERS = (
    Kind(
        "an artifact, which optc compile wrote",
        "'optc run' runs it; to compile again, give the folder of the model",
        ("manifest.json",),
        also=("report.json",),
    ),
    Kind(
        "a pipeline of diffusers, which makes images",
        "give the folder itself to optc compile, with --recipe diffusion-fp16",
        ("model_index.json",),
    ),
    Kind(
        "an embedding model of sentence-transformers",
        _POOLED,
        ("config_sentence_transformers.json", "modules.json"),
    ),
)

#: Kinds of folders without config.json, before their weights are looked at.
WITHOUT_CONFIG = (
    Kind(
        "what a training of optc left",
        "give the folder of its model, and this one to --trained",
        ("training.json",),
    ),
)

#: Kinds of folders without config.json, whose weights say nothing.
REST = (
    Kind(
        "weights without config.json, which says how the model is built",
        "get the model's config.json, and the files of its tokenizer, into the same folder",
        ("*.safetensors", "*.safetensors.index.json", "pytorch_model*"),
    ),
    Kind(
        "an archive",
        "unpack it, and give the folder",
        ("*.zip", "*.tar", "*.tar.*", "*.tgz", "*.7z", "*.zst", "*.xz"),
    ),
    Kind(
        "a download that has not ended",
        "end it, or begin it again",
        ("*.incomplete", "*.part", "*.crdownload", "*.aria2"),
    ),
    Kind(
        "a tokenizer without a model",
        "get the model's config.json and safetensors into the same folder",
        ("tokenizer.json", "tokenizer.model", "tokenizer_config.json"),
    ),
    Kind(
        "data and no model",
        "give the folder of a model; --eval-text and --calibration take texts",
        ("*.parquet", "*.arrow", "*.jsonl", "*.csv", "*.txt", "dataset_info.json"),
    ),
)

#: Kinds of single files, beside `WEIGHTS`.
FILES = (
    Kind(
        "a file of a model's folder",
        "give the folder",
        ("config.json", "*.safetensors.index.json", "tokenizer*.json", "pytorch_model*"),
    ),
    Kind(
        "weights without config.json, which says how the model is built",
        "give a folder that holds both",
        ("*.safetensors",),
    ),
    Kind(
        "weights of llama.cpp before GGUF",
        "convert them with llama.cpp, or get the model as GGUF",
        ("*.ggml", "ggml-*.bin"),
    ),
    Kind("a recipe", "give the model first, and the recipe to --recipe", ("*.yaml", "*.yml")),
)

#: Architectures of GGUF files that generate no text token by token.
NO_DECODERS = {
    "an encoder": (
        "bert",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llama-embed",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "t5encoder",
    ),
    "an encoder with a decoder": ("t5",),
    "a part that sees or hears": ("clip",),
    "a part that makes sound": ("wavtokenizer-dec",),
}
#: ``general.type`` of GGUF files that hold no model.
GGUF_TYPES = {
    "adapter": "a LoRA adapter as GGUF",
    "imatrix": "figures for llama.cpp's quantizer",
    "mmproj": "the part of a model that sees or hears",
}
