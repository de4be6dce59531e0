"""Schemathesis over `/openapi.json`: no 5xx, and nothing that the description does not say.

`python -m tests.conformance URL --key KEY --examples 1000` runs for long against a server that runs.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,unsupported_method"
)


def conform(url: str, key: str | None, *, examples: int, folder: Path, seed: int = 1) -> str:
    """What schemathesis found, or an empty text; `summary` of the run is left in the folder."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json",
        "--checks", CHECKS,
        "--max-examples", str(examples),
        "--phases", "examples,coverage,fuzzing",
        "--exclude-path-regex", "/v1/runs/.*/events",  # it never ends
        "--seed", str(seed),
        "--generation-database", "none",
        "--request-timeout", "120",
        "--suppress-health-check", "all",
        "--no-color",
    ]  # fmt: skip
    if key is not None:
        command += ["--header", f"Authorization: Bearer {key}"]
    environment = {**os.environ, "NO_PROXY": "*"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = result.stdout + result.stderr
    (folder / "summary").write_text(said)
    return "" if result.returncode == 0 else said


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--key")
    parser.add_argument("--examples", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = conform(options.url, options.key, examples=options.examples, folder=Path(folder))
        summary = (Path(folder) / "summary").read_text()
    sent = re.search(r"(\d[\d,]*) generated", summary)
    print(found or "nothing found", sent[0] if sent else summary[-1500:])  # noqa: T201


if __name__ == "__main__":
    main()
