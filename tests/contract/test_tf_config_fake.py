"""The fake `tf.config` does what the real one does: one suite, both worlds, a process a case."""

from __future__ import annotations

import pytest

from tests.contract.tf_config_cases import CASES
from tests.processes import run


@pytest.mark.parametrize("kind", ["fake", "real"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_tf_config(case: str, kind: str) -> None:
    result = run("-m", "tests.contract.tf_config_cases", case, kind)

    assert result.returncode == 0, result.stderr
