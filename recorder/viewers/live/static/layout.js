// The panels of the centre: which view of which stream each shows, and which of them is large.
//
// A panel watches its view only while a part of it is on the screen.  What the user chose is kept
// per browser, for each set of streams.

import { COVER_MS, Freshness, ageText, longest } from "./ages.js";
import { PictureView } from "./camera.js";
import { $, clockTime, el, icon, milliseconds, setText } from "./dom.js";
import { RangeAzimuthView, RangeDopplerView, RangeImageView } from "./map.js";
import { SeriesView, TrackView } from "./plots.js";
import { AboveView, PointsView } from "./points.js";

const VIEWS = {
  picture: { title: "picture", source: "picture", make: PictureView },
  points: { title: "3D", source: "sweep", make: PointsView },
  above: { title: "above", source: "sweep", make: AboveView },
  cloud: { title: "3D", source: "cloud", make: PointsView },
  cloud_above: { title: "above", source: "cloud", make: AboveView },
  range_doppler: { title: "range–speed", source: "range_doppler", make: RangeDopplerView },
  range_azimuth: { title: "range–azimuth", source: "range_azimuth", make: RangeAzimuthView },
  range_image: { title: "range image", source: "sweep", make: RangeImageView, wide: true },
  beam_image: { title: "range image", source: "range_image", make: RangeImageView, wide: true },
  series: { title: "plot", source: "series", make: SeriesView },
  track: { title: "track", source: "series", make: TrackView, channel: "pos" },
};
const MOST_PANELS = 9; // that are shown unasked

/** Names of the views that a stream offers here. */
export function viewsOf(stream) {
  return Object.keys(VIEWS).filter((name) => {
    const { source, channel } = VIEWS[name];
    return stream.views.includes(source) && (!channel || channel in stream.channels);
  });
}

