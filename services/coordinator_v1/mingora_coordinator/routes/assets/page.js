"use strict";
// The live page: asks for the figures every half minute while somebody can see them, and draws them.
// Every text that comes from outside, nicknames above all, is set as text and never as markup.

const REFRESH_MS = 30000;
const PATIENCE_MS = 20000;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 360, HEIGHT = 150, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 20;
// From this ratio of the largest to the smallest on, a linear axis would hide all but the largest.
const LOG_RATIO = 50;

const language = document.documentElement.lang;
const texts = JSON.parse(document.body.dataset.texts);
const number = new Intl.NumberFormat(language, { maximumSignificantDigits: 4 });
const whole = new Intl.NumberFormat(language);
const clock = new Intl.DateTimeFormat(language, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(language, { dateStyle: "short", timeStyle: "short" });
const unit = (name, digits) =>
  new Intl.NumberFormat(language, { style: "unit", unit: name, maximumFractionDigits: digits });
const UNITS = {
  exact: unit("second", 3), second: unit("second", 0), minute: unit("minute", 0), hour: unit("hour", 1), day: unit("day", 1),
  bytes: ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"].map((name) => unit(name, 1)),
};

const byId = (id) => document.getElementById(id);

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

function duration(seconds) {
  if (seconds < 100) return UNITS.second.format(seconds);
  if (seconds < 6000) return UNITS.minute.format(seconds / 60);
  return seconds < 172800 ? UNITS.hour.format(seconds / 3600) : UNITS.day.format(seconds / 86400);
}

function bytes(count) {
  const step = Math.min(UNITS.bytes.length - 1, count < 1000 ? 0 : Math.floor(Math.log10(count) / 3));
  return UNITS.bytes[step].format(count / 1000 ** step);
}

function element(name, content, ...classes) {
  const made = document.createElement(name);
  made.append(content);
  made.classList.add(...classes);
  return made;
}

function svg(name, attributes, content) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (content !== undefined) made.append(content);
  return made;
}

// A nickname within a tooltip, where no element can isolate it.
function isolated(name) {
  return `\u2068${name.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "")}\u2069`;
}

function row(...cells) {
  const made = document.createElement("tr");
  for (const cell of cells) made.append(element("td", cell));
  return made;
}

// ---- charts ---------------------------------------------------------------------------------------------------------

function scaleOf(values, fromZero) {
  const positive = values.every((value) => value > 0);
  const log = !fromZero && positive && Math.max(...values) > LOG_RATIO * Math.min(...values);
  const turn = log ? Math.log10 : (value) => value;
  let low = turn(fromZero ? 0 : Math.min(...values)), high = turn(Math.max(...values));
  if (low === high) { high += Math.abs(high) * 0.05 || 1; low -= fromZero ? 0 : Math.abs(low) * 0.05 || 1; }
  return {
    log,
    place: (value) => HEIGHT - BOTTOM - ((turn(value) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM),
    ticks: [low, (low + high) / 2, high].map((value) => (log ? 10 ** value : value)),
  };
}

function frame(title, rounds, values, fromZero) {
  const scale = scaleOf(values, fromZero);
  const first = rounds[0].tur, last = rounds.at(-1).tur;
  const column = (WIDTH - LEFT - RIGHT) / rounds.length;
  const told = fill(texts.range, {
    title, first, last, least: number.format(Math.min(...values)), most: number.format(Math.max(...values)),
  });
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": told });
  for (const value of scale.ticks) {
    const y = scale.place(value);
    drawing.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y, class: "grid" }));
    drawing.append(svg("text", { x: LEFT - 5, y: y + 3, "text-anchor": "end" }, number.format(Number(value.toPrecision(3)))));
  }
  const center = (index) => LEFT + column * (index + 0.5);
  for (const index of new Set([0, rounds.length - 1])) {
    drawing.append(svg("text", { x: center(index), y: HEIGHT - 6, "text-anchor": "middle" }, whole.format(rounds[index].tur)));
  }
  const figure = element("figure", element("h3", scale.log ? `${title} (${texts.logarithmic})` : title));
  figure.append(drawing);
  return { figure, drawing, scale, center, column };
}

// A mark for each result: a dot, or a cross for an outlier, so that colour isn't all that tells them apart.
function marks(title, rounds, field) {
  const shown = rounds.filter((round) => round.sonuclar.some((result) => result[field] !== null));
  if (!shown.length) return [];
  const values = shown.flatMap((round) => round.sonuclar.map((result) => result[field]).filter((value) => value !== null));
  const { figure, drawing, scale, center } = frame(title, shown, values, false);
  shown.forEach((round, index) => {
    for (const result of round.sonuclar) {
      if (result[field] === null) continue;
      const x = center(index), y = scale.place(result[field]);
      const mark = result.alindi
        ? svg("circle", { cx: x, cy: y, r: 3, class: "used" })
        : svg("path", { d: `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`, class: "outlier" });
      const kind = result.alindi ? texts.used : texts.outlier;
      mark.append(svg("title", {}, `${texts.round} ${round.tur}, ${isolated(result.isci)}: ${number.format(result[field])} (${kind})`));
      drawing.append(mark);
    }
  });
  return [figure];
}

