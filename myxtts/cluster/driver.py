"""The driver: holds the run's folder, places the workers, watches them, and starts all of them again when one is lost.

An attempt ends when the run does, when a user must change something, or when a model worker is lost: the model workers
are started again then, from the last checkpoint, because TensorFlow's collectives do not survive one of them. A data
worker is started again by Ray, and its calls are answered by its successor. Workers belong to the driver: when it ends,
however that happens, Ray ends them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from myxtts.cluster.actors import LEASE_S, DataWorkerActor, ModelWorkerActor, Outcome, together
from myxtts.cluster.connecting import LOCAL, connected, nodes_of
from myxtts.cluster.looking import look_at, refuse_other_views
from myxtts.cluster.plan import ClusterPlan, ClusterRequest, Node, plan_cluster
from myxtts.cluster.watching import HEAD_LOST_S, HEALTH, HeadWatch, Watched, WorkerWatch
from myxtts.config.config import XTTSConfig
from myxtts.errors import DeviceError, MissingDependencyError, TrainingError
from myxtts.monitoring.console import LiveConsole
from myxtts.monitoring.events import EventFollower
from myxtts.runtime.inventory import find_inventory
from myxtts.training.run import begin, held_folder, tell_what_follows
from myxtts.training.run_ends import command_line, stop_signals
from myxtts.training.run_folder import RunFolder, with_absolute_paths

logger = logging.getLogger(__name__)

POLL_S = 0.5
BACK_OFF_S = (1.0, 60.0)
"""Before the first restart, and the longest: each in a row waits twice as long."""
NODE_WAIT_S = 1800.0
"""How long a lost node may take to come back."""
GRACE_S = 2.0
"""For the others to say why, once one model worker has failed."""
_TENSORFLOW_VARIABLES = ("TF_NUM_", "TF_ENABLE_", "TF_CPP_", "TF_GPU_", "TF_XLA_", "TF_FORCE_", "TF_CUDNN_")
START_S = 300.0
"""How long processes may take to start."""


def plan_lines(config: XTTSConfig) -> list[str]:
    """What --dry-run prints of the cluster; refuses what a run would refuse."""
    request = ClusterRequest.from_config(config)
    with connected(_cluster(config), devices=_local_devices(config)) as ray:
        nodes = nodes_of(ray)
        plan = plan_cluster(request, nodes)
        _refuse_other_nodes(ray, nodes, _with_whole_paths(config), running=False)
    return plan.lines()


def run_on_cluster(config: XTTSConfig, *, fresh: bool, live_console: bool) -> int:
    """Train over the cluster; 0 when done or when asked to stop, with everything saved."""
    config = _with_whole_paths(config)
    request = ClusterRequest.from_config(config)
    with connected(_cluster(config), devices=_local_devices(config)) as ray:
        for line in plan_cluster(request, nodes_of(ray)).lines():
            logger.info(line)
        with held_folder(config, fresh) as folder:
            _refuse_other_nodes(ray, nodes_of(ray), config, running=True)
            begin(folder, fresh)
            with LiveConsole(plain=not live_console, warnings_logged=True) as console, stop_signals() as stop:
                finished = Driver(ray, config, request, folder, console, stop).run()
        tell_what_follows(folder, finished=finished, fresh=fresh)
    return 0


class Driver:
    """One run: attempts until it has ended."""

    def __init__(
        self,
        ray: Any,
        config: XTTSConfig,
        request: ClusterRequest,
        folder: RunFolder,
        console: LiveConsole,
        stop: Callable[[], bool],
    ) -> None:
        self._ray, self._config, self._request, self._folder = ray, config, request, folder
        self._console, self._stop = console, stop
        self._head = HeadWatch(ray.get_runtime_context().gcs_address)
        self._events = EventFollower(folder.events)
        for event in self._events.poll():
            console.state.apply(event)  # from before a resume

    def run(self) -> bool:
        """Whether it finished; `False` if it was asked to stop."""
        restarts, saved = 0, self._folder.saved_checkpoints()
        while True:
            plan = self._plan_when_there()
            if plan is None:
                return False
            outcome = self._attempt(plan)
            self._show_events()
            if outcome.error is not None:
                raise outcome.error
            if outcome.fault is not None:
                raise RuntimeError(outcome.fault)
            if self._head.is_lost and not outcome.finished:
                raise TrainingError(
                    f"Ray's head at {self._head.address} has not answered for {HEAD_LOST_S:.0f} s",
                    hint="start it again (`ray start --head`), and the other nodes with it; the same command continues "
                    "from the last checkpoint",
                )
            if outcome.lost is None or self._stop():
                return outcome.finished
            if (now := self._folder.saved_checkpoints()) != saved:
                restarts, saved = 0, now
            restarts += 1
            if restarts > self._config.training.max_restarts:
                raise TrainingError(
                    f"{outcome.lost}; given up after {restarts - 1} restarts without a new checkpoint",
                    hint="the same command continues from the last checkpoint; --max-restarts allows more, and a "
                    "lower checkpoint_every in --config saves more often",
                )
            pause_s = min(BACK_OFF_S[0] * 2 ** (restarts - 1), BACK_OFF_S[1])
            logger.warning("%s: starting again from the last checkpoint in %g s", outcome.lost, pause_s)
            self._sleep(pause_s)

    def _plan_when_there(self) -> ClusterPlan | None:
        """The plan of an attempt; after a lost node, when its devices are there again. None if asked to stop first."""
        ends_at, said = time.monotonic() + NODE_WAIT_S, False
        while True:
            try:
                return plan_cluster(self._request, nodes_of(self._ray))
            except DeviceError as error:
                if time.monotonic() > ends_at:
                    raise
                if self._stop():
                    return None
                if not said:
                    logger.warning("Waiting for nodes to come back: %s", error.problem)
                    said = True
            self._sleep(POLL_S)

    def _attempt(self, plan: ClusterPlan) -> Outcome:
        workers = self._start(plan)
        watch = WorkerWatch(self._ray, workers)
        try:
            models = [one for one in workers if one.placement.role == "model"]
            addresses = self._ray.get([one.actor.address.remote() for one in models], timeout=START_S)
            actors = [one.actor for one in workers if one.placement.role == "data"]
            names = [placement.name for placement in plan.producers]
            command = command_line()
            for one in models:
                one.training = one.actor.train.remote(addresses, actors, names, command)
            return self._until_its_end(watch, models)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.GetTimeoutError) as error:
            return Outcome(lost=f"a worker could not start ({type(error).__name__})")
        finally:
            self._end(workers)

    def _start(self, plan: ClusterPlan) -> list[Watched]:
        ray, config = self._ray, self._config
        # A worker has one device, which Ray gives it, whatever stands for devices here.
        own = dataclasses.replace(config, training=dataclasses.replace(config.training, simulate_gpus=0))
        device = {"num_gpus": 1, "num_cpus": 0} if plan.kind == "GPU" else {"num_cpus": 1}
        environment = {"env_vars": worker_environment()}
        workers = []
        for place in plan.placements:
            is_model = place.role == "model"
            options = {
                **device,
                "scheduling_strategy": _on(ray, place.node, soft=not is_model),
                "runtime_env": environment,
                "max_restarts": 0 if is_model else -1,
                "max_task_retries": 0 if is_model else -1,
            }
            worker = ModelWorkerActor if is_model else DataWorkerActor
            kind = ray.remote(concurrency_groups={HEALTH: 1})(worker).options(**options)
            team = (place.number, len(plan.models)) if is_model else ()
            workers.append(Watched(place, kind.remote(own, place.cpu_threads, *team)))
        return workers

    def _until_its_end(self, watch: WorkerWatch, models: list[Watched]) -> Outcome:
        """Until all model workers have ended, or one has failed: the others wait for it then, or soon say why."""
        asked_to_stop = False
        while True:
            outcomes = self._outcomes(models, POLL_S)
            self._show_events()
            if len(outcomes) == len(models) or any(outcome.failed for outcome in outcomes):
                outcome = together(self._outcomes(models, GRACE_S))
                watch.look(GRACE_S)  # for its last words
                return outcome
            if (lost := watch.look()) is not None:
                return Outcome(lost=lost)
            self._head.look()
            if (self._stop() or self._head.is_lost) and not asked_to_stop:
                asked_to_stop = True
                if self._head.is_lost:
                    logger.error(
                        "Ray's head at %s no longer answers: the model workers stop and save", self._head.address
                    )
                for one in models:
                    one.actor.stop.options(concurrency_group=HEALTH).remote()

    def _outcomes(self, models: list[Watched], wait_s: float) -> list[Outcome]:
        """Of those that have ended after so long at most."""
        ended, _ = self._ray.wait([one.training for one in models], num_returns=len(models), timeout=wait_s)
        outcomes = []
        for one in models:
            if one.training in ended:
                try:
                    outcomes.append(self._ray.get(one.training))
                except self._ray.exceptions.RayError as error:
                    outcomes.append(
                        Outcome(lost=f"{one.placement.name} was lost ({type(error).__name__})", itself=True)
                    )
        return outcomes

    def _end(self, workers: list[Watched]) -> None:
        """Returns when no model worker of the attempt can write any more. Without a head Ray can end nobody, and waits
        for it: the model workers have stopped by themselves then, and the nodes end with their head."""
        if not self._head.answers():
            return
        for one in workers:
            self._ray.kill(one.actor)
        alive = {node.identity for node in nodes_of(self._ray)}
        for one in workers:
            if one.placement.role != "model" or one.process is None:
                continue
            if one.placement.node.identity in alive:
                gone = _task(self._ray, _is_gone, one.placement.node).remote(one.process)
                ready, _ = self._ray.wait([gone], timeout=LEASE_S)
                if ready:
                    continue
            elif one.last_seen_s() > LEASE_S:
                continue
            logger.info("Waiting until %s has surely ended", one.placement.name)
            self._sleep(max(0.0, LEASE_S + 5.0 - one.last_seen_s()))

    def _show_events(self) -> None:
        for event in self._events.poll():
            self._console.on_event(event)

    def _sleep(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at and not self._stop():
            time.sleep(min(POLL_S, seconds))


def _cluster(config: XTTSConfig) -> str:
    assert config.training.cluster is not None
    return config.training.cluster


def _local_devices(config: XTTSConfig) -> int:
    """Devices of a cluster on this machine: simulated ones where those were asked for, else its cores."""
    inventory = find_inventory(config.training.simulate_gpus)
    if config.training.simulate_gpus and config.training.cluster != LOCAL:
        raise DeviceError(
            f"--simulate-gpus was given with --cluster {config.training.cluster}",
            hint="simulated devices are for --cluster local; a node's are set by `ray start --num-cpus N`",
        )
    return len(inventory) if inventory.simulated else len(os.sched_getaffinity(0))


def _with_whole_paths(config: XTTSConfig) -> XTTSConfig:
    """Workers have another working directory."""
    training = config.training
    folders: dict[str, Any] = {
        name: str(Path(value).absolute())
        for name in ("run_dir", "checkpoint_dir")
        if (value := getattr(training, name)) is not None
    }
    if training.init_from is not None and Path(training.init_from).exists():
        folders["init_from"] = str(Path(training.init_from).absolute())
    data = with_absolute_paths(config.data)
    if data.cache_dir is not None:
        data = dataclasses.replace(data, cache_dir=str(Path(data.cache_dir).absolute()))
    return dataclasses.replace(config, training=dataclasses.replace(training, **folders), data=data)


def worker_environment() -> dict[str, str]:
    """What tells TensorFlow how to compute is the same in every worker. Ray logs it, so nothing else is sent along:
    other programs' variables begin with TF_ too."""
    return {name: value for name, value in os.environ.items() if name.startswith(_TENSORFLOW_VARIABLES)}


def _refuse_other_nodes(ray: Any, nodes: list[Node], config: XTTSConfig, *, running: bool) -> None:
    folders = config.data.train_data, config.training.run_dir
    asked = [(node.address, _task(ray, look_at, node).remote(*folders)) for node in nodes]
    views = []
    for address, answer in asked:
        try:
            views.append((address, ray.get(answer, timeout=START_S)))
        except ray.exceptions.RayError as error:
            raise MissingDependencyError(
                f"node {address} cannot run MyXTTS: {str(error).strip().splitlines()[-1]}",
                hint="install the same version on all nodes, in the environment in which `ray start` was called",
            ) from error
    refuse_other_views(views, look_at(*folders), running=running)


def _task(ray: Any, function: Callable[..., Any], node: Node) -> Any:
    return ray.remote(function).options(num_cpus=0, scheduling_strategy=_on(ray, node, soft=False))


def _on(ray: Any, node: Node, *, soft: bool) -> Any:
    return ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.identity, soft=soft)


def _is_gone(process: int) -> None:
    """Returns when there is no such process on this node."""
    import psutil

    while psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.1)
