"""Images by Pillow: opened, upright, and in 8 bits."""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from optc.errors import RequestError, UnavailableError
from optc.system.logs.logger import logger

if TYPE_CHECKING:
    from PIL import Image

Pixels = npt.NDArray[np.uint8]
#: What Pillow raises at damaged Exif data.
_OF_DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, OSError, SyntaxError, TypeError, ValueError),
    struct.error,
)
#: Pixels of the largest image.
_MOST_PIXELS = 1 << 28


def opened_image(source: IO[bytes], where: str, most: int = _MOST_PIXELS) -> Image.Image:
    """An image of a file, turned as its Exif data say, as cameras leave it to readers.

    Args:
        source: The file's bytes.
        where: For errors.
        most: Pixels that it may have.

    Raises:
        RequestError: It is no image, or has more pixels.
        UnavailableError: Pillow is missing.
    """
    images = pillow()
    try:
        image: Image.Image = images.open(source)
        if image.width * image.height > most:
            size = f"{image.width} by {image.height} pixels"
            raise RequestError(f"has {size}, and {most} are left for it", where=where)
        image.load()
        _upright(image)
    except images.UnidentifiedImageError as error:  # its message shows the stream
        reason = "is no image that can be read: its format is not known"
        raise RequestError(reason, where=where) from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow raises at broken files
        raise RequestError(f"is no image that can be read: {error}", where=where) from error
    except images.DecompressionBombError as error:
        raise RequestError(str(error), where=where) from error
    return image


def _upright(image: Image.Image) -> None:
    """Turn it; an image whose Exif data are damaged stays as it is, for its pixels are whole."""
    from PIL import ImageOps

    try:
        ImageOps.exif_transpose(image, in_place=True)
    except _OF_DAMAGE:
        logger(__name__).debug("its Exif data are damaged", exc_info=True)


def pillow() -> Any:
    """Pillow's module of images.

    Raises:
        UnavailableError: It is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UnavailableError(
            "images need Pillow, which is not installed", hint="pip install 'optc[images]'"
        ) from error
    return Image


def eight_bits(image: Any, mode: str, where: str) -> Pixels:
    """The pixels in a mode of 8 bits; Pillow would cut those of 16 bits off at 255."""
    if image.mode in ("I", "F"):
        raise RequestError(
            f"has pixels of 32 bits (mode {image.mode}), and does not say which is white",
            where=where,
            hint="convert it to 8 or 16 bits",
        )
    if image.mode.startswith("I;16"):
        image = pillow().fromarray(((np.asarray(image) + 128.0) // 257).astype(np.uint8))
    return np.asarray(image.convert(mode))