// A bar for each round; parts is a list of [class, value of a round], which are stacked.
function bars(title, rounds, parts) {
  const totals = rounds.map((round) => parts.reduce((sum, [, of]) => sum + of(round), 0));
  const { figure, drawing, scale, center, column } = frame(title, rounds, totals, true);
  const width = Math.min(28, column * 0.7);
  rounds.forEach((round, index) => {
    let below = 0;
    for (const [kind, of] of parts) {
      const top = scale.place(below + of(round));
      const bar = svg("rect", { x: center(index) - width / 2, y: top, width, height: scale.place(below) - top, class: kind });
      bar.append(svg("title", {}, `${texts.round} ${round.tur}: ${number.format(of(round))}`));
      drawing.append(bar);
      below += of(round);
    }
  });
  return [figure];
}

// ---- the page's parts -----------------------------------------------------------------------------------------------

function showFigures(state) {
  byId("digest").textContent = `${texts.digest}: ${state.ozet.slice(0, 16)}`;
  const round = fill(texts.of, { n: whole.format(state.tur), all: whole.format(state.toplam_tur) });
  const now = state.bitti
    ? [[texts.round, `${round} · ${texts.finished}`]]
    : [
        [texts.round, round],
        [texts.results, fill(texts.of, { n: whole.format(state.bekleyen_sonuc), all: whole.format(state.en_az) })],
        [texts.opened, duration(Math.max(0, (Date.now() - state.acilis_ms) / 1000))],
      ];
  const figures = [
    ...now,
    [texts.workers, whole.format(state.isci_sayisi)],
    [texts.sent, bytes(state.trafik.indirilen_bayt)],
    [texts.received, bytes(state.trafik.yuklenen_bayt)],
  ];
  byId("figures").replaceChildren(...figures.map(([term, value]) => {
    const pair = element("div", element("dt", term));
    pair.append(element("dd", value));
    return pair;
  }));
}

function showWorkers(state) {
  byId("no-workers").hidden = state.isci_sayisi > 0;
  byId("workers").hidden = state.isci_sayisi === 0;
  byId("workers").tBodies[0].replaceChildren(...state.isciler.map((worker) => row(
    element("bdi", worker.isci),
    worker.saniye === null ? texts.unknown : duration(worker.saniye),
    worker.sonuc ? texts.in : state.bitti ? "–" : texts.awaited,
  )));
  const more = state.isci_sayisi - state.isciler.length;
  byId("more").textContent = more > 0 ? fill(texts.more, { n: whole.format(more) }) : "";
}

function showHistory(rounds) {
  byId("no-history").hidden = rounds.length > 0;
  byId("history").hidden = rounds.length === 0;
  if (!rounds.length) return;
  byId("charts").replaceChildren(
    ...marks(texts.distances, rounds, "uzaklik"),
    ...marks(texts.cosines, rounds, "kosinus"),
    ...bars(texts.seconds, rounds, [["used", (round) => round.sure_sn]]),
    ...bars(texts.counts, rounds, [["used", (round) => round.alinan], ["bar-outlier", (round) => round.elenen]]),
  );
  byId("rounds").tBodies[0].replaceChildren(...[...rounds].reverse().map((round) => row(
    whole.format(round.tur),
    day.format(round.kapanis_ms) + (round.zaman_asimi ? ` (${texts.byTime})` : ""),
    whole.format(round.alinan),
    whole.format(round.elenen),
    number.format(round.uzaklik_ortanca),
    round.kosinus_en_az === null ? "–" : number.format(round.kosinus_en_az),
    UNITS.exact.format(round.sure_sn),
  )));
}

// ---- refreshing -----------------------------------------------------------------------------------------------------

let timer, busy = false;

// Told once, not at every try: a screen reader says it each time that it changes.
function showFailure(text) {
  if (byId("failed").textContent !== text) byId("failed").textContent = text;
}

async function refresh() {
  clearTimeout(timer);
  if (busy || document.visibilityState === "hidden") return;
  busy = true;
  try {
    const response = await fetch("sayfa/durum.json", { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    const state = await response.json();
    showFigures(state);
    showWorkers(state);
    showHistory(state.gecmis);
    document.querySelector("main").hidden = false;
    byId("refreshed").textContent = fill(texts.refreshed, { time: clock.format(new Date()) });
    showFailure("");
  } catch (error) {
    showFailure(fill(texts.failed, { reason: error.message }));
  }
  busy = false;
  timer = setTimeout(refresh, REFRESH_MS);
}

document.addEventListener("visibilitychange", refresh);
refresh();
