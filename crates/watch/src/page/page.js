// Asks the engine once a second for its picture, and shows it.

import { Graph } from "./graph.js";
import { Alerts } from "./alerts.js";

const $ = (id) => document.getElementById(id);

// Numbers for people.
function scaled(n, step, units) {
  let unit = 0;
  while (n >= step - 0.5 && unit + 1 < units.length) { n /= step; unit += 1; }
  return `${n >= 99.95 || Number.isInteger(n) ? Math.round(n) : n.toFixed(1)}${units[unit]}`;
}
const count = (n) => scaled(n, 1000, ["", "k", "M", "G", "T"]);
const bits = (n) => scaled(n, 1000, [" bit/s", " kbit/s", " Mbit/s", " Gbit/s", " Tbit/s"]);
const bytes = (n) => scaled(n, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
const percent = (n) => `${n.toFixed(n < 10 ? 1 : 0)} %`;
const rate = (n) => `${count(n)}/s`;
function duration(s) {
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const days = s >= 86400 ? `${Math.floor(s / 86400)} d ` : "";
  return `${days}${two((s / 3600) % 24)}:${two((s / 60) % 60)}:${two(s % 60)}`;
}

// A table: `columns` are [title, what of a row, whether it is a number, the class of its cell].
function table(place, columns, rows, empty) {
  const t = document.createElement("table");
  const head = t.insertRow();
  for (const [title, , number] of columns) {
    const th = document.createElement("th");
    th.textContent = title;
    th.scope = "col";
    if (number) th.className = "n";
    head.append(th);
  }
  for (const r of rows) {
    const tr = t.insertRow();
    for (const [, of, number, kind] of columns) {
      const td = tr.insertCell();
      const value = of(r);
      if (value instanceof Node) td.append(value); else td.textContent = value;
      td.className = [number ? "n" : "", typeof kind === "function" ? kind(r) : kind ?? ""].join(" ").trim();
    }
  }
  if (!rows.length) {
    const td = t.insertRow().insertCell();
    td.colSpan = columns.length;
    td.className = "empty";
    td.textContent = empty;
  }
  $(place).replaceChildren(t);
}

function bar(used, cap) {
  const p = document.createElement("progress");
  p.max = 100;
  p.value = cap ? Math.min(100, (used * 100) / cap) : 0;
  return p;
}

// The token is this tab's; in the address behind # it comes with a link, and goes at once.
let token = sessionStorage.getItem("token") ?? "";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  token = given;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
}

class Refused extends Error {}

async function ask(path) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(8000) });
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

const graphs = [["Packets per second", "packets", rate], ["Bits per second", "bits", bits], ["Lost packets per second", "lost", rate, true],
  ["Alerts per second", "alerts", rate], ["Open flows", "flows", count], ["Processor, all threads", "cpu", percent]]
  .map(([title, of, format, bad]) => [new Graph($("graphs"), title, format, bad), of]);
const alerts = new Alerts();
let points = [], seconds = 300, uptime = Infinity;

function overview(s) {
  const n = s.now;
  const figures = [["Packets", count(n.packets), "/s"], ["Traffic", bits(n.bits), ""], ["Lost", count(n.lost), "/s", n.lost > 0], ["Alerts", count(n.alerts), "/s"],
    ["Open flows", count(n.flows), ""], ["New flows", count(n.new_flows), "/s"], ["Processor", percent(n.cpu), ""], ["Memory", bytes(s.resident), ""], ["Nearest limit", percent(n.pressure), "", n.pressure >= 90]];
  $("figures").replaceChildren(...figures.map(([name, value, unit, bad]) => {
    const box = document.createElement("div"), dt = document.createElement("dt"), dd = document.createElement("dd"), small = document.createElement("small");
    dt.textContent = name;
    dd.textContent = value;
    small.textContent = unit;
    dd.append(small);
    box.append(dt, dd);
    if (bad) box.className = "bad";
    return box;
  }));
  const end = s.time, start = end - seconds * 1000;
  for (const [graph, of] of graphs) graph.show(points.map((p) => [p.t, p[of]]), start, end);
  table("workers", [["worker", (w) => w.name], ["processor", (w) => percent(w.cpu), true, (w) => (w.cpu >= 90 ? "bad" : "")], ["packets", (w) => rate(w.packets), true],
    ["traffic", (w) => bits(w.bits), true], ["lost", (w) => rate(w.lost), true, (w) => (w.lost > 0 ? "bad" : "")], ["flows", (w) => count(w.flows), true]], s.workers, "no worker: nothing is being captured");
  table("memory", [["setting", (m) => m.name], ["used", (m) => bytes(m.used), true], ["limit", (m) => (m.cap ? bytes(m.cap) : "none"), true], ["", (m) => bar(m.used, m.cap)]], s.memory, "no worker");
}

function traffic(s) {
  table("top", [["count", (a) => count(a.count), true], ["rule", (a) => `${a.gid}:${a.sid}`], ["message", (a) => a.message, false, "long"]], s.top_alerts, "no alert");
  table("talkers", [["address", (t) => t.address], ["bytes", (t) => bytes(t.bytes), true], ["alerts", (t) => count(t.alerts), true]], s.talkers, "no flow ended");
  table("protocols", [["protocol", (p) => p.name], ["flows", (p) => count(p.flows), true], ["new", (p) => rate(p.rate), true], ["transactions", (p) => count(p.transactions), true],
    ["errors", (p) => count(p.errors), true]], s.protocols, "no protocol was recognised");
  $("costs").hidden = !s.rules.length;
  table("rules", [["time", (r) => percent(r.percent), true], ["rule", (r) => `${r.gid}:${r.sid}`], ["checks", (r) => count(r.checks), true], ["matches", (r) => count(r.matches), true],
    ["ticks", (r) => count(r.ticks), true], ["message", (r) => r.message, false, "long"]], s.rules, "");
}

