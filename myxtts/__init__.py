"""MyXTTS: XTTS voices in TensorFlow, with every device kept busy.

Importing the package imports no TensorFlow: devices are decided before it starts (`myxtts.runtime`). It does say how
TensorFlow is to start, because TensorFlow reads these variables once, when it is imported; what the user set wins.
"""

import os

__version__ = "0.1.0"

# Fatal lines only: what a user can act on arrives as an exception, and on CPUs without AVX-512 oneDNN reports
# every fallback as an error. `--debug` shows it all.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # off by default on CPUs without AVX-512, where it saves a fifth
os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # GPUs are counted as nvidia-smi counts them
