from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("starlette", reason="the extra 'serve' is not installed")

from tests.serve.processes import started


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server for suites, without ``/v1``."""
    state = tmp_path_factory.mktemp("state")
    with started("tests.serve.suites.server", str(state)) as server:
        yield server.url
