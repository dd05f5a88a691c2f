"""Images become the input of a model: read, resized, cropped, scaled and normalized, by NumPy and
Pillow, as a Hugging Face folder's ``preprocessor_config.json`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from optc.errors import InputError, RequestError, UnsupportedError
from optc.runtime.tensors.pictures import Pixels, eight_bits, opened_image, pillow
from optc.system.foreign.file import read_file

if TYPE_CHECKING:
    from PIL import Image

Float32 = npt.NDArray[np.float32]
#: Endings of files that are images.
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
#: ConvNeXt's processor crops below this edge, and squeezes from it on.
_SQUEEZED = 384
#: Keys of preprocessor_config.json that change pixels otherwise than below.
_UNKNOWN = (
    "do_pad",
    "rescale_offset",
    "do_flip_channel_order",
    "do_color_quantize",
    "do_thumbnail",
)


class ImageInput(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The steps from an image to a model's input, and the names of its classes.

    Attributes:
        input: Name of the model's input.
        size: Height and width that images are resized to; None keeps them.
        shortest: Pixels that the shorter side is resized to, its ratio kept, in place of ``size``.
        resample: Filter of Pillow by its number; 2 is bilinear, 3 bicubic.
        crop: Height and width of the middle that stays; None is all. Smaller images get 0 around.
        scale: Factor of pixels 0 to 255.
        mean, std: Of each channel, in the order of ``channels``, taken off and divided by; empty
            are 0 and 1.
        channels: Their order in the input.
        layout: Order of its axes.
        labels: Names of the classes, in order; empty calls them by their numbers.
        scores: Whether the output is ``logits`` or ``probabilities``.
    """

    input: str
    size: tuple[int, int] | None = None
    shortest: int | None = None
    resample: int = 2
    crop: tuple[int, int] | None = None
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    channels: Literal["rgb", "bgr", "gray"] = "rgb"
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    labels: tuple[str, ...] = ()
    scores: Literal["logits", "probabilities"] = "logits"

    @property
    def result(self) -> tuple[int, int] | None:
        """Height and width of what the model gets; None where they are the image's own."""
        return self.crop or self.size

    def batch(self, images: Sequence[Any]) -> list[Float32]:
        """The input of each image, without the axis of the batch.

        Args:
            images: Paths, images of Pillow, or arrays u8[H, W, 3], or u8[H, W] in gray.

        Raises:
            RequestError: One is none of these, or no image.
            UnavailableError: Pillow is missing, and one has to be read or resized.
        """
        return [self._tensor(one, f"image {index}") for index, one in enumerate(images)]

    def _tensor(self, image: Any, where: str) -> Float32:
        pixels = self._resized(_pixels(image, self.channels, where))
        if self.crop is not None:
            pixels = _cropped(pixels, *self.crop)
        found: npt.NDArray[Any] = pixels.astype(np.float32) * np.float32(self.scale)
        if self.channels == "bgr":
            found = found[:, :, ::-1]
        if self.mean:
            found = found - np.array(self.mean, np.float32)
        if self.std:
            found = found / np.array(self.std, np.float32)
        turned = found.transpose(2, 0, 1) if self.layout == "NCHW" else found
        return np.ascontiguousarray(turned, np.float32)

    def _resized(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if self.shortest is not None:
            short, long = min(height, width), max(height, width)
            scaled = int(self.shortest * long / short)
            wanted = (self.shortest, scaled) if height <= width else (scaled, self.shortest)
        else:
            wanted = self.size or (height, width)
        if wanted == (height, width):
            return pixels
        image = pillow().fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        resized = image.resize(wanted[::-1], resample=self.resample)
        return np.asarray(resized, np.uint8).reshape(*wanted, pixels.shape[2])


def parse_images(values: Mapping[str, Any], name: str, where: str) -> ImageInput:
    """The image input by keys of a Hugging Face ``preprocessor_config.json``, and of our own:
    ``channels`` (``rgb``, ``bgr``, ``gray``), ``layout`` (``NCHW``, ``NHWC``), ``labels`` (a list)
    and ``scores`` (``logits``, ``probabilities``).

    Args:
        values: The file's object.
        name: Of the model's input.
        where: For errors.

    Raises:
        InputError: A value is not of its kind.
        UnsupportedError: It asks for a step that is not known.
    """
    if odd := next((key for key in _UNKNOWN if values.get(key)), ""):
        raise UnsupportedError(
            f"asks for {odd}",
            where=where,
            hint="resize, center crop, rescale and normalize are known; give arrays by --inputs",
        )
    try:
        found = _steps(values)
        own = {
            key: values[key]
            for key in ("channels", "layout", "labels", "scores", "input")
            if key in values
        }
        return msgspec.convert({"input": name, **found, **own}, ImageInput)
    except (msgspec.ValidationError, TypeError, KeyError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"does not say how images are read: {error}", where=where) from error


def _steps(values: Mapping[str, Any]) -> dict[str, Any]:
    size = values.get("size") if values.get("do_resize", "size" in values) else None
    crop = values.get("crop_size") if values.get("do_center_crop", "crop_size" in values) else None
    found: dict[str, Any] = {"crop": None if crop is None else _pair(crop)}
    if isinstance(size, Mapping) and set(size) - {"height", "width", "shortest_edge"}:
        raise ValueError(f"size has {', '.join(sorted(size))}")
    if isinstance(size, Mapping) and "shortest_edge" in size:
        edge = int(size["shortest_edge"])
        if values.get("crop_pct") is None:
            found["shortest"] = edge
        elif edge < _SQUEEZED:
            found |= {"shortest": int(edge / values["crop_pct"]), "crop": (edge, edge)}
        else:
            found["size"] = (edge, edge)
    elif size is not None:
        found["size"] = _pair(size)
    if values.get("resample") is not None:
        found["resample"] = int(values["resample"])
    if values.get("do_rescale", True):
        found["scale"] = float(values.get("rescale_factor", 1 / 255))
    if values.get("do_normalize", "image_mean" in values):
        found |= {key: _numbers(values.get(f"image_{key}")) for key in ("mean", "std")}
    return found


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, Mapping):
        return int(size["height"]), int(size["width"])
    if isinstance(size, list | tuple):
        return int(size[0]), int(size[1])
    return int(size), int(size)


