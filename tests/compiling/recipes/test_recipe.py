from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from optc import registry
from optc.compiling.recipes.recipe import Recipe, load_recipe
from optc.compiling.recipes.recipe_additions import (
    calibrates,
    with_adapters,
    with_budget,
    with_medusa,
)
from optc.errors import InputError
from optc.ir.pipeline import registry as pass_registry
from optc.passes.kv_cache.medusa_heads import MedusaHeads
from optc.passes.prune.weights.prune_weights import PruneWeights
from optc.passes.quantize.quantize_weights import QuantizeWeights
from tests.support.pipelines import pipeline_of

MINIMAL = "name: mine\npipeline: [canonicalize, kv-cache]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.yaml"
    path.write_text(text)
    return path


SHIPPED = {
    *("fp32", "bf16-fused", "int8-fused", "int8-smooth", "int8-gptq", "int8-a16"),
    *("int4-fast", "int4-fused", "int6-fused"),
    *("mixed-3", "mixed-4"),
    *("prune-2to4-int8", "prune-50-int8", "prune-depth-int8", "prune-width-int8"),
    *("kv-int4", "vocab-trim-int4"),
    *(
        "diffusion-fp32",
        "diffusion-fp16",
        "tensors-fp32",
        "encoder-int8",
        "encoder-bf16",
        "products-int8",
    ),
    *("speech-fp32", "speech-int8"),
    *("text2text-fp32", "text2text-int8"),
    *("vision-int8", "vision-fp16"),
    *("int3-fused", "int2-fused"),
    *("trt-fp16", "trt-int8", "trt-int4", "trt-int8-qdq", "trt-fp8", "trt-nvfp4"),
}
#: Passes that leave a model as it is where nothing can be rotated.
ROTATING = ["rotate-kv", "rotate-activations"]


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_shipped_recipes_are_valid_and_state_their_gates(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name
    assert recipe.description
    judged = {name for name, bound in recipe.gates.items() if bound is not None}
    if recipe.task == "tensors":
        assert judged & {"output_error", "cosine_mean", "sqnr_db"}
    elif recipe.task == "transcription":
        assert judged & {"token_agreement", "transcript_agreement"}
    elif recipe.task == "text-to-text":
        assert judged & {"token_agreement", "text_agreement"}
    elif recipe.task == "image-generation":
        assert judged & {"psnr_db", "ssim"}
    else:
        assert {"kl_mean", "top1_agreement"} <= judged
    assert pipeline_of(recipe.pipeline.spec()) == recipe.pipeline


def test_no_other_recipe_is_shipped_untested() -> None:
    assert set(registry.recipe_files()) == SHIPPED


def test_bounds_of_the_quantized_recipes() -> None:
    """Less exact recipes have wider ones: `--recipe auto` tries them in that order."""
    int8 = load_recipe("int8-fused").gates
    assert (int8["kl_mean"], int8["top1_agreement"]) == (0.0065, 0.935)
    assert load_recipe("int8-gptq").gates == int8
    wide = load_recipe("int8-a16").gates
    assert (wide["kl_mean"], wide["top1_agreement"]) == (0.0004, 0.985)
    order = ("int8-a16", "int8-fused", "int6-fused", "int4-fused", "kv-int4", "int4-fast")
    order += ("int3-fused", "mixed-3", "int2-fused")
    for finer, coarser in pairwise(load_recipe(name).gates for name in order):
        for gate in ("kl_mean", "kl_p99", "perplexity_ratio"):
            assert (finer[gate] or 0) <= (coarser[gate] or 0)
        assert (finer["top1_agreement"] or 0) >= (coarser["top1_agreement"] or 1)
    kept = {name for name in registry.recipe_files() if "copy_nll_added" in load_recipe(name).gates}
    assert kept == {"kv-int4"}  # of a KV cache of few bits alone
    assert load_recipe("vocab-trim-int4").gates == load_recipe("int4-fused").gates
    width, depth = load_recipe("prune-width-int8").gates, load_recipe("prune-depth-int8").gates
    assert (width["kl_mean"], width["perplexity_ratio"]) == (0.04, 1.042)
    assert (depth["kl_mean"], depth["perplexity_ratio"]) == (0.045, 1.045)
    assert load_recipe("trt-nvfp4").gates == load_recipe("trt-int4").gates


def test_int8_gptq_is_int8_fused_with_more_text_and_corrections() -> None:
    fused, gptq = (load_recipe(name).pipeline.spec() for name in ("int8-fused", "int8-gptq"))
    assert gptq == fused.replace("{windows=8,strength=0.0}", "")
    wide = load_recipe("int8-a16").pipeline.spec()
    wide = wide.replace("allocate-activations{budget=2.0},", "")
    gptq = gptq.replace("rotate-kv,rotate-activations,", "")  # 16 bits have room for outliers
    gptq = gptq.replace("kv-cache{dtype=int8,query_bits=8}", "kv-cache{dtype=float16}")
    given = "{method=gptq,given_activation_bits=16}"
    assert wide == gptq.replace(given, "{activation_bits=16,method=gptq}")


def test_int6_fused_is_int4_fused_with_more_bits() -> None:
    four, six = (load_recipe(name).pipeline.spec() for name in ("int4-fused", "int6-fused"))
    six = six.replace("allocate-activations{budget=1.1},", "").replace(",activation_bits=16,", ",")
    assert six.replace("{bits=6,", "{bits=4,") == four


def test_kv_types_of_the_shipped_recipes() -> None:
    chosen = {
        name: next(
            one.stated_options().get("dtype")
            for one in load_recipe(name).pipeline.passes
            if one.name == "kv-cache"
        )
        for name in registry.recipe_files()
        if load_recipe(name).backend == "tvm" and load_recipe(name).task == "text-generation"
    }
    assert chosen == {
        "fp32": None,
        "bf16-fused": "float16",
        "int8-fused": "int8",
        "int8-smooth": "int8",
        "int8-gptq": "int8",
        "int8-a16": "float16",
        "int4-fast": "int8",
        "int4-fused": "int8",
        "int6-fused": "int8",
        "mixed-3": "int8",
        "mixed-4": "int8",
        "prune-2to4-int8": "int8",
        "prune-50-int8": "int8",
        "kv-int4": "int4",
        "vocab-trim-int4": "int8",
        "int3-fused": "int8",
        "int2-fused": "int8",
        "prune-depth-int8": "int8",
        "prune-width-int8": "int8",
    }


def test_a_recipe_file_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + "gates: {kl_mean: 0.5}\n")
    for source in (path, str(path)):
        recipe = load_recipe(source)
        assert [one.name for one in recipe.pipeline.passes] == ["canonicalize", "kv-cache"]
        assert recipe.gates == {"kl_mean": 0.5}
        assert recipe.backend == "tvm"


