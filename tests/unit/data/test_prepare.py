"""Preparing a corpus: what is written, when it is reused, and what stops it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import soundfile

from myxtts.data.prepare import PrepareProgress, PreparingStopped, prepare
from myxtts.data.prepared import REFUSED, PreparedCorpus, held_out_of, open_prepared
from myxtts.errors import ConfigError, DataError
from tests.corpus_maker import folder_digest, make_ljspeech, sentence, settings, tone
from tests.processes import run_program


def refusals(prepared: PreparedCorpus) -> list[dict[str, object]]:
    return [json.loads(line) for line in (prepared.path / REFUSED).read_text().splitlines()]


def test_clips_come_back_with_their_samples_tokens_and_text(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 5)

    prepared = prepare(corpus, settings(tmp_path))

    assert len(prepared) == 5
    for number in range(5):
        record = prepared.read(number)
        source, _ = soundfile.read(corpus / "wavs" / f"clip_{number}.wav", dtype="int16")
        np.testing.assert_array_equal(record.wave, source)
        assert (record.id, record.text) == (f"clip_{number}", sentence(number))
        assert record.tokens.tolist() == prepared.tokenizer.encode(sentence(number), "en")
        assert prepared.index.wave_samples[number] == len(source)
        assert prepared.index.text_tokens[number] == len(record.tokens)
        assert prepared.languages[prepared.index.language[number]] == "en"
        assert prepared.speakers[prepared.index.speaker[number]] == "corpus"


def test_the_report_counts_what_is_there(tmp_path: Path) -> None:
    lines = [
        "clip_0|Hello.|Hello.|anna|en",
        "clip_1|Hello.|Hello.|anna|en",
        "clip_2|سلام|سلام|bita|fa",
        "gone|x|x|a|en",
    ]
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[1.0, 1.5, 2.5], lines=lines)

    report = prepare(corpus, settings(tmp_path, max_refused_share=0.5)).report

    assert report["clips"] == 3
    assert report["hours"] == pytest.approx(5.0 / 3600, abs=1e-4)
    assert report["speakers"] == {"anna": 2, "bita": 1}
    assert report["languages"] == {"en": 2, "fa": 1}
    assert report["length_histogram_seconds"] == {"1": 2, "2": 1}
    assert report["refused"] == 1


def test_a_tokenizer_that_is_given_is_used_and_its_gaps_are_reported(tmp_path: Path) -> None:
    train = prepare(make_ljspeech(tmp_path / "train", 3), settings(tmp_path))
    other = make_ljspeech(tmp_path / "other", 2, lines=["clip_0|Ω sign", "clip_1|plain"])

    prepared = prepare(other, settings(tmp_path), tokenizer=train.tokenizer)

    assert prepared.tokenizer.tokens() == train.tokenizer.tokens()
    assert prepared.report["characters_not_in_vocabulary"] == {"ω": 1}


def test_bad_clips_are_refused_by_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 10)
    (corpus / "wavs" / "clip_3.wav").write_bytes(b"RIFF")
    (corpus / "wavs" / "clip_7.wav").unlink()
    text = (corpus / "metadata.csv").read_text().replace("clip_9|", "clip_9|" + "long " * 1000 + "|").splitlines()
    text[9] = f"clip_9|{'long ' * 1000}|{'long ' * 1000}"
    (corpus / "metadata.csv").write_text("\n".join(text))

    prepared = prepare(corpus, settings(tmp_path, max_refused_share=0.5))

    assert len(prepared) == 7
    assert [(refusal["file"], refusal["line"], refusal["id"]) for refusal in refusals(prepared)] == [
        ("metadata.csv", 4, "clip_3"),
        ("metadata.csv", 8, "clip_7"),
        ("metadata.csv", 10, "clip_9"),
    ]
    assert "--max-text-chars" in str(refusals(prepared)[2]["reason"])


def test_a_text_of_one_character_is_taken(tmp_path: Path) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 1, lines=["clip_0|a|a"]), settings(tmp_path))

    assert prepared.read(0).text == "a"


def test_more_refusals_than_allowed_stop_with_the_first_reason(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    (corpus / "wavs" / "clip_1.wav").write_bytes(b"")

    with pytest.raises(DataError, match=r"1 of 4 clips were refused \(25%\).*metadata.csv, line 2: the file is empty"):
        prepare(corpus, settings(tmp_path))
    assert len(prepare(corpus, settings(tmp_path, max_refused_share=0.25))) == 3


def test_nothing_but_refusals_is_an_error_whatever_is_allowed(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 1)
    (corpus / "wavs" / "clip_0.wav").write_bytes(b"")

    with pytest.raises(DataError, match="every clip") as refused:
        prepare(corpus, settings(tmp_path, max_refused_share=1.0))
    assert "--max-refused-share" not in refused.value.hint, "it is no way out"


def test_a_second_call_reads_no_audio(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    first = prepare(corpus, settings(tmp_path))
    written = (first.path / "manifest.json").stat().st_mtime_ns
    for wav in (corpus / "wavs").iterdir():
        stat = wav.stat()
        wav.write_bytes(b"\0" * stat.st_size)  # would be refused if it were read
        os.utime(wav, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    again = prepare(corpus, settings(tmp_path))

    assert (again.path / "manifest.json").stat().st_mtime_ns == written


@pytest.mark.parametrize("change", ["audio", "metadata", "new clip", "settings", "damage", "force"])
def test_what_changes_the_result_prepares_again(tmp_path: Path, change: str) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    out = tmp_path / "out"
    first = prepare(corpus, settings(tmp_path), out=out)
    (out / "mark").touch()
    config = settings(tmp_path)
    if change == "audio":
        soundfile.write(corpus / "wavs" / "clip_0.wav", tone(1.3), 22050)
    elif change == "metadata":
        (corpus / "metadata.csv").write_text((corpus / "metadata.csv").read_text().replace("cat", "dog"))
    elif change == "new clip":
        soundfile.write(corpus / "wavs" / "clip_4.wav", tone(1.0), 22050)
        with (corpus / "metadata.csv").open("a") as file:
            file.write("clip_4|New.|New.\n")
    elif change == "settings":
        config = settings(tmp_path, normalise_loudness=True)
    elif change == "damage":
        shard = next(first.path.glob("*.array_record"))
        shard.write_bytes(shard.read_bytes()[:-10])

    prepare(corpus, config, out=out, force=change == "force")

    assert not (out / "mark").exists()


@pytest.mark.parametrize("manifest", ["{", "[]", '{"version": 1}', "[" * 10**5])
def test_a_damaged_manifest_prepares_again(tmp_path: Path, manifest: str) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    first = prepare(corpus, settings(tmp_path), workers=1)
    (first.path / "manifest.json").write_text(manifest)

    assert len(prepare(corpus, settings(tmp_path), workers=1)) == 4


def test_settings_that_do_not_shape_the_result_keep_it(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    first = prepare(corpus, settings(tmp_path))
    (first.path / "mark").touch()

    again = prepare(corpus, settings(tmp_path, batch_seconds=7.0, num_workers=2, buffer_size=3))

    assert (again.path / "mark").exists()


def test_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 70)
    (corpus / "wavs" / "clip_5.wav").write_bytes(b"junk")

    alone = prepare(corpus, settings(tmp_path), out=tmp_path / "alone", workers=1)
    together = prepare(corpus, settings(tmp_path), out=tmp_path / "together", workers=2)

    assert folder_digest(alone.path) == folder_digest(together.path)


@pytest.mark.parametrize("workers", [0, -1])
def test_fewer_than_one_worker_is_an_error(tmp_path: Path, workers: int) -> None:
    with pytest.raises(ConfigError, match=f"--workers is {workers}, must be at least 1"):
        prepare(make_ljspeech(tmp_path / "corpus", clips=1), settings(tmp_path / "cache"), workers=workers)


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 40)
    (corpus / "wavs" / "clip_5.wav").write_bytes(b"junk")
    (corpus / "wavs" / "clip_6.wav").unlink()
    seen: list[PrepareProgress] = []

    prepare(corpus, settings(tmp_path), seen.append, workers=2)

    assert seen[-1] == PrepareProgress(done=40, refused=2, total=40)


def test_asked_to_stop_it_ends_with_the_clip_at_hand_and_goes_on_from_the_finished_shards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus, seen = make_ljspeech(tmp_path / "corpus", seconds=[0.5] * 40), []

    with pytest.raises(PreparingStopped):
        prepare(corpus, settings(tmp_path), seen.append, workers=1, should_stop=lambda: len(seen) == 35)

    assert seen[-1].done == 35
    with caplog.at_level("INFO"):
        assert len(prepare(corpus, settings(tmp_path), workers=1)) == 40
    assert "1 of 2 shards are done" in caplog.text


@pytest.mark.parametrize("frontend", ["characters", "phonemes", "bpe"])
def test_asked_to_stop_it_makes_no_vocabulary_first(tmp_path: Path, frontend: str) -> None:
    corpus, asked = make_ljspeech(tmp_path / "corpus", seconds=[0.5] * 40), []
    config = settings(tmp_path, text_frontend=frontend)

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 10

    with pytest.raises(PreparingStopped):
        prepare(corpus, config, workers=1, should_stop=stop)

    assert len(asked) == 11, "it is the 11th of 40 texts"
    assert not list(tmp_path.rglob("tokenizer.json"))


def test_asked_to_stop_it_does_not_wait_for_another_process(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2)

    with (tmp_path / ".prepared.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PreparingStopped):
            prepare(corpus, settings(tmp_path), out=tmp_path / "prepared", should_stop=lambda: True)


def test_a_folder_of_the_users_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "thesis"
    mine.mkdir()
    (mine / "chapter1.txt").write_text("years of work")

    with pytest.raises(DataError, match="will not be replaced"):
        prepare(make_ljspeech(tmp_path / "corpus", 1), settings(tmp_path), out=mine, force=True)
    assert (mine / "chapter1.txt").exists()


def test_neighbours_of_the_users_with_names_like_ours_stay_as_they_are(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2)
    neighbours = [f"{mark}prepared.{kind}" for mark in ("", ".") for kind in ("old", "building", "building-1", "old-1")]
    for name in neighbours:
        (tmp_path / name).mkdir()
        (tmp_path / name / "chapter1.txt").write_text("years of work")
    locks = [tmp_path / "prepared.lock", tmp_path / ".prepared.lock"]
    for lock in locks:
        lock.write_text("mine")

    for force in (False, True):
        prepare(corpus, settings(tmp_path), out=tmp_path / "prepared", force=force, workers=1)

    assert [(tmp_path / name / "chapter1.txt").is_file() for name in neighbours] == [True] * len(neighbours)
    assert [lock.read_text() for lock in locks] == ["mine", "mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["corpus", "prepared", *neighbours, *(lock.name for lock in locks)]
    )


@pytest.mark.parametrize("manifest", ["{}", '{"version": 1, "name": "my web app"}', "not json"])
def test_a_folder_of_the_users_with_a_manifest_of_its_own_is_not_replaced(tmp_path: Path, manifest: str) -> None:
    mine = tmp_path / "app"
    mine.mkdir()
    (mine / "manifest.json").write_text(manifest)

    with pytest.raises(DataError, match="will not be replaced"):
        prepare(make_ljspeech(tmp_path / "corpus", 1), settings(tmp_path), out=mine, force=True)
    assert (mine / "manifest.json").read_text() == manifest


def test_what_another_state_of_the_corpus_left_unfinished_is_removed(tmp_path: Path) -> None:
    corpus, out, seen = make_ljspeech(tmp_path / "corpus", seconds=[0.5] * 40), tmp_path / "prepared", []
    with pytest.raises(PreparingStopped):
        prepare(corpus, settings(tmp_path), seen.append, out=out, workers=1, should_stop=lambda: len(seen) == 35)
    assert len(list(tmp_path.glob(".prepared.building-*"))) == 1

    change_metadata(corpus, (corpus / "metadata.csv").read_text().splitlines()[1:])
    prepare(corpus, settings(tmp_path), out=out, workers=1)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".prepared.lock", "corpus", "prepared"]


def test_a_whole_folder_that_a_kill_left_without_its_name_gets_it(tmp_path: Path) -> None:
    corpus, out = make_ljspeech(tmp_path / "corpus", 3), tmp_path / "prepared"
    prepare(corpus, settings(tmp_path), out=out, workers=1)
    inode = (out / "manifest.json").stat().st_ino
    out.rename(tmp_path / ".prepared.building-0123456789ab")

    prepare(corpus, settings(tmp_path), out=out, workers=1)

    assert (out / "manifest.json").stat().st_ino == inode


@pytest.mark.parametrize("place", ["prepared", ".prepared.old-0123456789ab"])
def test_a_read_error_on_a_manifest_ends_the_command_and_removes_nothing(tmp_path: Path, place: str) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2)
    (tmp_path / place).mkdir()
    (tmp_path / place / "manifest.json").symlink_to("/proc/self/mem")  # a real EIO
    (tmp_path / place / "shard").write_text("good")

    with pytest.raises(DataError, match=r"manifest\.json cannot be read: Input/output error"):
        prepare(corpus, settings(tmp_path), out=tmp_path / "prepared", workers=1)

    assert (tmp_path / place / "shard").is_file()


def test_half_a_folder_is_not_opened(tmp_path: Path) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 3), settings(tmp_path))
    (prepared.path / "manifest.json").unlink()

    with pytest.raises(DataError, match="not a prepared corpus"):
        open_prepared(prepared.path)


@pytest.mark.parametrize("name", ["wave_samples.bin", "speaker.bin"])
def test_a_changed_index_is_not_opened(tmp_path: Path, name: str) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 3), settings(tmp_path))
    content = bytearray((prepared.path / name).read_bytes())
    content[0] ^= 1
    (prepared.path / name).write_bytes(content)

    with pytest.raises(DataError, match=rf"{name} is damaged"):
        open_prepared(prepared.path)


def test_a_flipped_bit_in_a_shard_is_found_when_it_is_read(tmp_path: Path) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 3), settings(tmp_path))
    shard = next(prepared.path.glob("*.array_record"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 3] ^= 1
    shard.write_bytes(content)
    reopened = open_prepared(prepared.path)

    def read_all() -> None:
        for clip in range(3):
            reopened.read(clip)

    with pytest.raises(DataError, match=r"array_record, record \d, is damaged"):
        read_all()


@pytest.mark.parametrize("opened", [True, False])
def test_files_that_are_cut_after_opening_are_named_with_the_way_out(tmp_path: Path, opened: bool) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 3), settings(tmp_path))
    lengths = prepared.index.wave_samples.tolist()
    if opened:
        prepared.read(0)
    for file in (next(prepared.path.glob("*.array_record")), prepared.path / "wave_samples.bin"):
        os.truncate(file, 0)

    with pytest.raises(DataError, match=r"array_record, record 2, is damaged: .*\n  hint: remove .*corpus-\w+ and run"):
        prepared.read_arrays(2)
    assert prepared.index.wave_samples.tolist() == lengths


def test_one_clip_of_every_twenty_is_held_out_and_one_at_least(tmp_path: Path) -> None:
    prepared = prepare(make_ljspeech(tmp_path / "corpus", 41), settings(tmp_path), workers=1)

    train, held_out = prepared.split()

    assert [clip // 20 for clip in held_out.tolist()][:2] == [0, 1]
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(41))
    assert [len(clips) for clips in prepared.split(holdout_every=1000)] == [40, 1]


@pytest.mark.parametrize("turn", [2, 4, 5, 8, 10])
def test_speakers_who_take_turns_are_all_held_out(turn: int) -> None:
    held_out = held_out_of(1400).tolist()

    assert len(held_out) == 70
    assert {clip % turn for clip in held_out} == set(range(turn))


def test_preparing_imports_no_tensorflow(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2)

    run_program("corpora", "without_tensorflow", str(corpus), str(tmp_path), fresh=True)


def change_metadata(corpus: Path, lines: list[str]) -> None:
    (corpus / "metadata.csv").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize("fewer", [False, True])
def test_a_corpus_that_is_prepared_anew_under_a_reader_is_an_error_and_not_other_clips(
    tmp_path: Path, fewer: bool
) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    reading = prepare(corpus, settings(tmp_path), workers=1)
    lines = (corpus / "metadata.csv").read_text().splitlines()
    change_metadata(corpus, lines[:1] if fewer else lines[::-1])
    now = prepare(corpus, settings(tmp_path), workers=1)
    assert now.path == reading.path

    for read in (reading.read, reading.read_arrays):
        with pytest.raises(DataError, match="was replaced while it was read") as caught:
            read(3)
        assert "--cache-dir" in caught.value.hint
    assert now.read(0).id == ("clip_0" if fewer else "clip_3")


@pytest.mark.parametrize("change", ["order", "sound", "tokenizer"])
def test_a_corpus_of_the_same_lengths_is_another_one_all_the_same(tmp_path: Path, change: str) -> None:
    lines = ["clip_0|One cat.", "clip_1|Two dog.", "clip_2|Six owl."]
    corpus = make_ljspeech(tmp_path / "corpus", seconds=[1.0] * 3, lines=lines)
    reading = prepare(corpus, settings(tmp_path), workers=1)
    if change == "order":
        change_metadata(corpus, lines[::-1])
    elif change == "tokenizer":
        change_metadata(corpus, ["clip_0|One cow.", *lines[1:]])
    else:
        # As many bytes and the same time: the sources look as they did, and what is made of them does not.
        wav = corpus / "wavs" / "clip_0.wav"
        times = wav.stat()
        soundfile.write(wav, tone(1.0, pitch=300), 22050)
        os.utime(wav, ns=(times.st_atime_ns, times.st_mtime_ns))
    now = prepare(corpus, settings(tmp_path), workers=1, force=True)
    assert now.index.wave_samples.tolist() == reading.index.wave_samples.tolist()
    assert now.index.text_tokens.tolist() == reading.index.text_tokens.tolist()
    use = (lambda: reading.tokenizer) if change == "tokenizer" else (lambda: reading.read(0))

    with pytest.raises(DataError, match="was replaced while it was read"):
        use()


def test_a_corpus_that_is_prepared_anew_from_the_same_sources_is_read_on(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)
    reading = prepare(corpus, settings(tmp_path), workers=1)
    prepare(corpus, settings(tmp_path), workers=1, force=True)

    assert reading.read(2).id == "clip_2"


def test_a_worker_process_does_not_open_another_corpus_than_its_parent(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    sent = pickle.dumps(prepare(corpus, settings(tmp_path), workers=1))
    assert len(pickle.loads(sent)) == 4

    change_metadata(corpus, (corpus / "metadata.csv").read_text().splitlines()[1:])
    prepare(corpus, settings(tmp_path), workers=1)

    with pytest.raises(DataError, match="was replaced while it was read"):
        pickle.loads(sent)


def test_a_finished_corpus_in_a_place_that_cannot_be_written_is_used(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2)
    first = prepare(corpus, settings(tmp_path / "cache"), workers=1)
    lock = first.path.with_name(f".{first.path.name}.lock")
    lock.unlink()
    lock.mkdir()  # Not even root can open that for writing.

    assert len(prepare(corpus, settings(tmp_path / "cache"), workers=1)) == 2
    with pytest.raises(DataError, match="cannot write"):
        prepare(corpus, settings(tmp_path / "cache"), workers=1, force=True)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int
) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)

    assert len(prepare(make_ljspeech(tmp_path / "corpus", 2), settings(tmp_path / "cache"), workers=1)) == 2
    assert f"{tmp_path / 'cache'} cannot be locked ({os.strerror(number)})" in caplog.text


def test_a_corpus_in_a_folder_whose_name_is_no_text_is_prepared(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 2).rename(tmp_path / os.fsdecode(b"m\xfcnchen"))

    prepared = prepare(corpus, settings(tmp_path / "cache"), workers=1)

    assert prepared.read(0).speaker == "m\ufffdnchen"
    assert prepared.report["corpus"].endswith("m\ufffdnchen")


def test_a_transcript_file_whose_name_is_no_text_is_named_with_its_refusals(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 3)
    (corpus / "wavs" / "clip_1.wav").write_bytes(b"RIFF")
    (corpus / "wavs" / "clip_2.wav").unlink()
    transcript = (corpus / "metadata.csv").rename(corpus / os.fsdecode(b"m\xfcnchen.csv"))

    prepared = prepare(transcript, settings(tmp_path / "cache", max_refused_share=0.7), workers=1)

    assert len(prepared) == 1
    assert [(refusal["file"], refusal["line"]) for refusal in refusals(prepared)] == [
        ("m\ufffdnchen.csv", 2),
        ("m\ufffdnchen.csv", 3),
    ]


def test_the_clip_list_changes_with_the_clips_and_not_with_texts_times_or_the_tokenizer(tmp_path: Path) -> None:
    corpus = make_ljspeech(tmp_path / "corpus", 4)
    first = prepare(corpus, settings(tmp_path), workers=1)
    lines = (corpus / "metadata.csv").read_text().splitlines()

    change_metadata(corpus, [line.replace("cat", "dog") for line in lines])
    os.utime(corpus / "wavs" / "clip_0.wav")
    same = [prepare(corpus, settings(tmp_path), tokenizer=given, workers=1) for given in (None, first.tokenizer)]
    soundfile.write(corpus / "wavs" / "clip_0.wav", tone(0.1), 22050)  # too short: refused
    without_one = prepare(corpus, settings(tmp_path, max_refused_share=0.5), workers=1)
    change_metadata(corpus, lines[1:])
    named_without = prepare(corpus, settings(tmp_path), workers=1)

    assert first.clip_list is not None
    assert [one.clip_list for one in same] == [first.clip_list] * 2
    assert same[0].fingerprint != first.fingerprint
    assert without_one.clip_list == named_without.clip_list != first.clip_list
