// The list of alerts: search, filters, and each with its flow, its rule and the bytes of its packet.

const KEPT = 1000, SHOWN = 200;

function element(name, text, kind) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
}

function end(address, port) {
  if (port === undefined) return address ?? "";
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}

// Bytes as an editor of bytes shows them: place, values, characters.
export function dump(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.slice(at, at + 16)];
    const hex = row.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(4, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

function pairs(list) {
  const dl = element("dl");
  for (const [name, value] of list) {
    if (value === undefined || value === null || value === "") continue;
    dl.append(element("dt", name), element("dd", String(value)));
  }
  return dl;
}

function more(e) {
  const box = element("div", undefined, "more");
  const a = e.alert;
  box.append(element("h3", "Alert"), pairs([["rule", `${a.gid}:${a.signature_id}:${a.rev}`], ["class", a.category], ["priority", a.severity],
    ["verdict", a.action], ["time", e.timestamp], ["interface", e.in_iface], ["protocol", [e.proto, e.app_proto].filter(Boolean).join(", ")],
    ["direction", e.direction], ["capture file", e.pcap_filename], ["packet of the capture", e.pcap_cnt], ["tenant", e.tenant_id]]));
  if (e.flow) {
    const f = e.flow;
    box.append(element("h3", "Flow"), pairs([["number", e.flow_id], ["began", f.start], ["client", end(f.src_ip, f.src_port)], ["server", end(f.dest_ip, f.dest_port)],
      ["to server", `${f.pkts_toserver} packets, ${f.bytes_toserver} bytes`], ["to client", `${f.pkts_toclient} packets, ${f.bytes_toclient} bytes`]]));
  }
  const known = new Set(["timestamp", "flow_id", "in_iface", "event_type", "src_ip", "src_port", "dest_ip", "dest_port", "proto", "ip_v", "pkt_src", "alert",
    "app_proto", "direction", "flow", "packet", "packet_info", "pcap_filename", "pcap_cnt", "tenant_id"]);
  const rest = Object.fromEntries(Object.entries(e).filter(([k]) => !known.has(k)));
  if (Object.keys(rest).length) box.append(element("h3", "What the event has besides"), element("pre", JSON.stringify(rest, null, 2)));
  if (a.rule) box.append(element("h3", "Rule"), element("pre", a.rule, "rule"));
  if (a.references?.length) box.append(element("h3", "References"), element("pre", a.references.join("\n"), "rule"));
  if (e.packet) {
    let text;
    try { text = dump(e.packet); } catch { text = "the bytes cannot be read"; }
    box.append(element("h3", "Packet"), element("pre", text));
  }
  return box;
}

export class Alerts {
  constructor() {
    this.all = [];
    this.last = 0;
    this.held = false;
    this.list = document.getElementById("list");
    this.found = document.getElementById("found");
    this.search = document.getElementById("search");
    this.severity = document.getElementById("severity");
    this.verdict = document.getElementById("verdict");
    this.drawn = new Map();
    for (const e of [this.search, this.severity, this.verdict]) e.addEventListener("input", () => this.draw());
    const hold = document.getElementById("hold");
    hold.addEventListener("click", () => {
      this.held = !this.held;
      hold.setAttribute("aria-pressed", String(this.held));
      if (!this.held) this.draw();
    });
  }

  // Takes what is new, the oldest first.
  take(list) {
    if (!list.length) return;
    // Numbers begin anew with another engine.
    this.last = list[list.length - 1].n;
    for (const { n, event } of list) {
      const text = [event.alert.signature, event.alert.signature_id, event.alert.category, end(event.src_ip, event.src_port),
        end(event.dest_ip, event.dest_port), event.proto, event.app_proto, event.in_iface].join(" ").toLowerCase();
      this.all.push({ n, event, text });
    }
    if (this.all.length > KEPT) this.all.splice(0, this.all.length - KEPT);
    if (!this.held) this.draw();
  }

  // The engine is another one: what it had is not this one's.
  begin() {
    this.all = [];
    this.last = 0;
    this.draw();
  }

  item({ n, event: e }) {
    const li = element("li", undefined, `p${e.alert.severity}`);
    const details = element("details");
    const head = element("summary");
    head.append(element("time", (e.timestamp ?? "").slice(11, 19)));
    const title = element("b", e.alert.signature || `rule ${e.alert.signature_id}`);
    if (e.alert.action === "blocked") title.append(" ", element("span", "blocked", "tag bad"));
    if (e.app_proto && e.app_proto !== "failed") title.append(" ", element("span", e.app_proto, "tag"));
    head.append(title, element("span", `${end(e.src_ip, e.src_port)} → ${end(e.dest_ip, e.dest_port)}`, "ends"));
    details.append(head);
    // What is not looked at is not made.
    details.addEventListener("toggle", () => { if (details.open && !details.querySelector(".more")) details.append(more(e)); });
    li.append(details);
    li.dataset.n = n;
    return li;
  }

  draw() {
    if (document.getElementById("alerts").hidden) return;
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const severity = Number(this.severity.value) || Infinity, verdict = this.verdict.value;
    const fits = this.all.filter(({ text, event }) => event.alert.severity <= severity && (!verdict || event.alert.action === verdict) && words.every((w) => text.includes(w)));
    const shown = fits.slice(-SHOWN).reverse();
    // Those that stay keep their place in the document: one that is open stays open.
    const next = new Map();
    for (const a of shown) next.set(a.n, this.drawn.get(a.n) ?? this.item(a));
    for (const [n, li] of this.drawn) if (!next.has(n)) li.remove();
    let before = null;
    for (const li of next.values()) {
      const at = before ? before.nextSibling : this.list.firstChild;
      if (at !== li) this.list.insertBefore(li, at);
      before = li;
    }
    this.drawn = next;
    this.found.textContent = this.all.length === 0 ? "No alert since this page looks on." : `${fits.length} of the last ${this.all.length} alerts${fits.length > SHOWN ? `, the newest ${SHOWN} shown` : ""}`;
  }
}
