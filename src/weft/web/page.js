// The page: shows frames of the live socket as tiles, picture and panels. All text from peers is
// inserted as text (textContent), never as HTML.

import { Overlay } from "/static/overlay.js";

const $ = (id) => document.getElementById(id);
const EVENTS_SHOWN = 200;
const PAYLOAD_SHOWN = 1000; // characters; all of a long payload would push the others away
const SAMPLES_MAX = 500; // of the time from message to paint, kept in the browser's timeline

const token = new URLSearchParams(location.hash.slice(1)).get("token")
  ?? sessionStorage.getItem("weft-token");
if (token) sessionStorage.setItem("weft-token", token);
// The token leaves the address bar, so that it is in no bookmark and on no screenshot.
if (location.hash.includes("token=")) history.replaceState(null, "", location.pathname);

const names = [];
let figures = [];
let stream = null;
let opened = null; // {at, delivered, frames}: when this page first saw the peers
let last = null;
const overlay = new Overlay($("canvas"), $("moving"), (n) => choose(n));

function element(kind, text, ...children) {
  const made = document.createElement(kind);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
}

const short = (id) => id.slice(-8);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const sized = (bytes) => bytes < 1e3 ? `${whole.format(bytes)} B`
  : bytes < 1e6 ? `${exact.format(bytes / 1e3)} kB` : `${exact.format(bytes / 1e6)} MB`;

// --- the live socket ---------------------------------------------------------------------------

function connect() {
  const socket = new WebSocket(`ws${location.protocol === "https:" ? "s" : ""}://${location.host}/live`);
  socket.onopen = () => { names.length = 0; };
  socket.onmessage = (message) => {
    const began = performance.now();
    const frame = JSON.parse(message.data);
    if (frame.kind === "names") {
      frame.names.forEach((name, place) => { names[frame.first + place] = name; });
      return;
    }
    if (frame.kind === "figures") showFigures(frame.figures);
    if (frame.kind === "flow") overlay.pass(frame.events);
    overlay.draw(() => measured(frame.kind, began));
  };
  socket.onclose = () => {
    $("state").textContent = "not connected; trying again";
    setTimeout(connect, 1000);
  };
}

function measured(kind, began) {
  performance.measure(`weft-${kind}`, { start: began, end: performance.now() });
  if (performance.getEntriesByType("measure").length > SAMPLES_MAX) performance.clearMeasures();
}

function showFigures(all) {
  figures = all;
  overlay.show(all);
  showTiles(all);
  showOptions(all);
  const joined = all.filter((figure) => !figure.isolated).length;
  $("state").textContent = all.length === 1
    ? `peer ${short(names[all[0].n])}${all[0].isolated ? ", alone so far" : ""}`
    : `live: ${joined} of ${all.length} peers joined`;
  showLegend();
  if (overlay.chosen !== null && !$("panel-peer").hidden) showRows();
}

function showTiles(all) {
  const sum = (name) => all.reduce((total, figure) => total + figure[name], 0);
  const now = { at: performance.now(), delivered: sum("delivered"), frames: sum("frames"), bytes: sum("bytes") };
  // Peers that come or leave change the sums, not only messages do: begin again.
  if (!opened || opened.count !== all.length) {
    opened = { ...now, count: all.length };
    last = now;
    $("tile-since").textContent = `since ${new Date().toLocaleTimeString()}`;
  }
  const seconds = (now.at - last.at) / 1000;
  $("tile-peers").textContent = whole.format(all.length);
  $("tile-topics").textContent = whole.format(new Set(all.flatMap((figure) => Object.keys(figure.links))).size);
  $("tile-delivered").textContent = whole.format(now.delivered);
  $("tile-dropped").textContent = whole.format(sum("dropped"));
  if (seconds > 0) {
    $("tile-rate").textContent = exact.format((now.delivered - last.delivered) / seconds);
    $("tile-bytes").textContent = sized((now.bytes - last.bytes) / seconds);
  }
  const since = now.delivered - opened.delivered;
  $("tile-cost").textContent = since ? exact.format((now.frames - opened.frames) / since) : "–";
  last = now;
}

function showLegend() {
  const members = overlay.members();
  $("legend").textContent = overlay.topic
    ? `blue: ${members} ${figures.length === 1 ? "known " : ""}${members === 1 ? "subscriber" : "subscribers"}; lines: their links; amber: events on their way`
    : "lines: peers that know each other (Cyclon views); amber: events on their way";
  overlay.links();
  if (overlay.every > 1) $("legend").textContent += `; one line in ${overlay.every} is drawn`;
}

