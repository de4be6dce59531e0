"""MyXTTS: XTTS voices in TensorFlow, with every device kept busy.

    from myxtts import open_voice
    open_voice("runs/mine").speak("Hello.").save("hello.wav")

Importing the package imports no TensorFlow: devices are decided before it starts (`myxtts.runtime`). It does say how
TensorFlow is to start, because TensorFlow reads these variables once, when it is imported; what the user set wins.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from myxtts.synthesis.opening import open_voice

__all__ = ["__version__", "open_voice"]

__version__ = "0.2.0.dev0"

# Fatal lines only: what a user can act on arrives as an exception, and on CPUs without AVX-512 oneDNN reports
# every fallback as an error. `--debug` shows it all.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # off by default on CPUs without AVX-512, where it saves a fifth
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # whatever it was: GPUs are counted as nvidia-smi counts them


def __getattr__(name: str) -> Any:
    """`open_voice` is imported when it is first asked for, so that importing the package stays light."""
    if name != "open_voice":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from myxtts.synthesis.opening import open_voice

    return open_voice
