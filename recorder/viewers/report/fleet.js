"use strict";
(() => {
  const table = document.getElementById("sessions");
  const tools = document.getElementById("tools");
  const words = document.getElementById("words");
  const verdict = document.getElementById("verdict");
  const shown = document.getElementById("shown");
  const heads = [...table.tHead.rows[0].cells];
  const bodies = [...table.tBodies];
  const count = bodies.reduce((sum, body) => sum + sessions(body).length, 0);

  function sessions(body) {
    return [...body.rows].filter((row) => row.dataset.text !== undefined);
  }

  function filter() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const body of bodies) {
      let found = 0;
      for (const row of sessions(body)) {
        const { text } = row.dataset;
        row.hidden = !(
          (!verdict.value || row.dataset.verdict === verdict.value) &&
          wanted.every((word) => text.includes(word))
        );
        found += row.hidden ? 0 : 1;
      }
      body.hidden = found === 0;
      left += found;
    }
    shown.textContent = `${left} of ${count} sessions`;
  }

  function sort(column, descending) {
    const value = (body) => body.rows[0].cells[column].dataset.v ?? "";
    const number = heads[column].dataset.kind === "number";
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // the unknown last
      const order = number ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
      return descending ? -order : order;
    };
    bodies.sort(compare);
    table.append(...bodies);
    heads.forEach((head, k) => {
      if (k === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sort(column, now ? now === "ascending" : head.dataset.first === "descending");
    });
    head.append(button);
  });
  words.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  addEventListener("pageshow", filter); // a page that comes back keeps what was typed
  tools.hidden = false;
  filter();
})();
