"""`myxtts serve`: a voice behind the speech API, with a page to hear, clone and watch. Imports no TensorFlow itself."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from myxtts.cli.flags import parse_options
from myxtts.config.checks import in_range
from myxtts.errors import ConfigError, MissingDependencyError, how_to_install

if TYPE_CHECKING:
    from myxtts.serving.app import Serving
    from myxtts.synthesis.synthesizer import Synthesizer


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Serve a voice: the speech API of OpenAI's clients, a page in the browser, and Wyoming for Home Assistant.

    Examples:
      myxtts serve --voice runs/mine
      myxtts serve --voice runs/mine --runs runs --wyoming-port 10200
      myxtts serve --new-key phone --api-key-file keys.txt
      myxtts serve --voice runs/mine --host 0.0.0.0 --api-key-file keys.txt
    """

    voice: str = "base"
    """A run's folder, a voice folder, or the name of a voice."""

    host: str = "127.0.0.1"
    """Address to listen on; the default is reached from this machine only."""

    port: int = 8880
    """Port to listen on; 0 lets the system choose one."""

    api_key_file: Path | None = None
    """File of API keys (their digests); without it everybody who reaches the server may use it."""

    new_key: str | None = None
    """Make a key of this name, add it to --api-key-file, print it once, and exit."""

    without_keys: bool = False
    """With --open-to-all: serve on an address that other machines reach although there are no keys."""

    open_to_all: bool = False
    """See --without-keys."""

    runs: Path | None = None
    """Folder of runs that the page shows while they train."""

    collected: Path | None = None
    """Folder of myxtts collect or record, whose pieces the page shows: to hear, correct, keep or drop."""

    voices_dir: Path | None = None
    """Where added voices are kept; by default myxtts/voices in the user's data folder."""

    wyoming_port: int | None = None
    """Port of the Wyoming protocol, for Home Assistant; 0 lets the system choose one."""

    at_once: int = 8
    """Requests that are spoken at the same time."""

    waiting: int = 32
    """Requests that may wait; more are answered 429."""

    deadline: float = 300.0
    """Seconds after which a request is given up."""

    cors_origin: tuple[str, ...] = ()
    """Other sites whose pages may use the API, as https://example.org."""

    log_texts: bool = False
    """Write the texts of requests into the log; off by default."""


OPTIONS = ServeOptions


def main(argv: list[str]) -> int:
    options = parse_options(ServeOptions, argv, command="serve")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"serving needs {error.name}, which is not installed", hint=how_to_install("serve")
        ) from error
    if options.new_key is not None:
        return _new_key(options)
    _refuse_early(options)
    from myxtts.serving.server import bind

    listening = bind(options.host, options.port, "--port")
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("numba").setLevel(logging.WARNING)
    from myxtts.serving.app import build_app
    from myxtts.serving.server import serve
    from myxtts.synthesis.opening import open_voice

    serving = build_serving(options, open_voice(options.voice))
    print("warming up ...", file=sys.stderr, flush=True)
    serving.engine.warm_up()
    shown = f"[{options.host}]" if ":" in options.host else options.host

    async def ready() -> None:
        if options.wyoming_port is not None:
            from myxtts.serving.wyoming_server import start_wyoming

            port = await start_wyoming(serving, options.host, options.wyoming_port)
            print(f"listening on tcp://{shown}:{port} (Wyoming)", flush=True)
        print(f"listening on http://{shown}:{listening.getsockname()[1]}", flush=True)

    serve(build_app(serving), serving, listening, ready)
    return 0


def build_serving(options: ServeOptions, synthesizer: Synthesizer) -> Serving:
    from myxtts.serving.app import Serving
    from myxtts.serving.engine import Engine
    from myxtts.serving.keys import read_keys
    from myxtts.serving.limits import Limits
    from myxtts.serving.middleware import is_loopback
    from myxtts.serving.runs import RunFolder
    from myxtts.serving.voices import VoiceLibrary

    limits = Limits(at_once=options.at_once, waiting=options.waiting, deadline_s=options.deadline)
    folder = options.voices_dir or _data_folder() / "voices"
    return Serving(
        engine=Engine(synthesizer, limits.at_once),
        voices=VoiceLibrary(synthesizer.voice.speakers, folder, limits.added_voices),
        model_name=Path(options.voice).name or "voice",
        limits=limits,
        keys=None if options.api_key_file is None else read_keys(options.api_key_file),
        runs=None if options.runs is None else RunFolder(options.runs),
        collected=options.collected,
        loopback=is_loopback(options.host),
        origins=options.cors_origin,
        log_texts=options.log_texts,
        created_at=int(time.time()),
    )


def _new_key(options: ServeOptions) -> int:
    from myxtts.serving.keys import add_key

    if options.api_key_file is None:
        raise ConfigError("--new-key has no file to go to", hint="add --api-key-file FILE")
    print(add_key(options.api_key_file, options.new_key or ""))
    print(f"Keep it: {options.api_key_file} has only its digest.", file=sys.stderr)
    return 0


def _refuse_early(options: ServeOptions) -> None:
    """What is wrong is said before the voice is opened."""
    from myxtts.data.collected import is_collected
    from myxtts.serving.keys import read_keys
    from myxtts.serving.limits import Limits
    from myxtts.serving.middleware import is_loopback
    from myxtts.synthesis.voice import find_voice

    in_range("--port", options.port, 0, 65535, hint="8880 is the default, 0 lets the system choose")
    if options.wyoming_port is not None:
        in_range("--wyoming-port", options.wyoming_port, 0, 65535, hint="Home Assistant expects 10200")
    Limits(at_once=options.at_once, waiting=options.waiting, deadline_s=options.deadline)
    if options.api_key_file is not None:
        read_keys(options.api_key_file)
    open_to_all = options.without_keys and options.open_to_all
    if not is_loopback(options.host) and options.api_key_file is None and not open_to_all:
        raise ConfigError(
            f"--host {options.host} is reached by other machines, and there is no --api-key-file",
            hint="make a key: myxtts serve --new-key NAME --api-key-file FILE; if everybody may use it, say both "
            "--without-keys and --open-to-all",
        )
    if not is_loopback(options.host) and options.wyoming_port is not None and not open_to_all:
        raise ConfigError(
            f"Wyoming has no keys, and --host {options.host} is reached by other machines",
            hint="serve Wyoming on loopback, or say both --without-keys and --open-to-all",
        )
    if options.runs is not None and not options.runs.is_dir():
        raise ConfigError(f"--runs {options.runs} is no folder", hint="give the folder that holds the run folders")
    if options.collected is not None and not is_collected(options.collected):
        raise ConfigError(
            f"--collected {options.collected} was not made by collect or record",
            hint="give the folder that their --out named",
        )
    find_voice(options.voice)


def _data_folder() -> Path:
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local" / "share") / "myxtts"
