// Collect: the pieces of long recordings, to hear, correct, keep or drop. What is changed is saved at once.
import { $, call, make, number, playFrom, say, t, whenTongueChanges } from "./common.js";

let pieces = [];
let saved = Promise.resolve();

export async function showCollect() {
  try {
    const { served, data } = await (await call("/v1/collected")).json();
    pieces = data;
    say($("collect-status"), served ? (data.length ? "" : t("noPieces")) : t("collectNotServed"));
    $("collect-tools").hidden = !data.length;
    draw();
  } catch (error) {
    say($("collect-status"), error.message, "bad");
  }
}

export function startCollect() {
  $("collect-filter").addEventListener("change", draw);
  whenTongueChanges(draw);
}

function draw() {
  const wanted = $("collect-filter").value;
  const shown = pieces.filter(({ kept }) => wanted === "all" || kept === (wanted === "kept"));
  $("piece-list").replaceChildren(...shown.map(row));
  count();
}

function count() {
  const kept = pieces.filter((piece) => piece.kept).length;
  $("collect-count").textContent = t("keptOf", { kept: number(kept), all: number(pieces.length) });
}

function row(piece) {
  const item = make("li");
  const text = make("textarea", { rows: 2, maxlength: 1000, dir: "auto", "aria-label": t("textOf", { name: piece.id }) });
  text.value = piece.text;
  const play = make("button", { type: "button", text: t("play"), "aria-label": t("playOf", { name: piece.id }) });
  play.addEventListener("click", () => playFrom(`${address(piece)}/audio`).catch(bad));
  const side = make("button", { type: "button", class: "side" });
  const about = make("small", { dir: "auto" });
  item.append(make("b", { text: piece.id, dir: "ltr" }), about, text, make("div", { class: "row buttons" }, play, side));
  const tell = () => {
    item.className = piece.kept ? "kept" : "aside";
    side.textContent = t(piece.kept ? "drop" : "take");
    side.setAttribute("aria-label", `${side.textContent}: ${piece.id}`);
    about.textContent = piece.kept ? t("isKept") : t("isAside", { reason: piece.reason });
  };
  tell();
  side.addEventListener("click", () => save(piece, text, !piece.kept, tell));
  text.addEventListener("change", () => save(piece, text, null, tell));
  return item;
}

const address = (piece) => `/v1/collected/${encodeURIComponent(piece.id)}`;
const bad = (error) => say($("collect-status"), error.message, "bad");

// The row stays where it is: leaving its text saves it, and the click that left it must find its button.
// One after the other: of two changes at once, as of a text and then its side, the second must come last.
function save(piece, text, kept, tell) {
  saved = saved.then(() => send(piece, text, kept ?? piece.kept, tell));
}

async function send(piece, text, kept, tell) {
  try {
    const body = JSON.stringify({ text: text.value.replace(/\s+/g, " ").trim(), kept });
    const answer = await call(address(piece), { method: "POST", body, headers: { "Content-Type": "application/json" } });
    Object.assign(piece, await answer.json());
    tell();
    count();
    say($("collect-status"), t("saved", { name: piece.id }), "good");
  } catch (error) {
    bad(error);
  }
}
