"""The commands. The only package that prints, and the composition root; no TensorFlow at module level."""
