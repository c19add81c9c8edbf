// Playing a recorded session: play, pause, speed, frame step, and seek.

import { $, clockTime, duration, milliseconds, setText } from "./dom.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16, "max"];

export class Playback {
  constructor(connection, timeline, stream) {
    this.connection = connection;
    this.timeline = timeline;
    this.stream = stream; // () => the stream whose samples are stepped through
    this.speed = 1;
    connection.on("playback", (message) => this.#update(message));
    timeline.onseek = (tNs) => connection.mode === "playback" && this.#seekTo(tNs);
    $("#play").addEventListener("click", () => this.toggle());
    $("#back").addEventListener("click", () => this.step(-1));
    $("#forward").addEventListener("click", () => this.step(1));
    $("#speed").addEventListener("change", (event) => this.#setSpeed(SPEEDS.find((speed) => String(speed) === event.target.value)));
    this.keys = {
      " ": () => this.toggle(),
      ArrowLeft: (event) => (event.shiftKey ? this.seek(-5) : this.step(-1)),
      ArrowRight: (event) => (event.shiftKey ? this.seek(5) : this.step(1)),
      Home: () => this.#seekTo(this.start),
      End: () => this.#seekTo(this.end),
      "[": () => this.#faster(-1),
      "]": () => this.#faster(1),
    };
  }

  toggle() {
    this.connection.send({ op: this.playing ? "pause" : "play" });
  }

  step(by) {
    this.connection.send({ op: "step", by, stream: this.stream() });
  }

  seek(seconds) {
    this.#seekTo(this.now + BigInt(seconds) * 1000000000n);
  }

  #faster(by) {
    const at = SPEEDS.findIndex((speed) => speed === "max" || speed >= this.speed) + by;
    this.#setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at))]);
  }

  #setSpeed(value) {
    this.speed = value; // keys in quick succession count from here
    this.connection.send({ op: "speed", value });
  }

  #seekTo(tNs) {
    const inside = tNs < this.start ? this.start : tNs > this.end ? this.end : tNs;
    this.connection.send({ op: "seek", t_ns: String(inside) });
  }

  #update({ start_ns, end_ns, t_ns, playing, speed }) {
    [this.start, this.end, this.now] = [start_ns, end_ns, t_ns].map(BigInt);
    Object.assign(this, { playing, speed });
    $("#play use").setAttribute("href", playing ? "#icon-pause" : "#icon-play");
    $("#play").setAttribute("aria-label", playing ? "Pause" : "Play");
    $("#speed").value = String(speed);
    const [now, length] = [t_ns, end_ns].map((ns) => (milliseconds(ns) - milliseconds(start_ns)) / 1000);
    const tenths = (seconds) => `${duration(seconds)}.${Math.floor((seconds % 1) * 10)}`;
    setText($("#position"), `${tenths(now)} / ${tenths(length)}`);
    setText($("#wall-time"), clockTime(t_ns, 1));
    const box = $("#playback");
    Object.assign(box.dataset, { playing, tNs: t_ns, speed });
    this.timeline.setPosition(t_ns);
  }
}
