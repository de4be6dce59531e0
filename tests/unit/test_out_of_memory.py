"""The faces of a device that ran out of memory are known, and nothing else is taken for one."""

from __future__ import annotations

import pytest
import tensorflow as tf

from myxtts.training.out_of_memory import ran_out_of_memory


def error_of(kind: type[tf.errors.OpError], message: str) -> tf.errors.OpError:
    return kind(None, None, message)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tf.errors.ResourceExhaustedError, "OOM when allocating tensor with shape[8,8] and type float"),
        (tf.errors.NotFoundError, "No algorithm worked!  Error messages:\n  Profiling failure on CUDNN engine"),
        (tf.errors.InternalError, "could not create cudnn handle: CUDNN_STATUS_ALLOC_FAILED"),
        (tf.errors.InternalError, "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED"),
        (tf.errors.InternalError, "failed to allocate 2.0GiB: CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        (tf.errors.UnknownError, "NCCL: unhandled cuda error. Set NCCL_DEBUG=WARN for detail."),
        (tf.errors.InternalError, "NCCL operation ncclCommInitRank failed: Cuda failure 'out of memory'"),
    ],
)
def test_every_face_of_too_little_memory_is_known(kind: type[tf.errors.OpError], message: str) -> None:
    assert ran_out_of_memory(error_of(kind, message))


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tf.errors.NotFoundError, "No such file: checkpoints/codec"),
        (tf.errors.InternalError, "Blas GEMM launch failed: CUBLAS_STATUS_EXECUTION_FAILED"),
        (tf.errors.InternalError, "CUDNN_STATUS_VERSION_MISMATCH"),
        (tf.errors.UnknownError, "NCCL: unhandled system error"),
    ],
)
def test_other_errors_stay_what_they_are(kind: type[tf.errors.OpError], message: str) -> None:
    assert not ran_out_of_memory(error_of(kind, message))
