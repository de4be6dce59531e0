"""Wheels without code for tests of installing: a name, a version, what it asks for, and the files that it owns.

Copied into a folder, this module is also the build backend of a project there that has our extras (`PROJECT`).
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

PROJECT = """
[build-system]
requires = []
build-backend = "wheels"
backend-path = ["."]
"""


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    """What pip calls for `pip install --editable .`."""
    extras = {"cpu": "tensorflow-cpu", "gpu": "tensorflow", "eval": None, "dev": None}
    asked = [f"Requires-Dist: {need}; extra == '{extra}'" for extra, need in extras.items() if need]
    metadata = [*(f"Provides-Extra: {extra}" for extra in extras), *asked]
    return write_wheel(Path(wheel_directory), "myxtts", "0", {"myxtts.pth": f"{Path.cwd()}\n"}, metadata).name


def write_wheel(folder: Path, name: str, version: str, files: Mapping[str, str], metadata: Sequence[str] = ()) -> Path:
    """`metadata` are further lines of it, such as `Requires-Dist: other`."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    own = {
        **files,
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata])
        + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in own.items()]
    own[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in own.items():
            wheel.writestr(file, text)
    return path


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=")
