"""Devices: what is there, who does what, and how TensorFlow is told. The only package that calls `tf.config`."""
