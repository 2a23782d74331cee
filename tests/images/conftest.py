"""The container of the whole service that most tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from containers import WORKERS, Container


@pytest.fixture(scope="session")
def shared_container() -> Iterator[Container]:
    container = Container.run("parakeet-mps:latest", "--shm-size=2g", *WORKERS)
    yield container
    container.remove()


@pytest.fixture
def service(shared_container: Container) -> Container:
    """The whole service in one container, healthy, whatever the test before did to it."""
    if not shared_container.inspect("State.Running"):
        shared_container.start()
    shared_container.wait_healthy()
    return shared_container