def test_set_overrides_options_and_the_recipe_json_shows_it() -> None:
    recipe = load_recipe(
        "int4-fast", sets=["quantize-weights.group_size=64", "quantize-weights.head=false"]
    )
    assert "quantize-weights{bits=4,group_size=64," in recipe.pipeline.spec()
    step = next(s for s in recipe.to_json()["pipeline"] if s["name"] == "quantize-weights")
    assert step["options"]["group_size"] == 64
    assert step["options"]["head"] is False


def test_engines_of_other_kinds_get_options_of_their_own_unless_the_user_says_otherwise() -> None:
    recipe = load_recipe("int4-fast")
    text = "group_scales=int"
    for kinds, integers in [({"tvm", "cpu"}, True), ({"onnxruntime", "cpu"}, False),
                            ({"tvm", "cpu", "cuda"}, False)]:  # fmt: skip
        assert (text in recipe.for_kinds(kinds).pipeline.spec()) == integers
    kept = recipe.for_kinds({"onnxruntime"}, ["quantize-weights.group_scales"])
    assert text in kept.pipeline.spec()
    assert "for_engines" not in recipe.to_json()


@pytest.mark.parametrize("name", sorted(SHIPPED - {"encoder-int8"}))  # which has one engine
@pytest.mark.parametrize(
    ("kinds", "rotates"),
    [
        ({"tvm", "cpu"}, True),
        ({"tvm-cuda", "cuda"}, True),
        ({"onnxruntime", "cpu"}, False),
        ({"onnxruntime", "cuda"}, False),
        ({"tensorrt", "cuda"}, False),
    ],
)
def test_engines_with_kernels_that_rotate_are_given_what_is_rotated(
    name: str, kinds: set[str], rotates: bool
) -> None:
    passes = load_recipe(name).for_kinds(kinds).pipeline.passes
    blocks = [one.stated_options().get("block") for one in passes if one.name in ROTATING]
    assert blocks == [None if rotates else 0] * len(blocks)


