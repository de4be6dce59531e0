"""The page in real headless Chromium: types, hears, adds a voice, watches a run, in English and in Persian.

Runs where Chromium is installed (`.ci/run` installs Debian's); elsewhere these tests are left out, and the summary says
so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from myxtts.audio.io import write_audio
from myxtts.evaluation.metrics import Moonshine
from myxtts.evaluation.scoring import word_errors
from tests.chromium import Browser
from tests.processes import run_program
from tests.serving import RunningServer, make_collected, make_run, running_server, spoken_noise

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

BASE_VOICE = Path("base")
"""The built-in one, by its name."""
SHIFTS = """window.shifts = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifts += entry.value;
}).observe({ type: "layout-shift", buffered: false });"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    run_program("voices", str(folder / "voice"))
    make_run(folder / "runs" / "first", ended=True)
    write_audio(folder / "clip.wav", spoken_noise(3.0), 22050)
    make_collected(folder / "collected")
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    shown = ("--runs", str(folder / "runs"), "--collected", str(folder / "collected"))
    with running_server(folder, folder / "voice", *shown) as running:
        yield running


@pytest.fixture
def page(server: RunningServer) -> Iterator[Browser]:
    with Browser() as browser:
        browser.open(f"{server.url}/")
        browser.wait_for("document.querySelectorAll('#voice option').length > 0")
        yield browser
        assert browser.problems == []


KEEP_BLOBS = """window.made = []; window.address = URL.createObjectURL;
  URL.createObjectURL = (blob) => { made.push(blob); return address.call(URL, blob); };"""
"""The page's content policy keeps scripts from fetching a blob's address."""
HEARD = """(async () => {
  const sound = await new OfflineAudioContext(1, 1, 24000).decodeAudioData(await made.at(-1).arrayBuffer());
  const samples = Int16Array.from(sound.getChannelData(0).subarray(0, 24000 * SECONDS), (one) => one * 32767);
  return btoa(Array.from(new Uint8Array(samples.buffer), (one) => String.fromCharCode(one)).join(""));
})()"""


def heard(page: Browser, seconds: int = 1) -> np.ndarray:
    """What the browser itself decodes of the beginning of the file that it offers to download."""
    return np.frombuffer(base64.b64decode(page.evaluate(HEARD.replace("SECONDS", str(seconds)))), "<i2")


@pytest.mark.parametrize(
    ("tongue", "text"),
    [("en", "Hello there, my friend. This is the second one."), ("fa", "سلام، دوست من. این جملهٔ دوم است.")],
    ids=["English", "Persian"],
)
def test_a_typed_text_is_heard_and_its_words_light_up(page: Browser, tongue: str, text: str) -> None:
    if tongue == "fa":
        page.click("#tongue")
        page.wait_for("document.documentElement.dir === 'rtl' && document.documentElement.lang === 'fa'")
    page.type("#text", text)
    page.evaluate(SHIFTS + KEEP_BLOBS)
    page.press("Enter", code=13, control=True)
    page.wait_for("document.querySelector('#words .now') !== null")
    page.wait_for("!document.querySelector('#say').disabled")

    words = page.evaluate("[...document.querySelectorAll('#words span')].map((one) => one.className)")
    assert words == ["said"] * len(text.split())
    assert np.abs(heard(page)).max() > 500
    assert page.evaluate("shifts") < 0.02, "nothing moves while it streams"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.recogniser
def test_what_the_page_plays_is_understood(tmp_path: Path) -> None:
    text = "The people of this city looked at the pictures in the old books."
    with running_server(tmp_path, BASE_VOICE) as running, Browser() as page:
        page.open(f"{running.url}/")
        page.wait_for("document.querySelectorAll('#voice option').length > 0")
        page.type("#text", text)
        page.evaluate(KEEP_BLOBS)
        page.press("Enter", code=13, control=True)
        page.wait_for("document.querySelector('#words .now') !== null")
        page.wait_for("!document.querySelector('#say').disabled")
        wave = heard(page, seconds=8).astype(np.float32) / 32768

    transcript = Moonshine().transcribe(wave, 24000)

    errors = word_errors(text, transcript, "en")
    assert errors.errors <= errors.length // 3, transcript


def test_stopping_stops_and_a_link_brings_the_settings_back(page: Browser, server: RunningServer) -> None:
    page.type("#text", "Hello there. " * 60)
    page.click("#say")
    page.wait_for("!document.querySelector('#stop').disabled")
    page.click("#stop")
    page.wait_for("!document.querySelector('#say').disabled")
    page.type("#text", "A short text.")
    page.evaluate("document.querySelector('#voice').value = 'omid'; document.querySelector('#speed').value = 1.5")
    page.click("#share")
    address = page.evaluate("location.href")

    page.open("about:blank")
    page.open(address)
    page.wait_for("document.querySelectorAll('#voice option').length > 0")

    kept = page.evaluate("['text', 'voice', 'speed'].map((name) => document.getElementById(name).value)")
    assert kept == ["A short text.", "omid", "1.5"]


