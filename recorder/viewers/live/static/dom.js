// Elements, texts and colours that all parts of the page share.

export const FONT = '11px "Segoe UI", Roboto, "Helvetica Neue", Arial, "Liberation Sans", sans-serif';

export const $ = (selector, root = document) => root.querySelector(selector);

/** Make an element: attributes by name, `on...` as listeners, `dataset` as an object. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(made.dataset, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

/** A symbol of index.html's sprite; its shape tells the state without colour. */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** Change a text only where it differs, so that nothing is laid out in vain. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let toastTimer = 0;

/** Show a short message; screen readers read it. */
export function toast(text, level = "good") {
  const box = $("#toast");
  clearTimeout(toastTimer);
  box.dataset.level = level;
  box.replaceChildren(icon(level), el("span", {}, text));
  box.hidden = false;
  toastTimer = setTimeout(() => (box.hidden = true), 4000);
}

/** Whether a key belongs to the element that has the focus: texts, and moving within a choice. */
export function isTyping({ target, key }) {
  const belongs = key === " " || key.length > 1 ? "input, textarea, dialog[open], select" : "input, textarea, dialog[open]";
  return target.closest?.(belongs) != null;
}

export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; count >= 1000 && at < units.length - 1; at++) count /= 1000;
  return `${count < 10 && at ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

/** A number with at most three digits that matter. */
export function short(value) {
  if (value == null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2);
}

export const milliseconds = (ns) => Number(BigInt(ns) / 1000n) / 1000;

/** Local time of day of epoch ns. */
export function clockTime(ns, digits = 0) {
  const date = new Date(milliseconds(ns));
  const text = date.toLocaleTimeString([], { hour12: false });
  return digits ? `${text}.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : text;
}

/** Local date and time of epoch ns, to the minute. */
export function calendarTime(ns) {
  const date = new Date(milliseconds(ns));
  return new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16).replace("T", " ");
}

/** Steps of 1, 2 and 5 that divide a range into about `count` parts. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((n) => n * power >= rough * 0.999) * power;
  const values = [];
  for (let n = Math.ceil(low / step - 1e-6); n * step <= high + step * 1e-6; n++) values.push(n * step);
  return values.map((value) => Number(value.toPrecision(12)));
}

/** Fit a canvas to its element in device pixels; true if its size has changed. */
export function fitCanvas(canvas) {
  const scale = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * scale));
  const height = Math.max(1, Math.round(canvas.clientHeight * scale));
  if (canvas.width === width && canvas.height === height) return false;
  Object.assign(canvas, { width, height });
  return true;
}

// Both maps grow evenly in lightness, so that they can be told without colours.
const STOPS = {
  viridis: "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  inferno: "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
};

/** A map of 256 colours, RGBA bytes. */
export function colourMap(name) {
  const stops = STOPS[name].split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.substr(at, 2), 16)));
  const map = new Uint8Array(1024);
  for (let n = 0; n < 256; n++) {
    const place = (n / 255) * (stops.length - 1);
    const at = Math.min(stops.length - 2, Math.floor(place));
    for (let c = 0; c < 3; c++) map[4 * n + c] = stops[at][c] + (place - at) * (stops[at + 1][c] - stops[at][c]);
    map[4 * n + 3] = 255;
  }
  return map;
}
