// Runs: what a training does, while it does it.
import { $, call, events, make, number, percent, playFrom, say, t, tongue, whenTongueChanges } from "./common.js";

const SVG = "http://www.w3.org/2000/svg";
const AGAIN_MS = 3000;
let followed = null;
let last = null;

export async function showRuns() {
  try {
    const { served, data } = await (await call("/v1/runs")).json();
    say($("runs-status"), served ? (data.length ? "" : t("noRuns")) : t("notServed"));
    $("run-list").replaceChildren(
      ...data.map(({ id }) => {
        const button = make("button", { type: "button", text: id, dir: "ltr" });
        if (followed?.id === id) button.setAttribute("aria-current", "true");
        button.addEventListener("click", () => follow(id));
        return make("li", {}, button);
      }),
    );
    if (!followed && data.length) follow(data[0].id);
  } catch (error) {
    say($("runs-status"), error.message, "bad");
  }
}

export function leaveRuns() {
  followed?.abort.abort();
  followed = null;
}

async function follow(id) {
  leaveRuns();
  const own = (followed = { id, abort: new AbortController() });
  for (const button of $("run-list").querySelectorAll("button")) {
    if (button.textContent === id) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  while (followed === own) {
    try {
      const answer = await call(`/v1/runs/${encodeURIComponent(id)}/events`, { signal: own.abort.signal });
      say($("runs-status"), "");
      for await (const state of events(answer)) if (followed === own) draw((last = state));
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    if (followed !== own) return;
    say($("runs-status"), t("lost"));
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function draw(state) {
  $("run").hidden = false;
  $("run-name").textContent = state.id;
  const reason = state.ended ? state.ended.reason : state.silent_s ? "silent" : "running";
  $("run-state").textContent = t(reason);
  $("run-state").className = `badge ${{ finished: "good", failed: "failed" }[reason] ?? (reason === "running" ? "" : "warning")}`;
  $("run-report").href = `/v1/runs/${encodeURIComponent(state.id)}/report`;
  $("run-progress").value = state.total_steps ? state.step / state.total_steps : 0;
  const where = { step: number(state.step, 0), total: number(state.total_steps, 0), stage: state.stage ?? "" };
  $("run-step").textContent = state.task ?? (state.stage ? t(state.total_steps ? "step" : "stepOnly", where) : t("none"));
  $("run-numbers").replaceChildren(
    ...[["loss", number(state.loss, 3)], ["speedSteps", number(state.steps_per_s, 2)], ["elapsed", time(state.elapsed_s)], ["left", time(state.eta_s)]].map(
      ([name, value]) => make("div", {}, make("b", { text: value }), make("span", { text: t(name) }))),
  );
  $("run-devices").replaceChildren(...state.devices.flatMap((one) => bar(one.name, one.busy, percent(one.busy))),
    ...(state.stall === null ? [] : bar(t("stall"), state.stall, percent(state.stall))),
    ...(state.buffer?.capacity ? bar(t("buffer"), state.buffer.depth / state.buffer.capacity, `${number(state.buffer.depth)} / ${number(state.buffer.capacity)}`) : []));
  $("run-curves").replaceChildren(...state.curves.map(curve));
  const told = [...state.verdicts.map((one) => ({ level: one.level, text: `${one.stage}: ${one.text}` })),
    ...state.warnings.map((one) => ({ level: "warning", text: `${one.message}: ${one.hint}` }))];
  $("run-verdicts").replaceChildren(...(told.length ? told.map((one) => make("li", { class: one.level, text: one.text, dir: "ltr" })) : [make("li", { text: t("none") })]));
  drawSamples(state);
}

// Left alone where nothing is new, so that the focus stays on its button.
function drawSamples(state) {
  const shown = JSON.stringify([state.id, state.samples, document.documentElement.lang]);
  const list = $("run-samples");
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...(state.samples.length ? state.samples.map((one) => sample(state.id, one)) : [make("li", { text: t("none") })]));
}

function sample(id, one) {
  const name = `${one.stage} ${number(one.step, 0)}`;
  const play = make("button", { type: "button", text: t("play"), "aria-label": t("playOf", { name }) });
  play.addEventListener("click", () => playFrom(`/v1/runs/${encodeURIComponent(id)}/samples/${one.number}`).catch((error) => say($("runs-status"), error.message, "bad")));
  return make("li", { class: "sample" }, make("span", { class: "soft", text: name }), make("span", { class: "text", text: one.text, dir: "auto" }), play);
}

function bar(name, share, shown) {
  return [make("span", { text: name, dir: "auto" }), make("meter", { min: 0, max: 1, value: share ?? 0, "aria-label": name }), make("span", { text: shown })];
}

function time(seconds) {
  if (seconds === null) return "–";
  const digits = (value, least) => Math.floor(value).toLocaleString(tongue, { minimumIntegerDigits: least, useGrouping: false });
  return `${digits(seconds / 3600, 1)}:${digits((seconds / 60) % 60, 2)}:${digits(seconds % 60, 2)}`;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// Held-out losses as dots over the smoothed training loss; the first steps may leave the picture at its top.
function curve({ stage, loss, validation }) {
  const card = make("div", { class: "card" }, make("h3", { text: `${t("loss")}: ${stage}` }));
  const points = [...loss, ...validation];
  if (!points.length) return card;
  // As wide as it is shown, so that its words are as large as all others.
  const width = Math.max(280, ($("run-curves").clientWidth || 720) - 34);
  const [height, left, bottom] = [200, 48, 26];
  const xs = points.map(([x]) => x);
  const begun = Math.min(...xs) + 0.05 * (Math.max(...xs) - Math.min(...xs));
  const ys = [...loss.filter(([x]) => x >= begun), ...validation].map(([, y]) => y);
  const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs, Math.min(...xs) + 1), Math.min(...ys), Math.max(...ys, Math.min(...ys) + 1e-6)];
  const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - 8);
  const y = (value) => 8 + (1 - Math.min(1, (value - y0) / (y1 - y0))) * (height - bottom - 8);
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${t("loss")} ${stage}: ${number(loss.at(-1)?.[1] ?? null, 3)}` });
  for (const share of [0, 0.5, 1]) {
    const value = y0 + share * (y1 - y0);
    picture.append(svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }), svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", direction: "ltr" }, number(value, 2)));
  }
  for (const value of [x0, x1]) picture.append(svg("text", { x: x(value), y: height - 6, "text-anchor": value === x0 ? "start" : "end", direction: "ltr" }, number(value, 0)));
  if (loss.length) picture.append(svg("path", { d: loss.map(([a, b], at) => `${at ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("") }));
  for (const [a, b] of validation) picture.append(svg("circle", { cx: x(a), cy: y(b), r: 4 }));
  const key = make("div", { class: "key" }, make("span", {}, make("i"), t("loss")), make("span", {}, make("i", { class: "dot" }), t("validation")));
  card.append(picture, key);
  return card;
}

// A link carries no key: where there is one, the report is fetched and saved.
async function saveReport(event) {
  if (!sessionStorage.getItem("key")) return;
  event.preventDefault();
  try {
    const link = make("a", { href: URL.createObjectURL(await (await call($("run-report").getAttribute("href"))).blob()), download: "report.html" });
    link.click();
    URL.revokeObjectURL(link.href);
  } catch (error) {
    say($("runs-status"), error.message, "bad");
  }
}

export function startRuns() {
  $("run-report").addEventListener("click", saveReport);
  whenTongueChanges(() => last && followed && draw(last));
}
