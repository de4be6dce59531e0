// Speak: a text streams as it is made, its words light up as they are heard, and the whole can be kept.
import { $, ApiError, call, events, languageName, make, number, say, t, wavOf, whenTongueChanges } from "./common.js";
import { LANGUAGES } from "./words.js";

const RATE = 24000;
const AHEAD_S = 0.12;
let running = null;
let kept = null;

// Plays samples one behind the other; `position` is the second of the speech that is heard now.
class Stream {
  constructor() {
    this.context = new AudioContext({ sampleRate: RATE });
    this.parts = [];
    this.seconds = 0;
    this.until = 0;
  }
  add(samples) {
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    const channel = buffer.getChannelData(0);
    for (let at = 0; at < samples.length; at++) channel[at] = samples[at] / 32768;
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    const begin = Math.max(this.until, this.context.currentTime + AHEAD_S);
    source.start(begin);
    this.parts.push({ begin, offset: this.seconds, seconds: buffer.duration });
    this.seconds += buffer.duration;
    this.until = begin + buffer.duration;
  }
  get position() {
    const now = this.context.currentTime;
    const part = this.parts.findLast((one) => one.begin <= now);
    return part ? part.offset + Math.min(now - part.begin, part.seconds) : 0;
  }
  get over() {
    return this.context.currentTime >= this.until;
  }
  close() {
    if (this.context.state !== "closed") this.context.close();
  }
}

// The text as spans, one for each word that can be spoken, in place before any sound comes.
function showWords(text) {
  const spans = [];
  $("words").replaceChildren(
    ...text.split(/(\s+)/).map((part) => {
      if (!/[\p{L}\p{N}]/u.test(part)) return document.createTextNode(part);
      const span = make("span", { text: part });
      spans.push({ span, start: Infinity, end: Infinity });
      return span;
    }),
  );
  return spans;
}

function light(spans, position) {
  for (const { span, start, end } of spans) {
    const now = start <= position && position < end;
    if (now && span.className !== "now") span.scrollIntoView({ block: "nearest" });
    span.className = now ? "now" : end <= position ? "said" : "";
  }
}

const chosen = () => ({
  input: $("text").value,
  voice: $("voice").value,
  language: $("language").value || null,
  speed: Number($("speed").value),
  seed: Number($("seed").value) || 0,
  temperature: $("temperature").value === "" ? null : Number($("temperature").value),
  guidance: $("guidance").value === "" ? null : Number($("guidance").value),
});

function setRunning(on) {
  $("say").disabled = on;
  $("stop").disabled = !on;
}

function offer(blob) {
  if (kept) URL.revokeObjectURL(kept);
  kept = blob ? URL.createObjectURL(blob) : null;
  const link = $("download");
  link.setAttribute("aria-disabled", String(!blob));
  $("player").hidden = !blob;
  if (!blob) {
    link.removeAttribute("href");
    $("player").removeAttribute("src");
    return;
  }
  link.href = kept;
  link.download = "speech.wav";
  $("player").src = kept;
}

async function speak() {
  stop();
  const own = (running = { abort: new AbortController(), stream: null });
  const asked = chosen();
  setRunning(true);
  offer(null);
  const spans = showWords(asked.input);
  say($("status"), t("waiting"));
  $("words").parentElement.scrollIntoView({ block: "nearest" });
  const began = performance.now();
  const chunks = [];
  let first = null;
  let timed = 0;
  try {
    own.stream = new Stream();
    const answer = await call("/v1/audio/speech", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ model: "tts-1", response_format: "pcm", stream_format: "sse", timestamps: true, ...asked }),
      signal: own.abort.signal,
    });
    for await (const event of events(answer)) {
      if (event.type === "speech.audio.delta") {
        const bytes = Uint8Array.from(atob(event.audio), (sign) => sign.charCodeAt(0));
        const samples = new Int16Array(bytes.buffer, 0, bytes.length >> 1);
        chunks.push(samples);
        own.stream.add(samples);
        if (first === null) {
          first = (performance.now() - began) / 1000;
          say($("status"), t("playing"));
          follow(own, spans);
        }
      } else if (event.type === "speech.audio.words") {
        for (const word of event.words) if (timed < spans.length) Object.assign(spans[timed++], { start: word.start, end: word.end });
      } else if (event.type === "error") {
        throw new ApiError(event.error.message);
      }
    }
    offer(wavOf(chunks, RATE));
    own.told = t("done", { seconds: number(own.stream.seconds), first: number(first, 2) });
    say($("status"), own.told, "good");
  } catch (error) {
    if (running !== own) return;
    own.stream?.close();
    if (error.name !== "AbortError") say($("status"), error instanceof ApiError ? error.message : t("noAudio", { reason: error.message }), "bad");
    setRunning(false);
  }
}

function follow(own, spans) {
  if (running !== own) return;
  light(spans, own.stream.position);
  if (own.told && own.stream.over) {
    light(spans, Infinity);
    own.stream.close();
    setRunning(false);
  } else {
    requestAnimationFrame(() => follow(own, spans));
  }
}

function stop() {
  if (!running) return;
  running.abort.abort();
  running.stream?.close();
  running = null;
  setRunning(false);
  say($("status"), t("stopped"));
}

// Settings in the address: #speak?voice=…; the text only where it is short.
function share() {
  const { input, ...settings } = chosen();
  const values = new URLSearchParams(Object.entries(settings).filter(([, value]) => value !== null && value !== ""));
  if (input && input.length <= 500) values.set("text", input);
  history.replaceState(null, "", `#speak?${values}`);
  const copied = navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error("none"));
  copied.then(() => say($("status"), t("copied"), "good"), () => say($("status"), t("copyFailed")));
}

let wanted = new URLSearchParams();

export function fromAddress(values) {
  wanted = values;
  for (const name of ["text", "language", "speed", "seed", "temperature", "guidance"]) if (values.has(name)) $(name).value = values.get(name);
  showNumbers();
}

export async function fillVoices() {
  const { voices } = await (await call("/v1/audio/voices")).json();
  const before = wanted.get("voice") ?? $("voice").value;
  $("voice").replaceChildren(...voices.map((voice) => make("option", { value: voice.id, text: voice.name })));
  if (voices.some((voice) => voice.id === before)) $("voice").value = before;
  wanted.delete("voice");
  // While it speaks, the button stays as it is.
  $("say").disabled = !voices.length || !$("stop").disabled;
  if (!voices.length) say($("status"), t("noVoices"));
  return voices;
}

function showNumbers() {
  $("speed-shown").textContent = `${number(Number($("speed").value), 2)}×`;
  $("count").textContent = `${number($("text").value.length)} / ${number(4096)}`;
}

export function startSpeak() {
  $("speak-form").addEventListener("submit", (event) => {
    event.preventDefault();
    speak();
  });
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("speak-form").requestSubmit();
  });
  $("stop").addEventListener("click", stop);
  $("share").addEventListener("click", share);
  for (const name of ["speed", "text"]) $(name).addEventListener("input", showNumbers);
  whenTongueChanges(() => {
    const before = $("language").value;
    $("language").replaceChildren(make("option", { value: "", text: t("guess") }), ...LANGUAGES.map((code) => make("option", { value: code, text: languageName(code) })));
    $("language").value = before;
    showNumbers();
  });
}
