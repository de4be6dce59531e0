"""`myxtts doctor`: checks versions, GPUs, memory, disk and device modes. Imports no TensorFlow."""

from __future__ import annotations

import csv
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from myxtts import __version__
from myxtts.cli.flags import parse_options
from myxtts.cli.installed import can_train
from myxtts.cli.suited import simulating, suited_commands
from myxtts.errors import DeviceError, how_to_install
from myxtts.runtime.inventory import Inventory, find_inventory
from myxtts.runtime.kernels import stored_table
from myxtts.runtime.plan import DeviceRequest, plan_devices

NEEDED = ("soundfile", "soxr", "tokenizers", "safetensors", "espeakng-loader", "ai-edge-litert")
TO_TRAIN = ("keras", "grain", "array_record")
TENSORFLOW_BUILDS = ("tensorflow", "tensorflow-cpu")
OPTIONAL = {"tensorboard": "TensorBoard logs", "moonshine-voice": "myxtts evaluate", "torch": "myxtts evaluate"}
LOW_DISK_GB = 3


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """Show versions, drivers, GPUs, memory and disk; what would work, and what to fix.

    Examples:
      myxtts doctor
      myxtts doctor --simulate-gpus 3   (what would work with three GPUs)
    """

    simulate_gpus: int = 0
    """Simulate this many GPUs with CPU devices."""


@dataclass(frozen=True)
class Finding:
    """One line of the report; one with a fix is a problem."""

    text: str
    fix: str | None = None


OPTIONS = DoctorOptions


def main(argv: list[str]) -> int:
    options = parse_options(DoctorOptions, argv, command="doctor")
    inventory = find_inventory(options.simulate_gpus)
    sections = {
        "Software": software(),
        "Machine": machine(),
        "GPUs": gpus(inventory),
        "What would work": modes(inventory),
    }
    for title, findings in sections.items():
        print(title)
        for finding in findings:
            print(f"  {'!' if finding.fix else ' '} {finding.text}")
            if finding.fix:
                print(f"      fix: {finding.fix}")
    fixes = [finding for findings in sections.values() for finding in findings if finding.fix]
    print(f"\n{len(fixes)} thing(s) to fix" if fixes else "\nNothing to fix")
    return 1 if fixes else 0


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def software() -> list[Finding]:
    tensorflow = version_of("tensorflow") or version_of("tensorflow-cpu")
    findings = [Finding(f"myxtts {__version__}, Python {platform.python_version()} on {platform.platform()}")]
    if not (3, 10) <= sys.version_info[:2] <= (3, 12):
        findings.append(Finding(f"Python {platform.python_version()}", fix="use Python 3.10, 3.11 or 3.12"))
    if tensorflow is None:
        findings.append(
            Finding(f"TensorFlow not installed (only for training: {how_to_install('cpu')}, or '.[gpu]' for NVIDIA)")
        )
    else:
        kind = "with CUDA packages" if version_of("nvidia-cudnn-cu12") else "for CPUs"
        findings += [Finding(f"TensorFlow {tensorflow} {kind}"), *mixed_builds(sys.path), gpu_kernels(tensorflow)]
    for package in (*NEEDED, *(TO_TRAIN if tensorflow else ())):
        version = version_of(package)
        findings.append(
            Finding(f"{package} {version}")
            if version
            else Finding(f"{package} is missing", fix=f"pip install {package}")
        )
    for package, purpose in OPTIONAL.items():
        findings.append(Finding(f"{package} {version_of(package) or f'not installed (only for {purpose})'}"))
    return findings


def mixed_builds(path: Sequence[str]) -> list[Finding]:
    """What is wrong where two builds of TensorFlow, which own the same files, were installed over one another."""
    found = {name: list(metadata.distributions(name=name, path=list(path))) for name in TENSORFLOW_BUILDS}
    builds = {name: each[0] for name, each in found.items() if each}
    fix = (
        "pip uninstall -y tensorflow tensorflow-cpu, then in the checkout pip install '.[gpu]' or '.[cpu]'; "
        "with make: make clean && make setup EXTRAS=gpu,dev, or without EXTRAS for CPUs"
    )
    if len(builds) > 1:
        both = " and ".join(f"{name} {build.version}" for name, build in builds.items())
        return [Finding(f"{both} are both installed and own the same files: neither is whole", fix=fix)]
    return [
        Finding(f"{name} {build.version} is not whole: {lost[0]} is missing or another's", fix=fix)
        for name, build in builds.items()
        if (lost := list(_lost_libraries(build)))
    ]


