// Numbers over time (uPlot), and positions as a track seen from above.

import { FONT, el, fitCanvas, short, ticks } from "./dom.js";

const WINDOW_S = 30;
const STROKES = [
  ["#4aa3ff", []],
  ["#ff9f43", [6, 3]],
  ["#5fd38d", [2, 3]],
  ["#d98cff", [8, 3, 2, 3]],
];

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Samples between two gaps, which no line shows. */
function alone(plot, k) {
  const values = plot.data[k];
  const missing = (n) => values[n] == null;
  return values.map((_, n) => n).filter((n) => !missing(n) && missing(n - 1) && missing(n + 1));
}

export class SeriesView {
  static maxHz = 8;
  options = {};

  constructor(panel) {
    this.panel = panel;
    this.canvas = el("div", { class: "plot fill" });
    panel.body.append(this.canvas);
    this.data = null;
    this.onTheme = () => this.#rebuild();
    document.addEventListener("themechange", this.onTheme);
  }

  destroy() {
    document.removeEventListener("themechange", this.onTheme);
    this.plot?.destroy();
  }

  draw({ arrays, header }) {
    if (!this.channels) {
      this.channels = header.channels;
      const names = this.channels.map(({ name }) => name);
      this.name = names.includes(this.panel.settings.channel) ? this.panel.settings.channel : names[0];
      if (names.length > 1) this.panel.choice("Channel", names, this.name, (name) => this.#show(name));
    }
    const start = Number(BigInt(header.t0_ns) / 1000n) / 1e6;
    const all = Array.from(arrays.t, (t) => start + t);
    const first = Math.max(0, all.findLastIndex((t, n) => n > 0 && t < all[n - 1])); // playback went back
    const times = all.slice(first);
    if (!this.data || first || times[0] < this.data.t[this.data.t.length - 1] - 0.5) this.data = { t: [] };
    const { data } = this;
    const gaps = new Set(header.gaps.map((n) => n - first));
    const broken = (n) => gaps.has(n) && (n > 0 || data.t.length > 0); // nothing is known in between
    const before = (n) => (n > 0 ? times[n - 1] : data.t[data.t.length - 1]);
    const spread = times.flatMap((t, n) => (broken(n) ? [(before(n) + t) / 2, t] : [t]));
    const place = times.flatMap((_, n) => (broken(n) ? [null, first + n] : [first + n]));
    data.t.push(...spread);
    const old = data.t.findIndex((t) => t >= times[times.length - 1] - WINDOW_S);
    data.t.splice(0, old);
    for (const { name, labels } of this.channels) {
      const array = arrays[name];
      const width = labels.length;
      data[name] ??= labels.map(() => []);
      data[name].forEach((column, k) => {
        for (const n of place) column.push(n === null ? null : array[n * width + k]);
        column.splice(0, old);
      });
    }
    this.#update();
  }

  #show(name) {
    this.name = name;
    this.panel.remember({ channel: name });
    this.#rebuild();
  }

  #rebuild() {
    this.plot?.destroy();
    this.plot = null;
    if (this.data) this.#update();
  }

  #update() {
    const columns = this.data[this.name];
    const end = this.data.t[this.data.t.length - 1];
    const rows = [this.data.t.map((t) => t - end), ...columns];
    const { labels, unit } = this.channels.find(({ name }) => name === this.name);
    if (!this.plot) this.plot = this.#make(labels, unit, rows);
    else this.plot.setData(rows);
    const last = columns.map((column, k) => `${labels[k]} ${short(column[column.length - 1])}`);
    this.panel.note(`${last.join("  ")} ${unit}`);
  }

  #make(labels, unit, rows) {
    const axis = { stroke: style("--muted"), grid: { stroke: style("--line"), width: 1 }, ticks: { show: false }, font: FONT };
    const series = rows.slice(1).map((_, k) => ({
      label: labels[k],
      stroke: STROKES[k % STROKES.length][0],
      dash: STROKES[k % STROKES.length][1],
      width: 1.5,
      points: { show: false, filter: alone, size: 4 },
    }));
    const box = this.canvas.getBoundingClientRect();
    return new window.uPlot({
      width: Math.max(80, box.width), height: Math.max(60, box.height - 22),
      scales: { x: { time: false, range: [-WINDOW_S, 0] } },
      series: [{ label: "s" }, ...series],
      axes: [
        { ...axis, size: 22, values: (_, values) => values.map((v) => `${v} s`) },
        { ...axis, size: 52, space: 22, label: unit ? `${this.name}, ${unit}` : this.name, labelSize: 16, labelFont: axis.font,
          values: (_, values) => values.map((v) => short(v)) },
      ],
      legend: { live: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
    }, rows, this.canvas);
  }

  resize() {
    this.#rebuild();
  }
}

const MOST_POSITIONS = 20000;

export class TrackView {
  static maxHz = 4;
  options = {};

  constructor(panel) {
    this.panel = panel;
    this.canvas = el("canvas", { class: "fill" });
    panel.body.append(this.canvas);
    this.places = [];
  }

  draw({ arrays: { t, pos, local_m: local }, header }) {
    const origin = String(header.origin);
    if (origin !== this.origin) this.places = [];
    this.origin = origin;
    const start = Number(BigInt(header.t0_ns) / 1000n) / 1e6;
    for (let n = 0; n < t.length; n++) {
      const [east, north] = [local[3 * n], local[3 * n + 1]];
      if (!isFinite(east) || header.gaps.includes(n)) this.broken = true;
      if (!isFinite(east)) continue;
      const now = start + t[n];
      while (this.places.length && this.places[this.places.length - 1][2] > now) this.places.pop();
      this.places.push([east, north, now, this.broken]);
      this.broken = false;
      this.panel.note(`${pos[3 * n].toFixed(5)}°, ${pos[3 * n + 1].toFixed(5)}°, ${Math.round(pos[3 * n + 2])} m`);
    }
    if (this.places.length > MOST_POSITIONS) this.places = this.places.filter((place, n) => n % 2 || place[3]);
    this.resize();
  }

  resize() {
    fitCanvas(this.canvas);
    const context = this.canvas.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.places.length) return;
    const [east, north] = [0, 1].map((k) => this.places.map((place) => place[k]));
    const limits = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
    const [[west, right], [south, top]] = [limits(east), limits(north)];
    const metre = Math.min((width - 40) / Math.max(20, right - west), (height - 56) / Math.max(20, top - south));
    const place = (e, n) => [width / 2 + (e - (west + right) / 2) * metre, (height - 16) / 2 - (n - (south + top) / 2) * metre];
    context.strokeStyle = style("--accent");
    context.lineWidth = 2;
    context.beginPath();
    for (const [e, n, , broken] of this.places) broken ? context.moveTo(...place(e, n)) : context.lineTo(...place(e, n));
    context.stroke();
    const now = place(east[east.length - 1], north[north.length - 1]);
    context.fillStyle = style("--text");
    context.beginPath();
    context.arc(...now, 5, 0, 2 * Math.PI);
    context.fill();
    const bar = ticks(0, 110 / metre, 1)[1] ?? 10;
    context.fillRect(14, height - 12, bar * metre, 2);
    context.font = FONT;
    context.fillText(`${bar} m`, 14, height - 17);
    context.textAlign = "right";
    context.fillText("north is up", width - 10, height - 10);
    context.textAlign = "left";
  }
}
