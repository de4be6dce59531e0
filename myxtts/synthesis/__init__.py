"""Text to speech: voices on disk, generation, decoding and what lies around them."""
