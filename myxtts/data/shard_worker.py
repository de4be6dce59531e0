"""A worker process of `prepare`: takes shard jobs as JSON lines, answers with JSON lines, and ends with its parent.

Started as `python -m myxtts.data.shard_worker`, not through `multiprocessing`: the parent's `__main__` is not imported,
a TensorFlow that the parent may hold is not forked, and a killed parent closes the pipe, which ends the worker.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from myxtts.config.data import DataConfig
from myxtts.data.shard_jobs import ShardJob, run_job
from myxtts.data.shards import ShardWriteError
from myxtts.errors import MyXTTSError
from myxtts.text.tokenizer import load_tokenizer


def main() -> int:
    # Decoders in C print warnings; the pipe to the parent must carry nothing but answers.
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1, encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def answer(**message: Any) -> None:
            answers.write(json.dumps(message) + "\n")

        setup = json.loads(sys.stdin.readline() or "{}")
        if not setup:
            return 0
        folder = Path(setup["folder"])
        config = DataConfig(**setup["settings"])
        tokenizer = load_tokenizer(setup["tokenizer"])
        for line in sys.stdin:
            request = json.loads(line)
            job = ShardJob.from_json(request["job"])
            try:
                run_job(
                    folder,
                    job,
                    config,
                    tokenizer,
                    skip=request["skip"],
                    on_clip=lambda clip_id, refused: answer(begin=clip_id) if refused is None else answer(end=refused),
                )
            except ShardWriteError as error:
                answer(failed=str(error))
            except MyXTTSError as error:
                answer(problem=error.problem, hint=error.hint)
            else:
                answer(done=job.shard)
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except BrokenPipeError:
        # The parent is gone; finished shards stay, and the next run prepares the others.
        os._exit(1)
