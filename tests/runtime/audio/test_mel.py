"""Features are those of transformers' extractor."""

from __future__ import annotations

import numpy as np
import pytest

from optc.runtime.audio.mel import LogMel, mel_filters

transformers = pytest.importorskip("transformers")


def sound(seconds: float) -> np.ndarray:
    source = np.random.default_rng(1)
    time = np.arange(int(16000 * seconds)) / 16000
    tones = sum(np.sin(2 * np.pi * hertz * time) for hertz in (120, 740, 3100))
    loud = np.abs(np.sin(2 * np.pi * 2 * time))
    return (0.1 * loud * tones + 0.01 * source.standard_normal(len(time))).astype(np.float32)


@pytest.mark.parametrize("mels", [80, 128])
@pytest.mark.parametrize("seconds", [0.01, 3.7, 30])
def test_a_window(mels: int, seconds: float) -> None:
    extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
    wanted = extractor(sound(seconds), sampling_rate=16000, return_tensors="np")
    found = LogMel(mels=mels).features(sound(seconds))
    assert found.shape == (mels, 3000)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted.input_features[0], atol=1e-4)


def test_sounds_longer_than_a_window() -> None:
    extractor = transformers.WhisperFeatureExtractor()
    long = sound(71.333)
    wanted = extractor(
        long, sampling_rate=16000, return_tensors="np", truncation=False, padding="longest"
    )
    found = LogMel().features(long)
    np.testing.assert_allclose(found, wanted.input_features[0], atol=1e-4)


def test_silence_has_one_value() -> None:
    assert set(LogMel().features(np.zeros(100, np.float32)).ravel()) == {np.float32(-1.5)}


def test_other_sizes() -> None:
    how = LogMel(rate=8000, mels=20, window=256, hop=64, seconds=2)
    extractor = transformers.WhisperFeatureExtractor(
        feature_size=20, sampling_rate=8000, hop_length=64, chunk_length=2, n_fft=256
    )
    wanted = extractor(sound(0.5), sampling_rate=8000, return_tensors="np").input_features[0]
    assert how.frames == wanted.shape[1] == 250
    np.testing.assert_allclose(how.features(sound(0.5)), wanted, atol=1e-4)
    assert mel_filters(how).shape == (129, 20)
