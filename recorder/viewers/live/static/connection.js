// The WebSocket to the live process: messages, requests with replies, and watches of streams.
//
//   const connection = new Connection();
//   connection.on("status", (message) => ...);
//   const { close, refresh } = connection.watch("camera", "picture", { options, maxHz, draw, setStatic });
//
// A sample is acknowledged ("drawn") after the frame in which it was drawn has been painted.  The
// server sends the next sample of a watch only then.

import { ServerClock } from "./ages.js";

const PAUSES_S = [0.5, 1, 2, 4, 8];
const SILENCE_MS = 6000; // a live server reports its status twice a second
const TYPES = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, u8: BigUint64Array,
  i1: Int8Array, i2: Int16Array, i4: Int32Array, i8: BigInt64Array, f4: Float32Array, f8: Float64Array,
};

/** Decode a binary message: a header in JSON, then arrays on bounds of 8 bytes. */
export function decode(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const sample = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const listed = sample.arrays;
  sample.arrays = {};
  for (const { name, dtype, shape, offset } of listed) {
    const array = new TYPES[dtype.replace(/^[<|=]/, "")](
      buffer, 4 + length + offset, shape.reduce((product, size) => product * size, 1));
    array.shape = shape;
    sample.arrays[name] = array;
  }
  return sample;
}

const afterPaint = () =>
  new Promise((resolve) => {
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resolve;
      port2.postMessage(null);
    });
  });

export class Connection extends EventTarget {
  constructor() {
    super();
    this.streams = {};
    this.failures = 0;
    this.requests = new Map();
    this.watches = new Map();
    this.numbers = 0;
    this.on("streams", ({ streams }) => {
      this.streams = streams;
      for (const watch of this.watches.values()) this.#send(watch);
    });
    setInterval(() => this.#checkSilence(), 1000);
    this.#open();
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  on(type, listener) {
    this.addEventListener(type, (event) => listener(event.detail));
  }

  send(message) {
    if (this.isOpen) this.socket.send(JSON.stringify(message));
  }

  /** Ask the daemon; resolves to its reply, rejects with the reason. */
  request(op, values = {}) {
    if (!this.isOpen) return Promise.reject(new Error("there is no connection to the recorder"));
    const request = ++this.numbers;
    this.send({ op, request, ...values });
    return new Promise((resolve, reject) => this.requests.set(request, { resolve, reject }));
  }

  /** Watch a view of a stream; several consumers share one watch.  Returns its `close` and `refresh`. */
  watch(stream, view, consumer) {
    const key = `${stream}/${view}`;
    const watch = this.watches.get(key) ?? { stream, view, consumers: new Set(), id: null, asked: "" };
    this.watches.set(key, watch);
    watch.consumers.add(consumer);
    if (watch.static) consumer.setStatic?.(watch.static);
    this.#send(watch);
    const close = () => {
      watch.consumers.delete(consumer);
      this.#send(watch);
      if (!watch.consumers.size && this.watches.get(key) === watch) this.watches.delete(key);
    };
    return { close, refresh: () => this.#send(watch) };
  }

  #send(watch) {
    const offered = this.streams[watch.stream]?.views.includes(watch.view);
    const wanted = watch.consumers.size && offered && this.isOpen;
    const asked = wanted ? JSON.stringify(merge(watch.consumers)) : "";
    if (asked === watch.asked) return;
    if (watch.id !== null) this.send({ op: "unwatch", id: watch.id });
    Object.assign(watch, { id: null, asked, static: wanted ? watch.static : null });
    if (!wanted) return;
    watch.id = ++this.numbers;
    this.send({ op: "watch", id: watch.id, stream: watch.stream, view: watch.view, ...merge(watch.consumers) });
  }

  #open() {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    this.clock = new ServerClock();
    this.heardMs = performance.now();
    socket.onopen = () => {
      this.heardMs = performance.now();
      this.#emit("open");
    };
    socket.onmessage = ({ data }) => {
      this.heardMs = performance.now();
      this.failures = 0;
      if (typeof data !== "string") this.#draw(decode(data));
      else this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ reason }) => this.#closed(socket, reason);
  }

  #closed(socket, reason) {
    if (socket !== this.socket) return;
    const pause = PAUSES_S[Math.min(this.failures++, PAUSES_S.length - 1)];
    for (const { reject } of this.requests.values()) reject(new Error("the connection was lost"));
    this.requests.clear();
    for (const watch of this.watches.values()) Object.assign(watch, { id: null, asked: "", static: null });
    setTimeout(() => this.#open(), pause * 1000);
    this.#emit("gone", { pause, reason });
  }

  #checkSilence() {
    if (!this.isOpen || this.mode !== "live" || document.hidden) return;
    if (performance.now() - this.heardMs < SILENCE_MS) return;
    const { socket } = this;
    this.#closed(socket, "no message for 6 s");
    socket.close();
  }

  #receive(message) {
    this.#stamp(message);
    if (message.type === "hello") this.mode = message.mode;
    if (message.type === "reply") {
      const waiting = this.requests.get(message.request);
      this.requests.delete(message.request);
      if (message.ok) waiting?.resolve(message);
      else waiting?.reject(new Error(message.error ?? "refused"));
    }
    this.#emit(message.type, message);
  }

  /** Note when a message was made, in ms of the page's clock. */
  #stamp(message) {
    if (message.sent_ms != null) message.madeMs = this.clock.take(message.sent_ms, this.heardMs);
  }

  async #draw(sample) {
    this.#stamp(sample);
    const watch = this.watches.get(`${sample.stream}/${sample.view}`);
    if (watch?.id !== sample.id) return;
    if (sample.static) {
      watch.static = sample;
      for (const consumer of watch.consumers) consumer.setStatic?.(sample);
      return;
    }
    const consumers = [...watch.consumers];
    await Promise.all(consumers.map((consumer) => consumer.draw(sample)));
    await afterPaint();
    this.send({ op: "drawn", id: sample.id, number: sample.number });
    for (const consumer of consumers) consumer.drawn?.(sample);
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** The options that satisfy all consumers: the largest of each, where 0 is without a limit. */
function merge(consumers) {
  const options = {};
  let max_hz = 0;
  for (const consumer of consumers) {
    max_hz = Math.max(max_hz, consumer.maxHz);
    for (const [name, value] of Object.entries(consumer.options)) {
      options[name] = value === 0 || options[name] === 0 ? 0 : Math.max(options[name] ?? 0, value);
    }
  }
  return { options, max_hz };
}
