// What the learner sees, and what each control does.
"use strict";
const $ = id => document.getElementById(id);
// An element: make("p", {class: "x", onclick: f}, "text", other, ...)
function make(tag, properties = {}, ...inside) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    name.startsWith("on") ? found.addEventListener(name.slice(2), value) : found.setAttribute(name, value);
  found.append(...inside);
  return found;
}
const percent = value =>
  value > 0 && value < 0.0005 ? "< 0.1 %" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;

let page = null;  // {model, source, target, search, examples}
let language = "en";
const WORDS = JSON.parse($("words").textContent);
// A text of the page in the language: word("headOn", {layer: 1, head: 2})
const word = (name, values = {}) => WORDS[language][name].replace(/{(\w+)}/g, (_, key) => values[key]);
// The masks, on in the original translation.
const MASKS = {causal: true, padding: true};
const state = {
  ids: [], cut: false, off: new Set(), ...MASKS, tokens: 0, forced: [], original: null, changed: null,
  chosen: {which: "original", position: 0}, kind: "cross", beam: null, steps: [], task: 0, change: 0,
};
const PLAIN = {off: new Set(), ...MASKS};
const switches = () => ({off: new Set(state.off), causal: state.causal, padding: state.padding});
const masksOff = () => Object.keys(MASKS).filter(name => !state[name]);
// As many tokens of padding as chosen, if the source leaves room for them.
const padding = () => Math.min(state.tokens, page.search.max_source_length - state.ids.length);
const isChanged = () => state.off.size + masksOff().length + padding() + state.forced.length > 0;
const target = id => page.target.pieces[id];
const sources = ids => ids.map(id => page.source.pieces[id]);
// The source of the changed translation: with padding, as beside a longer text in a batch.
const changedIds = () => [...state.ids, ...Array(padding()).fill(PAD)];

// ---- Translating ----
async function start() {
  const {ids, cut} = page.source.encode($("text").value, page.search.max_source_length);
  if (ids.length < 2) return say(word("empty"));
  Object.assign(state, {ids, cut, forced: [], original: null, changed: null});
  state.chosen = {which: "original", position: 0};
  const task = ++state.task, isLatest = () => task === state.task;
  restartBeam();
  $("pieces").replaceChildren(...sources(ids).map(piece => make("span", {class: "piece"}, piece)));
  const found = await translated("original", ids, PLAIN, [], isLatest);
  if (!isLatest()) return;
  state.original = found;
  await update();
}
// After a change of the switches or of the forced beginning. `start` calls it at its end.
async function update() {
  if (!state.original) return;
  const {task} = state, change = ++state.change;
  const isLatest = () => task === state.task && change === state.change;
  restartBeam();
  const found = isChanged() ? await translated("changed", changedIds(), switches(), state.forced, isLatest) : null;
  if (!isLatest()) return;
  state.changed = found;
  if (!found) state.chosen.which = "original";
  show();
}
// A translation, which appears token by token, until it is no longer the latest.
async function translated(which, ids, how, given, isLatest) {
  say(word("working"));
  const source = page.model.encode(ids, how);
  let found = null;
  for (found of greedy(page.model, source, how, page.search.max_target_length, given)) {
    showTranslation(which, found);
    await new Promise(done => setTimeout(done, 20));
    if (!isLatest()) break;
  }
  return {...found, source: ids};
}
function forceAt(id) {
  const {which, position} = state.chosen, run = state[which];
  if (!run) return;
  state.forced = [...run.ids.slice(0, position), id];
  state.chosen = {which: "changed", position};
  update();
}

