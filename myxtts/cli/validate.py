"""`myxtts validate`, also `python validate_dual_gpu_pipeline.py`: the five-part check of the dual pipeline.

Each part says what it measured: placement is read from tensors, the transfer is compared by value and timed,
and the loss of every stage must fall. A part that fails stops the check, because the next one stands on it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from myxtts.cli.flags import parse_options
from myxtts.config.config import XTTSConfig
from myxtts.config.gpus import GpuIndices, parse_gpu_indices
from myxtts.config.training import Stage
from myxtts.errors import DeviceError, MyXTTSError, UsageError
from myxtts.runtime.inventory import Inventory, find_inventory
from myxtts.runtime.plan import DevicePlan, DeviceRequest, plan_devices
from myxtts.runtime.plan_log import configuration_lines

Check = Callable[[], Iterator[str]]

RULE = "=" * 60
TRAINING_STEPS: dict[Stage, int] = {"codec": 12}
"""Steps until a stage's loss has surely fallen; `USUAL_STEPS` for stages that are not named."""
USUAL_STEPS = 8
TRANSFER_MB = 64


@dataclass(frozen=True, kw_only=True)
class ValidateOptions:
    """Check that the dual-GPU pipeline works here, in five parts; exit 0 only if all pass.

    Examples:
      myxtts validate --data-gpu 0 --model-gpu 1
      myxtts validate --simulate-gpus 2                 (without a GPU)
    """

    data_gpu: GpuIndices = 0
    """GPU for the data work; one."""

    model_gpu: GpuIndices = 1
    """GPU for the model; one."""

    simulate_gpus: int = 0
    """Let this many CPU devices stand for GPUs."""


OPTIONS = ValidateOptions


def main(argv: list[str]) -> int:
    options = parse_options(ValidateOptions, argv, command="validate")
    check = DualPipelineCheck(options)
    parts: list[tuple[str, Check]] = [
        ("Checking prerequisites", check.prerequisites),
        ("Validating device placement", check.placement),
        ("Creating the model on the model GPU", check.model_creation),
        ("Transferring data between the GPUs", check.transfer),
        ("Simulating training through the pipeline", check.training),
    ]
    print(f"{RULE}\nDual-GPU Pipeline Validation\n{RULE}")
    code = run_parts(parts)
    if code == 0:
        for line in check.what_next():
            print(line)
    return code


def one_gpu(flag: str, value: GpuIndices) -> int:
    """The GPU of a role, which is one here."""
    index = parse_gpu_indices(flag, value)
    if not isinstance(index, int):
        raise UsageError(
            f"{flag} is {value!r}: validate takes one GPU for each role",
            hint="check one pair at a time: --data-gpu 0 --model-gpu 1; train takes several",
        )
    return index


def run_parts(parts: Sequence[tuple[str, Check]]) -> int:
    """Print what each part found, up to the first that fails; the exit code."""
    for number, (title, part) in enumerate(parts, start=1):
        print(f"\n{number}. {title}...", flush=True)
        failure = _failure_of(part)
        if failure is not None:
            print(f"   FAIL  {failure.problem}\n         {failure.hint}")
            print(f"\n{RULE}\nPart {number} of {len(parts)} failed.\n{RULE}")
            return 1
    print(f"\n{RULE}\nAll {len(parts)} parts passed.\n{RULE}")
    return 0


def _failure_of(part: Check) -> MyXTTSError | None:
    try:
        for line in part():
            print(f"   ok    {line}", flush=True)
    except MyXTTSError as error:
        return error
    except _tensorflow_errors() as error:
        first_line = str(error).strip().partition("\n")[0]
        return DeviceError(f"TensorFlow: {first_line}", hint="run myxtts doctor and report both outputs")
    return None


