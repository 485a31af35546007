"use strict";
// What lies under the mouse: one column of the chart, its categories from the top of the stack down.
function size(n, base) {
  if (!base || n < base) return n + " B";
  const units = base === 1024 ? ["KiB", "MiB", "GiB", "TiB"] : ["kB", "MB", "GB", "TB"];
  let i = -1;
  do { n /= base; i++; } while (n >= base && i < units.length - 1);
  return n.toPrecision(3).replace(/e\+3$/, "000") + " " + units[i];
}
function time(ns) {
  for (const [unit, of] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]) if (Math.abs(ns) >= of) return (ns / of).toPrecision(4) + " " + unit;
  return ns + " ns";
}
function row(parent, name, value, swatch) {
  const div = document.createElement("div"), left = document.createElement("span"), right = document.createElement("b");
  if (swatch) {
    const i = document.createElement("i");
    i.className = "swatch " + swatch;
    left.append(i);
  }
  left.append(name);
  right.textContent = value;
  div.append(left, right);
  parent.append(div);
}
for (const chart of document.querySelectorAll(".chart")) {
  const data = JSON.parse(chart.querySelector("script").textContent);
  const cursor = chart.querySelector(".cursor"), tip = chart.querySelector(".tip");
  const hide = () => { cursor.hidden = tip.hidden = true; };
  const show = event => {
    const box = chart.getBoundingClientRect(), scale = box.width / data.size[0];
    const [px, py, pw, ph] = data.plot.map(v => v * scale);
    const x = event.clientX - box.left, y = event.clientY - box.top, n = (data.columns || []).length;
    if (!n || x < px || x >= px + pw || y < py || y > py + ph) return hide();
    const column = data.columns[Math.floor((x - px) / pw * n)];
    tip.textContent = "";
    row(tip, data.has_time ? "at " + time(column.at) : "event " + column.at, size(column.allocated, data.base));
    data.categories.forEach((name, i) => {
      const bytes = column.by[data.index[i]];
      if (bytes) row(tip, name, size(bytes, data.base), name);
    });
    if (data.reserved) row(tip, "reserved", size(column.reserved, data.base));
    const before = (data.marks || []).filter(m => m.x <= (x - px) / pw).pop();
    if (before) row(tip, "in", before.label);
    cursor.hidden = tip.hidden = false;
    cursor.style.cssText = `left:${x}px;top:${py}px;height:${ph}px`;
    tip.style.left = (x + tip.offsetWidth + 24 > box.width ? x - tip.offsetWidth - 12 : x + 12) + "px";
    tip.style.top = Math.min(y, box.height - tip.offsetHeight) + "px";
  };
  chart.addEventListener("pointermove", show);
  chart.addEventListener("pointerdown", show);
  chart.addEventListener("pointerleave", hide);
}
// A click on a heading sorts its table.
for (const head of document.querySelectorAll("th")) head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], i = head.cellIndex;
  const value = tr => { const td = tr.cells[i]; return td.dataset.v !== undefined ? +td.dataset.v : td.textContent; };
  const number = s => typeof s === "number" ? s : parseFloat(String(s).replace(/[,%]/g, ""));
  const down = head.dataset.down = head.dataset.down === "1" ? "" : "1";
  [...body.rows].sort((a, b) => {
    const x = value(a), y = value(b), nx = number(x), ny = number(y);
    const order = isNaN(nx) || isNaN(ny) ? String(x).localeCompare(String(y)) : nx - ny;
    return down ? -order : order;
  }).forEach(tr => body.append(tr));
});
