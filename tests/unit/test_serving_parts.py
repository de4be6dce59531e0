"""The server's parts without a server: queue, keys, requests, formats, batching."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from myxtts.errors import ConfigError
from myxtts.serving.admission import Admission
from myxtts.serving.batching import MOST_ROWS, BatchedGeneration
from myxtts.serving.encoding import MEDIA_TYPES, RATE, AudioEncoder
from myxtts.serving.errors import RequestError
from myxtts.serving.keys import add_key, read_keys
from myxtts.serving.metrics import Metrics
from myxtts.serving.middleware import is_loopback
from myxtts.serving.requests import parse_speech
from myxtts.synthesis.decode_batch import RowStep
from myxtts.synthesis.speech_model import Text, TextBatch
from myxtts.text.languages import guessed_language

GOOD = {"model": "tts-1", "input": "Hello.", "voice": "alloy"}


def body(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_a_request_has_the_defaults_of_the_api() -> None:
    asked = parse_speech(body())

    assert (asked.response_format, asked.stream_format, asked.speed, asked.seed) == ("mp3", "audio", 1.0, 0)
    assert asked.ignored == ()


def test_a_voice_may_be_an_object_and_what_is_ignored_is_named() -> None:
    asked = parse_speech(body(voice={"id": "voice_1"}, instructions="whisper", lang_code="a", speed=2))

    assert (asked.voice, asked.speed, asked.ignored) == ("voice_1", 2.0, ("instructions", "lang_code"))


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": "a" * 4097}, "input"),
        ({"input": 3}, "input"),
        ({"input": None}, "input"),
        ({"input": "\ud800"}, "input"),
        ({"model": None}, "model"),
        ({"voice": {}}, "voice"),
        ({"voice": ["alloy"]}, "voice"),
        ({"response_format": "aac"}, "response_format"),
        ({"response_format": 5}, "response_format"),
        ({"stream_format": "chunked"}, "stream_format"),
        ({"speed": 0.2}, "speed"),
        ({"speed": True}, "speed"),
        ({"speed": 10**400}, "speed"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"temperature": "hot"}, "temperature"),
        ({"timestamps": 1}, "timestamps"),
        ({"language": "klingon"}, "language"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_field_is_refused_by_its_name(changes: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_speech(body(**changes))

    assert (refused.value.status, refused.value.param) == (400, param)
    assert set(refused.value.body["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "wrong", [b"", b"[]", b"{", b"\xff", b'{"speed": NaN}', b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}"]
)
def test_a_body_that_is_no_object_is_refused(wrong: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        parse_speech(wrong)

    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("text", "speaker", "learnt", "language"),
    [
        ("Hello there", "en", ("en", "fa"), "en"),
        ("سلام دوست من", "en", ("en", "fa"), "fa"),
        ("Guten Tag", "de", ("en", "de"), "de"),
        ("سلام", "ar", ("ar", "fa"), "ar"),
        ("Привет", None, (), "ru"),
        ("123", None, (), "en"),
    ],
)
def test_the_language_is_guessed_from_script_and_speaker(
    text: str, speaker: str | None, learnt: Sequence[str], language: str
) -> None:
    assert guessed_language(text, speaker, learnt) == language


def test_a_key_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    first, second = add_key(file, "phone"), add_key(file, "desk")

    keys = read_keys(file)

    assert (keys.owner_of(first), keys.owner_of(second)) == ("phone", "desk")
    assert keys.owner_of(first + "x") is None
    assert keys.owner_of("") is None
    assert first not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", ["", "a-key-in-clear", "phone 12ab"])
def test_a_key_file_without_digests_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)

    with pytest.raises(ConfigError) as refused:
        read_keys(file)

    assert not content or content not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("evil.example", False),
    ],
)
def test_loopback_is_told_from_public_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("name", list(MEDIA_TYPES))
def test_each_format_streams_all_of_the_speech(name: str) -> None:
    tone = (0.3 * np.sin(2 * np.pi * 440 * np.arange(3 * 22050) / 22050)).astype(np.float32)
    encoder = AudioEncoder(name, 22050)

    parts = [encoder.add(tone[first : first + 11025]) for first in range(0, len(tone), 11025)] + [encoder.finish()]

    assert sum(map(len, parts[:-1])) > len(parts[-1]), "most of it is there before the end"
    heard = decoded(b"".join(parts), name)
    assert abs(len(heard) / RATE - 3.0) < 0.1
    middle = heard[RATE : 2 * RATE]
    assert abs(int(np.argmax(np.abs(np.fft.rfft(middle)))) - 440) <= 1


def decoded(data: bytes, name: str) -> np.ndarray:
    if name == "pcm":
        return np.frombuffer(data, "<i2") / 32768
    if name == "flac":
        # A stream says 0 for "not known", which soundfile takes for endless: give it the number.
        total = 3 * RATE
        data = data[:21] + bytes([data[21] & 0xF0]) + total.to_bytes(4, "big") + data[26:]
    wave, rate = soundfile.read(io.BytesIO(data))
    assert rate == RATE
    return np.asarray(wave)


def test_a_wav_stream_has_open_sizes() -> None:
    data = AudioEncoder("wav", RATE).add(np.zeros(10, np.float32))

    assert (data[4:8], data[40:44], len(data)) == (b"\xff" * 4, b"\xff" * 4, 64)


def test_places_are_taken_waited_for_and_refused() -> None:
    async def scenario() -> None:
        admission = Admission(1, 1)
        order: list[str] = []

        async def hold(name: str) -> None:
            async with admission.place(name, 5.0):
                order.append(name)
                await asyncio.sleep(0.05)

        first, second = asyncio.create_task(hold("a")), asyncio.create_task(hold("a"))
        await asyncio.sleep(0.01)
        assert (admission.active, admission.waiting) == (1, 1)
        with pytest.raises(RequestError) as refused:
            await hold("a")
        assert refused.value.status == 429
        assert int(refused.value.headers["Retry-After"]) >= 1
        await asyncio.gather(first, second)
        assert (order, admission.active, admission.waiting) == (["a", "a"], 0, 0)

    asyncio.run(scenario())


def test_owners_take_turns_and_the_greedy_one_gives_way() -> None:
    async def scenario() -> None:
        admission = Admission(1, 4)
        order: list[str] = []

        async def hold(name: str) -> None:
            async with admission.place(name, 5.0):
                order.append(name)
                await asyncio.sleep(0.01)

        greedy = [asyncio.create_task(hold("greedy")) for _ in range(5)]
        await asyncio.sleep(0)
        modest = [asyncio.create_task(hold("modest")) for _ in range(2)]
        results = await asyncio.gather(*greedy, *modest, return_exceptions=True)

        assert order == ["greedy", "greedy", "modest", "greedy", "modest"]
        assert [isinstance(result, RequestError) for result in results] == [False] * 3 + [True] * 2 + [False] * 2

    asyncio.run(scenario())


def test_one_who_leaves_the_queue_or_waits_too_long_takes_no_place() -> None:
    async def scenario() -> None:
        admission = Admission(1, 2)
        async with admission.place("a", 1.0):
            with pytest.raises(RequestError):
                async with admission.place("b", 0.01):
                    pass
            waiting = asyncio.create_task(admission.place("b", 5.0).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert admission.waiting == 0
        assert admission.active == 0
        async with admission.place("c", 0.01):
            assert admission.active == 1

    asyncio.run(scenario())


def test_metrics_are_prometheus_text() -> None:
    metrics = Metrics()
    metrics.requests["/v1/audio/speech", 200] += 2
    metrics.first_audio.add(0.3)
    metrics.first_audio.add(99.0)

    lines = metrics.text(active=1, waiting=3).splitlines()

    assert 'myxtts_requests_total{route="/v1/audio/speech",status="200"} 2' in lines
    assert 'myxtts_first_audio_seconds_bucket{le="0.5"} 1' in lines
    assert 'myxtts_first_audio_seconds_bucket{le="+Inf"} 2' in lines
    assert "myxtts_waiting 3" in lines


@dataclass
class CountingBatch:
    """Rows that count from their seed upwards, as many codes as their text has tokens; a text of 13 tokens fails."""

    rows: dict[int, tuple[int, int]] = field(default_factory=dict)
    most_rows: int = 0
    joined: int = 0
    left: list[int] = field(default_factory=list)
    hold: threading.Event = field(default_factory=threading.Event)

    def join(self, text: Text) -> int:
        if len(text.ids) == 13:
            raise ValueError("13 tokens")
        self.joined += 1
        self.rows[self.joined] = (text.seed, len(text.ids))
        self.most_rows = max(self.most_rows, len(self.rows))
        return self.joined

    def leave(self, row: int) -> None:
        self.left.append(row)
        self.rows.pop(row, None)

    def step(self) -> list[RowStep]:
        self.hold.wait(5.0)
        made = []
        for row, (code, left) in list(self.rows.items()):
            stopped = left == 0
            made.append(RowStep(row, code, np.full(2, code, np.float32), 0, stopped, stopped))
            self.rows[row] = (code + 1, left - 1)
            if stopped:
                del self.rows[row]
        return made


def codes_of(generation: BatchedGeneration, tokens: int, seed: int) -> list[int]:
    made = generation.generate(TextBatch(np.zeros((1, 1, 2)), np.zeros((1, tokens), int), [tokens], seeds=seed))
    assert bool(made.stopped_B[0])
    return [int(code) for code in made.codes_BN[0, : int(made.lengths_B[0])]]


def test_texts_of_several_requests_share_the_steps_and_one_that_fails_disturbs_none() -> None:
    batch = CountingBatch()
    generation = BatchedGeneration(lambda: batch, aligned=False, check=lambda: None)
    found: dict[int, object] = {}

    def request(tokens: int) -> None:
        try:
            found[tokens] = codes_of(generation, tokens, 100 * tokens)
        except ValueError as error:
            found[tokens] = str(error)

    threads = [threading.Thread(target=request, args=(tokens,)) for tokens in (5, 13, 8, 2)]
    for thread in threads:
        thread.start()
    batch.hold.set()
    for thread in threads:
        thread.join()
    generation.close()

    expected: dict[int, object] = {tokens: [100 * tokens + place for place in range(tokens)] for tokens in (5, 8, 2)}
    assert found == {**expected, 13: "13 tokens"}


def test_more_texts_than_a_batch_takes_wait_and_all_are_made() -> None:
    batch = CountingBatch()
    batch.hold.set()
    generation = BatchedGeneration(lambda: batch, aligned=False, check=lambda: None)
    many = 3 * MOST_ROWS

    made = generation.generate(
        TextBatch(np.zeros((1, 1, 2)), np.zeros((many, 200), int), [200] * many, seeds=range(0, 1000 * many, 1000))
    )
    generation.close()

    assert made.codes_BN[:, 0].tolist() == list(range(0, 1000 * many, 1000))
    assert made.lengths_B.tolist() == [200] * many
    assert batch.most_rows == MOST_ROWS


def test_a_stream_comes_in_chunks_and_a_row_whose_request_stops_leaves_the_batch() -> None:
    batch = CountingBatch()
    batch.hold.set()
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise InterruptedError

    generation = BatchedGeneration(lambda: batch, aligned=False, check=check)
    texts = TextBatch(np.zeros((1, 1, 2)), np.zeros((1, 10**6), int), [10**6], seeds=7)
    parts = generation.stream(texts, chunk=4)

    assert next(parts).codes_BN.tolist() == [[7, 8, 9, 10]]
    assert next(parts).codes_BN.tolist() == [[11, 12, 13, 14]]
    stopped.set()
    with pytest.raises(InterruptedError):
        list(parts)
    stopped.clear()
    assert codes_of(generation, 3, 1) == [1, 2, 3]
    generation.close()
    assert batch.left == [1]
