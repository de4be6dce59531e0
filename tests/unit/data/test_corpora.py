"""Readers of corpora: what they find, and what they refuse with line and reason."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
import soundfile

from myxtts.data.corpora import CorpusListing, list_corpus
from myxtts.data.prepare import prepare
from myxtts.data.prepared import REFUSED
from myxtts.errors import ConfigError, DataError
from tests.corpus_maker import make_ljspeech, settings, tone
from tests.guides import blocks


def ids(listing: CorpusListing) -> list[str]:
    return [entry.id for entry in listing.entries]


def reasons(listing: CorpusListing) -> dict[int, str]:
    return {refusal.line: refusal.reason for refusal in listing.refusals}


def write_metadata(root: Path, content: bytes | str) -> Path:
    (root / "metadata.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


@pytest.mark.parametrize(
    ("line", "speaker", "language", "text"),
    [
        ("clip_0|Hello there.", "corpus", "en", "Hello there."),
        ("clip_0|2 cats|two cats", "corpus", "en", "two cats"),
        ("clip_0|2 cats|", "corpus", "en", "2 cats"),
        ("clip_0|2 cats|two cats|anna", "anna", "en", "two cats"),
        ("clip_0|سلام|سلام|anna|fa", "anna", "fa", "سلام"),
        ("clip_0.wav|Hello|Hello|anna|en-US", "anna", "en", "Hello"),
    ],
)
def test_ljspeech_reads_two_to_five_columns(tmp_path: Path, line: str, speaker: str, language: str, text: str) -> None:
    root = make_ljspeech(tmp_path / "corpus", 1, lines=[line])

    (entry,) = list_corpus(root).entries

    assert (entry.id, entry.speaker, entry.language, entry.text) == ("clip_0", speaker, language, text)


def test_ljspeech_header_names_the_columns(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 1, lines=["audio_file|text|speaker_name", "wavs/clip_0.wav|Hello|bob"])

    (entry,) = list_corpus(root).entries

    assert (entry.text, entry.speaker) == ("Hello", "bob")


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg", ".mp3"])
def test_audio_is_found_by_any_known_suffix(tmp_path: Path, suffix: str) -> None:
    (tmp_path / "wavs").mkdir()
    soundfile.write(tmp_path / "wavs" / f"a{suffix}", tone(0.5), 22050)

    (entry,) = list_corpus(write_metadata(tmp_path, "a|Hello|Hello\n")).entries

    assert entry.audio.path.endswith(f"a{suffix}")


def test_vctk_takes_speaker_from_folder_and_first_microphone(tmp_path: Path) -> None:
    for name in ("p225_001_mic1", "p225_001_mic2", "p225_002_mic2"):
        path = tmp_path / "wav48_silence_trimmed" / "p225" / f"{name}.flac"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, tone(0.5, 48000), 48000)
    (tmp_path / "wav48_silence_trimmed" / "p315").mkdir()
    for name in ("p225_001", "p225_002", "p225_003"):
        path = tmp_path / "txt" / "p225" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Please call Stella.\n")

    listing = list_corpus(tmp_path)

    assert [Path(entry.audio.path).name for entry in listing.entries] == ["p225_001_mic1.flac", "p225_002_mic2.flac"]
    assert {entry.speaker for entry in listing.entries} == {"p225"}
    assert {refusal.id for refusal in listing.refusals} == {"p225_003", "p315"}


def test_common_voice_takes_client_and_locale(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    soundfile.write(tmp_path / "clips" / "a.mp3", tone(0.5, 48000), 48000)
    (tmp_path / "validated.tsv").write_text(
        "client_id\tpath\tsentence\tup_votes\tlocale\nabc\ta.mp3\tسلام دنیا\t2\tfa\nabc\tb.mp3\tدیگر\t2\tfa\nabc\n",
        encoding="utf-8",
    )

    listing = list_corpus(tmp_path)

    assert [(entry.speaker, entry.language, entry.text) for entry in listing.entries] == [("abc", "fa", "سلام دنیا")]
    assert "no audio file 'b.mp3'" in reasons(listing)[3]
    assert "1 columns where the table has 5" in reasons(listing)[4]


def test_manifest_reads_objects_and_explains_the_rest(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(0.5), 22050)
    lines = ['{"audio": "a.wav", "text": "Hi", "speaker": 7, "language": "de"}', "[1]", "{", '{"audio": "a.wav"}',
             '{"audio": 3, "text": "x"}', "[" * 100_000]  # fmt: skip
    (tmp_path / "all.jsonl").write_text("\n".join(lines))

    listing = list_corpus(tmp_path)

    assert [(entry.speaker, entry.language) for entry in listing.entries] == [("7", "de")]
    found = reasons(listing)
    assert "list" in found[2]
    assert "not JSON" in found[3]
    assert "'text' is missing" in found[4]
    assert "'audio' is not a string" in found[5]
    assert "not JSON" in found[6]


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "wavs/../../outside",
        "/etc/passwd",
        "~/x",
        "C:\\x",
        "a\\..\\b",
        "..",
        ".",
        "a\x00b",
        "x" * 300,
        " ",
    ],
)
def test_nothing_outside_the_corpus_is_read(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / "outside.wav", tone(0.5), 22050)
    root = make_ljspeech(tmp_path / "corpus", 1)
    write_metadata(root, f"clip_0|Fine.|Fine.\n{name}|Evil.|Evil.\n")

    listing = list_corpus(root)

    assert ids(listing) == ["clip_0"]
    assert [refusal.line for refusal in listing.refusals] == [2]


def test_a_link_out_of_the_corpus_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "outside.wav", tone(0.5), 22050)
    root = make_ljspeech(tmp_path / "corpus", 1, lines=["clip_0|Fine.", "linked|Evil.", "wavs2/outside|Evil."])
    (root / "wavs" / "linked.wav").symlink_to(tmp_path / "outside.wav")
    (root / "wavs2").symlink_to(tmp_path)

    listing = list_corpus(root)

    assert ids(listing) == ["clip_0"]
    assert "outside the corpus" in reasons(listing)[2]
    assert 3 in reasons(listing)


def test_lines_that_do_not_fit_the_file_are_refused_by_number(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 4)
    write_metadata(
        root,
        "clip_0|One.|One.\nclip_1\nclip_2|a | b|a | b\nclip_3|Four.|Four.\nclip_3|Again.|Again.\n"
        "missing|x|x\nclip_1||\n",
    )

    listing = list_corpus(root)

    assert ids(listing) == ["clip_0", "clip_3"]
    found = reasons(listing)
    assert found[2] == "no '|' in the line: columns are separated by it, as in id|text"
    assert "'|' in the text" in found[3]
    assert "already on line 4" in found[5]
    assert "no audio file 'missing'" in found[6]
    assert "empty" in found[7]


@pytest.mark.parametrize(
    "content", ["\ufeffclip_0|Hello|Hello\r\nclip_1|Bye|Bye\r\n", "clip_0|Hello|Hello\rclip_1|Bye|Bye"]
)
def test_bom_and_line_ends_of_other_systems_leave_no_trace(tmp_path: Path, content: str) -> None:
    listing = list_corpus(write_metadata(make_ljspeech(tmp_path / "corpus", 2), content))

    assert [(entry.id, entry.text) for entry in listing.entries] == [("clip_0", "Hello"), ("clip_1", "Bye")]


def test_utf16_is_read(tmp_path: Path) -> None:
    root = write_metadata(make_ljspeech(tmp_path / "corpus", 1), "clip_0|Grüße|Grüße\n".encode("utf-16"))

    assert list_corpus(root, language="de").entries[0].text == "Grüße"


@pytest.mark.parametrize(("language", "page", "text"), [("de", "latin-1", "Grüße"), ("fa", "cp1256", "سلام")])
def test_old_code_pages_are_read_with_a_notice(tmp_path: Path, language: str, page: str, text: str) -> None:
    root = write_metadata(
        make_ljspeech(tmp_path / "corpus", 2), f"clip_0|{text}|{text}\n".encode(page) + b"clip_1|12|12\n"
    )

    listing = list_corpus(root, language=language)

    assert [entry.text for entry in listing.entries] == [text, "12"]
    assert [(notice.line, "not UTF-8" in notice.what) for notice in listing.notices] == [(1, True)]


def test_damaged_bytes_are_refused_and_the_rest_goes_on(tmp_path: Path) -> None:
    root = write_metadata(make_ljspeech(tmp_path / "corpus", 3), b"clip_0|\x81\xff|x\nclip_1|\x01a|\x01a\nclip_2|b|b\n")

    listing = list_corpus(root)

    assert ids(listing) == ["clip_2"]
    assert "UTF-8" in reasons(listing)[1]
    assert "U+0001" in reasons(listing)[2]


def test_a_language_that_we_do_not_speak_is_refused_by_line(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 2, lines=["clip_0|a|a|s|xx", "clip_1|سلام|سلام|s|FA-ir"])

    listing = list_corpus(root)

    assert [(entry.id, entry.language) for entry in listing.entries] == [("clip_1", "fa")]
    assert "'xx'" in reasons(listing)[1]


def test_a_default_language_that_we_do_not_speak_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'xx'"):
        list_corpus(make_ljspeech(tmp_path / "corpus", 1), language="xx")


def test_an_empty_corpus_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="empty corpus"):
        list_corpus(write_metadata(make_ljspeech(tmp_path / "corpus", 1), "\n \n"))


def test_a_folder_of_no_known_form_names_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metadata\.csv.*validated\.tsv"):
        list_corpus(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere is not there"):
        list_corpus(tmp_path / "nowhere")


def test_a_named_format_is_not_guessed(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 1)
    (root / "manifest.jsonl").write_text(json.dumps({"audio": "wavs/clip_0.wav", "text": "From the manifest"}))

    assert list_corpus(root).format == "ljspeech"
    assert list_corpus(root, corpus_format="jsonl").entries[0].text == "From the manifest"
    with pytest.raises(DataError, match="txt/"):
        list_corpus(root, corpus_format="vctk")


def test_a_transcript_file_can_be_given_itself(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 2)
    (root / "metadata_eval.csv").write_text("clip_1|Only this.|Only this.\n")

    assert ids(list_corpus(root / "metadata_eval.csv")) == ["clip_1"]


def test_a_folder_that_the_system_will_not_look_into_is_named_with_the_reason(tmp_path: Path) -> None:
    """A name that is too long stands for missing rights, which do not bind root: both are refused by `stat`."""
    (tmp_path / "a").mkdir()
    longest = Path(tmp_path, *("a", "..") * ((4095 - len(str(tmp_path))) // len("/a/..")))
    assert longest.is_dir()

    with pytest.raises(DataError, match=r"/aaa* cannot be read: File name too long"):
        list_corpus(tmp_path / ("a" * 300))
    with pytest.raises(DataError, match=r"metadata\.csv cannot be read: File name too long"):
        list_corpus(longest)


def test_the_header_of_the_guide_is_read_as_it_stands_there(tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "your-data.md"
    example = next(block.text for block in blocks(guide) if block.text.startswith("id|text|"))
    root = make_ljspeech(tmp_path / "corpus", 0, lines=example.splitlines())
    for name in ("clip_0001", "clip_0002"):
        soundfile.write(root / "wavs" / f"{name}.wav", tone(0.5), 22050)

    listing = list_corpus(root)

    assert [(entry.text, entry.speaker, entry.language) for entry in listing.entries] == [
        ("It was five o'clock.", "anna", "en"),
        ("سلام، دوست من.", "sara", "fa"),
    ]
    assert not listing.notices


@pytest.mark.parametrize("name", ["Normalized Text", "normalised-text", "NORMALIZED_TRANSCRIPTION"])
def test_a_column_is_known_by_its_usual_spellings(tmp_path: Path, name: str) -> None:
    lines = [f"Speaker ID | Text | {name} | File Name", "bob|2 cats|two cats|clip_0"]

    (entry,) = list_corpus(make_ljspeech(tmp_path / "corpus", 1, lines=lines)).entries

    assert (entry.text, entry.speaker) == ("two cats", "bob")


def test_a_column_that_is_not_known_is_named_in_a_notice(tmp_path: Path) -> None:
    lines = ["id|text|mood|lang", "clip_0|Hello|glad|de"]

    listing = list_corpus(make_ljspeech(tmp_path / "corpus", 1, lines=lines))

    assert [entry.language for entry in listing.entries] == ["de"]
    assert [(notice.line, "'mood'" in notice.what) for notice in listing.notices] == [(1, True)]


def test_names_are_found_whatever_their_case_and_their_way_of_writing_accents(tmp_path: Path) -> None:
    names = {
        "a": "a.WAV",
        "clip": "Clip.wav",
        unicodedata.normalize("NFC", "آب"): unicodedata.normalize("NFD", "آب.wav"),
    }
    (tmp_path / "wavs").mkdir()
    for file_name in names.values():
        soundfile.write(tmp_path / "wavs" / file_name, tone(0.5), 22050, format="WAV")

    listing = list_corpus(write_metadata(tmp_path, "".join(f"{name}|Hello\n" for name in names)))

    assert {entry.id: Path(entry.audio.path).name for entry in listing.entries} == names


def test_a_name_that_is_there_as_it_is_written_is_taken_before_one_in_another_case(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 0, lines=["a|Hello", "A|Hello", "b|Hello"])
    for name in ("a.wav", "A.wav", "B.wav", "b.WAV"):
        soundfile.write(root / "wavs" / name, tone(0.5), 22050, format="WAV")

    listing = list_corpus(root)

    assert [Path(entry.audio.path).name for entry in listing.entries] == ["a.wav", "A.wav"]
    assert "B.wav and b.WAV" in reasons(listing)[3]


@pytest.mark.parametrize("field", ["audio", "id", "speaker", "language", "text"])
def test_half_a_character_refuses_its_line_alone(tmp_path: Path, field: str) -> None:
    good = {"audio": "a.wav", "text": "Hi", "id": "one", "speaker": "anna", "language": "en"}
    soundfile.write(tmp_path / "a.wav", tone(0.5), 22050)
    lines = [json.dumps({**good, "id": "two"} | {field: "\ud83d"}), json.dumps(good)]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))

    prepared = prepare(tmp_path, settings(tmp_path / "cache", max_refused_share=0.5), workers=1)

    assert [prepared.read(clip).id for clip in range(len(prepared))] == ["one"]
    (refused,) = map(json.loads, (prepared.path / REFUSED).read_text(encoding="utf-8").splitlines())
    assert (refused["line"], "U+D83D" in refused["reason"] or "\\ud83d" in refused["reason"]) == (1, True)


@pytest.mark.parametrize("sign", ["\x1b", "\x07", "\x9b", "\x7f", "\n", "\t", "\u2028"])
@pytest.mark.parametrize("field", ["id", "speaker", "text"])
def test_a_control_character_refuses_its_line_alone(tmp_path: Path, field: str, sign: str) -> None:
    good = {"audio": "a.wav", "text": "Hi", "id": "one", "speaker": "anna", "language": "en"}
    soundfile.write(tmp_path / "a.wav", tone(0.5), 22050)
    hostile = {**good, "id": "two"} | {field: f"a{sign}[2Jb"}
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, (hostile, good))))

    listing = list_corpus(tmp_path)

    spoken = field == "text" and sign in "\t\u2028"  # white space
    assert ids(listing) == (["two", "one"] if spoken else ["one"])
    assert spoken or f"U+{ord(sign):04X}" in reasons(listing)[1]


PERSIAN = "سلام، حال شما چطور است؟"


@pytest.mark.parametrize(
    ("text", "language", "flag"),
    [
        (PERSIAN, "en", "--language fa"),
        ("Hello there, how are you today?", "fa", "--language en"),
        ("مرحبا، كيف حالك اليوم؟", "en", "--language ar"),
        ("Привет, как дела?", "en", "--language ru"),
    ],
)
def test_text_in_letters_of_another_language_stops_with_the_flag_to_add(
    tmp_path: Path, text: str, language: str, flag: str
) -> None:
    root = make_ljspeech(tmp_path / "corpus", 3, lines=[f"clip_{n}|{text}" for n in range(3)])

    with pytest.raises(DataError) as caught:
        list_corpus(root, language=language)

    assert f"3 of 3 texts of {root}" in caught.value.problem
    assert f"their language {language!r}; the first: metadata.csv, line 1" in caught.value.problem
    assert caught.value.hint.startswith(f"add {flag} or --language auto")


def test_one_clip_in_other_letters_is_refused_by_line(tmp_path: Path) -> None:
    lines = [*(f"clip_{n}|Hello there." for n in range(9)), f"clip_9|{PERSIAN}"]
    root = make_ljspeech(tmp_path / "corpus", 10, lines=lines)

    listing = list_corpus(root)

    assert len(listing.entries) == 9
    assert reasons(listing) == {10: "most of the text is in arabic letters, which 'en' is not written in"}


def test_auto_gives_each_clip_the_language_of_its_text(tmp_path: Path) -> None:
    texts = {PERSIAN: "fa", "Wie geht es dir heute?": "de", "How are you today?": "en", "今日はいい天気です": "ja"}
    lines = [f"clip_{n}|{text}" for n, text in enumerate(texts)]
    root = make_ljspeech(tmp_path / "corpus", 4, lines=lines)

    assert [entry.language for entry in list_corpus(root, language="auto").entries] == list(texts.values())


def test_auto_keeps_a_named_language_and_takes_the_commonest_where_a_text_does_not_tell(tmp_path: Path) -> None:
    lines = ["clip_0|x|No.|anna|es", "clip_1|x|No.|anna|", f"clip_2|x|{PERSIAN}|anna|", f"clip_3|x|{PERSIAN}|anna|"]
    lines += ["clip_4|x|123|anna|"]
    root = make_ljspeech(tmp_path / "corpus", 5, lines=lines)

    listing = list_corpus(root, language="auto")

    assert [entry.language for entry in listing.entries] == ["es", "fa", "fa", "fa"]
    assert list(reasons(listing)) == [2], "a word in Latin letters is not said to be Persian"


def test_auto_reads_utf_8_only(tmp_path: Path) -> None:
    root = make_ljspeech(tmp_path / "corpus", 2)
    write_metadata(root, b"clip_0|How are you today?\nclip_1|\xd3\xe1\xc7\xe3\n")

    listing = list_corpus(root, language="auto")

    assert ids(listing) == ["clip_0"]
    assert "neither UTF-8 nor" in reasons(listing)[2]
