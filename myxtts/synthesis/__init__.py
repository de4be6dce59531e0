"""From text and a reference clip to speech."""