def _lost_libraries(build: metadata.Distribution) -> Iterator[str]:
    """Libraries that are not there or not of the size that the package's own record says."""
    for name, _, size in csv.reader((build.read_text("RECORD") or "").splitlines()):
        if ".so" in name and size:
            file = Path(str(build.locate_file(name)))
            if not file.is_file() or file.stat().st_size != int(size):
                yield name


def gpu_kernels(tensorflow: str) -> Finding:
    """Whether this TensorFlow is the one whose kernels our operations were held against."""
    table = stored_table()
    if table.knows(tensorflow):
        return Finding(
            f"every operation that training puts on a GPU has a kernel there in TensorFlow {table.tensorflow}"
        )
    return Finding(
        "whether every operation that training puts on a GPU has a kernel there is known of TensorFlow "
        f"{table.tensorflow}, not of {tensorflow}: with GPUs, myxtts validate tries all stages"
    )


def machine() -> list[Finding]:
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(".")
    free_gb = disk.free / 2**30
    return [
        Finding(
            f"{psutil.cpu_count()} cores, {memory.total / 2**30:.1f} GB memory, {memory.available / 2**30:.1f} free"
        ),
        Finding(
            f"disk here: {free_gb:.0f} of {disk.total / 2**30:.0f} GB free",
            fix=f"free disk space: even a tiny voice wants {LOW_DISK_GB} GB" if free_gb < LOW_DISK_GB else None,
        ),
    ]


def gpus(inventory: Inventory) -> list[Finding]:
    if not inventory.gpus:
        return [Finding("no NVIDIA driver or no GPU found: everything runs on the CPU")]
    findings = [Finding(f"NVIDIA driver {inventory.driver_version}")] if inventory.driver_version else []
    for gpu in inventory.gpus:
        memory = f"{gpu.memory_mb} MB" if gpu.memory_mb is not None else "memory unavailable"
        findings.append(Finding(f"GPU {gpu.index}: {gpu.name}, {memory}"))
    if not inventory.simulated and can_train() and not version_of("nvidia-cudnn-cu12"):
        fix = "make setup EXTRAS=gpu,dev; without make: pip uninstall tensorflow-cpu, then pip install '.[gpu]'"
        findings.append(Finding("GPUs are there, but TensorFlow has no CUDA packages", fix=fix))
    return findings


def modes(inventory: Inventory) -> list[Finding]:
    """Which of the modes can be planned here, with the command for each; without TensorFlow, what speaks."""
    trains = can_train()
    suited = [
        Finding(f"for this machine: {command}   ({why})") for command, why in suited_commands(inventory, trains=trains)
    ]
    if not trains:
        return [Finding("speaking: yes"), Finding("training: no (what it needs is not installed)"), *suited]
    tried = {
        "one device": (0, DeviceRequest(), ""),
        "mirrored": (2, DeviceRequest(multi_gpu=True), " --multi-gpu"),
        "dual": (2, DeviceRequest(data_gpu=0, model_gpu=1), " --data-gpu 0 --model-gpu 1"),
        "hybrid": (3, DeviceRequest(data_gpu=0, model_gpu=(1, 2)), " --data-gpu 0 --model-gpu 1,2"),
    }
    found, simulated = len(inventory.gpus), simulating(inventory)
    findings = []
    for name, (needed, request, flags) in tried.items():
        if found < needed:
            findings.append(Finding(f"{name}: no (needs {needed} GPUs, found {found})"))
            continue
        try:
            plan_devices(request, inventory)
        except DeviceError as error:
            findings.append(Finding(f"{name}: no ({error.problem})"))
        else:
            findings.append(Finding(f"{name}: yes   myxtts train --train-data MY_FOLDER{flags}{simulated}"))
    findings += suited
    if not inventory.gpus:
        findings.append(Finding("two GPUs can be simulated: add --simulate-gpus 2 to train or validate"))
    return findings
