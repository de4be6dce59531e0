"""Our Makefile with the real pip over wheels without code: an environment keeps its build of TensorFlow."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from myxtts.errors import how_to_install
from tests import wheels
from tests.processes import ROOT


class Project:
    """A folder with our Makefile whose program prints the build of TensorFlow that it imports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copy(ROOT / "Makefile", folder)
        shutil.copy(wheels.__file__, folder)
        (folder / "pyproject.toml").write_text(wheels.PROJECT, encoding="utf-8")
        (folder / "constraints.txt").write_text("tensorflow==2\ntensorflow-cpu==2\n", encoding="utf-8")
        (folder / "myxtts.py").write_text("import tensorflow\nprint('runs with', tensorflow.BUILD)\n", encoding="utf-8")
        for build in ("tensorflow", "tensorflow-cpu"):
            wheels.write_wheel(folder / "wheels", build, "2", {"tensorflow/__init__.py": f"BUILD = '{build}'\n"})

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # The caller's own EXTRAS and MAKEFLAGS would be ours too, as within `make test`.
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "EXTRAS", "PIP_"))}
        environment = {**inherited, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels")}
        return subprocess.run(
            ["make", f"PYTHON={sys.executable}", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def runs_with(self, *arguments: str) -> str:
        result = self.make("demo", *arguments)
        assert result.returncode == 0, result.stderr
        return next(line for line in result.stdout.splitlines() if line.startswith("runs with")).split()[-1]

    def installed(self) -> set[str]:
        site = next((self.folder / ".venv" / "lib").glob("python*/site-packages"))
        return {path.name.split("-")[0] for path in site.glob("tensorflow*.dist-info")}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.slow
def test_an_environment_for_gpus_stays_one_when_a_target_names_no_extras(project: Project) -> None:
    ready = project.make("setup", "EXTRAS=gpu,dev")
    assert ready.returncode == 0
    assert "source .venv/bin/activate, then myxtts synth" in ready.stdout.splitlines()[-1]

    assert project.runs_with() == "tensorflow"
    os.utime(project.folder / "constraints.txt")
    assert project.runs_with() == "tensorflow", "what is installed anew keeps its extras"
    assert project.installed() == {"tensorflow"}


@pytest.mark.slow
def test_asking_for_the_other_build_replaces_it_whole(project: Project) -> None:
    assert project.runs_with() == "tensorflow-cpu", "the default"

    assert project.runs_with("EXTRAS=gpu,dev") == "tensorflow"
    assert project.installed() == {"tensorflow"}
    assert project.runs_with("EXTRAS=cpu,dev,eval") == "tensorflow-cpu"
    assert project.runs_with() == "tensorflow-cpu"
    assert project.installed() == {"tensorflow_cpu"}


@pytest.mark.slow
def test_an_installation_that_failed_is_done_again_with_the_same_extras(project: Project) -> None:
    aside = (project.folder / "wheels").rename(project.folder / "aside")
    assert project.make("setup", "EXTRAS=gpu,dev").returncode != 0

    aside.rename(project.folder / "wheels")
    assert project.runs_with() == "tensorflow"


def test_both_builds_at_once_are_refused(project: Project) -> None:
    result = project.make("setup", "EXTRAS=cpu,gpu")

    assert result.returncode != 0
    assert "EXTRAS is cpu,gpu: cpu and gpu are two builds of TensorFlow, choose one" in result.stderr
    assert not (project.folder / ".venv").exists()


@pytest.mark.parametrize(
    ("extras", "asked", "command"),
    [
        ("cpu,dev", "eval", "make setup EXTRAS=cpu,dev,eval"),
        ("gpu,dev", "cpu,cluster", "make setup EXTRAS=gpu,dev,cluster"),
        ("cpu,dev", "cpu", "pip install -c constraints.txt '.[cpu]'"),  # make holds it for installed: it is damaged
        (None, "eval", "pip install -c constraints.txt '.[eval]'"),
    ],
)
def test_a_missing_extra_is_added_to_those_that_make_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extras: str | None, asked: str, command: str
) -> None:
    project = Project(tmp_path)
    if extras is not None:
        assert project.make("setup", f"EXTRAS={extras}").returncode == 0
    monkeypatch.setattr(sys, "prefix", str(project.folder / ".venv"))

    assert how_to_install(asked) == f"in the checkout of MyXTTS: {command}"


@pytest.mark.registry
@pytest.mark.timeout(1800)
def test_the_extras_for_gpus_resolve_with_the_constraints_and_name_every_cuda_package() -> None:
    command = ("-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-")
    result = subprocess.run(
        [sys.executable, *command, "--constraint", "constraints.txt", ".[gpu,dev]"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()}
    found = [package["metadata"]["name"].lower() for package in json.loads(result.stdout)["install"]]
    assert "tensorflow" in found
    assert [name for name in found if name.startswith(("nvidia-", "tensorflow")) and name not in pinned] == []


@pytest.mark.slow
def test_a_wheel_has_every_file_of_the_package_that_is_no_module(tmp_path: Path) -> None:
    """Built without an environment of its own: hatchling is an extra of developers."""
    command = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", str(tmp_path), ".")
    result = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )

    assert result.returncode == 0, result.stderr
    (wheel,) = tmp_path.glob("myxtts-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    listed = subprocess.run(
        ["git", "ls-files", "myxtts"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "myxtts/runtime/gpu_kernels.json.gz" in listed
    assert [name for name in listed if name not in packed] == []
    assert [name for name in packed if not name.startswith("myxtts")] == []
