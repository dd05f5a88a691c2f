"""``optc compile --draft self:…``: a draft made of the target, its predicted gain, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from optc.artifact.artifact import Artifact
from optc.backend import BuildOptions, EngineBuild
from optc.compiling.training import memory
from optc.runtime.executable.executable import Executable, StepInterface
from optc.system.hardware.target import Target
from tests.cli.conftest import Optc, nothing_left
from tests.runtime.support.toy import ToyExecutable
from tests.support.stub import StubBackend, write_tiny_model


class Rounded(StubBackend):
    """Engines that say what bits of their weights tell, in files of such a size.

    Attributes:
        seeds: Of the toy model, by bits; the target's is 0.
    """

    def __init__(self, seeds: dict[int, int]) -> None:
        super().__init__()
        self.seeds = seeds

    def build(
        self, model: ir.Model, target: Target, workdir: Path, options: BuildOptions
    ) -> EngineBuild:
        made = super().build(model, target, workdir, options)
        bits = min(
            (n.attributes["bits"].as_int() for n in model.graph if "bits" in n.attributes),
            default=32,
        )
        data = {**made.backend_data, "seed": self.seeds.get(bits, 0), "bits": bits}
        (workdir / "weights.bin").write_bytes(bytes([bits]) * 32 * bits)
        return EngineBuild(made.files, made.spec, {}, data, {}, weight_bytes=32 * bits)

    def load(
        self, folder: Path, spec: StepInterface, data: dict[str, Any], threads: int
    ) -> Executable:
        assert (folder / "weights.bin").read_bytes() == bytes([data["bits"]]) * 32 * data["bits"]
        return ToyExecutable(spec, data["seed"])


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Of engines by bits; others speak as the target does."""
    from optc import registry

    found: dict[int, int] = {}
    backend = Rounded(found)
    monkeypatch.setattr(registry, "backend_names", lambda: ("stub", "tvm"))
    monkeypatch.setattr(registry, "backend", lambda name: backend)
    return found


@pytest.fixture
def compile_drafting(
    optc: Optc, seeds: dict[int, int], quick_import: None, tiny_model: Path, tmp_path: Path
) -> Optc:
    """Compiles the tiny model into ``tmp_path/out/a`` with all but a draft, judged by nothing."""
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 40)
    arguments = ("compile", tiny_model, "-o", tmp_path / "out/a", "--recipe", "fp32")
    read = ("--calibration", text, "--eval-text", text)

    def call(draft: str, *more: object) -> Any:
        return optc(*arguments, *read, "--draft", draft, *more)

    return call


def names(path: Path) -> list[str]:
    return [entry.name for entry in Artifact.open(path).manifest.engines]


def test_an_engine_of_fewer_bits_drafts_and_changes_no_token(
    optc: Optc, compile_drafting: Optc, measured: list[Any], tmp_path: Path
) -> None:
    outcome = compile_drafting("self:bits=3", "--json")
    assert outcome.code == 0
    draft = outcome.json["draft"]
    assert (draft["spec"], draft["recipe"]) == ("self:bits=3", "int3-fused")
    found = draft["prediction"]
    assert (found["acceptance"], found["cost"]) == (1.0, 3 / 32)
    cost = 1 + found["drafts"] * (3 / 32 + 0.03)
    assert found["gain"] == pytest.approx(found["tokens_per_pass"] / cost)
    assert found["gain"] > 3
    assert not [text for text in outcome.json["warnings"] if "draft" in text or "not used" in text]
    path = tmp_path / "out/a"
    assert names(path) == ["target", "draft"]
    assert Artifact.open(path).manifest.engines[1].source is None, "the target's own"
    passes = [run["name"] for run in Artifact.open(path).report()["draft"]["passes"]]
    assert "propagate-errors" in passes
    call = ("run", path, "--prompt", "abc", "--max-tokens", "20", "--ignore-eos", "--json")
    plain = optc(*call).json
    drafted = optc(*call, "--speculate", "draft", "--num-speculative-tokens", "3").json
    assert drafted["token_ids"] == plain["token_ids"]
    assert drafted["drafted_tokens"] == drafted["accepted_tokens"] > 0
    assert (
        "draft self:bits=3: accepted at 100% of places"
        in compile_drafting("self:bits=3", "--force").out
    )


def test_a_draft_that_was_wanted_and_hardly_pays_stays_with_a_warning(
    compile_drafting: Optc, seeds: dict[int, int], measured: list[Any], tmp_path: Path
) -> None:
    seeds[2] = 1
    outcome = compile_drafting("self:bits=2", "--json")
    (warning,) = (text for text in outcome.json["warnings"] if "draft" in text)
    assert warning.startswith("the draft may not pay: self:bits=2 is predicted to give 0.9")
    assert names(tmp_path / "out/a") == ["target", "draft"]


def test_auto_takes_what_gains_most(
    optc: Optc, compile_drafting: Optc, seeds: dict[int, int], tmp_path: Path
) -> None:
    """Two bits are the cheapest and say nothing right; measured without gates, too: it is asked."""
    seeds[2] = 1
    outcome = compile_drafting("self:auto", "--no-gates", "--json")
    assert outcome.code == 0
    draft = outcome.json["draft"]
    assert draft["spec"] == "self:bits=3"
    two, three = draft["candidates"]
    assert (two["spec"], three["spec"]) == ("self:bits=2", "self:bits=3")
    assert two["prediction"]["gain"] < 1 < three["prediction"]["gain"]
    assert three["prediction"] == draft["prediction"]
    path = tmp_path / "out/a"
    assert (path / "engines/draft/weights.bin").read_bytes() == bytes([3]) * 96
    assert optc("verify", path).code == 0
    assert [entry.data["bits"] for entry in Artifact.open(path).manifest.engines] == [32, 3]


