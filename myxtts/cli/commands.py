"""The commands by name, in the order in which they are shown."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "train": "train a voice from a folder of recordings",
    "prepare": "read a corpus once, check every clip, and write shards that training reads",
    "synth": "synthesise speech from text with the built-in voice or one of your own",
    "voices": "list the speakers of a voice, and hear one",
    "serve": "serve a voice: the speech API, a page in the browser, Home Assistant",
    "evaluate": "evaluate a voice: intelligibility, speaker similarity, naturalness",
    "demo": "hear the built-in voice, let it clone a voice, and train it, in minutes",
    "demo-corpus": "synthesise a small English and Persian corpus to try things on",
    "monitor": "watch a running or finished run from another terminal",
    "bench": "compare single, dual, mirrored and hybrid placement on your own data",
    "import-xtts": "turn a folder of published XTTS v2 weights into ours",
    "export": "write a voice as one folder to keep, copy or publish",
    "validate": "check in five steps that the dual-GPU pipeline works on this machine",
    "doctor": "check this machine: versions, GPUs, what would work and what to fix",
    "completion": "print the completion script of a shell",
}
"""Name and one line; the module is `myxtts.cli.NAME` with `main(argv) -> int` and its option class as `OPTIONS`."""
