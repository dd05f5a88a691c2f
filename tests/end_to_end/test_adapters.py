"""LoRA on a compiled artifact equals PEFT on transformers, several adapters in one batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import optc
from optc.errors import InputError, RequestError, UnavailableError
from tests.support.shared import made_once

MODEL = Path(__file__).parents[2] / "examples" / "models" / "pycode"
PROMPTS = ("def fib(n):", "import os\n\nclass Foo:", "for x in range(")
GREEDY = optc.SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
ADAPTERS: dict[str, dict[str, Any]] = {
    "all": {
        "r": 8,
        "lora_alpha": 16,
        "target_modules": [
            "q_proj",
            "k_proj",
            "v_proj",
            "o_proj",
            "gate_proj",
            "up_proj",
            "down_proj",
        ],
    },
    "attention": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "use_rslora": True,
    },
}


def base() -> Any:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters that PEFT saved, with random weights large enough to change what is said."""
    torch.manual_seed(0)
    found = {}
    for name, options in ADAPTERS.items():
        model = get_peft_model(base(), LoraConfig(task_type="CAUSAL_LM", **options))
        for parameter, values in model.named_parameters():
            if "lora_" in parameter:
                torch.nn.init.normal_(values, std=0.03)
        found[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(found[name])
    return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[optc.Engine]:
    def compile(folder: Path) -> Path:
        output, room = folder / "artifact", "max=2,rank=8"
        return optc.compile(MODEL, "fp32", output, adapters=room, no_gates=True).path

    with optc.load(made_once(tmp_path_factory, "pycode-adapters", compile)) as loaded:
        yield loaded


@pytest.fixture
def adapted(engine: optc.Engine, folders: dict[str, Path]) -> Iterator[optc.Engine]:
    for name, folder in folders.items():
        engine.load_adapter(name, folder)
    yield engine
    for name in engine.adapters:
        engine.unload_adapter(name)


def transformers_tokens(model: Any, prompt: str) -> tuple[int, ...]:
    ids = AutoTokenizer.from_pretrained(MODEL)(prompt, return_tensors="pt").input_ids
    out = model.generate(ids, max_new_tokens=24, min_new_tokens=24, do_sample=False)
    return tuple(out[0, ids.shape[1] :].tolist())


def test_one_batch_of_several_adapters_equals_peft(
    adapted: optc.Engine, folders: dict[str, Path]
) -> None:
    names = [None, *folders]
    handles = {
        (name, prompt): adapted.submit(prompt, GREEDY, adapter=name)
        for prompt in PROMPTS
        for name in names
    }
    got = {key: handle.result().token_ids for key, handle in handles.items()}
    for name in names:
        model = base() if name is None else PeftModel.from_pretrained(base(), folders[name])
        for prompt in PROMPTS:
            assert got[name, prompt] == transformers_tokens(model, prompt), (name, prompt)
    for prompt in PROMPTS:  # alone as in the batch
        alone = adapted.generate([prompt], GREEDY, adapter="all")[0]
        assert alone.token_ids == got["all", prompt]
    assert any(got["all", prompt] != got[None, prompt] for prompt in PROMPTS)


def test_prompts_are_scored_with_their_adapters(
    adapted: optc.Engine, folders: dict[str, Path]
) -> None:
    """Several in one step, against PEFT's softmax."""
    names = [None, *folders]
    params = optc.SamplingParams(max_tokens=0, prompt_logprobs=0)
    handles = {name: adapted.submit(PROMPTS[0], params, adapter=name) for name in names}
    totals = set()
    for name, handle in handles.items():
        model = base() if name is None else PeftModel.from_pretrained(base(), folders[name])
        found = handle.result().prompt_logprobs
        assert found is not None
        ids = torch.tensor(found.token_ids)[None].long()
        with torch.no_grad():
            expected = model(ids).logits[0, :-1].log_softmax(-1)
        expected = expected[torch.arange(ids.shape[1] - 1), ids[0, 1:]]
        assert found.logprobs.tolist() == pytest.approx(expected.tolist(), abs=1e-3), name
        totals.add(round(found.total, 2))
    assert len(totals) == len(names)


def test_prefixes_are_not_shared_between_adapters(
    adapted: optc.Engine, folders: dict[str, Path]
) -> None:
    prompt = "def shared_prefix(first, second, third):\n    return first" * 3

    def cached(name: str | None) -> int:
        return adapted.generate([prompt], GREEDY, adapter=name)[0].metrics.cached_tokens

    assert cached(None) == 0
    assert cached("all") == 0
    assert cached("all") > 0
    adapted.unload_adapter("all")
    adapted.load_adapter("all", folders["attention"])  # another one of that name
    assert cached("all") == 0


def test_running_requests_keep_an_unloaded_adapter(
    adapted: optc.Engine, folders: dict[str, Path]
) -> None:
    want = adapted.generate([PROMPTS[0]], GREEDY, adapter="attention")[0].token_ids
    handle = adapted.submit(PROMPTS[0], GREEDY, adapter="attention")
    adapted.unload_adapter("attention")
    assert adapted.adapters == ("all",)
    with pytest.raises(RequestError, match="no adapter 'attention' is loaded"):
        adapted.submit(PROMPTS[0], GREEDY, adapter="attention")
    assert handle.result().token_ids == want
    adapted.load_adapter("attention", folders["attention"])  # its slot is free again


def test_what_never_reaches_the_engine_gives_its_adapter_back(
    adapted: optc.Engine, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise UnavailableError("llguidance is not installed")

    monkeypatch.setattr("optc.runtime.structured.compiler.GrammarCompiler.constraints", unavailable)
    structured = optc.SamplingParams(regex="a+")
    with pytest.raises(UnavailableError):
        adapted.generate(["a", "b"], [GREEDY, structured], adapter="all")
    adapted.unload_adapter("all")
    adapted.load_adapter("all", folders["all"])  # the only other slot is taken


def test_refusals(adapted: optc.Engine, folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="all 2 places for adapters are in use"):
        adapted.load_adapter("third", folders["all"])
    with pytest.raises(RequestError, match="no adapter 'unknown' is loaded"):
        adapted.generate([PROMPTS[0]], GREEDY, adapter="unknown")
    with pytest.raises(InputError, match=r"no adapter_config\.json"):
        adapted.load_adapter("none", tmp_path)
