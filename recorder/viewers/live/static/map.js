// Maps with axes: a lidar's range image, a radar's power over range and speed or azimuth.
//
// A table tells for each pixel of the plot which cell of the array it shows; it is made once for a
// size.  The image and its axes are drawn on one canvas.

import { FONT, colourMap, el, fitCanvas, short, ticks } from "./dom.js";

const MARGIN = { left: 44, right: 10, top: 8, bottom: 34 };
const MOST_PIXELS = 160000;

const DEGREES = 180 / Math.PI;

/** Index of the value nearest to `wanted` in values that grow or fall. */
function nearest(values, wanted) {
  let [low, high] = [0, values.length - 1];
  const rising = values[high] >= values[low];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] > wanted === rising) high = middle;
    else low = middle;
  }
  return Math.abs(values[low] - wanted) <= Math.abs(values[high] - wanted) ? low : high;
}

/** From the first to the last value, and half a cell beyond each. */
function extent(values) {
  const [first, last] = [values[0], values[values.length - 1]];
  const half = values.length > 1 ? Math.abs(last - first) / (values.length - 1) / 2 : 0.5;
  return [Math.min(first, last) - half, Math.max(first, last) + half];
}

class MapView {
  options = {};
  static maxHz = 10;

  constructor(panel) {
    this.panel = panel;
    this.canvas = el("canvas", { class: "fill" });
    this.readout = el("div", { class: "readout", hidden: true });
    panel.body.append(this.canvas, this.readout);
    this.context = this.canvas.getContext("2d", { alpha: false });
    this.image = el("canvas");
    this.colours = new Uint32Array(colourMap(this.constructor.colours).buffer);
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => (this.readout.hidden = true));
  }

  resize() {
    this.table = null;
    if (this.sample) this.render();
  }

  draw(sample) {
    const axes = JSON.stringify(this.axes(sample));
    if (axes !== this.axesText) this.table = null;
    this.axesText = axes;
    this.sample = sample;
    this.render();
    this.panel.note(this.summary(sample));
  }

  /** Plot's place on the canvas, and tables from pixels to cells. */
  #layOut() {
    fitCanvas(this.canvas);
    this.scale = window.devicePixelRatio || 1;
    const { left, right, top, bottom } = MARGIN;
    const { x, y, equal } = this.plot;
    let [width, height] = [this.canvas.clientWidth - left - right, this.canvas.clientHeight - top - bottom];
    width = Math.max(20, width);
    height = Math.max(20, height);
    const [fullWidth, fullHeight] = [width, height];
    if (equal) {
      const metre = Math.min(width / (x.high - x.low), height / (y.high - y.low));
      [width, height] = [metre * (x.high - x.low), metre * (y.high - y.low)];
    }
    this.box = { left: left + (fullWidth - width) / 2, top: top + (fullHeight - height) / 2, width, height };
    const shrink = Math.min(1, Math.sqrt(MOST_PIXELS / (width * height)));
    const [columns, rows] = [Math.ceil(width * shrink), Math.ceil(height * shrink)];
    Object.assign(this.image, { width: columns, height: rows });
    this.table = new Int32Array(columns * rows);
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        this.table[row * columns + column] = this.cell(
          x.low + ((column + 0.5) / columns) * (x.high - x.low), y.high - ((row + 0.5) / rows) * (y.high - y.low));
    this.pixels = new ImageData(columns, rows);
  }

  render() {
    if (!this.table || this.canvas.clientWidth !== this.laidOut) {
      this.plot = this.axes(this.sample);
      this.#layOut();
      this.laidOut = this.canvas.clientWidth;
    }
    const { context, box, scale } = this;
    const levels = this.levels(this.sample);
    const words = new Uint32Array(this.pixels.data.buffer);
    for (let n = 0; n < words.length; n++) {
      const cell = this.table[n];
      words[n] = cell < 0 ? 0 : this.colours[levels[cell]];
    }
    this.image.getContext("2d").putImageData(this.pixels, 0, 0);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = "#0b0e13";
    context.fillRect(0, 0, this.canvas.clientWidth, this.canvas.clientHeight);
    context.drawImage(this.image, box.left, box.top, box.width, box.height);
    this.#drawAxes();
    this.decorate?.(this.sample);
  }

  at(x, y) {
    const { box, plot } = this;
    return [
      box.left + ((x - plot.x.low) / (plot.x.high - plot.x.low)) * box.width,
      box.top + ((plot.y.high - y) / (plot.y.high - plot.y.low)) * box.height,
    ];
  }

  #drawAxes() {
    const { context, box, plot } = this;
    context.fillStyle = "#c3ccd6";
    context.strokeStyle = "#55606d";
    context.font = FONT;
    context.lineWidth = 1;
    context.strokeRect(box.left - 0.5, box.top - 0.5, box.width + 1, box.height + 1);
    const below = box.top + box.height;
    context.textAlign = "center";
    for (const value of ticks(plot.x.low, plot.x.high, box.width / 32)) {
      const [x] = this.at(value, plot.y.low);
      context.fillRect(x, below, 1, 4);
      context.fillText(short(value), x, below + 15);
    }
    context.fillText(plot.x.label, box.left + box.width / 2, below + 29);
    context.textAlign = "right";
    for (const value of ticks(plot.y.low, plot.y.high, box.height / 22)) {
      const [, y] = this.at(plot.x.low, value);
      context.fillRect(box.left - 4, y, 4, 1);
      context.fillText(short(value), box.left - 6, Math.min(below, Math.max(box.top + 8, y + 4)));
    }
    context.save();
    context.translate(box.left - 32, box.top + box.height / 2);
    context.rotate(-Math.PI / 2);
    context.textAlign = "center";
    context.fillText(plot.y.label, 0, 0);
    context.restore();
  }

  #point(event) {
    if (!this.table) return;
    const { box, plot } = this;
    const x = plot.x.low + ((event.offsetX - box.left) / box.width) * (plot.x.high - plot.x.low);
    const y = plot.y.high - ((event.offsetY - box.top) / box.height) * (plot.y.high - plot.y.low);
    const inside = x >= plot.x.low && x <= plot.x.high && y >= plot.y.low && y <= plot.y.high;
    const cell = inside ? this.cell(x, y) : -1;
    this.readout.hidden = cell < 0;
    if (cell >= 0) this.readout.textContent = this.describe(cell);
  }
}

