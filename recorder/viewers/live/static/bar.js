// The bar on top: what the recorder does, whether all is well, and the buttons.

import { ageText } from "./ages.js";
import { $, bytes, clockTime, duration, icon, setText, toast } from "./dom.js";

export class Bar {
  constructor(connection) {
    this.connection = connection;
    this.recording = this.commanding = false;
    $("#mark").addEventListener("click", (event) => this.mark(event.timeStamp));
    $("#mark-text").addEventListener("click", (event) => this.markWithText(event.timeStamp));
    $("#start-stop").addEventListener("click", () => (this.recording ? this.askStop() : this.start("")));
    for (const button of document.querySelectorAll("[data-cancel]"))
      button.addEventListener("click", () => button.closest("dialog").close());
    connection.on("status", (message) => this.#update(message));
    connection.on("hello", ({ mode }) => (document.body.dataset.mode = mode));
  }

  /** Mark what happened at a keypress: `pressed`, ms of the page's own clock. */
  async mark(pressed, text = "mark", keep = undefined) {
    const button = $("#mark");
    button.classList.add("pressed");
    try {
      const age = performance.now() - pressed;
      await this.connection.request("mark", { text, age_ms: age, keep });
      const age_now = Math.round(performance.now() - pressed);
      toast(`${keep ? "Kept as an event" : "Marked"} at ${clockTime(BigInt(Date.now() - age_now) * 1000000n, 1)}`);
    } catch (error) {
      toast(`Not marked: ${error.message}`, "bad");
    } finally {
      button.classList.remove("pressed");
    }
  }

  async markWithText(pressed) {
    const text = await ask("#mark-dialog");
    if (text === null) return;
    const keep = $("#keep-event").checked ? [+$("#keep-before").value, +$("#keep-after").value] : undefined;
    await this.mark(pressed, text.trim() || "mark", keep);
  }

  async askStart() {
    const name = await ask("#start-dialog");
    if (name !== null) await this.start(name.trim());
  }

  async askStop() {
    if ((await ask("#stop-dialog")) !== null) await this.#command("stop", {}, "Stopped");
  }

  start(name) {
    return this.#command("start", name ? { name } : {}, "Recording");
  }

  async #command(op, values, done) {
    const button = $("#start-stop");
    button.disabled = this.commanding = true;
    try {
      await this.connection.request(op, values);
      toast(done);
    } catch (error) {
      toast(`Not done: ${error.message}`, "bad");
    } finally {
      button.disabled = this.commanding = false;
    }
  }

  /** Nothing is known of now: the last status is so old. */
  lose(ms) {
    const why = ms ? `the last status is ${ageText(ms)} old` : "there is no connection";
    this.#fact("#verdict", "unknown", "NOT KNOWN", why);
    setText($("#why"), why);
  }

  #update({ status, verdict, disk_hours, clock, session: shown, session_verdict: judged }) {
    this.#fact("#verdict", verdict.level, verdict.word, verdict.why ?? "");
    setText($("#why"), verdict.why ?? "");
    if (!status) return; // the daemon does not answer
    const { session } = status;
    this.recording = session != null;
    document.body.dataset.recording = this.recording;
    const played = this.connection.mode === "playback";
    setText($("#rec-word"), played ? "PLAYBACK" : this.recording ? "REC" : status.state === "idle" ? "IDLE" : status.state.toUpperCase());
    setText($("#elapsed"), this.recording ? duration(session.elapsed_s) : "");
    const name = session?.name ?? shown;
    setText($("#session"), name ? [name, judged?.verdict].filter(Boolean).join(" · ") : "not recording");
    $("#session").title = (judged?.reasons ?? []).map(({ what, where }) => `${what}${where ? ` (${where})` : ""}`).join("; ");
    const button = $("#start-stop");
    setText($("span", button), this.recording ? "STOP" : "START");
    const refused = this.recording ? null : status.start_refused; // why a start would fail
    button.disabled = refused != null || this.commanding;
    button.title = refused ?? "Start or stop (S)";
    $("use", button).setAttribute("href", this.recording ? "#icon-stop" : "#icon-record");
    const { free_bytes: free } = status.disk ?? {};
    const level = disk_hours == null ? (free == null ? "bad" : "good") : disk_hours < 1 / 6 ? "bad" : disk_hours < 1 ? "warn" : "good";
    const hours = disk_hours == null ? bytes(free) : disk_hours > 999 ? "> 999 h" : `${disk_hours.toFixed(disk_hours < 100 ? 1 : 0)} h`;
    this.#fact("#disk", level, hours, `${bytes(free)} free`);
    this.#fact("#clock", clock?.level ?? "unknown", clock?.word ?? "not known", clock?.why ?? "");
  }

  #fact(selector, level, text, title) {
    const fact = $(selector);
    if (fact.dataset.level !== level) {
      fact.dataset.level = level;
      $(".icon", fact).replaceWith(icon(level));
    }
    setText($("b", fact), text);
    fact.title = title;
  }
}

let answer = () => {}; // of the dialog that was opened last

/** Show a dialog; resolves to its input's text ("" without an input), or null if it was cancelled. */
function ask(selector) {
  if ($("dialog[open]")) return Promise.resolve(null);
  answer(null);
  const dialog = $(selector);
  const input = $("input", dialog);
  if (input) input.value = "";
  dialog.returnValue = "";
  // The event of a dialog that was closed may come when it is open again.
  dialog.onclose = () => dialog.open || answer(dialog.returnValue === "ok" ? input?.value ?? "" : null);
  dialog.showModal();
  return new Promise((resolve) => (answer = resolve));
}
