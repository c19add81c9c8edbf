// The rows of the streams: each state has a symbol and a word besides its colour.

import { ageText } from "./ages.js";
import { $, bytes, el, icon, setText, short } from "./dom.js";

const words = (cause) => cause.replaceAll("_", " ");

function losses({ lost, unknown_losses, incomplete, outage }) {
  const causes = Object.entries(lost ?? {}).filter(([, count]) => count);
  const parts = causes.map(([cause, count]) => `${words(cause)} ${count}`);
  if (unknown_losses) parts.push(`${unknown_losses} not counted`);
  const texts = parts.length ? [`lost: ${parts.join(", ")}`] : [];
  const holes = Object.entries(incomplete ?? {}).map(([cause, { samples, parts: count }]) => `${words(cause)} ${samples} (${count} parts)`);
  if (holes.length) texts.push(`incomplete: ${holes.join(", ")}`);
  if (outage) texts.unshift(`no data now: ${words(outage.cause)}${outage.estimated ? `, about ${outage.estimated} samples` : ""}`);
  return texts.join("; ") || "no loss";
}

const SVG = "http://www.w3.org/2000/svg";

class Row {
  constructor(name, number, onchoose) {
    this.name = name;
    const cell = (className) => el("span", { class: className });
    this.symbol = icon("unknown");
    this.word = cell("word");
    this.rate = cell("rate");
    this.volume = cell("volume");
    this.age = cell("age");
    this.ring = cell("ring");
    this.lost = cell("lost");
    this.spark = document.createElementNS(SVG, "svg");
    this.spark.setAttribute("class", "spark");
    this.spark.setAttribute("viewBox", "0 0 59 20");
    this.spark.setAttribute("preserveAspectRatio", "none");
    this.spark.setAttribute("aria-hidden", "true");
    this.nominal = this.spark.appendChild(document.createElementNS(SVG, "path"));
    this.nominal.setAttribute("class", "nominal");
    this.curve = this.spark.appendChild(document.createElementNS(SVG, "polyline"));
    this.button = el("button", { class: "row", dataset: { stream: name }, onclick: onchoose },
      this.symbol, el("span", { class: "name" }, name), this.word, el("kbd", { "aria-hidden": "true" }, number <= 9 ? number : ""),
      this.rate, this.spark, el("span", { class: "numbers" }, this.age, this.volume, this.ring), this.lost);
    this.root = el("li", {}, this.button);
  }

  update(stream, madeMs) {
    const { button } = this;
    const { level, word } = stream;
    Object.assign(this, { ageMs: stream.age_s == null ? null : stream.age_s * 1000, madeMs });
    if (button.dataset.level !== level) {
      const symbol = icon(level);
      this.symbol.replaceWith(symbol);
      this.symbol = symbol;
    }
    Object.assign(button.dataset, { level, word, fresh: stream.fresh !== false });
    setText(this.word, word);
    setText(this.rate, `${short(stream.rate_hz)}${stream.expected_hz ? ` / ${short(stream.expected_hz)}` : ""} Hz`);
    setText(this.volume, stream.mb_s == null ? "–" : `${bytes(stream.mb_s * 1e6)}/s`);
    this.tick(performance.now());
    setText(this.ring, stream.ring == null ? "" : `ring ${Math.round(stream.ring * 100)} %`);
    setText(this.lost, stream.fault ?? losses(stream));
    button.title = stream.fault ?? "";
    this.#drawSpark(stream.spark ?? [], stream.expected_hz ?? 0);
  }

  /** The age of the newest sample goes on between two statuses, and after the last one. */
  tick(nowMs) {
    setText(this.age, this.ageMs == null ? "" : `newest ${ageText(this.ageMs + Math.max(0, nowMs - this.madeMs))}`);
  }

  #drawSpark(values, expected) {
    const most = Math.max(expected * 1.15, ...values, 1e-9);
    const y = (value) => (19 - (value / most) * 18).toFixed(1);
    this.curve.setAttribute("points", values.map((value, n) => `${60 - values.length + n},${y(value)}`).join(" "));
    this.nominal.setAttribute("d", expected ? `M0 ${y(expected)}H59` : "");
  }
}

export class Streams {
  constructor(connection, onchoose) {
    this.rows = new Map();
    this.onchoose = onchoose;
    this.root = $("#streams ol");
    connection.on("status", (message) => this.#update(message));
    connection.on("streams", ({ streams }) => this.#declare(Object.keys(streams)));
  }

  /** The stream of a number key. */
  numbered(number) {
    return [...this.rows.keys()][number - 1];
  }

  select(name) {
    for (const row of this.rows.values()) row.button.setAttribute("aria-pressed", row.name === name);
  }

  #declare(names) {
    for (const name of names) {
      if (this.rows.has(name)) continue;
      const row = new Row(name, this.rows.size + 1, () => this.onchoose(name));
      this.rows.set(name, row);
      this.root.append(row.root);
    }
  }

  tick(nowMs) {
    for (const row of this.rows.values()) row.tick(nowMs);
  }

  /** The server sorts the streams: worst first. */
  #update({ status, streams, madeMs }) {
    if (!status) return; // of the daemon's last streams the page shows how old they are
    const names = Object.keys(streams);
    this.#declare(names);
    for (const [name, row] of this.rows) {
      if (name in streams) row.update(streams[name], madeMs);
      row.root.hidden = !(name in streams);
    }
    const focused = document.activeElement;
    names.forEach((name, n) => {
      const { root } = this.rows.get(name);
      if (this.root.children[n] !== root) this.root.insertBefore(root, this.root.children[n] ?? null);
    });
    if (this.root.contains(focused)) focused.focus(); // a row that is moved loses it
  }
}