def test_a_voice_is_added_with_consent_only_heard_and_deleted(page: Browser, folder: Path) -> None:
    page.click("nav a[href='#voices']")
    page.wait_for("document.querySelectorAll('#voice-list li').length === 2")
    page.type("#new-name", "مینا")
    page.choose_file("#clip", folder / "clip.wav")
    page.click("#add")
    assert page.evaluate("document.querySelector('#consent').validity.valueMissing"), "nothing is sent without consent"
    page.click("#consent")
    page.click("#add")
    page.wait_for("document.querySelectorAll('#voice-list li').length === 3")
    assert "مینا" in page.text("#voices-status")
    page.click("#voice-list li:last-child button")
    page.click("#voice-list li:last-child button:last-child")
    page.wait_for("document.querySelector('#delete-dialog').open")
    page.click("#delete-dialog button[value=yes]")
    page.wait_for("document.querySelectorAll('#voice-list li').length === 2")


def test_a_voice_is_added_from_the_microphone(page: Browser) -> None:
    page.click("nav a[href='#voices']")
    # The list moves what stands below it when it comes.
    page.wait_for("document.querySelectorAll('#voice-list li').length === 2")
    page.type("#new-name", "spoken")
    page.click("#record")
    page.wait_for("/[3-9]/.test(document.querySelector('#record-note').textContent)")
    page.click("#record")
    page.wait_for("!document.querySelector('#clip-player').hidden")
    page.click("#consent")
    page.click("#add")
    page.wait_for("document.querySelectorAll('#voice-list li').length === 3")


@pytest.mark.parametrize(("tongue", "state"), [("en", "running"), ("fa", "در حال اجرا")])
def test_a_run_is_watched_while_it_goes_on(page: Browser, folder: Path, tongue: str, state: str) -> None:
    log = make_run(folder / "runs" / f"live-{tongue}")
    if tongue == "fa":
        page.click("#tongue")
    page.click("nav a[href='#runs']")
    page.wait_for(f"document.querySelector('#run-name').textContent === 'live-{tongue}'")
    assert page.text("#run-state") == state
    assert page.evaluate("document.querySelectorAll('#run-devices meter').length") == 4
    assert page.evaluate("document.querySelectorAll('#run-curves path').length") == 1
    page.click("#run-samples button")
    log.write("step", stage="gpt", step=61, loss=0.5)
    page.wait_for("document.querySelector('#run-progress').value === 0.61")
    log.write("run_end", reason="finished", message="done")
    log.close()
    page.wait_for("document.querySelector('#run-state').className === 'badge good'")


@pytest.mark.parametrize(("tongue", "text"), [("en", "What was said."), ("fa", "آنچه گفته شد.")])
def test_collected_pieces_are_heard_corrected_kept_and_dropped(
    page: Browser, folder: Path, tongue: str, text: str
) -> None:
    make_collected(folder / "collected", tongue)
    if tongue == "fa":
        page.click("#tongue")
    page.click("nav a[href='#collect']")
    page.wait_for("document.querySelectorAll('#piece-list li').length === 3")
    assert page.evaluate("document.querySelectorAll('#piece-list li.kept').length") == 2

    page.click("#piece-list li:first-child button")
    page.type("#piece-list li.aside textarea", text)
    page.click("#piece-list li.aside button.side")
    page.wait_for("document.querySelectorAll('#piece-list li.kept').length === 3")
    page.click("#piece-list li:first-child button.side")
    page.wait_for("document.querySelectorAll('#piece-list li.kept').length === 2")

    rows = (folder / "collected" / "metadata.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split("|")[:2] for row in rows] == [["anna_00002", "The second one."], ["anna_00003", text]]
    assert "anna_00001" in (folder / "collected" / "set_aside.jsonl").read_text()
    page.evaluate("location.reload()")
    page.wait_for("document.querySelectorAll('#piece-list li.kept').length === 2")


def test_the_pieces_api_refuses_what_it_cannot_keep(server: RunningServer, folder: Path) -> None:
    make_collected(folder / "collected")
    with httpx.Client(base_url=server.url) as client:
        for path, body, status in (
            ("anna_00001", {"text": "", "kept": True}, 400),
            ("anna_00001", {"text": "a\nb", "kept": True}, 400),
            ("anna_00001", {"text": "سلام، دوست من.", "kept": True}, 400),
            ("anna_00001", {"text": "a", "kept": "yes"}, 400),
            ("anna_00001", ["a"], 400),
            ("none", {"text": "a", "kept": True}, 404),
            ("..%2f..%2fmetadata", {"text": "a", "kept": True}, 404),
        ):
            answer = client.post(f"/v1/collected/{path}", json=body)
            assert (answer.status_code, set(answer.json()["error"])) == (status, {"message", "type", "param", "code"})
        assert client.get("/v1/collected/..%2fmetadata.csv/audio").status_code == 404
        assert client.get("/v1/collected/anna_00001/audio").headers["content-type"] == "audio/wav"
        changed = client.post("/v1/collected/anna_00001", json={"text": " a | b ", "kept": True}).json()
    assert (changed["text"], changed["kept"]) == ("a b", True)
    assert "anna_00001|a b|a b|anna|en" in (folder / "collected" / "metadata.csv").read_text()


def test_the_page_fits_a_phone_and_every_control_has_a_name(page: Browser) -> None:
    for width, mobile in ((360, True), (1100, False)):
        page.resize(width, 800, mobile=mobile)
        for view in ("speak", "voices", "runs"):
            page.evaluate(f"location.hash = '{view}'")
            page.wait_for(f"!document.querySelector('#view-{view}').hidden")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (width, view)
    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea, a")]
          .filter((one) => !(one.textContent.trim() || one.ariaLabel || one.labels?.length))
          .map((one) => one.outerHTML)"""
    )
    assert json.dumps(nameless) == "[]"
