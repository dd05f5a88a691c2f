"""Image generation: noise becomes images, judged beside those of the source."""

from __future__ import annotations

from optc.artifact.tasks.task import SPEED, Measure, Task

#: Name of the task, and of its face.
IMAGE_GENERATION_NAME = "image-generation"
#: Roles of the engines beside the denoiser: of the prompt's encoder, and of the latents' decoder.
TEXT_ENCODER, LATENT_DECODER = "text-encoder", "latent-decoder"
#: Sources of measures: whole images, and single steps of the denoiser.
IMAGES, STEPS = "images", "steps"

IMAGE_GENERATION = Task(
    name=IMAGE_GENERATION_NAME,
    face=IMAGE_GENERATION_NAME,
    reference="the PyTorch modules in float32, from the same noise by the same steps",
    roles={"target": "tensors", TEXT_ENCODER: "tensors", LATENT_DECODER: "tensors"},
    measures=(
        Measure(
            "psnr_db",
            "peak signal to noise ratio of images to the reference's, mean, decibels; 100 where "
            "there is no difference",
            IMAGES,
            upper=False,
        ),
        Measure(
            "ssim",
            "structural similarity of images to the reference's, mean",
            IMAGES,
            upper=False,
            ideal=1,
        ),
        Measure(
            "step_sqnr_db",
            "power of the denoiser's outputs over that of their error, at the reference's own "
            "states, decibels; 200 where there is none",
            STEPS,
            upper=False,
        ),
        Measure(
            "generation_speedup",
            "generation of an image, times the speed of the float32 graphs in ONNX Runtime",
            SPEED,
            upper=False,
        ),
    ),
)
