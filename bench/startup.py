"""Start-up: CPU-seconds of `import myxtts` and of every command's --help, none of which may start TensorFlow.

Each is a process of its own, interpreter included; the bare interpreter stands beside them. Coqui's is the import that
speaking with XTTS needs.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from bench.measure import Others, peer_python
from bench.peers import STORED
from bench.report import Report, Row, Target, at_most, finish, parser_for, run_main

HELP_LIMIT_CPU_S = 0.5
COQUI_IMPORT = "from TTS.tts.models.xtts import Xtts"
NO_TENSORFLOW = "import sys, myxtts, myxtts.cli.main; assert 'tensorflow' not in sys.modules"


def main(argv: list[str]) -> int:
    arguments = parser_for("startup", __doc__).parse_args(argv)
    rounds = 1 if arguments.quick else max(5, arguments.rounds)
    return finish(measure(rounds, quick=arguments.quick), arguments.json)


def measure(rounds: int, *, quick: bool) -> Report:
    from myxtts.cli.main import COMMANDS

    peer = peer_python()
    commands = {
        "bare interpreter": [sys.executable, "-c", "pass"],
        "import myxtts": [sys.executable, "-c", NO_TENSORFLOW],
        "myxtts --help": [sys.executable, "-m", "myxtts", "--help"],
        **{f"myxtts {name} --help": [sys.executable, "-m", "myxtts", name, "--help"] for name in COMMANDS},
    }
    others = Others()
    if peer:
        commands[COQUI_IMPORT] = [peer, "-c", COQUI_IMPORT]
    # The first run of each fills the page cache and the bytecode cache.
    for command in commands.values() if not quick else ():
        child_cpu_s(command)
    made: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            made[name].append(child_cpu_s(command))
    theirs = made.pop(COQUI_IMPORT, [])
    others_cores = others.cores()
    rows = [Row(name=name, unit="CPU-s", ours=seconds, target=target_of(name)) for name, seconds in made.items()]
    rows.append(
        Row(
            name="import, against Coqui's",
            unit="CPU-s",
            ours=made["import myxtts"],
            peer=theirs or [STORED["import"]],
            stored=not theirs,
            peer_name="Coqui",
        )
    )
    return Report(name="startup", rows=rows, others_cores=others_cores, quick=quick)


def target_of(name: str) -> Target | None:
    if name == "import myxtts":
        return at_most(0.1)
    return at_most(HELP_LIMIT_CPU_S) if name.endswith("--help") else None


def child_cpu_s(command: list[str]) -> float:
    """User and system time of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-1000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    raise SystemExit(run_main(main))
