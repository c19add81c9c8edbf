// How old what is shown is: counted on here from the time of receipt, and when it counts as old.
//
//   const clock = new ServerClock();
//   const madeMs = clock.take(sent_ms, performance.now()); // a note or a sample has come
//   const age = age_ms + performance.now() - madeMs;

/** After so long without a status nothing on the page is of now: the server sends four a second. */
export const STATUS_MS = 900;
/** What is old for so long is covered with the time since when. */
export const COVER_MS = 2000;
const LEAST_MS = 600;
const WINDOW_MS = 30000;

/** The least of the values of the last half minute, or of a whole one. */
class Least {
  constructor() {
    this.since = -Infinity;
    this.now = this.before = Infinity;
  }

  take(value, nowMs) {
    if (nowMs - this.since >= WINDOW_MS) [this.since, this.before, this.now] = [nowMs, this.now, Infinity];
    this.now = Math.min(this.now, value);
    return this.value;
  }

  get value() {
    return Math.min(this.now, this.before);
  }
}

/** The server's clock on this page's: a message that was under way for longer than others is older. */
export class ServerClock {
  constructor() {
    this.offset = new Least();
  }

  /** When a message was made, in ms of this page's clock, by the server's `sent_ms`. */
  take(sentMs, nowMs) {
    return sentMs + this.offset.take(nowMs - sentMs, nowMs);
  }
}

/** The age of the newest sample of a view. */
export class Freshness {
  constructor() {
    this.usual = new Least(); // the delay of the sensor, and of the way to here
  }

  /** A sample has come; the first one, or the same once more, may be of any age. */
  take({ age_ms, madeMs, t_ns }, nowMs) {
    const follows = this.tNs != null && t_ns !== this.tNs;
    Object.assign(this, { ageMs: age_ms ?? 0, madeMs, tNs: t_ns });
    if (follows) this.usual.take(this.at(nowMs), nowMs);
  }

  at(nowMs) {
    return this.ageMs + Math.max(0, nowMs - this.madeMs);
  }

  /** For how long it has been old; below 0: it is not. */
  oldFor(nowMs, rateHz) {
    const usual = this.usual.value;
    return this.at(nowMs) - (isFinite(usual) ? usual : 0) - longest(rateHz);
  }
}

/** The longest time between two samples of a stream that gives them as it should, in ms. */
export function longest(rateHz) {
  return Math.max(LEAST_MS, rateHz ? 1500 / rateHz + 100 : 0);
}

export function ageText(ms) {
  if (ms < 995) return `${Math.round(ms)} ms`;
  if (ms < 90000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 5400000 ? `${Math.round(ms / 60000)} min` : `${Math.round(ms / 3600000)} h`;
}
