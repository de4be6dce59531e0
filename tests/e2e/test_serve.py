"""`myxtts serve` in a process of its own: the clients that people use, and those that mean no good."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import openai
import pytest
import soundfile
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped, SynthesizeVoice

from myxtts.cli.main import main
from myxtts.serving.encoding import RATE
from myxtts.serving.keys import add_key
from tests.hostile import hostile_requests, resident_mb, send
from tests.processes import run_program
from tests.serving import RunningServer, make_run, running_server, spoken_noise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BASE = Path("base")
"""The built-in voice by its name: minutes of speech, as long as there is text."""
SENTENCES = "Hello there, my friend. This is the second sentence. And here comes a third one."


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voice") / "small"
    run_program("voices", str(folder))
    return folder


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    return file, add_key(file, "tests")


@pytest.fixture(scope="module")
def server(voice: Path, keys: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    make_run(folder / "runs" / "mine", ended=True)
    flags = ["--api-key-file", str(keys[0]), "--runs", str(folder / "runs"), "--wyoming-port", "0", "--at-once", "2"]
    with running_server(folder, voice, *flags, "--waiting", "4") as running:
        yield running


@pytest.fixture
def client(server: RunningServer, keys: tuple[Path, str]) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {keys[1]}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60, trust_env=False) as made:
        yield made


def asking(text: str = "Hello there.", **changes: Any) -> dict[str, Any]:
    return {"model": "tts-1", "input": text, "voice": "anna", **changes}


def wave_of(data: bytes) -> np.ndarray:
    wave, rate = soundfile.read(io.BytesIO(data))
    assert rate == RATE
    return np.asarray(wave)


def quiet(client: httpx.Client) -> bool:
    text = client.get("/metrics").text
    return "myxtts_speaking 0\n" in text and "myxtts_waiting 0\n" in text


def wait_until_quiet(client: httpx.Client, seconds: float) -> float:
    began = time.monotonic()
    while not quiet(client):
        assert time.monotonic() - began < seconds, client.get("/metrics").text
        time.sleep(0.05)
    return time.monotonic() - began


def test_the_openai_client_works_unchanged(server: RunningServer, keys: tuple[Path, str]) -> None:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=keys[1], max_retries=0) as client:
        assert "tts-1" in [model.id for model in client.models.list()]
        whole = client.audio.speech.create(model="tts-1", voice="alloy", input="Hello there.").read()
        assert len(wave_of(whole)) > RATE // 2
        with client.audio.speech.with_streaming_response.create(
            model="gpt-4o-mini-tts", voice="anna", input="Hello there.", response_format="pcm", instructions="whisper"
        ) as streamed:
            assert streamed.headers["x-ignored-parameters"] == "instructions"
            pcm = b"".join(streamed.iter_bytes())
        assert len(pcm) > RATE
        with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="anna", input="Hello there.", response_format="pcm", stream_format="sse"
        ) as events:
            told = [json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: ")]
        assert [event["type"] for event in told][-1] == "speech.audio.done"
        assert told[-1]["usage"]["total_tokens"] > 0
        heard = b"".join(base64.b64decode(event["audio"]) for event in told[:-1])
        assert heard == pcm
        with pytest.raises(openai.NotFoundError) as refused:
            client.audio.speech.create(model="gpt-9", voice="alloy", input="Hello.")
        assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


def test_curl_hears_the_first_sentence_before_the_last_is_made(server: RunningServer, keys: tuple[Path, str]) -> None:
    curl = shutil.which("curl")
    assert curl is not None
    body = json.dumps(asking(SENTENCES * 2, response_format="wav"))
    command = [curl, "-sSN", f"{server.url}/v1/audio/speech", "-H", f"Authorization: Bearer {keys[1]}"]
    process = subprocess.Popen([*command, "-H", "Content-Type: application/json", "-d", body], stdout=subprocess.PIPE)
    assert process.stdout is not None
    first = process.stdout.read1(1 << 20)  # type: ignore[attr-defined]
    first_at = time.monotonic()
    rest = process.stdout.read()
    assert process.wait() == 0

    assert first[:4] == b"RIFF"
    assert len(rest) > len(first)
    assert time.monotonic() - first_at > 0.05, "the rest was made after the beginning was sent"


def test_open_webui_finds_models_and_voices_and_speaks(server: RunningServer, keys: tuple[Path, str]) -> None:
    """Its requests as its source makes them: no key for the lists, headers of its own with the speech."""
    recorded = json.loads((Path(__file__).parent.parent / "fixtures" / "open_webui.json").read_text())
    with httpx.Client(base_url=f"{server.url}/v1", timeout=60, trust_env=False) as client:
        for one in recorded:
            headers = {name: value.replace("KEY", keys[1]) for name, value in one["headers"].items()}
            answer = client.request(one["method"], one["path"], headers=headers, json=one.get("json"))
            assert answer.status_code == one["status"], answer.text
            if "has" in one:
                listed = answer.json()[one["has"]]
                assert listed
                assert all("id" in entry for entry in listed)
            if answer.headers["content-type"] == "audio/mpeg":
                assert len(wave_of(answer.content)) > RATE // 2


def test_every_error_has_its_four_fields_and_no_path(client: httpx.Client, tmp_path: Path) -> None:
    found = [
        client.post("/v1/audio/speech", json={}),
        client.post("/v1/audio/speech", json=asking(voice="nobody")),
        client.post("/v1/audio/speech", json=asking("...", voice="anna")),
        client.post("/v1/audio/speech", content=b"x" * 300_000, headers={"Content-Type": "application/json"}),
        client.post("/v1/audio/speech", json=asking(), headers={"Authorization": "Bearer wrong"}),
        client.post("/v1/audio/speech", json=asking(), headers={"Origin": "https://evil.example"}),
        client.get("/v1/models", headers={"Host": "evil.example"}),
        client.delete("/v1/audio/voices/anna"),
        client.delete("/v1/audio/voices/..%2f..%2fetc"),
        client.put("/v1/audio/voices"),
        client.get("/nowhere"),
        client.get("/v1/runs/..%2f..%2fetc/events"),
        client.get("/v1/runs/mine/samples/99999999999"),
        client.get("/static/..%2fapp.py"),
        client.get("/v1/audio/speech/speech_0/timings"),
    ]

    assert [answer.status_code for answer in found] == [
        400, 400, 422, 413, 401, 403, 403, 400, 404, 405, 404, 404, 404, 404, 404,
    ]  # fmt: skip
    for answer in found:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert "/tmp" not in answer.text
        assert "Traceback" not in answer.text


def test_a_path_without_v1_is_told_where_the_api_is(client: httpx.Client) -> None:
    answer = client.post("/audio/speech", json=asking())

    assert answer.status_code == 404
    assert "the API is under /v1" in answer.json()["error"]["message"]


def test_word_timings_come_in_the_stream_and_afterwards(client: httpx.Client) -> None:
    with client.stream(
        "POST", "/v1/audio/speech", json=asking(SENTENCES, stream_format="sse", timestamps=True)
    ) as told:
        speech = told.headers["x-speech-id"]
        events = [json.loads(line[6:]) for line in told.iter_lines() if line.startswith("data: ")]
    words = [word for event in events if event["type"] == "speech.audio.words" for word in event["words"]]

    kept = client.get(f"/v1/audio/speech/{speech}/timings").json()

    assert [word["word"] for word in words] == SENTENCES.split()
    assert kept["words"] == words
    assert kept["complete"] is True
    assert words[-1]["end"] <= kept["seconds"]


def test_a_voice_is_added_with_consent_spoken_with_and_deleted(client: httpx.Client) -> None:
    file = io.BytesIO()
    soundfile.write(file, spoken_noise(3.0), 22050, format="WAV")
    clip = {"audio_sample": ("../../etc/passwd", file.getvalue())}

    refused = client.post("/v1/audio/voices", data={"name": "mina", "consent": "false"}, files=clip)
    added = client.post("/v1/audio/voices", data={"name": "mina", "consent": "She agreed."}, files=clip)
    again = client.post("/v1/audio/voices", data={"name": "mina", "consent": "She agreed."}, files=clip)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "consent_required")
    assert again.json()["error"]["code"] == "name_taken"
    voice = added.json()
    assert re.fullmatch(r"voice_[0-9a-f]{24}", voice["id"])
    assert len(wave_of_any(client.get(f"/v1/audio/voices/{voice['id']}/sample").content)) > 22050
    for name in (voice["id"], "mina", {"id": voice["id"]}):
        assert client.post("/v1/audio/speech", json=asking(voice=name)).status_code == 200
    nameless = httpx.get(f"{client.base_url}/v1/audio/voices", trust_env=False).json()["voices"]
    assert "mina" not in [one["name"] for one in nameless]
    assert client.delete(f"/v1/audio/voices/{voice['id']}").json()["deleted"] is True
    assert client.post("/v1/audio/speech", json=asking(voice="mina")).status_code == 400


def wave_of_any(data: bytes) -> np.ndarray:
    return np.asarray(soundfile.read(io.BytesIO(data))[0])


def test_the_same_seed_gives_the_same_speech_whatever_else_is_spoken(client: httpx.Client) -> None:
    async def together() -> list[bytes]:
        headers = dict(client.headers)
        async with httpx.AsyncClient(base_url=client.base_url, headers=headers, timeout=120, trust_env=False) as many:
            asked = [asking("Hello there, my friend.", response_format="pcm", seed=seed) for seed in (7, 8, 9, 10)]
            return [
                answer.content
                for answer in await asyncio.gather(*(many.post("/v1/audio/speech", json=one) for one in asked))
            ]

    alone = client.post(
        "/v1/audio/speech", json=asking("Hello there, my friend.", response_format="pcm", seed=7)
    ).content
    beside = asyncio.run(together())

    # Sums are rounded as the batch's size has it: the same codes, and samples that differ in their last bits at most.
    waves = [np.frombuffer(pcm, "<i2").astype(np.int32) for pcm in (alone, *beside)]
    assert len(waves[1]) == len(waves[0])
    assert np.abs(waves[1] - waves[0]).max() <= 8
    assert len(waves[2]) != len(waves[0]) or np.abs(waves[2] - waves[0]).max() > 1000


def test_too_many_at_once_wait_or_are_told_when_to_come_back(client: httpx.Client) -> None:
    async def flood() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(
            base_url=client.base_url, headers=dict(client.headers), timeout=120, limits=limits, trust_env=False
        ) as many:
            return await asyncio.gather(*(many.post("/v1/audio/speech", json=asking(seed=seed)) for seed in range(14)))

    answers = asyncio.run(flood())

    statuses = sorted(answer.status_code for answer in answers)
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 6
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert quiet(client)


def test_clients_that_hang_up_leave_no_work_behind(client: httpx.Client, keys: tuple[Path, str]) -> None:
    place = urlsplit(str(client.base_url))
    body = json.dumps(asking(SENTENCES * 20, response_format="pcm")).encode()
    head = (
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {keys[1]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    for number in range(6):
        with socket.create_connection((place.hostname or "", place.port or 0)) as connection:
            connection.sendall(head + body)
            if number % 2:
                connection.recv(100)
            else:
                time.sleep(0.02 * number)

    assert wait_until_quiet(client, 5.0) < 5.0
    assert client.post("/v1/audio/speech", json=asking()).status_code == 200


def test_a_speech_that_is_not_ready_at_its_deadline_ends_and_says_so(tmp_path: Path) -> None:
    long = asking((SENTENCES + " ") * 45, response_format="pcm", voice="alloy")
    with (
        running_server(tmp_path, BASE, "--deadline", "1", "--at-once", "1") as running,
        httpx.Client(base_url=running.url, timeout=60, trust_env=False) as client,
    ):
        answer = client.post("/v1/audio/speech", json={**long, "stream_format": "sse"})
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        last = events[-1] if answer.status_code == 200 else answer.json()
        assert last["error"]["code"] == "deadline_exceeded"
        assert wait_until_quiet(client, 5.0) < 5.0
        # Where there are no events, what has begun has no end, which a client can tell.
        with contextlib.suppress(httpx.RemoteProtocolError):
            assert client.post("/v1/audio/speech", json=long).status_code == 503


def test_a_client_that_reads_nothing_is_left_and_its_place_is_free(tmp_path: Path) -> None:
    short = asking(voice="alloy")
    body = json.dumps(
        {**short, "input": (SENTENCES + " ") * 45, "response_format": "wav", "stream_format": "sse"}
    ).encode()
    with (
        running_server(tmp_path, BASE, "--at-once", "1", "--waiting", "0") as running,
        httpx.Client(base_url=running.url, timeout=60, trust_env=False) as client,
        socket.socket() as stalled,
    ):
        place = urlsplit(running.url)
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((place.hostname, place.port))
        stalled.sendall(
            f"POST /v1/audio/speech HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        stalled.recv(1)
        assert client.post("/v1/audio/speech", json=short).status_code == 429

        wait_until_quiet(client, 120.0)

        assert client.post("/v1/audio/speech", json=short).status_code == 200
        assert "read nothing of its answer" in running.log.read_text()
        stalled.settimeout(10)
        rest = b""
        with contextlib.suppress(ConnectionResetError):
            while part := stalled.recv(2**16):
                rest += part
        assert not rest.endswith(b"0\r\n\r\n")


def test_wyoming_describes_and_speaks(server: RunningServer) -> None:
    place = urlsplit(server.wyoming or "")

    async def scenario() -> None:
        async with AsyncTcpClient(place.hostname or "", place.port or 0) as client:
            await client.write_event(Describe().event())
            event = await client.read_event()
            assert event is not None
            [program] = Info.from_event(event).tts
            assert program.supports_synthesize_streaming
            assert {"anna", "omid"} <= {voice.name for voice in program.voices}
            await client.write_event(Synthesize("Hello there.", SynthesizeVoice(name="anna")).event())
            assert await heard(client) > 0.5
            await client.write_event(SynthesizeStart(SynthesizeVoice(name="omid")).event())
            for part in ("سلام، دوست", " من. این", " جملهٔ دوم است."):
                await client.write_event(SynthesizeChunk(part).event())
            await client.write_event(SynthesizeStop().event())
            assert await heard(client) > 1.0
            event = await client.read_event()
            assert event is not None
            assert SynthesizeStopped.is_type(event.type)

    async def heard(client: AsyncTcpClient) -> float:
        seconds = 0.0
        while (event := await client.read_event()) is not None:
            if AudioChunk.is_type(event.type):
                seconds += AudioChunk.from_event(event).seconds
            if AudioStop.is_type(event.type):
                return seconds
            assert AudioChunk.is_type(event.type) or AudioStart.is_type(event.type), event
        raise AssertionError("the server hung up")

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_run_is_followed_with_its_sample_and_report(client: httpx.Client) -> None:
    assert [run["id"] for run in client.get("/v1/runs").json()["data"]] == ["mine"]
    with client.stream("GET", "/v1/runs/mine/events") as followed:
        line = next(line for line in followed.iter_lines() if line.startswith("data: "))
    state = json.loads(line[6:])
    report = client.get("/v1/runs/mine/report")

    assert (state["stage"], state["step"], state["ended"]["reason"]) == ("gpt", 60, "finished")
    assert state["curves"][0]["validation"] == [[40.0, 1.6]]
    assert client.get(f"/v1/runs/mine/samples/{state['samples'][0]['number']}").headers["content-type"] == "audio/wav"
    assert "sandbox allow-scripts" in report.headers["content-security-policy"]


def test_hostile_uploads_and_bodies_are_refused_quickly_and_leave_nothing(
    server: RunningServer, client: httpx.Client, keys: tuple[Path, str]
) -> None:
    """A few of each kind; `python -m tests.hostile URL --key KEY` sends 2,000."""
    before_mb = resident_mb(client)
    results = send(server.url, keys[1], hostile_requests(count=44, seed=1), at_once=2)

    wrong = [result for result in results if not 400 <= result.status < 500 or result.seconds > 20]
    assert wrong == []
    assert resident_mb(client) - before_mb < 100
    assert client.post("/v1/audio/speech", json=asking()).status_code == 200


def test_the_server_is_what_its_description_says(server: RunningServer, keys: tuple[Path, str], tmp_path: Path) -> None:
    """A short part; `python -m tests.conformance URL --key KEY` runs for long."""
    from tests.conformance import conform

    assert conform(server.url, keys[1], examples=6, folder=tmp_path) == ""


def test_stopping_finishes_what_has_begun(voice: Path, tmp_path: Path) -> None:
    with running_server(tmp_path, voice) as running:
        body = asking(SENTENCES, response_format="pcm")
        whole = httpx.post(f"{running.url}/v1/audio/speech", json=body, timeout=60, trust_env=False).content
        with httpx.stream("POST", f"{running.url}/v1/audio/speech", json=body, timeout=60, trust_env=False) as answer:
            parts = answer.iter_bytes()
            first = next(parts)
            running.process.send_signal(15)
            rest = b"".join(parts)
        assert running.process.wait(60) == 0
        log = running.log.read_text()

    assert first + rest == whole
    assert "Hello" not in log, "texts are not logged"
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 is reached by other machines"),
        (["--host", "0.0.0.0", "--without-keys"], "--host 0.0.0.0 is reached by other machines"),
        (["--port", "70000"], "--port is 70000"),
        (["--at-once", "0"], "--at-once is 0"),
        (["--api-key-file", "no-such-file"], "--api-key-file no-such-file cannot be read"),
        (["--runs", "no-such-folder"], "--runs no-such-folder is no folder"),
        (["--collected", "docs"], "--collected docs was not made by collect or record"),
        (["--new-key", "phone"], "--new-key has no file to go to"),
        (["--voice", "nowhere"], "there is no voice 'nowhere'"),
    ],
)
def test_what_is_wrong_with_a_server_is_said_before_it_starts(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *flags]) == 1

    assert said in capsys.readouterr().err
