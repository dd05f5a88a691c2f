from __future__ import annotations

import pytest

from tests.serve.conftest import Api, MakeApi
from tests.serve.tensors.toys import adder, embedder
from tests.serve.toys import toy_engine


@pytest.fixture
def three(make_api: MakeApi) -> Api:
    """A server of a decoder, an embedder, and a model that adds."""
    return make_api({"toy": toy_engine(), "embedder": embedder(), "org/adder": adder()})
