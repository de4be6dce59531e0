"""The fake `tf.config` does what the real one does: one suite, both worlds, in the real one a process a case."""

from __future__ import annotations

import pytest

from tests.contract.tf_config_cases import CASES, GPU_CASES
from tests.fakes.tf_config import FakeTfConfig
from tests.processes import run


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_fake_does_what_we_rely_on(case: str) -> None:
    CASES[case](FakeTfConfig(gpu_count=0))


@pytest.mark.parametrize("case", sorted(GPU_CASES))
def test_the_fake_does_with_gpus_what_we_rely_on(case: str) -> None:
    config = FakeTfConfig(gpu_count=4)
    GPU_CASES[case](config, config)


def test_tensorflow_does_what_we_rely_on() -> None:
    result = run("-m", "tests.contract.tf_config_cases")

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == sorted(CASES | GPU_CASES)
