// Progress of a request, live; and forms that go once. Every page works without this file.
"use strict";

function size(n) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  while (n >= 1024 && at < units.length - 1) {
    n /= 1024;
    at += 1;
  }
  return `${at ? n.toFixed(1) : n} ${units[at]}`;
}

function show(id, text) {
  const element = document.getElementById(id);
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

for (const section of document.querySelectorAll("[data-events]")) {
  const events = new EventSource(section.dataset.events);
  events.onmessage = (event) => {
    const now = JSON.parse(event.data);
    const percent = now.percent ?? 0;
    document.getElementById("bar").value = percent;
    show("state", now.state);
    show("said", now.state === "stacking" ? "The cutouts are added." : `${percent} %`);
    show("tasks", `${now.n_done ?? 0} of ${now.n_tasks ?? "?"}`);
    show("nodes", String(now.n_nodes ?? 0));
    show("local", size(now.local_bytes ?? 0));
    show("peer", size(now.peer_bytes ?? 0));
    show("home", size(now.home_bytes ?? 0));
    show("troubles", (now.troubles ?? []).join(" "));
    if (now.left_s != null) {
      const at = new Date(Date.now() + 1000 * now.left_s);
      show("left", `in ${Math.ceil(now.left_s)} s, at ${at.toLocaleTimeString()}`);
    }
  };
  events.addEventListener("end", () => {
    events.close();
    location.replace(location.href);
  });
}

for (const form of document.querySelectorAll("form[data-once]")) {
  form.addEventListener("submit", () => {
    for (const button of form.querySelectorAll("button")) {
      button.disabled = true;
    }
  });
}
// A page that comes back by the back button has its buttons again.
window.addEventListener("pageshow", (event) => {
  for (const button of document.querySelectorAll("form[data-once] button")) {
    button.disabled = false;
  }
  if (event.persisted && document.querySelector("[data-events]")) {
    location.reload();
  }
});
