// The page: which view is shown, its language and theme.
import { showCollect, startCollect } from "./collect.js";
import { $, call, setTongue, t, tongue } from "./common.js";
import { leaveRuns, showRuns, startRuns } from "./runs.js";
import { fillVoices, fromAddress, startSpeak } from "./speak.js";
import { showVoices, startVoices } from "./voices.js";

const VIEWS = { speak: fillVoices, voices: showVoices, runs: showRuns, collect: showCollect };

function show() {
  const [name, query] = location.hash.slice(1).split("?");
  const view = name in VIEWS ? name : "speak";
  for (const other of Object.keys(VIEWS)) $(`view-${other}`).hidden = other !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (view !== "runs") leaveRuns();
  if (view === "speak" && query) fromAddress(new URLSearchParams(query));
  document.title = `${t(view)} – MyXTTS`;
  VIEWS[view]().catch((error) => ($("status").textContent = error.message));
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("theme", theme);
}

startSpeak();
startVoices();
startRuns();
startCollect();
setTongue(tongue);
if (localStorage.getItem("theme")) setTheme(localStorage.getItem("theme"));
$("theme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() === "#11151c";
  setTheme(dark ? "light" : "dark");
});
$("tongue").addEventListener("click", () => {
  setTongue(document.documentElement.lang === "fa" ? "en" : "fa");
  show();
});
window.addEventListener("hashchange", show);
show();
call("/health").then((answer) => answer.json()).then((told) => ($("about").textContent = `MyXTTS ${told.version} · ${told.model}`), () => {});
