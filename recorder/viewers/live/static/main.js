// The page: its parts, the keyboard, the theme, and the banner of a lost connection.

import { STATUS_MS } from "./ages.js";
import { Bar } from "./bar.js";
import { Connection } from "./connection.js";
import { $, isTyping, setText, toast } from "./dom.js";
import { Layout } from "./layout.js";
import { Lists } from "./lists.js";
import { Playback } from "./playback.js";
import { Streams } from "./streams.js";
import { Timeline } from "./timeline.js";

const connection = new Connection();
const bar = new Bar(connection);
const layout = new Layout(connection);
const streams = new Streams(connection, (name) => layout.choose(name));
const playback = new Playback(connection, new Timeline(connection), () => layout.main?.stream);
new Lists(connection);
layout.onchange = () => streams.select(layout.main?.stream);

// --- the connection ---------------------------------------------------------------------------

let gone = 0;
connection.on("open", () => {
  clearInterval(gone);
  $("#banner").hidden = true;
  document.body.dataset.connection = "open";
});
connection.on("gone", ({ pause, reason }) => {
  clearInterval(gone);
  document.body.dataset.connection = "gone";
  tick(); // nothing more comes: the page is grey before the banner shows
  const since = Date.now();
  const show = () => {
    const left = Math.ceil(pause - (Date.now() - since) / 1000);
    const next = left > 0 ? `Next attempt in ${left} s.` : "Connecting …";
    setText($("#banner span"), `No connection to the recorder${reason ? ` (${reason})` : ""}: what you see is old. ${next}`);
  };
  gone = setInterval(show, 500);
  show();
  $("#banner").hidden = false;
});
connection.on("error", ({ text }) => toast(text, "bad"));

// --- what is shown is of now, or grey -----------------------------------------------------------

let status = null; // the latest
connection.on("status", (message) => {
  status = message;
  tick();
});

function tick() {
  const nowMs = performance.now();
  const sinceMs = status?.madeMs == null ? 0 : nowMs - status.madeMs; // a recorded session has one status
  const live = connection.isOpen && status?.status != null && sinceMs < STATUS_MS;
  document.body.dataset.live = live ? "yes" : "no";
  if (!live && status?.status) bar.lose(sinceMs);
  layout.tick();
  streams.tick(nowMs);
}
setInterval(tick, 100);
document.addEventListener("visibilitychange", tick);
new ResizeObserver(([{ target }]) => document.documentElement.style.setProperty("--bar", `${target.offsetHeight}px`)).observe($("#bar"));

// --- the theme --------------------------------------------------------------------------------

const THEMES = ["auto", "dark", "light"];

function setTheme(theme) {
  localStorage.setItem("recorder.theme", theme);
  document.documentElement.dataset.theme = theme;
  $("#theme").title = `Colours: ${theme} (T)`;
  $("#theme").setAttribute("aria-label", `Colours: ${theme}`);
  document.dispatchEvent(new CustomEvent("themechange"));
}
const nextTheme = () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
$("#theme").addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: light)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("themechange")));
setTheme(THEMES.includes(localStorage.getItem("recorder.theme")) ? localStorage.getItem("recorder.theme") : "auto");

// --- the keyboard -----------------------------------------------------------------------------

const showHelp = () => !$("dialog[open]") && $("#help-dialog").showModal();
$("#help").addEventListener("click", showHelp);

const LIVE_KEYS = {
  m: (event) => bar.mark(event.timeStamp),
  M: (event) => bar.markWithText(event.timeStamp),
  s: () => (bar.recording ? bar.askStop() : bar.askStart()),
};
const KEYS = { t: nextTheme, "?": showHelp };

document.addEventListener("keydown", (event) => {
  if (isTyping(event) || event.ctrlKey || event.metaKey || event.altKey) return;
  const numbered = /^[1-9]$/.test(event.key) && streams.numbered(Number(event.key));
  const onButton = event.key === " " && event.target.closest("button, [tabindex]");
  const action =
    (connection.mode === "playback" ? !onButton && playback.keys[event.key] : !event.repeat && LIVE_KEYS[event.key]) ||
    KEYS[event.key] || (numbered && (() => layout.choose(numbered)));
  if (!action) return;
  event.preventDefault();
  action(event);
});
