"""Devices as TensorFlow makes them of a plan, each question in a process that has configured nothing yet."""

from __future__ import annotations

import json
import sys

import tensorflow as tf

from myxtts.errors import DeviceError
from myxtts.runtime.apply import applied_plan, apply_plan
from myxtts.runtime.inventory import find_inventory, simulated_inventory
from myxtts.runtime.plan import DeviceRequest, plan_devices
from myxtts.utils.commons import early_gpu_configuration, setup_gpu_strategy, setup_logging
from myxtts.utils.gpu_memory import setup_gpu_memory_isolation


def placed(request: str, simulate: str) -> None:
    """Where the roles of a plan compute; twice the same plan is once."""
    plan = plan_devices(DeviceRequest(**json.loads(request)), find_inventory(int(simulate)))
    apply_plan(plan)
    apply_plan(plan)
    assert applied_plan() is plan
    devices = {}
    for role in plan.roles:
        with tf.device(role.name):
            devices[role.role] = tf.random.uniform([2]).backing_device
    cpus = tf.config.list_logical_devices("CPU")
    print(json.dumps([plan.mode, devices, len(cpus), tf.config.get_soft_device_placement()]))


def used_before_the_plan() -> None:
    tf.constant(1)
    try:
        apply_plan(plan_devices(DeviceRequest(data_gpu=0, model_gpu=1), simulated_inventory(2)))
    except DeviceError as error:
        print(error)


def device_that_is_not_there() -> None:
    assert early_gpu_configuration(data_gpu=0, model_gpu=1)
    try:
        with tf.device("/GPU:0"):
            tf.random.uniform([2])
    except tf.errors.InvalidArgumentError as error:
        print(type(error).__name__)


def _log_to_standard_output() -> None:
    sys.stderr = sys.stdout
    setup_logging()


def dual_without_gpus() -> None:
    _log_to_standard_output()
    print(early_gpu_configuration(data_gpu=0, model_gpu=1), early_gpu_configuration(data_gpu=0, model_gpu=0))


def dual_after_a_tensor() -> None:
    tf.constant(1.0)
    _log_to_standard_output()
    print(early_gpu_configuration(data_gpu=0, model_gpu=1))


def isolation_without_gpus() -> None:
    _log_to_standard_output()
    print(setup_gpu_memory_isolation(0, 1, 8192, 16384))


def strategies() -> None:
    """A line for one device and one for all of them."""
    gpus = len(find_inventory())
    apply_plan(plan_devices(DeviceRequest(), find_inventory()))
    for multi in (False, True):
        strategy = setup_gpu_strategy(enable_multi_gpu=multi)
        devices = [] if gpus == 0 else strategy.extended.worker_devices
        print(type(strategy).__name__, strategy.num_replicas_in_sync, devices)


def layers_on_the_second_device() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    from tests.contract.test_layers_contract import CASES

    with tf.device("/CPU:1"):
        layers = [case.build() for case in CASES]
    print(sorted({weight.value.device.rsplit("/", 1)[-1] for layer in layers for weight in layer.weights}))


QUESTIONS = {
    question.__name__: question
    for question in (
        *(placed, used_before_the_plan, device_that_is_not_there, dual_without_gpus, dual_after_a_tensor),
        *(isolation_without_gpus, strategies, layers_on_the_second_device),
    )
}


def main(question: str, *arguments: str) -> None:
    QUESTIONS[question](*arguments)
