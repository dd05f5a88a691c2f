"""Pipelines of diffusers as artifacts, and their images beside diffusers' own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import optc
from optc.artifact.artifact import Artifact
from optc.compiling.diffusion import compile as compiling
from optc.importer.tensors.diffusion import import_diffusion
from optc.importer.tensors.noise_levels import levels_of
from tests.compiling.diffusion import pipelines
from tests.compiling.diffusion.pipelines import diffusers, torch
from tests.support.cost.imported_once import import_once

PROMPTS = ["a red cat", "the sea"]


def _noise(shape: tuple[int, int, int], seed: int, count: int) -> Any:
    """The noise that optc draws, as diffusers takes it."""
    noise = [np.random.default_rng([seed, i]).standard_normal(shape) for i in range(count)]
    return torch.from_numpy(np.stack(noise).astype(np.float32))


@pytest.fixture(scope="module", autouse=True)
def imported_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        import_once(patch, compiling, import_diffusion)
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, imported_once: None) -> tuple[Path, Artifact]:
    """A pipeline that takes prompts, and its artifact in float32."""
    folder = tmp_path_factory.mktemp("text")
    source = pipelines.text_to_image(folder)
    return source, optc.compile(source, "diffusion-fp32", folder / "a")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline without prompts."""
    folder = tmp_path_factory.mktemp("plain")
    return pipelines.unconditional(folder / "p", diffusers.DDIMScheduler(num_train_timesteps=100))


@pytest.mark.parametrize(
    ("kind", "changes", "steps"),
    [
        ("DDIMScheduler", {}, 10),
        ("DDIMScheduler", {"timestep_spacing": "trailing"}, 8),
        ("EulerDiscreteScheduler", {"timestep_spacing": "leading"}, 10),
        ("EulerDiscreteScheduler", {"timestep_spacing": "trailing"}, 4),
        ("EulerDiscreteScheduler", {"timestep_spacing": "linspace"}, 7),
    ],
)
def test_images_are_those_of_diffusers(
    text: tuple[Path, Artifact], tmp_path: Path, kind: str, changes: dict[str, Any], steps: int
) -> None:
    source, artifact = text
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(source)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = getattr(diffusers, kind).from_config(pipeline.scheduler.config, **changes)
    pipeline.scheduler.set_timesteps(steps)
    latents = _noise((4, pipelines.SIZE, pipelines.SIZE), 5, 2)
    wanted = pipeline(
        PROMPTS,
        num_inference_steps=steps,
        latents=latents,
        negative_prompt=["dark"] * 2,
        output_type="np",
    ).images
    levels, warnings = levels_of(pipeline.scheduler, "here")
    assert not warnings
    with optc.load_image_generator(artifact.path) as generator:
        generator.conventions = msgspec.structs.replace(generator.conventions, levels=levels)
        found = generator.generate(
            PROMPTS, steps=steps, seed=5, negative_prompt="dark", batch_size=2
        )
    assert np.abs(found / 255 - wanted).max() <= 1.01 / 255


def test_another_scheduler_of_the_same_levels_is_said(text: tuple[Path, Artifact]) -> None:
    report = json.loads((text[1].path / "report.json").read_text())
    assert "its scheduler is PNDMScheduler; steps are those of DDIM" in report["warnings"][0]
    values = {gate["name"]: gate["value"] for gate in report["gates"]}
    assert values["psnr_db"] > 40
    assert values["ssim"] > 0.99
    assert values["step_sqnr_db"] > 60


def test_an_image_does_not_depend_on_others(text: tuple[Path, Artifact]) -> None:
    with optc.load_image_generator(text[1].path) as generator:
        both = generator.generate(PROMPTS, steps=3, batch_size=2)
        one = generator.generate(PROMPTS, steps=3)
        assert np.abs(both.astype(int) - one.astype(int)).max() <= 1
        other = generator.generate(PROMPTS, steps=3, seed=1)
        assert np.abs(both.astype(int) - other.astype(int)).max() > 10
        plain = generator.generate(PROMPTS[0], steps=3, guidance_scale=1)
        led = generator.generate(PROMPTS[0], steps=3, guidance_scale=30)
        assert np.abs(plain.astype(int) - led.astype(int)).max() > 1


def test_half_weights_take_half_the_bytes(text: tuple[Path, Artifact], tmp_path: Path) -> None:
    found = optc.compile(text[0], "diffusion-fp16", tmp_path / "a")

    def size(artifact: Artifact) -> int:
        return sum(one.bytes for one in artifact.manifest.files if "engines" in one.path)

    assert size(found) < 0.85 * size(text[1])  # graphs and small weights stay
    report = json.loads((found.path / "report.json").read_text())
    values = {gate["name"]: gate["value"] for gate in report["gates"]}
    assert 40 < values["step_sqnr_db"] < 100