def _numbers(values: Any) -> tuple[float, ...]:
    if values is None:
        return ()
    return tuple(map(float, values)) if isinstance(values, list | tuple) else (float(values),)


def is_image(path: Path) -> bool:
    """True for a file that is called like an image."""
    return path.suffix.lower() in SUFFIXES


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and its folders, in order of their names.

    Raises:
        InputError: There are none.
    """
    found = sorted(path for path in folder.rglob("*") if is_image(path) and path.is_file())
    if not found:
        raise InputError(
            "has no images", where=str(folder), hint=f"files that end in {', '.join(SUFFIXES)}"
        )
    return found


def _pixels(image: Any, channels: str, where: str) -> Pixels:
    """u8[H, W, C] in the order red, green, blue, or gray."""
    mode = "L" if channels == "gray" else "RGB"
    if isinstance(image, str | Path):
        with _opened(Path(image)) as opened:
            array = eight_bits(opened, mode, str(image))
    elif isinstance(image, np.ndarray):
        array = image
    elif hasattr(image, "convert"):
        array = eight_bits(image, mode, where)
    else:
        raise RequestError(f"is a {type(image).__name__}", where=where, hint=_TAKEN)
    if array.ndim == 2:
        array = array[:, :, None]
    wanted = 1 if channels == "gray" else 3
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != wanted or not array.size:
        raise RequestError(
            f"is an array {array.dtype}{list(array.shape)}", where=where, hint=_TAKEN
        )
    return array


_TAKEN = "a path, an image of Pillow, or uint8 [height, width, 3] in the order red, green, blue"


def _opened(path: Path) -> Image.Image:
    try:
        data = read_file(path)
    except (OSError, ValueError) as error:
        reason = f"is no image that can be read: {error}"
        raise RequestError(reason, where=str(path)) from error
    return opened_image(BytesIO(data), str(path))


def _cropped(pixels: Pixels, height: int, width: int) -> Pixels:
    """The middle; what lies outside of the image is 0 (as in transformers' center_crop)."""
    own = pixels.shape[:2]
    top, left = (own[0] - height) // 2, (own[1] - width) // 2
    if top >= 0 and left >= 0:
        return pixels[top : top + height, left : left + width]
    tall, wide = max(height, own[0]), max(width, own[1])
    above, before = -(-(tall - own[0]) // 2), -(-(wide - own[1]) // 2)
    padded = np.zeros((tall, wide, pixels.shape[2]), np.uint8)
    padded[above : above + own[0], before : before + own[1]] = pixels
    top, left = top + above, left + before
    return padded[max(0, top) : top + height, max(0, left) : left + width]
