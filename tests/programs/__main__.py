"""`python -m tests.programs [--few-steps] NAME ARGUMENTS...` calls the `main` of `tests.programs.NAME`.

With `--few-steps` graphs run as they were written: TensorFlow would optimise them for longer than they run.
"""

from __future__ import annotations

import importlib
import sys

FEW_STEPS = "--few-steps"


def main(arguments: list[str]) -> None:
    # Keras would load it, for a third of TensorFlow's import; commands leave it out by themselves.
    sys.modules["sklearn"] = None  # type: ignore[assignment]
    if arguments[0] == FEW_STEPS:
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
        arguments = arguments[1:]
    name, *rest = arguments
    importlib.import_module(f"tests.programs.{name}").main(*rest)


if __name__ == "__main__":
    main(sys.argv[1:])
