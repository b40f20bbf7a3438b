"use strict";
// Tables are complete without this. It adds sorting by a click on a head, and a box that filters rows.
for (const part of document.querySelectorAll("[data-table]")) {
  const table = part.querySelector("table");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const number = (text) => (text === "" ? null : Number(text.replace(/[%,]/g, "")));

  heads.forEach((head, place) => {
    const numeric = head.classList.contains("n");
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const order = before ? (before === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
      const sign = order === "ascending" ? 1 : -1;
      const keyed = [...body.rows].map((row) => {
        const text = row.cells[place].textContent.trim();
        return { row, key: numeric ? number(text) : text || null };
      });
      keyed.sort((a, b) => {
        if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
        return sign * (numeric ? a.key - b.key : a.key.localeCompare(b.key, undefined, { numeric: true }));
      });
      body.append(...keyed.map((one) => one.row));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
    });
  });

  const filter = part.querySelector(".filter");
  if (!filter) continue;
  const box = filter.querySelector("input");
  const count = filter.querySelector("output");
  filter.hidden = false;
  box.addEventListener("input", () => {
    const wanted = box.value.trim().toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = wanted ? `${shown} of ${body.rows.length} rows` : "";
  });
}