def test_a_pipeline_without_prompts(plain: Path, tmp_path: Path) -> None:
    source = plain
    artifact = optc.compile(source, output=tmp_path / "a")
    assert artifact.manifest.recipe["name"] == "diffusion-fp32"
    pipeline = diffusers.DDIMPipeline.from_pretrained(source)
    with optc.load_image_generator(artifact.path) as generator:
        assert not generator.takes_prompts
        found = generator.generate(2, steps=5, batch_size=2)
    pipeline.scheduler.set_timesteps(5)
    sample = _noise((3, pipelines.SIZE, pipelines.SIZE), 0, 2)
    with torch.no_grad():
        for time in pipeline.scheduler.timesteps:
            predicted = pipeline.unet(sample, time).sample
            sample = pipeline.scheduler.step(predicted, time, sample).prev_sample
    wanted = (sample / 2 + 0.5).clamp(0, 1).permute(0, 2, 3, 1).numpy()
    assert np.abs(found / 255 - wanted).max() <= 1.01 / 255


def test_a_worse_engine_fails_its_gate(
    text: tuple[Path, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from optc.proof.gates.pictures import measure

    monkeypatch.setattr(measure, "psnr", lambda *_: 12.0)
    with pytest.raises(optc.GateError, match="psnr_db"):
        optc.compile(text[0], "diffusion-fp32", tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unet": ["diffusers", "NoSuchModel"]}, "diffusers has no class NoSuchModel"),
        ({"unet": ["mine", "Model"]}, "a class of 'mine' is not known"),
        ({"controlnet": ["diffusers", "ControlNetModel"]}, "its part 'controlnet' is not known"),
        ({"unet": [None, None]}, "it lists no denoiser"),
        ({"unet": ["diffusers"]}, "its unet names no class"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    source = pipelines.unconditional(tmp_path / "p")
    file = source / "model_index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(optc.OptcError, match=message.replace("(", r"\(")):
        optc.compile(source, output=tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (lambda: diffusers.LCMScheduler(), "the steps of its scheduler LCMScheduler"),
        (lambda: diffusers.FlowMatchEulerDiscreteScheduler(), "FlowMatchEulerDiscreteScheduler"),
        (lambda: diffusers.DDIMScheduler(thresholding=True), "thresholding of its scheduler"),
    ],
)
def test_other_schedulers_are_refused(tmp_path: Path, scheduler: Any, message: str) -> None:
    source = pipelines.unconditional(tmp_path / "p", scheduler())
    with pytest.raises(optc.UnsupportedError, match=message):
        optc.compile(source, output=tmp_path / "a")


def test_prompts_to_judge_by(text: tuple[Path, Artifact], plain: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("\n \n")
    with pytest.raises(optc.InputError, match="no file has a line"):
        optc.compile(text[0], output=tmp_path / "a", inputs=[empty])
    file = tmp_path / "prompts.txt"
    file.write_text("a dog\n")
    with pytest.raises(optc.InputError, match="the model takes no prompts"):
        optc.compile(plain, output=tmp_path / "a", inputs=[file])


@pytest.mark.parametrize(
    ("prompts", "settings", "message"),
    [
        (2, {}, "takes prompts"),
        ([], {}, "takes prompts"),
        ("a", {"steps": 0}, "0 steps"),
        ("a", {"steps": 1001}, "1001 steps"),
        ("a", {"batch_size": 0}, "0 images at once"),
        ("a", {"seed": -1}, "the seed -1"),
        ("a", {"guidance_scale": -1}, "the scale -1"),
    ],
)
def test_bad_requests(
    text: tuple[Path, Artifact], prompts: Any, settings: dict[str, Any], message: str
) -> None:
    with (
        optc.load_image_generator(text[1].path) as generator,
        pytest.raises(optc.RequestError, match=message),
    ):
        generator.generate(prompts, **settings)


def test_the_command_writes_images(text: tuple[Path, Artifact], tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from click.testing import CliRunner
    from PIL import Image

    from optc.cli.main import cli

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["run", str(text[1].path), *arguments])

    file = tmp_path / "picture.png"
    found = run("--prompt", "a cat", "--steps", "2", "--seed", "3", "--output", str(file))
    assert found.exit_code == 0, found.output
    with optc.load_image_generator(text[1].path) as generator:
        wanted = generator.generate("a cat", steps=2, seed=3)[0]
    assert np.array_equal(np.asarray(Image.open(file)), wanted)
    found = run("--prompt", "a", "--prompt", "b", "--steps", "1", "--output", str(file), "--json")
    assert json.loads(found.output)["images"] == [
        str(tmp_path / f"picture-{at}.png") for at in (1, 2)
    ]
    assert (tmp_path / "picture-2.png").exists()
    found = run("--prompt", "a", "--steps", "1", "--output", str(tmp_path / "picture.what"))
    assert isinstance(found.exception, optc.InputError)
    assert "picture.what" in str(found.exception)
    found = run("--prompt", "a cat", "--steps", "2")
    assert "Missing option '--output'" in found.output
    found = run("--prompt", "a cat", "--temperature", "1", "--output", str(file))
    assert "--temperature is not of models that make images" in found.output
    found = run("--prompt", "a cat", "--target-language", "de", "--output", str(file))
    assert "--target-language is of models that turn texts into texts" in found.output
