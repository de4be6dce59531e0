// Voices: built-in speakers with samples, and clips that are added with consent, from a file or the microphone.
import { $, call, languageName, make, playFrom, say, t, toInt16, wavOf, whenTongueChanges } from "./common.js";
import { fillVoices } from "./speak.js";
import { LANGUAGES } from "./words.js";

const LONGEST_S = 30;
let known = [];
let recorded = null;
let recording = null;

const problem = (error) => say($("voices-status"), error.message, "bad");

export async function showVoices() {
  known = await fillVoices();
  draw();
}

function draw() {
  $("voice-list").replaceChildren(...known.map(card));
}

function card(voice) {
  const kind = voice.kind === "added" ? t("added") : t("builtIn");
  const about = [kind, voice.language ? languageName(voice.language) : null].filter(Boolean).join(" · ");
  const play = make("button", { type: "button", text: t("play"), "aria-label": t("playOf", { name: voice.name }) });
  play.addEventListener("click", () => playFrom(`/v1/audio/voices/${encodeURIComponent(voice.id)}/sample`).catch(problem));
  const item = make("li", {}, make("div", { class: "who" }, make("b", { text: voice.name, dir: "auto" }), make("small", { text: about })), play);
  if (voice.kind === "added") {
    const remove = make("button", { type: "button", text: t("delete"), "aria-label": t("deleteOf", { name: voice.name }) });
    remove.addEventListener("click", () => askToDelete(voice));
    item.append(remove);
  }
  return item;
}

function askToDelete(voice) {
  const dialog = $("delete-dialog");
  $("delete-title").textContent = t("deleteAsk", { name: voice.name });
  dialog.returnValue = "no";
  dialog.showModal();
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "yes") return;
    try {
      await call(`/v1/audio/voices/${encodeURIComponent(voice.id)}`, { method: "DELETE" });
      await showVoices();
      say($("voices-status"), t("deleted", { name: voice.name }), "good");
    } catch (error) {
      problem(error);
    }
  }, { once: true });
}

// What the browser can decode is sent as WAV, so that any format of a phone will do; the rest goes as it is.
async function asWav(blob) {
  const context = new AudioContext({ sampleRate: 24000 });
  try {
    const sound = await context.decodeAudioData(await blob.arrayBuffer());
    const length = Math.min(sound.length, LONGEST_S * sound.sampleRate);
    const mixed = new Float32Array(length);
    for (let channel = 0; channel < sound.numberOfChannels; channel++) {
      const samples = sound.getChannelData(channel);
      for (let at = 0; at < length; at++) mixed[at] += samples[at] / sound.numberOfChannels;
    }
    return wavOf([toInt16(mixed)], sound.sampleRate);
  } catch {
    return blob;
  } finally {
    context.close();
  }
}

async function add(event) {
  event.preventDefault();
  const clip = recorded ?? $("clip").files[0];
  if (!clip) return say($("voices-status"), t("noClip"), "bad");
  const form = new FormData();
  const name = $("new-name").value;
  form.set("name", name);
  form.set("consent", t("consent"));
  form.set("language", $("new-language").value);
  form.set("audio_sample", await asWav(clip), "clip.wav");
  $("add").disabled = true;
  say($("voices-status"), t("adding"));
  try {
    await call("/v1/audio/voices", { method: "POST", body: form });
    $("add-form").reset();
    hear(null);
    await showVoices();
    say($("voices-status"), t("addedNow", { name }), "good");
  } catch (error) {
    problem(error);
  } finally {
    $("add").disabled = false;
    $("voices-status").scrollIntoView({ block: "nearest" });
  }
}

function hear(blob) {
  recorded = blob;
  const player = $("clip-player");
  if (player.src) URL.revokeObjectURL(player.src);
  player.hidden = !blob;
  if (blob) player.src = URL.createObjectURL(blob);
}

async function record() {
  if (recording) return finishRecording();
  try {
    const microphone = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
    const context = new AudioContext();
    await context.audioWorklet.addModule("/static/recorder.js");
    const source = context.createMediaStreamSource(microphone);
    const tap = new AudioWorkletNode(context, "recorder");
    recording = { microphone, context, chunks: [], samples: 0 };
    tap.port.onmessage = ({ data }) => {
      if (!recording) return;
      recording.chunks.push(toInt16(data));
      recording.samples += data.length;
      const seconds = recording.samples / context.sampleRate;
      $("record-note").textContent = t("recording", { seconds: Math.floor(seconds) });
      if (seconds >= LONGEST_S) finishRecording();
    };
    source.connect(tap);
    $("record").textContent = t("stopRecord");
  } catch (error) {
    $("record-note").textContent = t("microphoneRefused", { reason: error.message });
  }
}

function finishRecording() {
  const { microphone, context, chunks } = recording;
  recording = null;
  for (const track of microphone.getTracks()) track.stop();
  hear(wavOf(chunks, context.sampleRate));
  context.close();
  $("record").textContent = t("record");
}

export function startVoices() {
  $("add-form").addEventListener("submit", add);
  $("record").addEventListener("click", record);
  $("clip").addEventListener("change", () => {
    recorded = null;
    $("record-note").textContent = "";
  });
  whenTongueChanges(() => {
    const before = $("new-language").value;
    $("new-language").replaceChildren(make("option", { value: "", text: t("unknown") }), ...LANGUAGES.map((code) => make("option", { value: code, text: languageName(code) })));
    $("new-language").value = before;
    if (!navigator.mediaDevices) {
      $("record").disabled = true;
      $("record-note").textContent = t("noMicrophone");
    }
    draw();
  });
}