class RadarView extends MapView {
  static colours = "inferno";

  levels({ arrays: { db } }) {
    // From the noise (median of a part of the cells) to the loudest echo.
    const some = Array.from({ length: 512 }, (_, n) => db[Math.floor((n * db.length) / 512)]).sort((a, b) => a - b);
    let most = 0;
    for (let n = 0; n < db.length; n++) if (db[n] > most) [most, this.peak] = [db[n], n];
    const low = some[256];
    const factor = 255 / Math.max(20, most - low);
    const table = new Uint8Array(256).map((_, level) => Math.min(255, Math.max(0, (level - low) * factor)));
    return db.map((level) => table[level]);
  }

  summary() {
    return this.peak == null ? "" : `peak ${this.describe(this.peak)}`;
  }

  power(cell) {
    const { db_min, db_step } = this.sample.header;
    return `${Math.round(db_min + db_step * this.sample.arrays.db[cell])} dB`;
  }

  /** Circles around the detections. */
  decorate({ header }) {
    const { context } = this;
    context.strokeStyle = "#7fe3ff";
    context.lineWidth = 1.5;
    for (const found of header.detections ?? []) {
      const [x, y] = this.at(...this.placeOf(found));
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.stroke();
    }
  }
}

export class RangeDopplerView extends RadarView {
  axes({ header }) {
    this.ranges = header.range_m;
    this.speeds = header.velocity_mps;
    const [x, y] = [extent(this.ranges), extent(this.speeds)];
    return {
      x: { low: Math.max(0, x[0]), high: x[1], label: "range, m" },
      y: { low: y[0], high: y[1], label: "radial speed, m/s" },
    };
  }

