"""Devices: what is there, who does what, and TensorFlow's configuration. The only package that calls `tf.config`."""