// ---- Showing ----
function say(text) { $("said").textContent = text; }
function show() {
  for (const which of ["original", "changed"]) showTranslation(which, state[which]);
  const changes = [];
  if (state.off.size) changes.push(word("off", {names: [...state.off].map(headName).join(", ")}));
  changes.push(...masksOff().map(name => word(`${name}Changed`)));
  if (padding()) changes.push(word("tokensChanged", {n: padding()}));
  if (state.forced.length) changes.push(word("forced", {pieces: state.forced.map(target).join(" ")}));
  $("changes").textContent = changes.join("") || word("none");
  $("undo").hidden = !changes.length && !state.tokens;
  for (const name of Object.keys(MASKS)) $(name).checked = state[name];
  $("tokens").value = state.tokens;
  say(state.cut ? word("cut") : "");
  showLikely();
  showHeads();
}
function headName(name) {
  const [kind, layer, head] = name.split(".");
  return `${word(kind)} ${+layer + 1}.${+head + 1}`;
}
function showTranslation(which, run) {
  $(`${which}Text`).textContent = run ? page.target.decode(run.ids) : "";
  const {chosen} = state;
  $(`${which}Pieces`).replaceChildren(...(run?.ids ?? []).map((id, position) => make("button", {
    class: which === "changed" && position < state.forced.length ? "piece forced" : "piece", type: "button",
    "aria-pressed": chosen.which === which && chosen.position === position,
    onclick: () => { state.chosen = {which, position}; show(); },
  }, target(id), make("small", {}, percent(Math.exp(run.logProbs[position][id]))))));
}
function showLikely() {
  const {which, position} = state.chosen, run = state[which];
  $("nextTitle").textContent = word(`${which}Next`, {n: position + 1});
  const logProbs = run?.logProbs[position];
  $("likely").replaceChildren(...(logProbs ? likeliest(logProbs, 10) : []).map(id => {
    const share = Math.exp(logProbs[id]), bar = make("span", {class: "bar"});
    bar.style.width = `${Math.max(100 * share, 0.5)}%`;
    const pressed = {"aria-pressed": run.ids[position] === id};
    const inside = [make("b", {dir: "auto"}, target(id)), make("span", {}, bar), make("i", {}, percent(share))];
    return make("li", {}, make("button", {type: "button", ...pressed, onclick: () => forceAt(id)}, ...inside));
  }));
}
function showHeads() {
  for (const button of $("kinds").children) button.setAttribute("aria-pressed", button.value === state.kind);
  $("axes").textContent = `${word(`${state.kind}Axes`)} ${word(state.changed ? "changedMaps" : "originalMaps")}`;
  $("cell").textContent = "";
  const run = state.changed ?? state.original;
  const layers = run?.attention ? run.attention[state.kind] : [];
  const written = (run?.ids ?? []).map(target), read = [target(BOS), ...written.slice(0, -1)];
  const source = sources(run?.source ?? []);
  const [rows, columns] = {
    encoder: [source, source], decoder: [written, read], cross: [written, source],
  }[state.kind];
  $("heads").replaceChildren(...layers.flatMap((heads, layer) => heads.map((weights, head) => {
    const name = `${state.kind}.${layer}.${head}`, on = !state.off.has(name);
    const title = word(on ? "headOn" : "headOff", {layer: layer + 1, head: head + 1});
    const toggle = event => {
      if (!state.off.delete(name)) state.off.add(name);
      event.currentTarget.ariaPressed = !state.off.has(name);  // at once, before the translation
      update();
    };
    const button = make("button", {type: "button", "aria-pressed": on, "data-head": name, onclick: toggle}, title);
    const map = make("canvas", {role: "img", "aria-label": title});
    drawMap(map, weights, rows, columns);
    return make("figure", {class: on ? "card head" : "card head off"}, button, map);
  })));
}

const CELL = 18, FONT = "12px system-ui, sans-serif", LONGEST_LABEL = 96;
// A heat map with the pieces on both axes.
function drawMap(canvas, weights, rows, columns) {
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const [ink, blue, line] = ["--ink", "--blue", "--line"].map(name => style.getPropertyValue(name));
  pen.font = FONT;
  const longest = labels =>
    Math.min(LONGEST_LABEL, Math.max(...labels.map(label => pen.measureText(label).width))) + 6;
  const left = longest(rows), top = longest(columns);
  const width = left + CELL * columns.length + 1, height = top + CELL * rows.length + 1;
  const scale = Math.min(devicePixelRatio, 4096 / Math.max(width, height));  // browsers limit a canvas
  Object.assign(canvas, {width: width * scale, height: height * scale});
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  pen.scale(scale, scale);
  Object.assign(pen, {font: FONT, fillStyle: ink, textBaseline: "middle", textAlign: "right"});
  rows.forEach((label, t) => pen.fillText(label, left - 4, top + CELL * (t + 0.5), LONGEST_LABEL));
  pen.textAlign = "left";
  pen.rotate(-Math.PI / 2);
  columns.forEach((label, s) => pen.fillText(label, 4 - top, left + CELL * (s + 0.5), LONGEST_LABEL));
  pen.rotate(Math.PI / 2);
  weights.forEach((row, t) => row.forEach((share, s) => {
    pen.fillStyle = `rgba(${blue}, ${share})`;
    pen.fillRect(left + CELL * s, top + CELL * t, CELL, CELL);
  }));
  Object.assign(pen, {strokeStyle: line, lineWidth: 1});
  pen.strokeRect(left + 0.5, top + 0.5, CELL * columns.length, CELL * rows.length);
  canvas.onpointermove = canvas.onpointerdown = event => {
    const t = Math.floor((event.offsetY - top) / CELL), s = Math.floor((event.offsetX - left) / CELL);
    if (weights[t]?.[s] === undefined) return;
    $("cell").textContent = `${canvas.ariaLabel}. ${rows[t]} → ${columns[s]}: ${percent(weights[t][s])}`;
  };
}

