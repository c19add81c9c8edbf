// A lidar's points, in 3D and from above (plain WebGL2): sent as points, or made by the shader from
// raw ranges.
//
// point = origin + direction * range * unit, in the sensor's frame: x forward, y left, z up.  Of
// points as they are, the origin is the point, without a direction.

import { FONT, colourMap, el, fitCanvas, short } from "./dom.js";

const VERTEX = `#version 300 es
in float range, intensity;
in vec3 direction, origin;
uniform mat4 view;
uniform float unit, size, low, high;
uniform int by;
uniform sampler2D colours;
out vec4 colour;
void main() {
  float metres = range * unit;
  vec3 point = origin + direction * metres;
  gl_Position = metres > 0.0 ? view * vec4(point, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = size;
  float value = by == 0 ? point.z : by == 1 ? intensity : metres;
  colour = texture(colours, vec2(clamp((value - low) / (high - low), 0.02, 0.98), 0.5));
}`;
const FRAGMENT = `#version 300 es
precision mediump float;
in vec4 colour;
out vec4 pixel;
void main() { pixel = colour; }`;

const MODES = ["height", "intensity", "range"];
const UNITS = { height: "m", intensity: "", range: "m" };
const MOST_POINTS = 32768;
const START = { yaw: 0, pitch: 0.5, distance: 38, x: 6, y: 0 };
const START_ABOVE = { ...START, pitch: Math.PI / 2, distance: 55 };
const EYE = 1.2; // cotangent of half of the field of view

function compile(gl) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  return program;
}

export class PointsView {
  static maxHz = 10;
  options = { points: MOST_POINTS };

