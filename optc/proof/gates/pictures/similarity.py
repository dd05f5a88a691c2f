"""The likeness of two images: PSNR and SSIM."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Float64 = npt.NDArray[np.float64]

#: Of images without a difference, decibels.
MOST_DB = 100.0
#: The window of SSIM: its side, and the deviation of its weights.
_SIDE, _DEVIATION = 11, 1.5
#: Constants of SSIM for values to 255.
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


def psnr(found: Pixels, wanted: Pixels) -> float:
    """Peak signal to noise ratio of images u8[H, W, C], decibels, `MOST_DB` at most."""
    error = np.mean((found.astype(np.float64) - wanted.astype(np.float64)) ** 2)
    return MOST_DB if error == 0 else min(MOST_DB, float(10 * np.log10(255.0**2 / error)))


def ssim(found: Pixels, wanted: Pixels) -> float:
    """Mean structural similarity of images u8[H, W, C] over windows that lie inside, and over
    channels (Wang et al., 2004, doi:10.1109/TIP.2003.819861): weights of a Gaussian, 1 where there
    is no difference. The window of images that are smaller than it is as large as they allow.
    """
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    mean_x, mean_y = _blurred(x), _blurred(y)
    spread_x = _blurred(x * x) - mean_x**2
    spread_y = _blurred(y * y) - mean_y**2
    both = _blurred(x * y) - mean_x * mean_y
    above = (2 * mean_x * mean_y + _C1) * (2 * both + _C2)
    below = (mean_x**2 + mean_y**2 + _C1) * (spread_x + spread_y + _C2)
    return float(np.mean(above / below))


def _blurred(image: Float64) -> Float64:
    """Weighted means of all windows inside [H, W, C]."""
    short = min(image.shape[:2])
    side = min(_SIDE, short - (short + 1) % 2)  # odd, so that it has a middle
    at = np.arange(side) - side // 2
    weights = np.exp(-(at**2) / (2 * _DEVIATION**2))
    weights /= weights.sum()
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(image, side, axis=axis)
        image = windows @ weights
    return image