class Panel {
  constructor(layout, spec) {
    Object.assign(this, { layout, settings: {}, ...spec });
    this.title = el("select", { class: "title", "aria-label": "Stream and view", onchange: () => this.#choose() });
    this.controls = el("span", { class: "controls" });
    this.body = el("div", { class: "body" });
    this.left = el("span");
    this.right = el("span", { class: "number" });
    this.cover = el("p", { class: "cover", hidden: true }, el("b", {}, "No data "), el("span"));
    const button = (name, label, onclick) => el("button", { class: "plain", title: label, "aria-label": label, onclick }, icon(name));
    this.root = el("article", { class: "panel" },
      el("header", {}, this.title, this.controls,
        button("enlarge", "Show large", () => layout.enlarge(this)), button("close", "Close", () => layout.close(this))),
      this.frame = el("div", { class: "frame" }, this.body, this.cover), el("footer", {}, this.left, this.right));
    this.observer = new ResizeObserver(() => requestAnimationFrame(() => this.body.clientWidth && this.view?.resize?.()));
    this.observer.observe(this.body);
    this.show();
  }

  get key() {
    return `${this.stream}/${this.name}`;
  }

  show() {
    this.clear();
    const { make, title, wide } = VIEWS[this.name];
    this.root.classList.toggle("wide", wide === true);
    this.root.dataset.view = this.name;
    this.root.dataset.stream = this.stream;
    this.root.setAttribute("aria-label", `${this.stream}, ${title}`);
    this.fresh = new Freshness();
    try {
      this.view = new make(this);
    } catch (error) {
      this.fail(error);
      return;
    }
    const canvas = this.view.canvas;
    canvas.classList.add("data");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${this.stream}, ${title}`);
    this.consumer = {
      view: this.view,
      maxHz: make.maxHz,
      get options() {
        return this.view.options;
      },
      setStatic: (sample) => this.view?.setStatic?.(sample),
      draw: (sample) => this.#draw(sample),
      drawn: (sample) => this.#drawn(sample),
    };
    if (this.visible) this.#watch();
  }

  clear() {
    this.watch?.close();
    this.watch = null;
    this.view?.destroy?.();
    this.view = null;
    this.body.replaceChildren();
    this.controls.replaceChildren();
    this.left.textContent = this.right.textContent = "";
    this.blank();
  }

  /** Nothing is shown that has an age. */
  blank() {
    this.sample = null;
    this.cover.hidden = true;
    delete this.root.dataset.drawn;
    delete this.root.dataset.age;
  }

  /** Show how old the sample is: what is old is grey, and then covered. */
  tick(nowMs, position) {
    const { sample } = this;
    if (!sample) return this.#tickEmpty();
    const rateHz = this.layout.streams[this.stream]?.rate_hz;
    let age = this.fresh.at(nowMs);
    let oldFor = this.fresh.oldFor(nowMs, rateHz);
    if (position) {
      age = milliseconds(position.t_ns) - milliseconds(sample.t_ns);
      const pace = position.playing ? Math.max(1, position.speed === "max" ? Infinity : position.speed) : 1;
      oldFor = age - longest(rateHz) * pace;
    }
    const level = oldFor < 0 ? "fresh" : oldFor < COVER_MS ? "old" : "covered";
    this.root.dataset.age = level;
    this.cover.hidden = level !== "covered";
    setText(this.cover.lastChild, `since ${clockTime(sample.t_ns)} (${ageText(age)})`);
    setText(this.right, `#${sample.seq}${position && level === "fresh" ? "" : ` · ${ageText(Math.max(0, age))}`}`);
  }

  /** Before the first sample: of a stream that gives none, the row knows since when. */
  #tickEmpty() {
    const row = this.layout.rows?.[this.stream];
    const lost = row && !row.fresh && row.age_s != null && row.level !== "idle";
    this.cover.hidden = !lost;
    if (lost) setText(this.cover.lastChild, `for ${ageText(row.age_s * 1000)}`);
  }

  destroy() {
    this.observer.disconnect();
    this.clear();
    this.root.remove();
  }

  setVisible(visible) {
    this.visible = visible;
    if (visible && this.view && !this.watch) this.#watch();
    if (!visible) {
      this.watch?.close();
      this.watch = null;
    }
  }

  refresh() {
    this.watch?.refresh();
  }

  note(text) {
    this.left.textContent = text;
  }

  remember(settings) {
    Object.assign(this.settings, settings);
    this.layout.save();
  }

  /** A choice of a view in the panel's header. */
  choice(label, names, chosen, onchoose) {
    const select = el("select", { "aria-label": label, title: label, onchange: () => onchoose(select.value) },
      ...names.map((name) => el("option", { value: name, selected: name === chosen }, name)));
    this.controls.append(select);
  }

  fail(error) {
    console.error(error);
    this.body.append(el("p", { class: "problem" }, icon("bad"), String(error.message ?? error)));
  }

  /** Offer what can be chosen now. */
  offer(choices) {
    if (choices === this.choices) return;
    this.choices = choices;
    const options = choices.split("\n").filter(Boolean).map((key) => {
      const [stream, name] = key.split("/");
      return el("option", { value: key }, `${stream} ${VIEWS[name].title}`);
    });
    this.title.replaceChildren(...options);
    this.title.value = this.key;
  }

  #watch() {
    this.watch = this.layout.connection.watch(this.stream, VIEWS[this.name].source, this.consumer);
  }

  async #draw(sample) {
    const { view } = this;
    try {
      await view?.draw(sample);
    } catch (error) {
      console.error(error);
      this.note(`cannot be drawn: ${error.message}`);
    }
  }

  /** The sample is on the screen: its number and stamp are attributes of the canvas. */
  #drawn(sample) {
    if (!this.view) return;
    const { canvas } = this.view;
    const nowMs = performance.now();
    this.root.dataset.drawn = "";
    this.sample = sample;
    this.fresh.take(sample, nowMs);
    Object.assign(canvas.dataset, { seq: sample.seq, tNs: sample.t_ns, ageMs: sample.age_ms });
    this.tick(nowMs, this.layout.position);
    canvas.dispatchEvent(new CustomEvent("drawn", { bubbles: true, detail: sample }));
  }

  #choose() {
    const [stream, name] = this.title.value.split("/");
    this.layout.replace(this, stream, name);
  }
}