// Options are replaced only if they changed, since that closes a list that is open in the browser.
function setOptions(select, first, entries) {
  const wanted = entries.map(([value]) => value).join("\n");
  if (select.dataset.shown === wanted) return;
  select.dataset.shown = wanted;
  const chosen = select.value;
  select.replaceChildren(new Option(first, ""), ...entries.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
  if (select.selectedIndex < 0) select.value = "";
}

function showChosen() {
  $("overlay").value = overlay.topic;
  if ($("overlay").selectedIndex < 0) $("overlay").value = "";
}

function showOptions(all) {
  const topics = [...new Set(all.flatMap((figure) => Object.keys(figure.links)))].sort();
  setOptions($("overlay"), "general overlay", topics.map((topic) => [topic, topic]));
  showChosen(); // a topic without subscribers has an option only after it was opened
  setOptions($("peer"), "none", all.map((figure) => [String(figure.n), `${figure.n} ${short(names[figure.n])}`]));
}

// --- peers -------------------------------------------------------------------------------------

function choose(n) {
  overlay.choose(n);
  $("peer").value = n === null ? "" : String(n);
  if (n !== null) { openTab("peer"); showPeer(); }
}

function showRows() {
  const figure = figures.find((each) => each.n === overlay.chosen);
  $("no-peer").hidden = overlay.chosen !== null;
  $("peer-name").textContent = overlay.chosen === null ? "" : names[overlay.chosen];
  const rows = figure ? [
    ["state", figure.isolated ? "knows no other peer" : "joined"],
    ["knows", `${figure.view.length} peers`],
    ["connections", whole.format(figure.connections)],
    ["notifications", whole.format(figure.delivered)],
    ["messages sent", whole.format(figure.frames)],
    ["bytes sent", sized(figure.bytes)],
    ["dropped", whole.format(figure.dropped)],
    ...Object.entries(figure.links).map(([topic, links]) => [topic, `${links.length} links`]),
  ] : [["state", "seen by others; it cannot be asked from here"]];
  $("peer-rows").replaceChildren(...rows.map(([name, value]) =>
    element("tr", "", element("th", name), element("td", value))));
}

async function showPeer() {
  showRows();
  $("peer-all").textContent = "";
  const asked = names[overlay.chosen];
  const answer = await fetch(`/api/peers/${encodeURIComponent(asked)}`);
  if (answer.ok && names[overlay.chosen] === asked) {
    $("peer-all").textContent = JSON.stringify(await answer.json(), null, 2);
  }
}

// --- topics ------------------------------------------------------------------------------------

async function showTree() {
  const answer = await fetch("/api/topics");
  if (!answer.ok) return;
  const topics = await answer.json();
  const root = new Map();
  for (const [topic, counts] of Object.entries(topics)) {
    let level = root, path = "";
    for (const segment of topic.split("/").slice(1)) {
      path += `/${segment}`;
      if (!level.has(segment)) level.set(segment, { path, below: new Map() });
      const entry = level.get(segment);
      if (path === topic) entry.counts = counts;
      level = entry.below;
    }
  }
  const text = JSON.stringify(topics);
  if ($("tree").dataset.shown === text) return;
  $("tree").dataset.shown = text;
  const focused = document.activeElement?.dataset?.topic;
  $("tree").replaceChildren(...branches(root));
  if (focused) [...$("tree").querySelectorAll("button")].find((each) => each.dataset.topic === focused)?.focus();
}

function branches(level) {
  return [...level].map(([segment, { path, counts, below }]) => {
    const button = element("button", `/${segment}`);
    button.type = "button";
    button.dataset.topic = path;
    button.setAttribute("aria-current", String(path === overlay.topic));
    button.onclick = () => openTopic(path);
    const said = counts ? ` ${counts.members} subscribed, ${counts.stored} stored` : "";
    const item = element("li", "", button, element("small", said));
    if (below.size) item.append(element("ul", "", ...branches(below)));
    return item;
  });
}

function openTopic(topic) {
  overlay.select(topic);
  showLegend();
  for (const each of $("tree").querySelectorAll("button")) {
    each.setAttribute("aria-current", String(each.dataset.topic === topic));
  }
  showChosen();
  stream?.close();
  $("open-topic").hidden = !topic;
  $("events").replaceChildren();
  $("receipt").textContent = "";
  if (!topic) return;
  $("topic-name").textContent = topic;
  follow(topic);
}

// The payload as text: control characters are replaced, and a long text is cut.
function shownPayload(event) {
  const text = event.payload ?? event.payload_base64;
  const seen = text.slice(0, PAYLOAD_SHOWN).replace(/[^\P{Cc}\t\n]/gu, "\u{fffd}");
  const notes = [];
  if (event.payload === undefined) notes.push("base64");
  if (text.length > PAYLOAD_SHOWN) notes.push(`${whole.format(text.length)} characters`);
  return `${seen}${text.length > PAYLOAD_SHOWN ? " …" : ""}${notes.length ? ` (${notes.join(", ")})` : ""}`;
}

async function follow(topic) {
  const shown = new Set();
  const add = (event) => {
    const key = event.cid ?? event.event_id;
    if (overlay.topic !== topic || shown.has(key)) return;
    shown.add(key);
    const payload = shownPayload(event);
    const when = new Date(event.published_at * 1000).toLocaleTimeString();
    const inside = event.published_in !== topic ? ` in ${event.published_in}` : "";
    $("events").prepend(element("li", payload, element("time", `${when}, from ${short(event.publisher)}${inside}`)));
    while ($("events").children.length > EVENTS_SHOWN) $("events").lastChild.remove();
  };
  // First the stream, then the past: so no event is missed, and `shown` drops those in both.
  stream = new EventSource(`/api/events?topic=${encodeURIComponent(topic)}`);
  // The browser connects again by itself, except if its place in the stream is unknown, as after a
  // restart of a peer that keeps events in memory. Then the topic is opened anew.
  const mine = stream;
  stream.onerror = () => {
    if (mine.readyState !== EventSource.CLOSED) return;
    setTimeout(() => { if (stream === mine) openTopic(topic); }, 1000);
  };
  const waiting = [];
  let past = false;
  stream.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (past) add(event); else waiting.push(event);
  };
  const answer = await fetch(`/api/history?topic=${encodeURIComponent(topic)}&limit=50`);
  if (answer.ok) (await answer.json()).events.forEach(add);
  waiting.forEach(add);
  past = true;
}