  constructor(panel) {
    this.panel = panel;
    this.canvas = el("canvas", { class: "fill points", tabindex: 0 });
    this.overlay = el("canvas", { class: "fill overlay", "aria-hidden": "true" });
    this.legend = el("div", { class: "legend" }, el("span"), el("i"), el("span"));
    panel.body.append(this.canvas, this.overlay, this.legend);
    this.mode = MODES.includes(panel.settings.by) ? panel.settings.by : "height";
    panel.choice("Colour by", MODES, this.mode, (mode) => this.#colourBy(mode));
    this.#prepare();
    this.canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    this.canvas.addEventListener("webglcontextrestored", () => this.#prepare());
    this.limits = { low: 0, high: 1 };
    this.#listen();
    this.reset();
  }

  get above() {
    return false;
  }

  #prepare() {
    const gl = this.canvas.getContext("webgl2", { antialias: false, alpha: false });
    if (!gl) throw new Error("this browser has no WebGL2");
    this.gl = gl;
    this.program = compile(gl);
    gl.useProgram(this.program);
    this.at = (name) => gl.getUniformLocation(this.program, name);
    this.buffers = Object.fromEntries(["range", "intensity", "direction", "origin"].map((n) => [n, gl.createBuffer()]));
    gl.bindTexture(gl.TEXTURE_2D, gl.createTexture());
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 256, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, colourMap("viridis"));
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.LINEAR);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    gl.clearColor(0.043, 0.055, 0.075, 1);
    gl.enable(gl.DEPTH_TEST);
    if (this.static) this.setStatic(this.static);
  }

  reset() {
    this.camera = { ...(this.above ? START_ABOVE : START) };
    this.render();
  }

  resize() {
    this.render();
  }

  setStatic(sample) {
    this.static = sample;
    this.count = 0;
    for (const name of ["direction", "origin"]) this.#upload(name, sample.arrays[name], 3);
  }

  /** Show points [n, 3] as they are. */
  #showCloud({ points, intensity }) {
    const range = new Float32Array(points.length / 3);
    for (let n = 0; n < range.length; n++) range[n] = Math.hypot(points[3 * n], points[3 * n + 1], points[3 * n + 2]);
    this.setStatic({ arrays: { origin: points, direction: new Float32Array(points.length) } });
    this.draw({ arrays: { range, intensity }, header: { range_unit_m: 1 } });
  }

  draw({ arrays, header }) {
    if (arrays.points) {
      this.#showCloud(arrays);
      this.panel.note(`${header.count.toLocaleString("en")} points`);
      return;
    }
    if (!this.static || arrays.range.length * 3 !== this.static.arrays.direction.length) return;
    this.unit = header.range_unit_m;
    this.#upload("range", arrays.range, 1);
    this.hasIntensity = arrays.intensity != null;
    if (this.hasIntensity) this.#upload("intensity", arrays.intensity, 1);
    else this.gl.disableVertexAttribArray(this.gl.getAttribLocation(this.program, "intensity"));
    this.count = arrays.range.length;
    this.sample = arrays;
    this.#measure();
    this.render();
    this.panel.note(`${this.count.toLocaleString("en")} rays`);
  }

  destroy() {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }

  #upload(name, array, width) {
    const { gl } = this;
    const type = { 1: gl.UNSIGNED_BYTE, 2: gl.UNSIGNED_SHORT, 4: array instanceof Float32Array ? gl.FLOAT : gl.UNSIGNED_INT };
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, array, gl.STREAM_DRAW);
    const place = gl.getAttribLocation(this.program, name);
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, width, type[array.BYTES_PER_ELEMENT], false, 0, 0);
  }

  /** Limits of the colours: most of the values of every 13th ray; they follow slowly. */
  #measure() {
    const { range, intensity } = this.sample;
    const { direction, origin } = this.static.arrays;
    const values = [];
    const heights = [];
    for (let n = 0; n < range.length; n += 13) {
      if (!range[n]) continue;
      const metres = range[n] * this.unit;
      const height = origin[3 * n + 2] + direction[3 * n + 2] * metres;
      heights.push(height);
      values.push(this.mode === "height" ? height : this.mode === "range" ? metres : intensity?.[n] ?? 0);
    }
    if (!values.length) return;
    values.sort((a, b) => a - b);
    heights.sort((a, b) => a - b);
    this.ground = heights[Math.floor(heights.length * 0.05)];
    const low = values[Math.floor(values.length * 0.02)];
    const high = Math.max(low + 0.5, values[Math.floor(values.length * 0.97)]);
    const weight = this.limits.mode === this.mode ? 0.1 : 1;
    const mix = (old, now) => old + weight * (now - old);
    this.limits = { low: mix(this.limits.low, low), high: mix(this.limits.high, high), mode: this.mode };
    const [from, , to] = this.legend.children;
    from.textContent = short(this.limits.low);
    to.textContent = `${short(this.limits.high)} ${UNITS[this.mode]} ${this.mode}`;
  }

  #colourBy(mode) {
    this.mode = mode;
    this.panel.remember({ by: mode });
    if (this.sample) this.#measure();
    this.render();
  }

  /** Column-major matrix from the sensor's frame to the clip volume. */
  matrix() {
    const { yaw, pitch, distance, x, y } = this.camera;
    const [cy, sy, cp, sp] = [Math.cos(yaw), Math.sin(yaw), Math.cos(pitch), Math.sin(pitch)];
    const rows = [[sy, -cy, 0], [cy * sp, sy * sp, cp], [-cy * cp, -sy * cp, sp]]; // right, up, back
    const target = [x, y, this.ground ?? 0];
    const move = rows.map((row) => -row.reduce((sum, value, n) => sum + value * target[n], 0));
    const aspect = this.canvas.width / this.canvas.height;
    if (this.above) {
      const scale = 2 / distance;
      return [0, 1, 2].flatMap((n) => [(rows[0][n] * scale) / aspect, rows[1][n] * scale, -rows[2][n] / 500, 0])
        .concat([(move[0] * scale) / aspect, move[1] * scale, -move[2] / 500, 1]);
    }
    const [near, far] = [0.3, 600];
    const a = -(far + near) / (far - near);
    const b = (-2 * far * near) / (far - near);
    return [0, 1, 2].flatMap((n) => [(rows[0][n] * EYE) / aspect, rows[1][n] * EYE, rows[2][n] * a, -rows[2][n]])
      .concat([(move[0] * EYE) / aspect, move[1] * EYE, (move[2] - distance) * a + b, distance - move[2]]);
  }

  render() {
    const { gl } = this;
    fitCanvas(this.canvas);
    const view = this.matrix();
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    this.#drawRings(view);
    if (!this.count) return;
    gl.uniformMatrix4fv(this.at("view"), false, view);
    gl.uniform1f(this.at("unit"), this.unit);
    gl.uniform1f(this.at("size"), (window.devicePixelRatio || 1) * Math.max(1.5, this.canvas.clientHeight / 260));
    gl.uniform1f(this.at("low"), this.limits.low);
    gl.uniform1f(this.at("high"), this.limits.high);
    gl.uniform1i(this.at("by"), MODES.indexOf(this.mode));
    gl.drawArrays(gl.POINTS, 0, this.count);
  }

  /** Circles on the ground with their radius, and the vehicle's direction. */
  #drawRings(view) {
    fitCanvas(this.overlay);
    const { width, height } = this.overlay;
    const context = this.overlay.getContext("2d");
    const scale = window.devicePixelRatio || 1;
    context.clearRect(0, 0, width, height);
    context.strokeStyle = "rgba(150, 170, 190, 0.28)";
    context.fillStyle = "rgba(190, 205, 220, 0.9)";
    context.font = FONT.replace("11", 11 * scale);
    const ground = this.ground ?? 0;
    const place = (x, y) => {
      const at = (row) => view[row] * x + view[4 + row] * y + view[8 + row] * ground + view[12 + row];
      return at(3) > 0.2 ? [((at(0) / at(3) + 1) / 2) * width, ((1 - at(1) / at(3)) / 2) * height] : null;
    };
    const line = (points) => {
      context.beginPath();
      let pen = false;
      for (const point of points) {
        if (point) pen ? context.lineTo(...point) : context.moveTo(...point);
        pen = point !== null;
      }
      context.stroke();
    };
    const step = this.camera.distance < 30 ? 5 : this.camera.distance < 120 ? 10 : 50;
    let above = Infinity; // the last label's place: far rings lie close together
    for (let radius = step; radius <= 6 * step; radius += step) {
      line(Array.from({ length: 73 }, (_, n) => place(radius * Math.cos((n * Math.PI) / 36), radius * Math.sin((n * Math.PI) / 36))));
      const label = place(radius * 0.7071, -radius * 0.7071);
      if (!label || above - label[1] < 13 * scale) continue;
      context.fillText(`${radius} m`, label[0] + 3 * scale, label[1]);
      above = label[1];
    }
    context.strokeStyle = "rgba(230, 240, 250, 0.9)";
    line([place(-1, 0), place(2.5, 0), place(1.6, 0.6), place(2.5, 0), place(1.6, -0.6)]);
  }

  turn(across, up) {
    if (this.above) return this.pan(across * 20, up * 20);
    this.camera.yaw -= across;
    this.camera.pitch = Math.min(Math.PI / 2, Math.max(0.03, this.camera.pitch + up));
    return this.render();
  }

  /** Move what is looked at; in parts of the view, right and down. */
  pan(right, down) {
    const { yaw } = this.camera;
    const metres = this.camera.distance / 20;
    this.camera.x += metres * (down * Math.cos(yaw) - right * Math.sin(yaw));
    this.camera.y += metres * (down * Math.sin(yaw) + right * Math.cos(yaw));
    this.render();
  }

  zoom(factor) {
    this.camera.distance = Math.min(400, Math.max(4, this.camera.distance * factor));
    this.render();
  }

  #listen() {
    const { canvas } = this;
    const fingers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, event);
    });
    for (const type of ["pointerup", "pointercancel"]) canvas.addEventListener(type, (event) => fingers.delete(event.pointerId));
    canvas.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) return;
      const right = (event.clientX - before.clientX) / canvas.clientHeight;
      const down = (event.clientY - before.clientY) / canvas.clientHeight;
      const other = [...fingers.values()].find((finger) => finger.pointerId !== event.pointerId);
      fingers.set(event.pointerId, event);
      if (other) {
        const apart = (finger) => Math.hypot(finger.clientX - other.clientX, finger.clientY - other.clientY);
        this.zoom(apart(before) / Math.max(1, apart(event)));
      } else if (this.above || event.shiftKey) this.pan(right * 20, down * 20);
      else this.turn(right * 3, down * 3);
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 600));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => this.reset());
    const keys = {
      ArrowLeft: () => this.turn(0.1, 0), ArrowRight: () => this.turn(-0.1, 0),
      ArrowUp: () => this.turn(0, 0.1), ArrowDown: () => this.turn(0, -0.1),
      "+": () => this.zoom(0.85), "=": () => this.zoom(0.85), "-": () => this.zoom(1.18), 0: () => this.reset(),
    };
    canvas.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      keys[event.key]();
      event.preventDefault();
      event.stopPropagation();
    });
  }
}

export class AboveView extends PointsView {
  get above() {
    return true;
  }
}