def test_options_for_engines_are_checked_when_the_recipe_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + "for_engines: {cuda: {fuse-qkv.optional: true}}\n")
    message = refused(path)
    assert "does not run the pass 'fuse-qkv'" in message
    assert "mine.yaml, for_engines" in message


def test_gate_overrides_bounds_and_none_stops_judging() -> None:
    recipe = load_recipe("int8-fused", gates=["kl_mean=0.5", "top1_agreement=none"])
    assert recipe.gates["kl_mean"] == 0.5
    assert recipe.gates["top1_agreement"] is None


def test_one_word_stops_judging_all_gates() -> None:
    named = set(load_recipe("int8-fused").gates)
    assert load_recipe("int8-fused", gates=["none"]).gates == dict.fromkeys(named)
    kept = load_recipe("int8-fused", gates=["kl_p99=3", "none", "kl_mean=0.5"]).gates
    assert {name: bound for name, bound in kept.items() if bound is not None} == {"kl_mean": 0.5}


def test_mixed_recipes_differ_in_budget_and_bounds_only() -> None:
    three, four = load_recipe("mixed-3"), load_recipe("mixed-4")
    changed = load_recipe("mixed-3", sets=["allocate-bits.budget=4bpw"])
    assert changed.pipeline == four.pipeline != three.pipeline
    assert (three.gates["kl_mean"] or 0) > (four.gates["kl_mean"] or 0)


def test_pruned_recipes_are_int8_fused_behind_one_pass() -> None:
    plain = [
        QuantizeWeights() if isinstance(one, QuantizeWeights) else one
        for one in load_recipe("int8-fused").pipeline.passes
        if one.name not in {"latent-kv", *ROTATING, "propagate-errors"}
    ]
    for name, label in (("prune-2to4-int8", "2:4"), ("prune-50-int8", "50 %")):
        recipe = load_recipe(name)
        assert [one for one in recipe.pipeline.passes if one.name != "prune-weights"] == plain
        (prune,) = (one for one in recipe.pipeline.passes if one.name == "prune-weights")
        assert isinstance(prune, PruneWeights)
        assert prune.amounts.default.label == label
        assert calibrates(recipe)


def test_optional_passes_keep_that_mark(tmp_path: Path) -> None:
    text = "name: m\npipeline:\n  - canonicalize\n  - fuse-qkv: {optional: true}\n  - kv-cache\n"
    recipe = load_recipe(written(tmp_path, text))
    assert recipe.pipeline.spec() == "canonicalize,fuse-qkv{optional=true},kv-cache"
    assert recipe.pipeline.optional == {"fuse-qkv"}


def test_a_step_can_be_required(tmp_path: Path) -> None:
    text = "name: m\npipeline:\n  - canonicalize\n  - fuse-qkv: {required: true}\n  - kv-cache\n"
    recipe = load_recipe(written(tmp_path, text))
    assert recipe.pipeline.spec() == "canonicalize,fuse-qkv{required=true},kv-cache"
    assert recipe.pipeline.required == {"fuse-qkv"}
    by_option = load_recipe("fp32", sets=["fuse-qkv.required=true"])
    assert by_option.pipeline.required == {"fuse-qkv"}
    refusal = refused(written(tmp_path, text.replace("required: true", "required: 3")))
    assert "required" in refusal


def test_what_changes_the_result_is_required_and_what_only_speeds_it_up_is_not() -> None:
    known = pass_registry.passes()
    fusions = {p.name for p in pass_registry.pass_groups()["fuse"]}
    assert {name for name, one in known.items() if one.expected} == fusions
    for group in ("quantize", "adapters"):
        wanted = [p for p in pass_registry.pass_groups()[group] if p.name not in ROTATING]
        assert all(p.required for p in wanted)
    assert not any(one.required and one.expected for one in known.values())


def test_a_group_stands_for_its_passes(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path, "name: m\npipeline: [canonicalize, kv_cache]\n"))
    members = [p.name for p in pass_registry.pass_groups()["kv_cache"]]
    assert [one.name for one in recipe.pipeline.passes] == ["canonicalize", *members]
    with pytest.raises(InputError, match="the group 'kv_cache' takes no options"):
        load_recipe(written(tmp_path, "name: m\npipeline: [{kv_cache: {a: 1}}]\n"))


