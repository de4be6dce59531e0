"""A case of the kernel contract: what it found, as JSON. For `tests/contract/test_gpu_kernels.py`."""

from __future__ import annotations

import json

from tests.contract import gpu_kernel_cases as cases


def main(case: str, *arguments: str) -> None:
    print(json.dumps(getattr(cases, case)(*arguments)))
