// Events as they come, and earlier sessions.

import { $, bytes, calendarTime, clockTime, duration, el, icon, milliseconds } from "./dom.js";

const WORRYING = /lost|fault|absent|hung|rate low|stalled|floor|sealed|step|restarted/;

export class Lists {
  constructor(connection) {
    this.events = $("#events ol");
    this.sessions = $("#sessions tbody");
    connection.on("hello", () => this.events.replaceChildren());
    connection.on("event", (event) => this.#add(event));
    connection.on("events", ({ events }) => events.forEach((event) => this.#add(event)));
    connection.on("sessions", ({ sessions }) => this.#list(sessions));
  }

  #add({ t_ns, kind, stream, cause, text }) {
    const symbol = kind === "mark" ? "mark" : WORRYING.test(`${kind} ${cause ?? ""}`) ? "warn" : "info";
    this.events.prepend(el("li", { dataset: { kind, symbol, stream: stream ?? "" } }, icon(symbol),
      el("time", {}, clockTime(t_ns)), el("b", {}, stream ?? kind),
      el("span", { title: text }, text)));
    while (this.events.children.length > 200) this.events.lastChild.remove();
    $("#events .empty").hidden = true;
  }

  #list(sessions) {
    this.sessions.replaceChildren(...sessions.map(({ name, start_ns, end_ns, state, bytes: size, lost, unknown_losses, verdict, reasons }) =>
      el("tr", { dataset: { name } },
        el("td", { title: name }, name),
        el("td", {}, start_ns ? calendarTime(start_ns) : "–"),
        el("td", {}, start_ns && end_ns ? duration((milliseconds(end_ns) - milliseconds(start_ns)) / 1000) : "–"),
        el("td", {}, bytes(size)),
        el("td", {}, `${lost ?? "–"}${unknown_losses ? " + ?" : ""}`),
        el("td", { title: (reasons ?? []).join("; ") }, [state, verdict].filter(Boolean).join(" · ")))));
    $("#sessions .empty").hidden = sessions.length > 0;
  }
}