def refused(source: str | Path, *, sets: tuple[str, ...] = (), gates: tuple[str, ...] = ()) -> str:
    with pytest.raises(InputError) as caught:
        load_recipe(source, sets=sets, gates=gates)
    return caught.value.render()


def test_unknown_names_are_told_with_the_nearest_one(tmp_path: Path) -> None:
    assert refused("int8-fusd") == (
        "--recipe: unknown recipe 'int8-fusd' (did you mean 'int8-fused'?)"
    )
    assert (
        "one of bf16-fused, diffusion-fp16, diffusion-fp32, encoder-bf16, encoder-int8, fp32"
        in refused("zzz")
    )
    path = written(tmp_path, "name: m\npipeline: [canonicalise]\n")
    assert refused(path) == (f"{path}: unknown pass 'canonicalise' (did you mean 'canonicalize'?)")
    path = written(tmp_path, MINIMAL + "gate: {}\n")
    assert refused(path) == f"{path}: unknown key 'gate' (did you mean 'gates'?)"
    path = written(tmp_path, MINIMAL + "gates: {kl_meen: 1}\n")
    assert refused(path) == f"{path}: unknown gate 'kl_meen' (did you mean 'kl_mean'?)"


def test_unknown_passes_are_answered_with_passes_and_groups_each_once() -> None:
    passes, groups = pass_registry.passes(), pass_registry.pass_groups()
    text = refused("fp32", sets=("foo.bar=1",))
    listed = text.removesuffix(")").split("passes: ")[1]
    assert listed.split("; groups: ")[0].split(", ") == list(passes)
    assert listed.split("; groups: ")[1].split(", ") == [g for g in groups if g not in passes]
    assert refused("fp32", sets=("fuse.bits=4",)).startswith(
        "--set: 'fuse' is a group of passes (name one of them: fuse-qkv, fuse-gate-up, "
    )


def test_bad_overrides_say_what_is_wrong() -> None:
    assert refused("fp32", sets=("bits=4",)) == "--set: 'bits=4' is not pass.option=value"
    assert refused("fp32", sets=("quantize-weight.bits=4",)) == (
        "--set: unknown pass 'quantize-weight' (did you mean 'quantize-weights'?)"
    )
    assert "the recipe does not run the pass 'quantize-weights'" in refused(
        "fp32", sets=("quantize-weights.bits=4",)
    )
    assert "unknown option 'bitz' (options: bits" in refused(
        "int4-fast", sets=("quantize-weights.bitz=4",)
    )
    assert "option bits='four' is not a int" in refused(
        "int4-fast", sets=("quantize-weights.bits=four",)
    )
    assert refused("fp32", gates=("kl_mean",)) == (
        "--gate: 'kl_mean' is not name=bound ('none' alone measures all gates and judges none)"
    )
    for bound in ("low", "nan", "inf"):
        message = refused("fp32", gates=(f"kl_mean={bound}",))
        assert f"the bound {bound!r} of 'kl_mean' is not a number" in message


def test_files_that_are_no_recipes(tmp_path: Path) -> None:
    assert "cannot read the recipe: No such file" in refused(tmp_path / "absent.yaml")
    assert "is not YAML" in refused(written(tmp_path, "a: [1"))
    assert "is not a mapping" in refused(written(tmp_path, "- a"))
    assert "'pipeline' must be a list with at least one pass" in refused(
        written(tmp_path, "name: m\npipeline: []\n")
    )
    assert "the key 'name' is missing" in refused(written(tmp_path, "pipeline: [canonicalize]\n"))
    assert "is no pipeline entry" in refused(written(tmp_path, "name: m\npipeline: [3]\n"))
    assert "is no pipeline entry" in refused(written(tmp_path, "name: m\npipeline: [{a: 3}]\n"))
    for bound in ("low", ".nan", ".inf"):
        path = written(tmp_path, MINIMAL + f"gates: {{kl_mean: {bound}}}\n")
        assert "gates.kl_mean" in refused(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 3000, "is nested too deeply"),
        ("name: !!float x\n", "holds a value that YAML does not allow"),
        ("name: !!timestamp x\n", "holds a value that YAML does not allow"),
        ("name: !!bool x\n", "holds a value that YAML does not allow"),
        ("name: 2001-99-01\n", "holds a value that YAML does not allow"),
        ('name: "\\ud800"\npipeline: [canonicalize]\n', "holds what no manifest can: .*surrogat"),
        ("name: m\npipeline: [quantize-weights: {bits: .nan}]\n", "bits=nan is not a int"),
        (
            f"name: m\npipeline: [kv-cache: {{dtype: 0x{'f' * 5000}}}]\n",
            "dtype=a value of type int is not a str",
        ),
        ("x" * 70_000, "has 70000 characters, a recipe 65536 at most"),
    ],
    ids=lambda text: text[:20],
)
def test_values_that_no_recipe_holds(tmp_path: Path, text: str, message: str) -> None:
    assert re.search(message, refused(written(tmp_path, text)))


