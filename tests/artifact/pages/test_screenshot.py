"""What a browser draws: in both schemes, on a narrow window, and on paper.

Runs where a Chromium is installed; structure and text are tested everywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from optc.artifact.pages.artifact_page import artifact_page
from optc.artifact.pages.bench_plots import bench_sections
from optc.artifact.pages.page import svg_file
from tests.artifact.pages.png import Pixels, pixels
from tests.artifact.pages.sample import BENCH, subject

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
SCHEMES = {"light": 1, "dark": 0}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def browse(folder: Path, page: Path, *options: str) -> None:
    assert BROWSER is not None
    call = (BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
    more = (f"--user-data-dir={folder / 'browser'}", *options, page.as_uri())
    subprocess.run([*call, *more], check=True, capture_output=True, timeout=120)


def screenshot(folder: Path, page: Path, scheme: str, width: int, height: int) -> Pixels:
    image = folder / "image.png"
    preferred = f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"
    browse(folder, page, preferred, f"--window-size={width},{height}", f"--screenshot={image}")
    return pixels(image.read_bytes())


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    path.write_text(artifact_page(subject()).text, encoding="utf-8")
    return path


def colours(scheme: str) -> dict[str, tuple[int, ...]]:
    """The variables of the style sheet in a scheme."""
    style = files("optc.artifact.pages").joinpath("style.css").read_text("utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    found = re.findall(r"--(\w+): #(\w{6})", blocks[scheme == "dark"])
    return {name: tuple(bytes.fromhex(value)) for name, value in found}


def share(image: Pixels, colour: tuple[int, ...]) -> float:
    return float((image == np.array(colour, np.uint8)).all(axis=-1).mean())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_page_in_both_schemes(tmp_path: Path, page: Path, scheme: str) -> None:
    image, wanted = screenshot(tmp_path, page, scheme, 1200, 3000), colours(scheme)
    assert share(image, wanted["page"]) > 0.6
    assert 0.002 < share(image, wanted["accent"]) < 0.2
    other = colours("dark" if scheme == "light" else "light")
    assert share(image, other["page"]) < 0.001
    assert (image[:, :20] == np.array(wanted["page"], np.uint8)).all(), "the margin is empty"
    assert (image[:, -20:] == np.array(wanted["page"], np.uint8)).all(), "nothing is too wide"


def test_a_narrow_window(tmp_path: Path, page: Path) -> None:
    image = screenshot(tmp_path, page, "light", 500, 3000)
    assert (image[:, -10:] == np.array(colours("light")["page"], np.uint8)).all()


def test_paper(tmp_path: Path, page: Path) -> None:
    paper = tmp_path / "page.pdf"
    browse(tmp_path, page, f"--print-to-pdf={paper}")
    data = paper.read_bytes()
    assert data.startswith(b"%PDF-")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", data)) <= 12


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_drawing_in_both_schemes(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "plot.svg"
    path.write_text(svg_file(bench_sections(BENCH)), encoding="utf-8")
    image, wanted = screenshot(tmp_path, path, scheme, 1128, 540), colours(scheme)
    assert share(image, wanted["page"]) > 0.5
    assert share(image, wanted["accent"]) > 0.002
