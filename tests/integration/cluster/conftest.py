"""What a run over Ray nodes is compared with: one machine, the same corpus, the same flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from myxtts.data.demo_corpus import DemoSettings, write_demo_corpus
from tests.processes import run_forked
from tests.training_processes import ONE_THREAD, arguments, losses


@pytest.fixture(scope="session", autouse=True)
def _ray_is_installed() -> None:
    pytest.importorskip("ray", reason="Ray is not installed: extra `cluster`")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "demo"
    write_demo_corpus(folder, DemoSettings(minutes=0.5), workers=1)
    return folder


@pytest.fixture(scope="module")
def expected(
    request: pytest.FixtureRequest, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[int, set[float]]:
    """The losses of one machine with the module's flags (`CODEC`)."""
    folder = tmp_path_factory.mktemp("one") / "run"
    result = run_forked(*arguments(corpus, folder, *request.module.CODEC), **ONE_THREAD)
    assert result.returncode == 0, result.stderr
    return losses(folder)