def test_auto_makes_none_where_none_pays(
    compile_drafting: Optc, seeds: dict[int, int], tmp_path: Path
) -> None:
    seeds |= {2: 1, 3: 2}
    outcome = compile_drafting("self:auto", "--no-gates", "--json")
    assert outcome.code == 0
    (warning,) = (text for text in outcome.json["warnings"] if "draft" in text)
    assert warning.startswith("no draft: of self:auto, self:bits=2 is predicted to give 0.9")
    assert names(tmp_path / "out/a") == ["target"]
    assert not (tmp_path / "out/a/engines/draft").exists()
    assert [one["spec"] for one in outcome.json["draft"]["candidates"]] == [
        "self:bits=2",
        "self:bits=3",
    ]


def test_without_gates_a_draft_that_was_named_is_not_measured(compile_drafting: Optc) -> None:
    outcome = compile_drafting("self:bits=2", "--no-gates", "--json")
    draft = outcome.json["draft"]
    assert draft["prediction"] is None
    assert draft["not_measured"] == "the gates were switched off"


@pytest.mark.parametrize(
    ("draft", "problem"),
    [
        ("self:bits=9", "--draft self:bits=9: bits=9 (2, 3 or 4)"),
        ("self:distill=10m", "--draft self:distill=10m: distill trains what pruning leaves"),
        ("self:depth=0.1", "--draft self:depth=0.1, pass prune-depth: "),
    ],
)
def test_what_cannot_be_made_is_refused_before_the_build(
    compile_drafting: Optc, tmp_path: Path, draft: str, problem: str
) -> None:
    outcome = compile_drafting(draft)
    assert outcome.code == 2
    assert problem in outcome.err
    assert nothing_left(tmp_path)


def test_a_training_beyond_the_memory_is_refused_before_the_build(
    optc: Optc,
    stub: StubBackend,
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_IMPORTED", 1 << 40)
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "two", layers=2)
    draft = ("--draft", "self:depth=0.8,distill=10m", "--max-ram", "100GB", "--no-gates")
    outcome = optc("compile", model, "-o", tmp_path / "a", "--recipe", "fp32", *draft)
    assert outcome.code == 2
    expected = "--draft self:depth=0.8,distill=10m, --max-ram: the training is predicted to need 1,"
    assert expected in outcome.err
    assert nothing_left(tmp_path)


def test_sub_layers_are_taken_out(
    optc: Optc, stub: StubBackend, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    model = write_tiny_model(tmp_path_factory.mktemp("models") / "two", layers=2)
    text = tmp_path / "text.txt"
    text.write_text("def f(x):\n    return x\n" * 40)
    output, more = tmp_path / "a", ("--calibration", text, "--no-gates", "--json")
    draft = ("--draft", "self:depth=0.8")
    outcome = optc("compile", model, "-o", output, "--recipe", "fp32", *draft, *more)
    assert outcome.code == 0, outcome.err
    assert not [one for one in outcome.json["warnings"] if "not used" in one]
    target, drafting = Artifact.open(output).manifest.engines
    assert drafting.data["nodes"] < target.data["nodes"]
    passes = {run["name"]: run for run in Artifact.open(output).report()["draft"]["passes"]}
    assert passes["prune-depth"]["count"] > 0
    assert "prune-width" not in passes


def test_auto_needs_an_engine_that_runs_here(compile_engines: Optc) -> None:
    outcome = compile_engines("aot:sm_89", options=("--no-gates", "--draft", "self:auto"))
    assert outcome.code == 2
    assert (
        "--draft self:auto: none of the engines runs on this machine, and what drafts gain cannot "
        "be measured (name one: --draft self:bits=2)"
    ) in outcome.err


def test_what_does_not_run_here_is_not_measured(compile_engines: Optc) -> None:
    outcome = compile_engines(
        "aot:sm_89", options=("--allow-unmeasured", "--draft", "self:bits=2", "--json")
    )
    assert outcome.code == 0
    draft = outcome.json["draft"]
    assert draft["prediction"] is None
    assert draft["not_measured"].startswith("no engine runs here: ")


def test_what_pruning_leaves_learns_from_the_target(compile_drafting: Optc, tmp_path: Path) -> None:
    pool = tmp_path / "pool.txt"
    pool.write_text("".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(2000)))
    spec = "self:depth=0.5,distill=1s"
    outcome = compile_drafting(spec, "--draft-text", pool, "--no-gates", "--json")
    assert outcome.code == 0, outcome.err
    draft = Artifact.open(tmp_path / "out/a").report()["draft"]
    assert [run["name"] for run in draft["passes"]].count("trained-weights") == 1
    figures = draft["distilled"]
    assert figures["tokens"] > 0
    assert figures["kl"] <= figures["start_kl"]


@pytest.mark.parametrize(
    ("draft", "more", "problem"),
    [
        (
            "self:depth=0.5,distill=1m",
            ["--draft-text", "none.txt"],
            "--draft-text: no such file: none.txt",
        ),
        (
            "self:depth=0.5",
            ["--draft-text", "none.txt"],
            "--draft-text: no draft is trained (--draft self:depth=0.5,bits=4,distill=10m",
        ),
        (
            "self:depth=0.5,distill=1m",
            ["--recipe", "vocab-trim-int4"],
            "--draft self:depth=0.5,distill=1m: the recipe 'vocab-trim-int4' trims the vocabulary",
        ),
    ],
)
def test_what_a_training_needs_is_asked_first(
    compile_drafting: Optc, draft: str, more: list[str], problem: str, tmp_path: Path
) -> None:
    outcome = compile_drafting(draft, *more)
    assert outcome.code == 2
    assert problem in outcome.err
    nothing_left(tmp_path)
