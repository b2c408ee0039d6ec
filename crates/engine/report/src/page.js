// Follows the pointer over both charts of a figure and shows the values of the bin under it.
for (const figure of document.querySelectorAll("figure[data-series]")) {
  const d = JSON.parse(figure.dataset.series), tip = figure.querySelector(".tip");
  const charts = [...figure.querySelectorAll(".chart")], kind = (chart) => chart.classList.contains("narrow") ? "narrow" : "wide";
  const show = (event) => {
    const box = event.currentTarget.getBoundingClientRect(), [width, left, right] = d[kind(event.currentTarget)];
    const x = (event.clientX - box.left) / box.width * width;
    const ns = (x - left) / (width - left - right) * d.span_ns, i = Math.floor(ns / d.bin_ns);
    const inside = i >= 0 && i < d.rows[0][1].length;
    for (const chart of charts.filter((c) => kind(c) === kind(event.currentTarget))) {
      const cursor = chart.querySelector(".cursor");
      cursor.style.visibility = inside ? "visible" : "hidden";
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    }
    tip.style.display = inside ? "block" : "none";
    if (!inside) return;
    const value = (v) => String(Number(v.toPrecision(3)));
    tip.textContent = (ns / 1e9).toPrecision(3) + " s\n" + d.rows.map(([name, values, unit]) => name.padEnd(14) + value(values[i]) + " " + unit).join("\n");
    const frame = figure.getBoundingClientRect(), at = event.clientX - frame.left;
    const beside = at > frame.width / 2 ? at - tip.offsetWidth - 14 : at + 14;
    tip.style.left = Math.max(0, Math.min(beside, frame.width - tip.offsetWidth - 2)) + "px";
    tip.style.top = event.clientY - frame.top + 10 + "px";
  };
  const hide = () => { tip.style.display = "none"; for (const c of charts) c.querySelector(".cursor").style.visibility = "hidden"; };
  for (const chart of charts) { chart.addEventListener("pointermove", show); chart.addEventListener("pointerleave", hide); }
}
// Searches and sorts the table of tasks; the rows that are in the page are replaced by all of them, a part at a time.
const part = document.getElementById("tasks");
if (part) {
  const STEP = 50, rows = JSON.parse(part.querySelector("script").textContent);
  const table = part.querySelector("table"), head = [...table.querySelectorAll("th")];
  const find = part.querySelector(".find"), said = find.querySelector("span"), more = part.querySelector(":scope > button");
  let n = STEP, column = -1, down = false, kept = rows;
  const isText = head.map((th) => th.classList.contains("t"));
  const draw = () => {
    while (table.rows.length > 1) table.deleteRow(-1);
    for (const row of kept.slice(0, n)) {
      const tr = table.insertRow();
      row.forEach((text, i) => { const td = tr.insertCell(); td.textContent = text; td.className = head[i].className; });
    }
    said.textContent = kept.length.toLocaleString("en") + " of " + rows.length.toLocaleString("en");
    more.hidden = kept.length <= n;
  };
  const choose = () => {
    const words = find.querySelector("input").value.toLowerCase().split(/\s+/).filter(Boolean);
    kept = rows.filter((row) => { const text = row.join(" ").toLowerCase(); return words.every((w) => text.includes(w)); });
    if (column >= 0) {
      const names = new Intl.Collator("en", { numeric: true });
      const order = (a, b) => isText[column] ? names.compare(a[column], b[column]) : a[column] - b[column];
      kept.sort((a, b) => down ? order(b, a) : order(a, b));
    }
    n = STEP;
    draw();
  };
  head.forEach((th, i) => {
    const button = document.createElement("button");
    button.type = "button"; button.textContent = th.textContent;
    th.replaceChildren(button);
    button.addEventListener("click", () => {
      down = column === i ? !down : !isText[i];
      column = i;
      head.forEach((other, k) => k === i ? other.setAttribute("aria-sort", down ? "descending" : "ascending") : other.removeAttribute("aria-sort"));
      choose();
    });
  });
  find.hidden = false;
  find.querySelector("input").addEventListener("input", choose);
  more.addEventListener("click", () => { n += 10 * STEP; draw(); });
  draw();
}