$("go").onsubmit = (event) => {
  event.preventDefault();
  const typed = $("topic").value.trim();
  if (typed) openTopic(typed.startsWith("/") ? typed : `/${typed}`);
};

$("publish").onsubmit = async (event) => {
  event.preventDefault();
  const payload = $("payload").value;
  // Clear the field at once: an answer may take seconds, and the user may type the next event.
  $("payload").value = "";
  $("receipt").textContent = "sending …";
  const said = await publish(overlay.topic, payload);
  $("receipt").textContent = said.text;
  if (!said.ok && !$("payload").value) $("payload").value = payload;
};

async function publish(topic, payload) {
  try {
    const answer = await fetch(`/api/publish?topic=${encodeURIComponent(topic)}`, {
      method: "POST",
      headers: { Authorization: `Bearer ${token}` },
      body: payload,
    });
    const said = await answer.json();
    return { ok: answer.ok, text: said.error ?? `${said.outcome}${said.reason ? `: ${said.reason}` : ""}` };
  } catch {
    return { ok: false, text: "not sent: weft does not answer" };
  }
}
$("publish").hidden = !token;
$("read-only").hidden = Boolean(token);

// --- the laboratory ----------------------------------------------------------------------------

async function showLab() {
  const answer = await fetch("/api/lab");
  if (!answer.ok) return;
  const verdicts = await answer.json();
  $("no-lab").hidden = verdicts.length > 0;
  $("verdicts").replaceChildren(...verdicts.map((verdict) => {
    const mark = element("b", verdict.passed ? "holds" : "falls short");
    mark.className = verdict.passed ? "good" : "bad";
    const rows = Object.entries(verdict.tolerance ?? {}).map(([name, asked]) =>
      element("tr", "", element("th", name), element("td", number(verdict.measured?.[name]?.value)),
        element("td", `${asked.relation} ${number(asked.bound)}`)));
    if (rows.length) rows.unshift(element("tr", "", element("th"), element("th", "measured"), element("th", "asked")));
    const entry = element("details", "", element("summary", "", mark, ` ${verdict.id}: ${verdict.title}`),
      element("p", verdict.claim), element("table", "", ...rows));
    entry.open = verdicts.length === 1;
    entry.className = "verdict";
    if (verdict.figure) {
      const picture = element("img");
      picture.src = `/api/lab/${encodeURIComponent(verdict.id)}/figure.svg`;
      picture.alt = `figure of ${verdict.id}`;
      picture.loading = "lazy";
      entry.append(picture);
    }
    return entry;
  }));
}

const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const number = (value) => typeof value === "number" ? precise.format(value) : "–";

// --- tabs and lists ----------------------------------------------------------------------------

const tabs = ["topics", "peer", "lab"];

function openTab(name, focus = false) {
  for (const each of tabs) {
    const tab = $(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    $(`panel-${each}`).hidden = each !== name;
  }
  if (focus) $(`tab-${name}`).focus();
  if (name === "lab") showLab();
}

for (const name of tabs) {
  $(`tab-${name}`).onclick = () => openTab(name);
  $(`tab-${name}`).onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) openTab(tabs[(tabs.indexOf(name) + step + tabs.length) % tabs.length], true);
  };
}
$("overlay").onchange = () => openTopic($("overlay").value);
$("peer").onchange = () => choose($("peer").value === "" ? null : Number($("peer").value));

connect();
showTree();
setInterval(showTree, 2000);
