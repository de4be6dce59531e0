"""A voice without TensorFlow: its networks as LiteRT files, what lies between them in NumPy."""
