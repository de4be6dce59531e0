"""Who works where on a cluster, decided without one; and who a process is among several."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from myxtts.cli.main import main
from myxtts.cluster.actors import Outcome, together
from myxtts.cluster.driver import worker_environment
from myxtts.cluster.looking import NodeView, corpus_digest, look_at, refuse_other_views
from myxtts.cluster.plan import ClusterRequest, Node, plan_cluster
from myxtts.config.config import XTTSConfig
from myxtts.errors import ConfigError, DataError, DeviceError, MissingDependencyError, TrainingError, how_to_install
from myxtts.runtime.slurm import addresses_of_step, hosts_in
from myxtts.runtime.workers import WorkerPlace, place_in, tf_config


def nodes(*devices: int, gpus: bool = False) -> list[Node]:
    return [
        Node(identity=f"id{n}", address=f"10.0.0.{n}", cpus=32 if gpus else count, gpus=count if gpus else 0)
        for n, count in enumerate(devices)
    ]


def addresses(request: ClusterRequest, inventory: list[Node]) -> tuple[list[str], list[str]]:
    plan = plan_cluster(request, inventory)
    return [one.node.address for one in plan.models], [one.node.address for one in plan.producers]


def test_model_workers_share_a_node_and_data_workers_come_beside_them() -> None:
    placed = addresses(ClusterRequest(data_workers=3, model_workers=2), nodes(2, 4, gpus=True))

    assert placed == (["10.0.0.1", "10.0.0.1"], ["10.0.0.1", "10.0.0.1", "10.0.0.0"])


def test_the_order_in_which_nodes_are_listed_changes_nothing() -> None:
    inventory = nodes(2, 2, 2)
    request = ClusterRequest(data_workers=2, model_workers=3)

    assert addresses(request, inventory) == addresses(request, inventory[::-1])


def test_a_cluster_with_gpus_computes_on_those_only() -> None:
    with pytest.raises(DeviceError, match=r"need 3 devices, and the cluster has 2 GPU\(s\) on 1 node"):
        plan_cluster(ClusterRequest(data_workers=2, model_workers=1), nodes(2, gpus=True))


def test_workers_on_cpus_share_the_cores_of_their_node() -> None:
    plan = plan_cluster(ClusterRequest(data_workers=1, model_workers=2), nodes(8))

    assert [one.cpu_threads for one in plan.placements] == [2, 2, 2]
    assert all(one.cpu_threads is None for one in plan_cluster(ClusterRequest(), nodes(2, gpus=True)).placements)


@pytest.mark.parametrize(("devices", "models", "producers"), [(3, 2, 1), (5, 3, 2), (2, 1, 1), (9, 4, 2)])
def test_elastic_keeps_the_proportion_and_one_of_each_role(devices: int, models: int, producers: int) -> None:
    plan = plan_cluster(ClusterRequest(data_workers=2, model_workers=4, elastic=True), nodes(devices))

    assert (len(plan.models), len(plan.producers)) == (models, producers)


@pytest.mark.parametrize("elastic", [False, True])
def test_one_device_is_too_few(elastic: bool) -> None:
    with pytest.raises(DeviceError, match="need 2 devices") as caught:
        plan_cluster(ClusterRequest(elastic=elastic), nodes(1))

    assert "--simulate-gpus" in caught.value.hint


def test_the_plan_names_every_node_and_what_it_does() -> None:
    lines = plan_cluster(ClusterRequest(data_workers=1, model_workers=2), nodes(2, 2)).lines()

    assert lines == [
        "Cluster: 2 node(s), 4 CPU(s)",
        "   10.0.0.0 (2 CPU(s)): model worker 0, model worker 1",
        "   10.0.0.1 (2 CPU(s)): data worker 0",
        "   batch p is made by data worker p mod 1 and is shared out among 2 model workers",
    ]


@pytest.mark.parametrize("other", [{"multi_gpu": True}, {"visible_gpus": "0"}, {"data_gpu": 0, "model_gpu": 1}])
def test_devices_of_one_machine_are_refused_beside_a_cluster(other: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="beside --cluster"):
        ClusterRequest.from_config(XTTSConfig(cluster="auto", **other))


def test_without_ray_the_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    assert main(["train", "--cluster", "local", "--dry-run"]) == 1
    shown = capsys.readouterr().err
    assert "--cluster needs Ray" in shown
    assert how_to_install("cpu,cluster") in shown


LOST_IT = Outcome(lost="model worker 1 was lost", itself=True)
NOTICED = Outcome(lost="another model worker was lost")
MISTAKE = Outcome(error=DataError("a mistake", hint="mend it"))


@pytest.mark.parametrize(
    ("outcomes", "meant"),
    [
        ([Outcome(finished=True), Outcome(finished=True)], Outcome(finished=True)),
        ([Outcome(finished=False), Outcome(finished=True)], Outcome(finished=False)),
        ([NOTICED, LOST_IT], LOST_IT),
        ([NOTICED, Outcome(fault="Traceback"), LOST_IT], LOST_IT),
        ([NOTICED, LOST_IT, MISTAKE], MISTAKE),
        ([Outcome(finished=True), NOTICED], NOTICED),
    ],
)
def test_of_several_ends_the_one_that_explains_the_others_counts(outcomes: list[Outcome], meant: Outcome) -> None:
    assert together(outcomes) == meant


# What nodes see


def corpus(folder: Path, text: str = "a|b", sound: bytes = b"1234") -> Path:
    (folder / "wavs").mkdir(parents=True)
    (folder / "metadata.csv").write_text(text)
    (folder / "wavs" / "a.wav").write_bytes(sound)
    return folder


def test_a_corpus_is_known_by_its_files_and_transcripts(tmp_path: Path) -> None:
    same = corpus_digest(corpus(tmp_path / "one"))

    assert corpus_digest(corpus(tmp_path / "two")) == same
    assert corpus_digest(corpus(tmp_path / "three", text="a|c")) != same
    assert corpus_digest(corpus(tmp_path / "four", sound=b"12345")) != same
    assert corpus_digest(tmp_path / "none") is None


def view(version: str = "1", corpus: str | None = "c", run_holder: str | None = "17") -> NodeView:
    return NodeView(version=version, corpus=corpus, run_holder=run_holder)


@pytest.mark.parametrize(
    ("other", "error", "problem"),
    [
        (view(version="0"), MissingDependencyError, "node n has MyXTTS 0, this machine 1"),
        (view(corpus="d"), DataError, "node n sees another corpus"),
        (view(corpus=None), DataError, "node n does not see --train-data"),
        (view(run_holder=None), TrainingError, "node n does not see the run's folder"),
    ],
)
def test_a_node_that_sees_something_else_is_refused_by_name(
    other: NodeView, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        refuse_other_views([("m", view()), ("n", other)], view(), running=True)


def test_a_dry_run_does_not_ask_for_the_runs_folder(tmp_path: Path) -> None:
    refuse_other_views([("n", view(run_holder=None))], view(), running=False)

    assert look_at(None, str(tmp_path / "none")).run_holder is None


# Who a process is


def slurm_step(**changes: str) -> dict[str, str]:
    """Of task 3, the first one on the second node: as srun sets it."""
    step = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NODELIST": "gpu[9-10]",
        "SLURM_STEP_TASKS_PER_NODE": "3,1",
        "SLURM_PROCID": "3",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "0",
    }
    return {**step, **changes}


def test_a_process_finds_its_place_in_tf_config_or_in_a_slurm_step() -> None:
    assert place_in({}) == WorkerPlace(0, 1)
    assert place_in({"TF_CONFIG": tf_config(["a:1", "b:2"], 1)}) == WorkerPlace(1, 2)
    assert place_in(slurm_step()) == WorkerPlace(3, 4)
    assert place_in(slurm_step(TF_CONFIG=tf_config(["a:1", "b:2"], 0))) == WorkerPlace(0, 2)
    assert place_in({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) == WorkerPlace(0, 1)


def test_slurms_tasks_are_on_their_nodes_in_slurms_order_with_ports_of_their_job() -> None:
    job = addresses_of_step(slurm_step())
    other_job = addresses_of_step(slurm_step(SLURM_JOB_ID="8"))

    assert [address.split(":")[0] for address in job] == ["gpu9", "gpu9", "gpu9", "gpu10"]
    assert len({*job, *other_job}) == 8


@pytest.mark.parametrize(
    ("nodelist", "hosts"),
    [
        ("one", ["one"]),
        ("n[1-2],m5,o[08-10,12]", ["n1", "n2", "m5", "o08", "o09", "o10", "o12"]),
        ("rack[1-2]n[1-2]-ib", ["rack1n1-ib", "rack1n2-ib", "rack2n1-ib", "rack2n2-ib"]),
    ],
)
def test_slurms_node_lists_are_read(nodelist: str, hosts: list[str]) -> None:
    assert [*hosts_in(nodelist)] == hosts


def test_slurm_tasks_that_are_dealt_out_in_turns_are_refused() -> None:
    with pytest.raises(ConfigError, match="not numbered node by node") as error:
        place_in(slurm_step(SLURM_PROCID="1"))
    assert "--distribution=block" in error.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({"cluster": {}, "task": {}}),
        tf_config(["a:1"], 1),
        json.dumps({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}),
    ],
)
def test_a_tf_config_that_is_not_of_workers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="TF_CONFIG"):
        place_in({"TF_CONFIG": text})


def test_workers_get_what_tensorflow_computes_by_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    monkeypatch.setenv("TF_VAR_password", "a variable of Terraform's")
    monkeypatch.setenv("TF_CONFIG", "{}")

    sent = worker_environment()

    assert sent["TF_NUM_INTRAOP_THREADS"] == "1"
    assert {"TF_VAR_password", "TF_CONFIG"} & set(sent) == set()
