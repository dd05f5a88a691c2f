"""Images as a model's input, beside transformers' processors and beside NumPy."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optc.errors import InputError, RequestError, UnavailableError, UnsupportedError
from optc.runtime.tensors.images import ImageInput, image_files, parse_images
from optc.runtime.tensors.pictures import opened_image

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
PIXELS = np.random.default_rng(0).integers(0, 256, (37, 53, 3), np.uint8)


def test_the_numbers_of_a_pixel() -> None:
    images = ImageInput("x", scale=2.0, mean=(10, 20, 30), std=(1, 2, 4), channels="bgr")
    (found,) = images.batch([np.array([[[1, 2, 3]]], np.uint8)])
    np.testing.assert_allclose(found[:, 0, 0], [(6 - 10) / 1, (4 - 20) / 2, (2 - 30) / 4])


def test_layouts_and_gray() -> None:
    (found,) = ImageInput("x", layout="NHWC").batch([PIXELS])
    np.testing.assert_array_equal(found, PIXELS.astype(np.float32))
    (found,) = ImageInput("x", channels="gray").batch([PIXELS[:, :, 0]])
    np.testing.assert_array_equal(found, PIXELS[None, :, :, 0].astype(np.float32))


PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "squeezed": ("ViTImageProcessorPil", {"size": {"height": 24, "width": 20}}),
    "nearest": ("ViTImageProcessorPil", {"size": {"height": 24, "width": 20}, "resample": 0}),
    "cut small": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 24}, "crop_pct": 0.875}),
    "cut large": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 384}, "crop_pct": 0.9}),
    "center": ("MobileNetV2ImageProcessorPil", {"size": {"shortest_edge": 26}, "crop_size": 24}),
    "padded": (
        "MobileNetV1ImageProcessorPil",
        {"size": {"shortest_edge": 15}, "crop_size": {"height": 20, "width": 17}},
    ),
    "not normalized": ("BeitImageProcessorPil", {"size": 24, "do_normalize": False}),
}


@pytest.mark.parametrize("name", PROCESSORS)
@pytest.mark.parametrize("turned", [False, True])
def test_transformers_gives_the_same(name: str, turned: bool) -> None:
    import transformers

    kind, options = PROCESSORS[name]
    made = getattr(transformers, kind)(**options)
    values = {key: value for key, value in made.to_dict().items() if value is not None}
    pixels = np.ascontiguousarray(PIXELS.transpose(1, 0, 2)) if turned else PIXELS
    wanted = np.asarray(made(images=pixels, return_tensors="np")["pixel_values"][0])
    (found,) = parse_images(values, "pixel_values", "here").batch([pixels])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_files_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("c.png", "a.PNG", "b/z.bmp"):
        Image.fromarray(PIXELS).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("none")
    files = image_files(tmp_path)
    assert [path.name for path in files] == ["a.PNG", "z.bmp", "c.png"]
    for found in ImageInput("x", layout="NHWC").batch(files):
        np.testing.assert_array_equal(found, PIXELS)


def test_what_is_no_image_is_told(tmp_path: Path) -> None:
    images = ImageInput("x")
    (tmp_path / "broken.png").write_bytes(b"no image")
    for one, message in (
        (tmp_path / "broken.png", "broken.png: is no image that can be read"),
        (tmp_path / "absent.png", "absent.png: is no image that can be read"),
        (PIXELS.astype(np.float32), r"image 0: is an array float32\[37, 53, 3\]"),
        (PIXELS[:, :, :2], r"is an array uint8\[37, 53, 2\]"),
        (7, "image 0: is a int"),
    ):
        with pytest.raises(RequestError, match=message):
            images.batch([one])
    with pytest.raises(InputError, match="has no images"):
        image_files(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"size": "big"}, "does not say how images are read"),
        ({"size": {"longest_edge": 3}}, "size has longest_edge"),
        ({"channels": "cmyk"}, "Invalid enum value 'cmyk'"),
        ({"labels": 3}, "Expected `array`, got `int`"),
        ({"do_pad": True}, "asks for do_pad"),
    ],
)
def test_a_file_that_says_otherwise_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, UnsupportedError), match=message):
        parse_images(values, "x", "images.yaml")


def test_an_image_has_no_more_pixels_than_are_left(tmp_path: Path) -> None:
    """Which is known before they are read: a few bytes may stand for a thousand million."""
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    assert np.asarray(opened_image(BytesIO(data), "input", 37 * 53)).shape == PIXELS.shape
    with pytest.raises(RequestError) as caught:
        opened_image(BytesIO(data), "input", 37 * 53 - 1)
    assert str(caught.value) == "input: has 53 by 37 pixels, and 1960 are left for it"
    assert opened_image(BytesIO(data), "input").size == (53, 37)


@pytest.mark.parametrize(
    ("given", "result"),
    [
        ({}, None),
        ({"size": (5, 4)}, (5, 4)),
        ({"crop": (3, 2)}, (3, 2)),
        ({"size": (5, 4), "crop": (3, 2)}, (3, 2)),
    ],
)
def test_the_size_of_what_the_model_gets(given: dict[str, Any], result: Any) -> None:
    assert ImageInput("x", **given).result == result


@pytest.mark.parametrize("size", [[24, 20], {"height": 24, "width": 20}])
def test_sizes_may_be_lists(size: Any) -> None:
    found = parse_images({"size": size, "do_normalize": True}, "x", "here")
    assert (found.size, found.mean, found.std) == ((24, 20), (), ())


def test_a_number_may_stand_for_a_list_of_one() -> None:
    values = {"size": 8, "image_mean": 0.5, "image_std": [0.25], "do_normalize": True}
    found = parse_images(values, "x", "here")
    assert (found.mean, found.std) == ((0.5,), (0.25,))


class Bombs(BytesIO):
    """What Pillow refuses to read."""

    def read(self, *_: Any) -> bytes:
        raise Image.DecompressionBombError("too many pixels")


class Broken(BytesIO):
    """A file that ends too early."""

    def read(self, *_: Any) -> bytes:
        raise ValueError("no more bytes")


@pytest.mark.parametrize(
    ("source", "said"),
    [(Bombs(), "too many pixels"), (Broken(), "is no image that can be read: no more bytes")],
)
def test_files_that_break_a_reader(source: BytesIO, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        opened_image(source, "images 3")
    assert caught.value.where == "images 3"


def test_without_pillow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnavailableError, match="images need Pillow") as caught:
        opened_image(BytesIO(), "x")
    assert caught.value.hint == "pip install 'optc[images]'"


def test_a_photo_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    data = Image.Exif()
    data[0x112] = 6  # a quarter to the right
    Image.fromarray(PIXELS).save(tmp_path / "i.png", exif=data)
    (found,) = ImageInput("x", layout="NHWC").batch([tmp_path / "i.png"])
    np.testing.assert_array_equal(found, np.rot90(PIXELS, -1))


def test_damaged_exif_data_cost_no_image() -> None:
    exif = Image.Exif()
    exif[0x112], exif[0x10F] = 6, "a camera"
    whole = exif.tobytes()
    ends = [whole[:end] for end in range(6, len(whole))]
    changed = [
        bytes([*whole[:at], value, *whole[at + 1 :]])
        for at in range(6, len(whole))
        for value in (0, 7, 255)
    ]
    sizes = set()
    for damaged in (*ends, *changed):
        file = BytesIO()
        Image.fromarray(PIXELS[:2]).save(file, "JPEG", exif=damaged)
        sizes.add(opened_image(file, "x").size)
    assert sizes == {(PIXELS.shape[1], 2), (2, PIXELS.shape[1])}


@pytest.mark.parametrize("channels", ["gray", "rgb"])
def test_pixels_of_16_bits_keep_their_shades(tmp_path: Path, channels: Any) -> None:
    wide = np.arange(0, 65536, 771, dtype=np.uint16).reshape(2, 43)
    Image.fromarray(wide).save(tmp_path / "i.png")
    for image in (tmp_path / "i.png", Image.open(tmp_path / "i.png")):
        (found,) = ImageInput("x", channels=channels).batch([image])
        np.testing.assert_array_equal(found[0], np.round(wide / 257))


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_of_unknown_range_are_refused(kind: Any) -> None:
    image = Image.fromarray(np.ones((2, 2), kind))
    with pytest.raises(RequestError, match="pixels of 32 bits"):
        ImageInput("x").batch([image])