def test_overrides_are_valid_unicode() -> None:
    assert "dtype='\\udcff' is not a str" in refused("fp32", sets=("kv-cache.dtype=\udcff",))


def test_a_value_of_many_aliases_is_refused_in_few_words(tmp_path: Path) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{n}: &{n} [{', '.join(['*' + m] * 9)}]" for m, n in pairwise("abcdefghijkl")]
    text = "\n".join([*lines, "name: m", "pipeline: [*l]", ""])
    assert len(refused(written(tmp_path, text))) < 1000


def test_an_order_that_a_pass_forbids_is_refused(tmp_path: Path) -> None:
    text = "name: m\npipeline: [kv-cache, canonicalize]\n"
    assert "canonicalize takes an exported decoder" in refused(written(tmp_path, text))


def test_a_recipe_begins_with_an_exported_decoder(tmp_path: Path) -> None:
    text = "name: m\npipeline: [kv-cache]\n"
    said = refused(written(tmp_path, text))
    assert "kv-cache takes the dense form, and is given an exported decoder" in said


def names(recipe: Recipe) -> list[str]:
    return [one.name for one in recipe.pipeline.passes]


@pytest.mark.parametrize("recipe", ["mixed-4", "int4-fast", "int4-fused"])
def test_a_budget_sets_or_adds_the_pass_that_keeps_it(recipe: str) -> None:
    changed = with_budget(load_recipe(recipe), "3.5bpw")
    found = [name for name in names(changed) if name != "latent-kv"]
    assert found[:4] == ["canonicalize", *ROTATING, "allocate-bits"]
    assert names(changed).count("allocate-bits") == 1
    (entry,) = (e for e in changed.to_json()["pipeline"] if e["name"] == "allocate-bits")
    assert entry["options"] == {"budget": "3.5bpw"}


def test_formats_are_chosen_behind_a_calibration(tmp_path: Path) -> None:
    quantize = "{bits: 4, group_size: 32, symmetric: false, group_scales: int, head_bits: 6}"
    passes = f"canonicalize, {{calibrate: {{hessians: true}}}}, {{quantize-weights: {quantize}}}"
    path = written(tmp_path, f"name: m\npipeline: [{passes}]\n")
    recipe = with_budget(load_recipe(path), "1MB")
    assert names(recipe) == ["canonicalize", "calibrate", "allocate-bits", "quantize-weights"]


def test_formats_are_chosen_for_the_pruned_model(tmp_path: Path) -> None:
    quantize = "{bits: 4, group_size: 32, symmetric: false, group_scales: int, head_bits: 6}"
    passes = f"canonicalize, prune-depth, prune-width, {{quantize-weights: {quantize}}}"
    path = written(tmp_path, f"name: m\npipeline: [{passes}]\n")
    recipe = with_budget(load_recipe(path), "1MB")
    assert names(recipe)[1:4] == ["prune-depth", "prune-width", "allocate-bits"]


def test_a_budget_may_prune_too_behind_what_prunes_to_a_target(tmp_path: Path) -> None:
    recipe = with_budget(load_recipe("mixed-3"), "2.5bpw,prune")
    first = ["canonicalize", "prune-to-budget", "latent-kv", *ROTATING, "allocate-bits"]
    assert names(recipe)[:6] == first
    assert recipe.to_json()["pipeline"][5]["options"] == {"budget": "2.5bpw"}
    assert names(with_budget(recipe, "3bpw, prune")) == names(recipe)
    quantize = "{bits: 4, group_size: 32, symmetric: false, group_scales: int, head_bits: 6}"
    passes = f"canonicalize, prune-width, prune-weights, {{quantize-weights: {quantize}}}"
    path = written(tmp_path, f"name: m\npipeline: [{passes}]\n")
    changed = names(with_budget(load_recipe(path), "1MB,prune"))
    assert changed[1:5] == ["prune-width", "prune-to-budget", "prune-weights", "allocate-bits"]