export class Layout {
  constructor(connection) {
    this.connection = connection;
    this.root = $("#panels");
    this.panels = [];
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries)
        this.panels.find(({ root }) => root === target)?.setVisible(isIntersecting);
    }, { rootMargin: "40px" });
    connection.on("streams", ({ streams }) => this.#update(streams));
    connection.on("status", ({ streams }) => (this.rows = streams));
    connection.on("playback", (position) => {
      this.position = position;
      for (const panel of this.panels) if (position.blank?.includes(panel.stream)) panel.blank();
      this.tick();
    });
    $("#add-panel").addEventListener("click", () => this.#add());
    $("#reset-layout").addEventListener("click", () => {
      localStorage.removeItem(this.place);
      this.#set(this.#usual());
    });
  }

  /** Show how old everything is now. */
  tick() {
    const nowMs = performance.now();
    for (const panel of this.panels) panel.tick(nowMs, this.position);
  }

  get main() {
    return this.panels[0];
  }

  save() {
    const kept = this.panels.map(({ stream, name, settings }) => ({ stream, name, settings }));
    localStorage.setItem(this.place, JSON.stringify(kept));
  }

  /** Make a panel the large one. */
  enlarge(panel) {
    this.#set([panel, ...this.panels.filter((other) => other !== panel)]);
    this.save();
  }

  close(panel) {
    this.#set(this.panels.filter((other) => other !== panel));
    this.save();
  }

  /** Show a stream large; again: the next of its views. */
  choose(stream) {
    const names = this.streams[stream] ? viewsOf(this.streams[stream]) : [];
    if (!names.length) return;
    const { main } = this;
    const name = main?.stream === stream ? names[(names.indexOf(main.name) + 1) % names.length] : names[0];
    const shown = this.panels.find((panel) => panel.stream === stream && panel.name === name);
    if (shown) this.enlarge(shown);
    else if (main) this.replace(main, stream, name);
    else this.#set([{ stream, name }]);
  }

  replace(panel, stream, name) {
    Object.assign(panel, { stream, name, settings: {} });
    panel.show();
    this.#offer();
    panel.title.value = panel.key;
    this.save();
    this.onchange?.();
  }

  #update(streams) {
    this.streams = streams;
    this.place = `recorder.layout ${Object.keys(streams).sort().join(" ")}`;
    this.#set(this.#stored() ?? this.#usual());
  }

  #stored() {
    try {
      const stored = JSON.parse(localStorage.getItem(this.place));
      return stored?.filter(({ stream, name }) => this.streams[stream] && name in VIEWS);
    } catch {
      return null;
    }
  }

  /** All views of all streams, in the order of `VIEWS`; of a position the track, not the plot. */
  #usual() {
    const shown = (stream) => viewsOf(stream).filter((name, _, all) => name !== "series" || !all.includes("track"));
    const all = Object.keys(VIEWS).flatMap((name) =>
      Object.keys(this.streams).filter((stream) => shown(this.streams[stream]).includes(name)).map((stream) => ({ stream, name })));
    return all.slice(0, MOST_PANELS);
  }

  /** Show these, in this order; panels that are there already stay. */
  #set(specs) {
    const before = new Map(this.panels.map((panel) => [panel.key, panel]));
    this.panels = specs.map((spec) => {
      const there = before.get(spec.key ?? `${spec.stream}/${spec.name}`);
      before.delete(there?.key);
      return there ?? new Panel(this, spec);
    });
    for (const panel of before.values()) {
      this.observer.unobserve(panel.root);
      panel.destroy();
    }
    this.panels.forEach((panel, n) => {
      panel.root.classList.toggle("main", n === 0);
      if (this.root.children[n] !== panel.root) this.root.insertBefore(panel.root, this.root.children[n] ?? null);
      this.observer.observe(panel.root);
    });
    $("#no-panels").hidden = this.panels.length > 0;
    this.#offer();
    this.onchange?.();
  }

  #offer() {
    const all = Object.entries(this.streams).flatMap(([stream, info]) => viewsOf(info).map((name) => `${stream}/${name}`));
    for (const panel of this.panels) panel.offer([...new Set([...all, panel.key])].join("\n"));
  }

  #add() {
    const shown = new Set(this.panels.map(({ key }) => key));
    const all = Object.entries(this.streams ?? {}).flatMap(([stream, info]) => viewsOf(info).map((name) => ({ stream, name })));
    const next = all.find(({ stream, name }) => !shown.has(`${stream}/${name}`)) ?? all[0];
    if (next && !shown.has(`${next.stream}/${next.name}`)) this.#set([...this.panels, next]);
    this.save();
  }
}