  cell(range, speed) {
    return nearest(this.speeds, speed) * this.ranges.length + nearest(this.ranges, range);
  }

  /** A target that is faster than the map reaches appears at its other end. */
  placeOf({ range_m, velocity_mps }) {
    const { low, high } = this.plot.y;
    const span = high - low;
    return [range_m, velocity_mps - span * Math.floor((velocity_mps - low) / span)];
  }

  describe(cell) {
    const columns = this.ranges.length;
    const speed = this.speeds[Math.floor(cell / columns)];
    return `${this.ranges[cell % columns].toFixed(1)} m, ${speed > 0 ? "+" : ""}${speed.toFixed(1)} m/s, ${this.power(cell)}`;
  }
}

export class RangeAzimuthView extends RadarView {
  axes({ header }) {
    this.ranges = header.range_m;
    this.azimuths = header.azimuth_deg;
    this.reach = extent(this.ranges)[1];
    this.limits = extent(this.azimuths);
    const side = Math.sin(Math.min(90, Math.max(...this.limits)) / DEGREES) * this.reach;
    return {
      x: { low: -side, high: side, label: "to the right, m" },
      y: { low: 0, high: this.reach, label: "ahead, m" },
      equal: true,
    };
  }

  cell(right, ahead) {
    const range = Math.hypot(right, ahead);
    const azimuth = Math.atan2(-right, ahead) * DEGREES;
    if (range > this.reach || azimuth < this.limits[0] || azimuth > this.limits[1]) return -1;
    return nearest(this.azimuths, azimuth) * this.ranges.length + nearest(this.ranges, range);
  }

  placeOf({ range_m, azimuth_deg }) {
    return [-range_m * Math.sin(azimuth_deg / DEGREES), range_m * Math.cos(azimuth_deg / DEGREES)];
  }

  describe(cell) {
    const columns = this.ranges.length;
    const azimuth = this.azimuths[Math.floor(cell / columns)];
    const side = Math.round(azimuth) === 0 ? "" : azimuth > 0 ? " left" : " right";
    return `${this.ranges[cell % columns].toFixed(1)} m, ${Math.abs(azimuth).toFixed(0)}°${side}, ${this.power(cell)}`;
  }
}

const LONGEST_M = 60; // the range image's brightest colour

export class RangeImageView extends MapView {
  static colours = "viridis";
  options = { points: 32768 };

  axes({ header }) {
    Object.assign(this, { rows: header.rows, columns: header.columns });
    return {
      x: { low: 0, high: this.columns, label: "column" },
      y: { low: 0, high: this.rows, label: "row" },
    };
  }

  cell(column, up) {
    const row = this.rows - 1 - Math.min(this.rows - 1, Math.floor(up));
    return row * this.columns + Math.min(this.columns - 1, Math.floor(column));
  }

  levels({ arrays: { range }, header }) {
    const factor = (255 * header.range_unit_m) / LONGEST_M;
    const levels = new Uint8Array(range.length);
    for (let n = 0; n < range.length; n++) {
      // Near is bright; no echo is dark.
      levels[n] = range[n] ? 255 - Math.min(235, 235 * Math.sqrt((range[n] * factor) / 255)) : 0;
    }
    return levels;
  }

  summary() {
    return `${this.columns} × ${this.rows}`;
  }

  describe(cell) {
    const metres = this.sample.arrays.range[cell] * this.sample.header.range_unit_m;
    const place = `row ${Math.floor(cell / this.columns)}, column ${cell % this.columns}`;
    return metres ? `${place}: ${metres.toFixed(2)} m` : `${place}: no echo`;
  }
}
