"""MyXTTS: XTTS voices in TensorFlow, with every device kept busy.

Importing the package imports no TensorFlow: devices are decided before it starts (`myxtts.runtime`).
"""

__version__ = "0.1.0"