function health(s) {
  const item = ([kind, head, what, advice]) => {
    const li = document.createElement("li"), b = document.createElement("b"), p = document.createElement("p");
    li.className = kind;
    b.textContent = head;
    p.textContent = what;
    li.append(b, p);
    if (advice) {
      const todo = document.createElement("p");
      todo.textContent = `To do: ${advice}.`;
      li.append(todo);
    }
    return li;
  };
  const said = { now: "now", past: "earlier, not now", note: "note" };
  const list = s.findings.map((f) => [f.grade, `${f.counter}: ${f.count.toLocaleString("en")}${f.rate > 0 ? `, ${rate(f.rate)}` : ""} (${said[f.grade]})`, f.what, f.advice]);
  if (!list.length) list.push(["well", "All is well", "Nothing was lost, and no limit was reached."]);
  $("findings").replaceChildren(...list.map(item));
  const now = s.findings.filter((f) => f.grade === "now").length, past = s.findings.filter((f) => f.grade === "past").length;
  $("badge").hidden = !(now || past);
  $("badge").textContent = now || past;
  $("badge").className = now ? "" : "past";
  const full = (n) => n.toLocaleString("en");
  table("stages", [["interface", (g) => g.interface], ["stage", (g) => g.stage], ["received", (g) => (g.received === null ? "–" : full(g.received)), true],
    ["lost", (g) => full(g.lost), true, (g) => (g.lost ? "bad" : "")], ["lost now", (g) => rate(g.rate), true, (g) => (g.rate ? "bad" : "")]], s.stages, "a capture file is read: nothing is lost on the way");
  const w = s.watched;
  table("left", [["what", (r) => r[0], false, "long"], ["since the start", (r) => full(r[1]), true]], [["alerts shown with their text", w.alerts],
    ["alerts that came too fast to be shown; logs have them", w.alerts_unshown], ["events that are in no list of the most frequent", w.uncounted], ["workers that were late at the last look", w.late]], "");
}

function show(s) {
  const a = s.about;
  $("about").textContent = `${a.version} · ${a.interfaces.length ? a.interfaces.join(", ") : a.capture} · ${a.mode} · up ${duration(s.uptime)} · ${count(a.rules_loaded)} rule${a.rules_loaded === 1 ? "" : "s"}${a.rules_failed ? ` (${a.rules_failed} failed)` : ""}`;
  overview(s);
  traffic(s);
  health(s);
}

async function look() {
  try {
    const s = await ask("api/snapshot");
    if (s.uptime < uptime) { points = []; alerts.begin(); }
    uptime = s.uptime;
    points.push(...await ask(`api/history?since=${points.length ? points[points.length - 1].t : 0}`));
    if (points.length > 3600) points.splice(0, points.length - 3600);
    alerts.take(await ask(`api/alerts?since=${alerts.last}&limit=1000`));
    $("login").hidden = true;
    // A link carries no token.
    $("metrics").hidden = token !== "";
    $("state").textContent = new Date(s.time).toLocaleTimeString([], { hourCycle: "h23" });
    $("state").className = "";
    show(s);
  } catch (e) {
    if (e instanceof Refused) {
      $("wrong").textContent = token ? "This is not the token." : "";
      $("login").hidden = false;
      $("state").textContent = "a token is wanted";
      $("state").className = "broken";
      // Who types is not disturbed; the form looks again.
      return;
    }
    $("state").textContent = e instanceof TypeError || e.name === "TimeoutError" ? "no answer from the engine; trying again" : e.message;
    $("state").className = "broken";
  }
  setTimeout(look, document.hidden ? 5000 : 1000);
}

$("login").addEventListener("submit", (e) => {
  e.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  look();
});

const tabs = [...document.querySelectorAll('[role="tab"]')];
function choose(tab, focus) {
  for (const t of tabs) {
    const chosen = t === tab;
    t.setAttribute("aria-selected", String(chosen));
    t.tabIndex = chosen ? 0 : -1;
    $(t.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  location.hash = tab.getAttribute("aria-controls");
  alerts.draw();
}
tabs.forEach((tab, n) => {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (e) => {
    const by = { ArrowRight: 1, ArrowLeft: tabs.length - 1 }[e.key];
    if (by) choose(tabs[(n + by) % tabs.length], true);
  });
});
const wanted = tabs.find((t) => `#${t.getAttribute("aria-controls")}` === location.hash);
if (wanted) choose(wanted);

for (const b of $("span").querySelectorAll("button")) {
  b.addEventListener("click", () => {
    seconds = Number(b.dataset.seconds);
    for (const other of $("span").querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === b));
  });
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (e.key === "Escape") {
    if (typing) document.activeElement.blur();
    for (const d of document.querySelectorAll("#list details[open]")) d.open = false;
  } else if (!typing && e.key >= "1" && e.key <= "4") {
    choose(tabs[Number(e.key) - 1], true);
  } else if (!typing && e.key === "/") {
    e.preventDefault();
    choose(tabs[1]);
    $("search").focus();
  }
});

look();
