"""The simulation of scale: what theory says for clear cases, and what may never happen for any."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import simulate_cluster
from bench.measure import BenchError
from bench.simulate import Phases, agreement, main, pays_up_to, phases_of_run, scaling, simulate
from myxtts.monitoring.figures import PhaseFigures, WindowFigures

FREE = {"link_latency_ms": 0.0, "batch_mb": 0.0}


def test_the_slower_phase_sets_the_pace() -> None:
    model_bound = simulate(Phases(process_ms=20, train_ms=50, **FREE), 1, 1)
    data_bound = simulate(Phases(process_ms=80, train_ms=50, **FREE), 1, 1)

    assert model_bound.steps_per_s == pytest.approx(20.0, rel=1e-3)
    assert (model_bound.data_busy, model_bound.model_busy) == pytest.approx((0.4, 1.0), abs=0.01)
    assert model_bound.bottleneck == "model devices"
    assert data_bound.steps_per_s == pytest.approx(12.5, rel=1e-3)
    assert data_bound.stall_share == pytest.approx(1 - 50 / 80, abs=0.01)
    assert data_bound.bottleneck == "data devices"


def test_two_model_devices_halve_what_can_be_shared_and_keep_what_cannot() -> None:
    phases = Phases(process_ms=10, train_ms=100, train_fixed_ms=20, **FREE)

    assert simulate(phases, 1, 2).steps_per_s == pytest.approx(1000 / 60, rel=1e-3)


def test_two_data_devices_double_the_supply_until_the_model_is_the_slower() -> None:
    assert simulate(Phases(process_ms=90, train_ms=30, **FREE), 2, 1).steps_per_s == pytest.approx(1000 / 45, rel=1e-2)
    assert simulate(Phases(process_ms=90, train_ms=60, **FREE), 2, 1).steps_per_s == pytest.approx(1000 / 60, rel=1e-2)


def test_a_narrow_link_limits_however_many_devices_there_are() -> None:
    narrow = Phases(process_ms=10, train_ms=10, batch_mb=100, link_gb_s=1.0, link_latency_ms=0.0)

    found = simulate(narrow, 8, 8)

    assert found.bottleneck == "transfer"
    assert found.steps_per_s == pytest.approx(10.0, rel=1e-2)


def test_summing_gradients_costs_what_a_ring_costs() -> None:
    phases = Phases(process_ms=1, train_ms=80, gradient_mb=100, link_gb_s=10.0, link_latency_ms=0.5)

    assert phases.step_ms(1) == 80
    # Three quarters of 100 MB twice at 10 MB a millisecond, and 6 hops of half a millisecond.
    assert phases.step_ms(4) == pytest.approx(20 + 15 + 3)


def test_a_buffer_evens_out_batches_of_unlike_length() -> None:
    uneven = Phases(process_ms=48, train_ms=50, jitter=0.4, **FREE)

    # Here process and train times go together, so that only a long wait can starve the model: a buffer of 1 has it.
    assert simulate(uneven, 1, 1, buffer_size=1).steps_per_s < simulate(uneven, 1, 1, buffer_size=50).steps_per_s


def test_a_batch_that_grows_with_the_devices_keeps_each_ones_rows() -> None:
    phases = Phases(process_ms=10, train_ms=100, train_fixed_ms=20, batch_mb=2)

    grown = phases.with_rows_of(4)

    assert (grown.process_ms, grown.batch_mb) == (40, 8)
    assert grown.step_ms(4) == pytest.approx(100 + 6 * phases.link_latency_ms)


times = st.floats(min_value=0.5, max_value=200.0)


@settings(max_examples=60, deadline=None)
@given(
    process_ms=times,
    train_ms=times,
    batch_mb=st.floats(0.0, 100.0),
    jitter=st.floats(0.0, 0.4),
    data=st.integers(1, 6),
    model=st.integers(1, 6),
    buffer_size=st.integers(1, 20),
)
def test_nothing_is_faster_than_its_slowest_phase_or_busier_than_always(
    process_ms: float, train_ms: float, batch_mb: float, jitter: float, data: int, model: int, buffer_size: int
) -> None:
    phases = Phases(process_ms=process_ms, train_ms=train_ms, batch_mb=batch_mb, jitter=jitter)
    found = simulate(phases, data, model, buffer_size=buffer_size, batches=300)
    steady = replace(phases, jitter=0.0)
    slowest_ms = max(process_ms / data, phases.transfer_ms(model), phases.step_ms(model))

    assert 0 < found.data_busy <= 1
    assert 0 < found.model_busy <= 1 + 1e-9
    # What the buffer holds when counting begins may be learnt faster than it is made.
    spare = 1 + (buffer_size + data + 2) / 240
    assert simulate(steady, data, model, buffer_size=buffer_size, batches=300).steps_per_s <= (
        1000 / slowest_ms * spare * (1 + 1e-9)
    )


def test_more_devices_stop_paying_where_the_only_data_device_is_busy_all_the_time() -> None:
    found = scaling(Phases(process_ms=30, train_ms=90, **FREE), most=12, data_devices=1, batches=200)

    # One producer feeds three model devices; a fourth has nothing to do.
    assert found.pays_up_to == 4
    assert found.best[4].model_devices == 3
    assert found.work[12] == pytest.approx(found.work[4], rel=0.02)


def test_the_best_split_gives_both_sides_what_they_need() -> None:
    found = scaling(Phases(process_ms=50, train_ms=100, **FREE), most=9, batches=200)

    assert (found.best[9].data_devices, found.best[9].model_devices) == (3, 6)


def test_paying_is_half_of_the_proportional_gain() -> None:
    assert pays_up_to({2: 1.0, 3: 1.5, 4: 2.0}) == 4
    assert pays_up_to({2: 1.0, 3: 1.1, 4: 1.2}) == 2
    # Two more devices can pay where one more does not.
    assert pays_up_to({2: 1.0, 3: 1.0, 4: 1.9}) == 4


def test_an_error_counts_whichever_way_it_goes() -> None:
    assert agreement("1+1", [9.0, 11.0], [10.0, 10.0]).value == pytest.approx(0.1)
    assert agreement("1+1", [8.0], [10.0]).met is False


def test_phase_times_come_from_a_runs_own_events(tmp_path: Path) -> None:
    def window(train_ms: float) -> dict[str, object]:
        costs = {"source": 2.0, "process": 60.0, "transfer": 1.5, "train": train_ms}
        figures = WindowFigures(
            seconds=2.0,
            steps=20,
            step_ms=train_ms + 1,
            phases={
                name: PhaseFigures(busy=0.5, waiting=0.0, blocked=0.5, ms_per_batch=cost)
                for name, cost in costs.items()
            },
            data_devices=("/CPU:0",),
            model_devices=("/CPU:1",),
            device_busy={"/CPU:0": 0.6, "/CPU:1": 0.99},
            stall_share=0.0,
            buffer_depth=8.0,
            buffer_capacity=8,
            efficiency=0.99,
            bottleneck="train",
            oscillation=0.0,
            audio_seconds_per_s=100.0,
            padding_share=0.08,
        )
        return {"event": "window", "time": 0.0, "stage": "gpt", "step": 20, **figures.to_event()}

    lines = [json.dumps(window(train_ms)) for train_ms in (300.0, 99.0, 99.0, 99.0, 99.0, 99.0)]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")

    run = phases_of_run(tmp_path)
    phases = run.phases

    assert (run.model_devices, run.overlapped) == (1, True)
    assert (phases.process_ms, phases.train_ms, phases.read_ms) == (60.0, 99.0, 2.0)
    assert phases.transfer_ms(1) == pytest.approx(1.5, abs=0.1)
    assert run.steps_per_s == pytest.approx(10.0)
    assert simulate(phases, 1, 1).steps_per_s == pytest.approx(run.steps_per_s, rel=0.02)


@pytest.mark.parametrize("events", ["", '{"event": "step", "time": 0.0, "stage": "gpt", "step": 1, "loss": 2.0}\n'])
def test_a_run_without_windows_is_an_error_that_says_what_to_give(tmp_path: Path, events: str) -> None:
    (tmp_path / "events.jsonl").write_text(events)

    with pytest.raises(BenchError, match="--process-ms and --train-ms"):
        main(["--run", str(tmp_path), "--json", str(tmp_path / "made.json")])


@pytest.mark.parametrize(
    ("flags", "missing"),
    [(["--process-ms", "5"], "--train-ms"), (["--train-ms", "5"], "--process-ms"), (["--jitter", "0.1"], "--train-ms")],
)
def test_the_time_of_one_device_alone_is_refused_with_the_flag_that_is_missing(
    flags: list[str], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(BenchError, match=missing):
        main([*flags, "--json", str(tmp_path / "made.json")])


# Over nodes

WORK = Phases(process_ms=35, train_ms=180, train_fixed_ms=20, batch_mb=3, gradient_mb=236)


def over_nodes(**changes: float) -> list[simulate_cluster.ClusterPrediction]:
    cluster = simulate_cluster.Cluster(**changes)  # type: ignore[arg-type]
    return simulate_cluster.table(WORK, cluster, epoch_batches=500)


def test_gradients_travel_over_the_network_only_between_nodes() -> None:
    slow, fast = over_nodes(network_gb_s=0.5), over_nodes(network_gb_s=50.0)

    assert [s.batches_per_s == f.batches_per_s for s, f in zip(slow, fast, strict=True)][:3] == [True] * 3
    assert slow[-1].batches_per_s < 0.5 * fast[-1].batches_per_s
    assert simulate_cluster.pays_up_to(slow) < simulate_cluster.pays_up_to(fast)


def test_more_model_workers_get_as_many_data_workers_as_they_need() -> None:
    found = over_nodes(network_gb_s=50.0)

    assert [one.workers[1] for one in found] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert [one.workers[0] for one in found] == sorted(one.workers[0] for one in found)
    assert found[-1].workers[0] <= simulate_cluster.MOST_DATA_WORKERS


def test_failures_cost_more_the_more_model_workers_there_are_and_the_rarer_checkpoints_are() -> None:
    often, rare = over_nodes(days_between_failures=1.0), over_nodes(days_between_failures=1000.0)

    one, many = (simulate_cluster.Cluster().running_share(count, step_s=1.0) for count in (1, 256))
    assert 1 / many - 1 == pytest.approx(256 * (1 / one - 1))
    assert often[-1].gpu_hours_per_epoch > rare[-1].gpu_hours_per_epoch
    assert over_nodes(days_between_failures=1.0, checkpoint_steps=5000)[-1].running_share < often[-1].running_share


def test_a_worker_alone_costs_what_its_phases_say() -> None:
    alone = over_nodes(days_between_failures=1e9)[0]

    assert alone.gpu_hours_per_epoch == pytest.approx(2 * 500 * 0.18 / 3600, rel=0.02)


def test_a_flag_of_a_cluster_asks_for_the_prediction_over_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--process-ms", "35", "--train-ms", "180", "--network-gb-s", "1.25", "--node-devices", "4"]) == 0

    assert "doubling the model workers stops paying at" in capsys.readouterr().out
