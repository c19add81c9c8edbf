// The timeline: a lane for each stream with its losses, the marks, and in playback the position.

import { $, FONT, clockTime, duration, fitCanvas, milliseconds } from "./dom.js";

const LABEL = 96; // width of the names
const TOP = 20; // of the first lane
const LANE = 15;
const TICKS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400];

export class Timeline {
  constructor(connection) {
    this.connection = connection;
    this.canvas = $("#timeline canvas");
    this.context = this.canvas.getContext("2d");
    this.onseek = null;
    connection.on("timeline", (message) => this.#take(message));
    connection.on("hello", () => this.#clear());
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe($("#timeline"));
    document.addEventListener("themechange", () => this.draw());
    this.canvas.addEventListener("pointerdown", (event) => this.#seek(event));
    this.canvas.addEventListener("pointermove", (event) => {
      if (event.buttons === 1) this.#seek(event);
      this.canvas.title = this.#describe(event);
    });
  }

  /** Show the position of playback. */
  setPosition(tNs) {
    this.position = milliseconds(tNs);
    this.draw();
  }

  #clear() {
    this.data = null;
    this.draw();
  }

  #take({ start_ns, end_ns, streams, marks }) {
    if (start_ns == null) return this.#clear();
    this.start = milliseconds(start_ns);
    this.end = Math.max(milliseconds(end_ns), this.start + 1000);
    this.startNs = BigInt(start_ns);
    this.data = {
      streams: [...new Set([...Object.keys(this.connection.streams), ...Object.keys(streams)])].map((name) => [
        name, (streams[name] ?? []).map(([from, to, ...about]) => [milliseconds(from), milliseconds(to), ...about])]),
      marks: (marks ?? []).map(({ t_ns, text }) => ({ at: milliseconds(t_ns), text })),
    };
    const count = this.data.streams.reduce((sum, [, spans]) => sum + spans.filter(([, , kind]) => kind !== "data").length, 0);
    this.canvas.setAttribute("aria-label", `Timeline: ${this.data.marks.length} marks, ${count} intervals of loss`);
    this.canvas.dataset.marks = this.data.marks.length;
    this.canvas.dataset.losses = count;
    return this.draw();
  }

  #x(ms) {
    return LABEL + ((ms - this.start) / (this.end - this.start)) * (this.canvas.clientWidth - LABEL - 12);
  }

  draw() {
    const { canvas, context } = this;
    const lanes = this.data?.streams.length ?? 0;
    canvas.height = 0; // so that the box alone decides
    canvas.style.height = `${TOP + lanes * LANE + 8}px`;
    fitCanvas(canvas);
    $("#timeline .empty").hidden = this.data != null;
    if (!this.data || canvas.clientWidth < LABEL + 40) return;
    const colour = (name) => getComputedStyle(canvas).getPropertyValue(name).trim();
    const scale = window.devicePixelRatio || 1;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
    context.font = FONT;
    const bottom = TOP + lanes * LANE;
    const span = (this.end - this.start) / 1000;
    const room = (canvas.clientWidth - LABEL) / 74;
    const step = TICKS_S.find((s) => span / s <= room) ?? 14400;
    for (let s = 0; s <= span; s += step) {
      const x = this.#x(this.start + s * 1000);
      context.fillStyle = colour("--line");
      context.fillRect(x, TOP - 4, 1, bottom - TOP + 4);
      context.fillStyle = colour("--muted");
      context.textAlign = s ? "center" : "left";
      if (x < canvas.clientWidth - 26) context.fillText(duration(s), x, 11);
    }
    this.data.streams.forEach(([name, spans], n) => {
      const y = TOP + n * LANE;
      context.textAlign = "right";
      context.fillStyle = colour("--text");
      context.fillText(name.length > 15 ? `${name.slice(0, 14)}…` : name, LABEL - 8, y + 10, LABEL - 10);
      context.fillStyle = colour("--lane");
      context.fillRect(LABEL, y + 2, this.#x(this.end) - LABEL, LANE - 5);
      for (const [from, to, kind] of spans) this.#drawLoss(this.#x(from), this.#x(to), y + 2, LANE - 5, kind, colour);
    });
    for (const { at } of this.data.marks) {
      const x = this.#x(at);
      context.fillStyle = colour("--accent");
      context.fillRect(x - 0.5, TOP - 6, 1.5, bottom - TOP + 6);
      context.beginPath();
      context.moveTo(x - 5, TOP - 8);
      context.lineTo(x + 5, TOP - 8);
      context.lineTo(x, TOP);
      context.fill();
    }
    if (this.position == null) return;
    const x = this.#x(Math.min(this.end, Math.max(this.start, this.position)));
    context.fillStyle = colour("--text");
    context.fillRect(x - 1, TOP - 8, 2, bottom - TOP + 12);
    context.beginPath();
    context.arc(x, bottom + 3, 4, 0, 2 * Math.PI);
    context.fill();
  }

  /** A loss is as high as its lane; where it could not be counted, it is hatched. */
  #drawLoss(from, to, y, height, kind, colour) {
    const { context } = this;
    const width = Math.max(2.5, to - from);
    context.fillStyle = colour("--bad");
    if (kind === "data") context.fillStyle = colour("--good");
    if (kind === "data") return context.fillRect(from, y + height - 3, width, 3);
    if (kind === "lost") return context.fillRect(from, y, width, height);
    context.save();
    context.beginPath();
    context.rect(from, y, width, height);
    context.clip();
    context.strokeStyle = colour("--bad");
    context.beginPath();
    for (let x = from - height; x < from + width; x += 4) {
      context.moveTo(x, y + height);
      context.lineTo(x + height, y);
    }
    context.stroke();
    context.strokeRect(from, y, width, height);
    return context.restore();
  }

  #time(event) {
    const part = (event.offsetX - LABEL) / (this.canvas.clientWidth - LABEL - 12);
    return Math.min(1, Math.max(0, part)) * (this.end - this.start);
  }

  #seek(event) {
    if (!this.data || event.offsetX < LABEL - 6) return;
    this.onseek?.(this.startNs + BigInt(Math.round(this.#time(event) * 1000)) * 1000n);
  }

  #describe(event) {
    if (!this.data || event.offsetX < LABEL) return "";
    const ms = this.start + this.#time(event);
    const mark = this.data.marks.find(({ at }) => Math.abs(this.#x(at) - event.offsetX) < 6);
    const spans = this.data.streams[Math.floor((event.offsetY - TOP) / LANE)]?.[1] ?? [];
    const loss = spans.find(([from, to, kind]) => kind !== "data" && event.offsetX > this.#x(from) - 4 && event.offsetX < this.#x(to) + 4);
    const what = mark ? ` – ${mark.text}` : loss ? ` – ${loss[2] === "lost" ? "samples lost" : "losses not counted"}${loss[3] ? `: ${loss[3].replaceAll("_", " ")}` : ""}` : "";
    return clockTime(BigInt(Math.round(ms)) * 1000000n, 1) + what;
  }
}