// ---- Beam search ----
function restartBeam() {
  Object.assign(state, {beam: null, steps: []});
  showBeam();
}
function stepBeam() {
  if (state.ids.length < 2) return;
  const how = switches();
  state.beam ??= new Beam(page.model, page.model.encode(changedIds(), how), how, page.search, +$("width").value);
  if (state.beam.done) return;
  state.beam.step();
  state.steps.push(state.beam.hypotheses);
}
function showBeam() {
  const done = Boolean(state.beam?.done);
  $("step").disabled = $("end").disabled = done;
  $("beamSaid").textContent = done ? word("found", {text: page.target.decode(state.beam.hypotheses[0].ids)}) : "";
  const tables = state.steps.map((hypotheses, n) => make("section", {}, make("h3", {}, word("stepTitle", {n: n + 1})), make("table", {},
    make("tr", {}, ...["#", word("from"), word("hypothesis"), "log P", word("score")].map(name => make("th", {}, name))),
    ...hypotheses.map((one, rank) => make("tr", rank === 0 ? {class: "best"} : {},
      make("td", {class: "number"}, `${rank + 1}`), make("td", {class: "number"}, n ? `${one.parent + 1}` : "–"),
      make("td", {dir: "auto"}, one.ids.map(target).join(" ")),
      ...[one.logProb, one.score].map(value => make("td", {class: "number"}, value.toFixed(3))))))));
  $("steps").replaceChildren(...tables.reverse());  // the newest first
}

// ---- The language, and what each control does ----
function speak(asked) {
  language = asked;
  const codes = {en: "en", zh: "zh-Hans"};
  document.documentElement.lang = codes[language];
  document.title = word("title");
  for (const one of document.querySelectorAll("[data-word]")) one.textContent = word(one.dataset.word);
  $("language").textContent = word("language");
  $("language").lang = codes[language === "en" ? "zh" : "en"];
  $("examples").options[0].textContent = $("examples").ariaLabel = word("examples");
  const {config} = page, weights = Object.values(page.model.weights).map(one => one.length);
  $("facts").textContent = word("facts", {
    encoder: config.num_encoder_layers, decoder: config.num_decoder_layers, heads: config.num_heads,
    width: config.d_model, pieces: page.target.pieces.length, weights: sum(weights).toLocaleString("en"),
  });
  $("kinds").replaceChildren(...["encoder", "decoder", "cross"].map(kind => make("button", {
    type: "button", value: kind, onclick: () => { state.kind = kind; showHeads(); },
  }, word(kind))));
  show();
  showBeam();
}
async function begin() {
  page = await load(JSON.parse($("model").textContent));
  $("examples").append(make("option", {value: ""}), ...page.examples.map(text => make("option", {dir: "auto"}, text)));
  $("examples").hidden = !page.examples.length;
  $("width").value = Math.min(page.search.beam_width, 5);
  $("vocabulary").append(...page.target.pieces.map(piece => make("option", {value: piece})));
  const listen = (id, name, act) => $(id).addEventListener(name, event => { event.preventDefault(); act(event); });
  listen("form", "submit", start);
  listen("examples", "change", () => { $("text").value = $("examples").value; $("examples").value = ""; start(); });
  listen("force", "submit", () => {
    const id = page.target.pieces.indexOf($("word").value);
    id === -1 || id === PAD || id === BOS ? say(word("noPiece", {piece: $("word").value})) : forceAt(id);
  });
  for (const name of Object.keys(MASKS))
    listen(name, "change", () => { state[name] = $(name).checked; update(); });
  listen("tokens", "change", () => { state.tokens = +$("tokens").value; update(); });
  listen("undo", "click", () => {
    Object.assign(state, {forced: [], ...MASKS, tokens: 0, off: new Set()});
    update();
  });
  listen("language", "click", () => {
    location.hash = language === "en" ? "zh" : "en";  // so that a link or a reload keeps it
    speak(location.hash.slice(1));
  });
  listen("width", "change", restartBeam);
  listen("restart", "click", restartBeam);
  listen("step", "click", () => { stepBeam(); showBeam(); });
  listen("end", "click", () => { do stepBeam(); while (state.beam && !state.beam.done); showBeam(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showHeads);
  const asked = location.hash.slice(1) in WORDS ? location.hash.slice(1) : navigator.language;
  speak(asked.startsWith("zh") ? "zh" : "en");
  $("text").value = page.examples[0] ?? "";
  if ($("text").value) await start();
}
const ready = begin();