def test_a_budget_chooses_among_nothing_else() -> None:
    with pytest.raises(InputError) as caught:
        with_budget(load_recipe("mixed-3"), "3bpw,heads")
    assert str(caught.value) == (
        "--budget: 'heads' is nothing that a budget can choose among beside bits "
        "(write 3bpw,prune or 3bpw)"
    )


@pytest.mark.parametrize("recipe", ["int8-fused", "fp32"])
def test_a_budget_needs_weights_that_can_be_mixed(recipe: str) -> None:
    with pytest.raises(InputError) as caught:
        with_budget(load_recipe(recipe), "3.5bpw")
    assert str(caught.value) == (
        f"--budget: the recipe {recipe!r} quantizes no weights to integer scales of groups "
        "(take mixed-4, or one with integer scales of groups (group_scales=int))"
    )


def test_room_for_adapters() -> None:
    recipe = with_adapters(load_recipe("fp32"), "max=2, rank=32")
    assert recipe.pipeline.spec().endswith(",adapters{max=2,rank=32}")
    for text, message in {
        "max": "'max' is not option=value",
        "slots=3": "unknown option 'slots'",
        "max=many": "option max='many' is not a int",
    }.items():
        with pytest.raises(InputError, match=message):
            with_adapters(load_recipe("fp32"), text)
    with pytest.raises(InputError, match="'fp32' runs the pass adapters already"):
        with_adapters(recipe, "max=1")
    with pytest.raises(InputError, match="'kv-int4' scales projections of queries and keys"):
        with_adapters(load_recipe("kv-int4"), "max=1")


def test_medusa_heads_come_behind_the_cache_which_takes_trees() -> None:
    recipe = with_medusa(load_recipe("fp32"), Path("heads"), "ab")
    assert "kv-cache{tree=true},medusa-heads{sha256=ab}," in recipe.pipeline.spec()
    with pytest.raises(InputError, match="'fp32' adds heads already"):
        with_medusa(recipe, Path("heads"), "ab")
    odd = with_medusa(load_recipe("fp32"), Path("a,{b"), "ab").pipeline.passes
    assert [one.folder for one in odd if isinstance(one, MedusaHeads)] == ["a,{b"]


def test_a_recipe_is_stored_without_paths() -> None:
    recipe = with_medusa(load_recipe("fp32"), Path("heads"), "ab")
    stored = {step["name"]: step["options"] for step in recipe.to_json()["pipeline"]}
    assert stored["medusa-heads"] == {"sha256": "ab"}
    assert stored["kv-cache"] == {"tree": True}
    assert "folder" not in recipe.pipeline.spec()


def test_options_of_a_half_are_its_own(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(
        "name: r\ntask: transcription\npipeline: [simplify]\n"
        "encoder:\n  pipeline: [pack-rows, quantize-weights: {group_size: 64}]\n"
        "decoder:\n  pipeline: [canonicalize, kv-cache, quantize-weights: {group_size: 64}]\n"
    )
    sets = ["quantize-weights.group_size=32", "pack-rows.kv_dtype=bfloat16"]
    recipe = load_recipe(path, sets=sets)
    assert {key: part.backend for key, part in recipe.parts.items()} == {
        "encoder": "tvm",
        "decoder": "tvm",
    }
    stated = recipe.to_json()
    for key in recipe.parts:
        assert stated[key]["pipeline"][-1]["options"]["group_size"] == 32
    assert stated["encoder"]["pipeline"][0]["options"] == {"kv_dtype": "bfloat16"}
    with pytest.raises(InputError, match="does not run the pass 'fuse-qkv'"):
        load_recipe(path, sets=["fuse-qkv.x=1"])
    both = path.read_text().replace("[simplify]", "[simplify, fuse-qkv]")
    path.write_text(both.replace("[canonicalize", "[kv-cache"))
    with pytest.raises(InputError, match="kv-cache takes the dense form"):
        load_recipe(path)
    path.write_text("name: r\npipeline: [canonicalize]\ndecoder: {pipelines: []}\n")
    with pytest.raises(InputError, match=r"the key 'decoder\.pipeline' is missing"):
        load_recipe(path)
    path.write_text("name: r\npipeline: [simplify]\nencoder: {pipeline: [canonicalize]}\n")
    with pytest.raises(InputError, match="canonicalize takes an exported decoder"):
        load_recipe(path)
