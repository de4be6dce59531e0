// What all views share: words, the API with its key, event streams, and small helpers.
import { WORDS } from "./words.js";

export const $ = (id) => document.getElementById(id);
export let tongue = localStorage.getItem("tongue") || (navigator.language.startsWith("fa") ? "fa" : "en");
const onTongue = [];

export const t = (word, values = {}) =>
  (WORDS[tongue][word] ?? word).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
export const number = (value, digits = 1) =>
  value == null ? "–" : value.toLocaleString(tongue, { maximumFractionDigits: digits });
export const percent = (share) => (share == null ? "–" : share.toLocaleString(tongue, { style: "percent" }));
export const languageName = (code) => new Intl.DisplayNames([tongue], { type: "language" }).of(code);
export const whenTongueChanges = (listener) => onTongue.push(listener);

export function setTongue(code) {
  tongue = code;
  localStorage.setItem("tongue", code);
  document.documentElement.lang = code;
  document.documentElement.dir = code === "fa" ? "rtl" : "ltr";
  for (const element of document.querySelectorAll("[data-t]")) element.textContent = t(element.dataset.t);
  for (const element of document.querySelectorAll("[data-t-label]")) element.setAttribute("aria-label", t(element.dataset.tLabel));
  for (const element of document.querySelectorAll("[data-t-placeholder]")) element.placeholder = t(element.dataset.tPlaceholder);
  $("tongue").textContent = code === "fa" ? "English" : "فارسی";
  $("tongue").lang = code === "fa" ? "en" : "fa";
  for (const listener of onTongue) listener();
}

export function say(element, text, kind = "") {
  element.textContent = text;
  element.className = `status ${kind}`;
}

// A new element with attributes, classes and children; text is never read as markup.
export function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

export class ApiError extends Error {}

function askForKey() {
  const dialog = $("key-dialog");
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(sessionStorage.setItem("key", $("key").value)), { once: true }));
}

export async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem("key");
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    let answer;
    try {
      answer = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(t("offline"));
    }
    if (answer.status === 401) {
      await askForKey();
      continue;
    }
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => null);
    throw new ApiError(told?.error?.message ?? `${answer.status}`);
  }
}

// The events of a stream as they come; comments are left out.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) if (block.startsWith("data: ")) yield JSON.parse(block.slice(6));
  }
}

// A WAV file of mono 16-bit samples.
export function wavOf(chunks, rate) {
  const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
  const head = new DataView(new ArrayBuffer(44));
  const put = (at, word) => [...word].forEach((sign, place) => head.setUint8(at + place, sign.charCodeAt(0)));
  put(0, "RIFF"); head.setUint32(4, 36 + bytes, true); put(8, "WAVEfmt "); head.setUint32(16, 16, true);
  head.setUint16(20, 1, true); head.setUint16(22, 1, true); head.setUint32(24, rate, true); head.setUint32(28, 2 * rate, true);
  head.setUint16(32, 2, true); head.setUint16(34, 16, true); put(36, "data"); head.setUint32(40, bytes, true);
  return new Blob([head.buffer, ...chunks], { type: "audio/wav" });
}

export function toInt16(samples) {
  const made = new Int16Array(samples.length);
  for (let at = 0; at < samples.length; at++) made[at] = Math.max(-1, Math.min(1, samples[at])) * 32767;
  return made;
}

let sounding = null;
// Play what an address answers; a second call stops the first.
export async function playFrom(path) {
  sounding?.pause();
  const blob = await (await call(path)).blob();
  sounding = new Audio(URL.createObjectURL(blob));
  const mine = sounding;
  mine.addEventListener("ended", () => URL.revokeObjectURL(mine.src));
  await mine.play();
}
