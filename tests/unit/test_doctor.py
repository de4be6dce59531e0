"""What `myxtts doctor` says of the installed TensorFlow: its GPU kernels, and builds installed over one another."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from myxtts.cli.doctor import gpu_kernels, mixed_builds, modes, software
from myxtts.runtime.inventory import find_inventory
from myxtts.runtime.kernels import stored_table
from tests.wheels import write_wheel


def test_the_tables_own_tensorflow_is_known() -> None:
    known = stored_table().tensorflow

    assert (
        gpu_kernels(known).text
        == f"every operation that training puts on a GPU has a kernel there in TensorFlow {known}"
    )


def test_another_tensorflow_is_named_with_the_way_to_try_it() -> None:
    finding = gpu_kernels("2.16.1")

    assert f"known of TensorFlow {stored_table().tensorflow}, not of 2.16.1" in finding.text
    assert "myxtts validate" in finding.text
    assert finding.fix is None, "nothing is broken: the exit code stays 0"


def install(site: Path, build: str, library: str, wheels_folder: Path) -> None:
    """As pip does: its files go over those that are there."""
    wheel = write_wheel(wheels_folder, build, "2.21.0", {"tensorflow/libtensorflow_framework.so.2": library})
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)


def test_one_build_of_tensorflow_is_whole(tmp_path: Path) -> None:
    install(tmp_path / "site", "tensorflow", "with CUDA", tmp_path)

    assert mixed_builds([str(tmp_path / "site")]) == []


def test_two_builds_of_tensorflow_in_one_environment_are_a_problem_with_its_fix(tmp_path: Path) -> None:
    for build, library in (("tensorflow", "with CUDA"), ("tensorflow-cpu", "without")):
        install(tmp_path / "site", build, library, tmp_path)

    (finding,) = mixed_builds([str(tmp_path / "site")])

    assert "tensorflow 2.21.0 and tensorflow-cpu 2.21.0 are both installed" in finding.text
    assert finding.fix is not None
    assert "pip uninstall -y tensorflow tensorflow-cpu" in finding.fix


@pytest.mark.parametrize("harm", ["overwritten", "removed"])
def test_a_build_whose_library_is_anothers_or_gone_is_not_whole(tmp_path: Path, harm: str) -> None:
    site = tmp_path / "site"
    install(site, "tensorflow", "with CUDA", tmp_path)
    library = site / "tensorflow" / "libtensorflow_framework.so.2"
    if harm == "removed":
        library.unlink()
    else:
        library.write_text("without", encoding="utf-8")

    (finding,) = mixed_builds([str(site)])

    assert "tensorflow 2.21.0 is not whole: tensorflow/libtensorflow_framework.so.2" in finding.text
    assert finding.fix is not None


def test_without_tensorflow_nothing_is_to_fix_and_speaking_is_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"tensorflow", "tensorflow-cpu", "keras", "grain", "array_record"}
    monkeypatch.setattr("myxtts.cli.doctor.version_of", lambda name: None if name in absent else "1.0")
    monkeypatch.setattr("myxtts.cli.installed.find_spec", lambda name: None if name in absent else object())

    software_lines, mode_lines = software(), modes(find_inventory(2))

    assert [finding.text for finding in software_lines if finding.fix] == []
    assert any("TensorFlow not installed (only for training" in finding.text for finding in software_lines)
    assert "training: no (what it needs is not installed)" in [finding.text for finding in mode_lines]
    assert not any("myxtts train" in finding.text for finding in mode_lines)


def test_a_package_that_speaking_needs_is_a_thing_to_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("myxtts.cli.doctor.version_of", lambda name: None if name == "ai-edge-litert" else "1.0")

    assert [finding.text for finding in software() if finding.fix] == ["ai-edge-litert is missing"]


def test_commands_for_simulated_gpus_simulate_them() -> None:
    lines = [finding.text for finding in modes(find_inventory(2))]

    commands = [line for line in lines if "myxtts" in line]
    assert commands
    assert [command for command in commands if "--simulate-gpus 2" not in command] == []
    assert "hybrid: no (needs 3 GPUs, found 2)" in lines