def _tensorflow_errors() -> tuple[type[Exception], ...]:
    """What its operations raise: none as long as it is not loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return () if tensorflow is None else (tensorflow.errors.OpError,)


class DualPipelineCheck:
    """The five parts; each yields a line for every thing that it found right, and raises at the first that is not."""

    def __init__(self, options: ValidateOptions) -> None:
        self._data_gpu = one_gpu("--data-gpu", options.data_gpu)
        self._model_gpu = one_gpu("--model-gpu", options.model_gpu)
        self._simulate_gpus = options.simulate_gpus
        self._inventory: Inventory
        self._plan: DevicePlan
        self._trainer: Any

    def prerequisites(self) -> Iterator[str]:
        self._inventory = find_inventory(self._simulate_gpus)
        kind = "simulated GPUs (CPU devices)" if self._inventory.simulated else "GPUs found by the NVIDIA driver"
        request = DeviceRequest(data_gpu=self._data_gpu, model_gpu=self._model_gpu)
        self._plan = plan_devices(request, self._inventory)
        yield f"{len(self._inventory)} {kind}"
        yield f"GPU numbers are valid: data {self._data_gpu}, model {self._model_gpu}"
        from myxtts.runtime.backend import import_tensorflow

        yield f"TensorFlow {import_tensorflow().__version__} is installed"

    def placement(self) -> Iterator[str]:
        from myxtts.runtime.apply import apply_plan
        from myxtts.runtime.backend import import_tensorflow

        apply_plan(self._plan)
        yield from (line.strip() for line in configuration_lines(self._plan))
        tf = import_tensorflow()
        for role in self._plan.roles:
            with tf.device(role.name):
                computed = tf.matmul(tf.ones([64, 64]), tf.ones([64, 64]))
            _require_device(computed, role.name, f"a product computed for the {role.role} role")
            yield f"{role.role} work runs on {role.label}, read from its tensor"

    def model_creation(self) -> Iterator[str]:
        from myxtts.runtime.seeds import seed_everything
        from myxtts.training.trainer import XTTSTrainer

        began = time.perf_counter()
        config = XTTSConfig(
            model_size="tiny",
            data_gpu=self._data_gpu,
            model_gpu=self._model_gpu,
            max_steps=max(TRAINING_STEPS.values()),
            discriminator_start=0,
            learning_rate=5e-4,
        )
        seed_everything(config.training.seed)
        self._trainer = XTTSTrainer(config)
        for stage in self._stages():
            self._trainer.start_stage(stage)
            variables = self._trainer.current_stage().trainable_variables
            for variable in variables:
                _require_device(variable.value, self._plan.model.name, f"variable {variable.path}")
            weights = sum(int(np.prod(variable.shape)) for variable in variables)
            yield (
                f"{stage}: model created on {self._plan.model.label}: all {len(variables)} trained variables "
                f"({weights / 1e6:.1f} M weights) are there ({time.perf_counter() - began:.1f} s)"
            )
            began = time.perf_counter()

    def _stages(self) -> list[Stage]:
        from myxtts.training.stages import stages_of

        return [spec.name for spec in stages_of(self._trainer.config.model)]

    def transfer(self) -> Iterator[str]:
        from myxtts.pipeline.devices import TensorFlowDevices
        from myxtts.runtime.backend import import_tensorflow

        tf = import_tensorflow()
        assert self._plan.data is not None
        with tf.device(self._plan.data.name):
            sent = tf.random.stateless_normal([TRANSFER_MB * 2**18], seed=[1, 2])
        devices, to = TensorFlowDevices(deep_copy=self._plan.simulated), [self._plan.model.name]
        devices.copy([{"x": sent}], to)  # the first one is compiled
        began = time.perf_counter()
        received = devices.copy([{"x": sent}], to).replicas[0]["x"]
        arrived = received.numpy()
        seconds = time.perf_counter() - began
        _require_device(received, self._plan.model.name, "the transferred tensor")
        if not np.array_equal(arrived, sent.numpy()):
            raise DeviceError(
                "values changed on the way", hint="the link between the GPUs is faulty: check the hardware"
            )
        yield f"{TRANSFER_MB} MB from {self._plan.data.label} to {self._plan.model.label}, equal bit for bit"
        yield f"{TRANSFER_MB / 1024 / seconds:.1f} GB/s"

    def training(self) -> Iterator[str]:
        """Each stage stands on the one before, as in a run."""
        for stage in self._stages():
            yield from self._train(stage, TRAINING_STEPS.get(stage, USUAL_STEPS))

    def _train(self, name: Stage, steps: int) -> Iterator[str]:
        from myxtts.pipeline import Pipeline
        from myxtts.pipeline.devices import TensorFlowDevices

        assert self._plan.data is not None
        began = time.perf_counter()
        self._trainer.start_stage(name)
        stage = self._trainer.current_stage()
        sample = ToneSource()
        devices = TensorFlowDevices(deep_copy=self._plan.simulated)
        with devices.scope(self._plan.data.name):
            seen = [stage.process(next(sample)) for _ in range(stage.measured_batches)]
        stage.measure(seen)
        stage.initialise(self._trainer.config.training.seed)
        with Pipeline(
            ToneSource(),
            self._trainer.producers,
            model_devices=[self._plan.model.name],
            buffer_size=4,
            devices=devices,
        ) as pipeline:
            ready = pipeline.wait_until_ready()
            losses = [self._learn(next(pipeline), name) for _ in range(steps)]
            figures = pipeline.telemetry.window()
        require_falling(losses, name)
        yield f"{name}: {started(ready.waited_s, ready.depth)}"
        took_s = time.perf_counter() - began
        yield f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {steps} steps ({took_s:.1f} s)"
        busy = ", ".join(f"{device} {share:.0%}" for device, share in figures.device_busy.items())
        yield f"{name}: busy shares: {busy}"

    def what_next(self) -> Iterator[str]:
        """What a check that passed was of, and the command that trains with the same flags."""
        flags = f"--data-gpu {self._data_gpu} --model-gpu {self._model_gpu}"
        if self._inventory.simulated:
            yield "CPU devices stood for the GPUs: no real GPU was checked."
            flags += f" --simulate-gpus {len(self._inventory)} --model-size tiny"
        yield f"Next: python train_main.py --train-data MY_FOLDER {flags}"

    def _learn(self, batch: Any, stage: Stage) -> float:
        for name, tensor in batch.tensors.items():
            if tensor.dtype.is_floating:  # integers of 32 bits stay in the host's memory, whatever device they are on
                _require_device(tensor, self._plan.model.name, f"{name} that stage {stage} received")
        loss: float = self._trainer.learn([batch]).loss
        return loss


def started(waited_s: float, depth: int) -> str:
    """How a stage began: with batches waiting, or with none yet where the wait was over."""
    if depth:
        return f"buffer ready after {waited_s:.1f} s with {depth} batches"
    return f"started after {waited_s:.1f} s, buffer still empty"


def require_falling(losses: Sequence[float], stage: Stage) -> None:
    """Refuses a loss that did not fall, which NaN never does."""
    first, last = losses[0], losses[-1]
    if math.isfinite(first) and last < first:
        return
    what = "did not fall" if math.isfinite(first) and math.isfinite(last) else "is no longer a number"
    raise DeviceError(
        f"stage {stage}: the loss {what}: {first:.3f} to {last:.3f} in {len(losses)} steps",
        hint="the devices compute wrongly, or we do: run myxtts doctor and report both outputs",
    )


class ToneSource:
    """Endless batches of tones with noise, their pitch as text: enough for losses to fall in a few steps."""

    def __init__(self) -> None:
        self._number = 0

    def __next__(self) -> dict[str, Any]:
        random = np.random.default_rng(self._number)
        self._number += 1
        seconds = np.arange(22050) / 22050
        pitch = random.integers(1, 5, (8, 1))
        tones = 0.3 * np.sin(200 * np.pi * pitch * seconds) + 0.01 * random.standard_normal((8, 22050))
        wave, lengths = (tones * 32767).astype(np.int16), np.full(8, 22050, np.int32)
        return {
            "wave": wave,
            "wave_lengths": lengths,
            "reference": wave,
            "reference_lengths": lengths,
            "draw": random.random(8, dtype=np.float32),
            "text": np.repeat(pitch.astype(np.int32), 6, axis=1),
            "text_lengths": np.full(8, 6, np.int32),
            "speaker": np.zeros(8, np.int32),
        }

    def get_state(self) -> dict[str, int]:
        return {"number": self._number}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._number = state["number"]


def _require_device(tensor: Any, device: str, what: str) -> None:
    actual = getattr(tensor, "backing_device", None) or tensor.device
    if not actual.endswith(device.replace("/", "device:")):
        raise DeviceError(
            f"{what} is on {actual}, not on {device}", hint="report this with the output of myxtts doctor"
        )
