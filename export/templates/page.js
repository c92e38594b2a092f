// What the learner sees: the texts of the page in two languages, and what each control does.
"use strict";
const WORDS = {
  en: {
    title: "Inside a translator", language: "中文", source: "Source", translate: "Translate", examples: "Examples …",
    facts: (c, n, v) => `${c.num_encoder_layers} encoder layers, ${c.num_decoder_layers} decoder layers, ` +
      `${c.num_heads} heads, width ${c.d_model}, ${v} target pieces, ${n} weights. The model runs inside this page; nothing is sent.`,
    translation: "Translation", original: "Original", changed: "Changed", undo: "Undo all changes",
    aboutTranslation: "The most probable token at each step. Select a token to see what else could stand there.",
    none: "No change yet. Switch off a head or the causal mask, or force a token.",
    off: "Heads switched off", noMask: "Causal mask off", forced: "Forced beginning",
    next: (n, which) => `Next token: position ${n} of the ${which === "changed" ? "changed" : "original"} translation`,
    aboutNext: "The ten most probable tokens. Select one to force it: the translation goes on from there.",
    anyPiece: "Any other piece", force: "Force it", noPiece: piece => `There is no piece “${piece}”.`,
    attention: "Attention", aboutAttention: "One map for each head: the darker a cell, the more its row attends " +
      "to its column. Touch a cell to read it. Click a head to switch it off.",
    encoder: "Encoder self-attention", decoder: "Decoder self-attention", cross: "Cross-attention",
    causal: "Causal mask: a position of the decoder does not see later ones",
    of: {original: "Maps of the original translation.", changed: "Maps of the changed translation."},
    axes: {encoder: "Rows and columns: the source.", decoder: "Rows: the token written next. Columns: the tokens read so far.",
      cross: "Rows: the token written next. Columns: the source."},
    head: (layer, head, on) => `Layer ${layer}, head ${head}: ${on ? "on" : "off"}`,
    beam: "Beam search", width: "Width", step: "Next step", end: "To the end", restart: "Restart",
    aboutBeam: "Each step extends every open hypothesis by each token and keeps the best. The score is the " +
      "log-probability divided by the length penalty. Heads and mask count; a forced beginning does not.",
    columns: ["from", "hypothesis", "log P", "score"], stepTitle: n => `Step ${n}`, found: "Found",
    working: "translating …", cut: "The text was cut: it is too long for the model.", empty: "Write a text first.",
  },
  zh: {
    title: "看看翻译模型的内部", language: "English", source: "原文", translate: "翻译", examples: "例句……",
    facts: (c, n, v) => `编码器 ${c.num_encoder_layers} 层，解码器 ${c.num_decoder_layers} 层，${c.num_heads} 个头，` +
      `宽度 ${c.d_model}，目标词表 ${v} 个词元，${n} 个参数。模型就在这个页面里运行，不发送任何数据。`,
    translation: "译文", original: "原译文", changed: "改动后", undo: "撤销全部改动",
    aboutTranslation: "每一步取概率最大的词元。选一个词元，看看那里还可能是什么。",
    none: "还没有改动。可以关掉一个头或因果掩码，或者强制一个词元。",
    off: "关掉的头", noMask: "因果掩码已关", forced: "强制的开头",
    next: (n, which) => `下一个词元：${which === "changed" ? "改动后译文" : "原译文"}的第 ${n} 个位置`,
    aboutNext: "概率最大的十个词元。选一个就强制用它：译文从那里继续。",
    anyPiece: "其他任意词元", force: "强制", noPiece: piece => `词表里没有“${piece}”。`,
    attention: "注意力", aboutAttention: "每个头一张图：格子颜色越深，这一行对这一列的注意力越大。点击格子可读数值；点击某个头的名称可将它关闭。",
    encoder: "编码器自注意力", decoder: "解码器自注意力", cross: "交叉注意力",
    causal: "因果掩码：解码器的一个位置看不到后面的位置",
    of: {original: "这里是原译文的图。", changed: "这里是改动后译文的图。"},
    axes: {encoder: "行和列：原文。", decoder: "行：接下来写的词元。列：已经读到的词元。", cross: "行：接下来写的词元。列：原文。"},
    head: (layer, head, on) => `第 ${layer} 层第 ${head} 个头：${on ? "开" : "关"}`,
    beam: "束搜索", width: "宽度", step: "下一步", end: "走到底", restart: "重新开始",
    aboutBeam: "每一步用每个词元延长每个未结束的假设，留下最好的几个。分数是对数概率除以长度惩罚。头和掩码的开关有效，强制的开头无效。",
    columns: ["来自", "假设", "log P", "分数"], stepTitle: n => `第 ${n} 步`, found: "结果",
    working: "正在翻译……", cut: "文本太长，模型只读了前面一部分。", empty: "请先输入文本。",
  },
};
const $ = id => document.getElementById(id);
// An element: make("p", {class: "x", onclick: f}, "text", other, ...)
function make(tag, properties = {}, ...inside) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    name.startsWith("on") ? found.addEventListener(name.slice(2), value) : found.setAttribute(name, value);
  found.append(...inside);
  return found;
}
const pause = () => new Promise(done => setTimeout(done, 20));
const percent = value =>
  value > 0 && value < 0.0005 ? "< 0.1 %" : `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;

let page = null;  // {model, source, target, search, examples}
let words = WORDS.en;
const state = {
  ids: [], off: new Set(), causal: true, forced: [], original: null, changed: null,
  chosen: {which: "original", position: 0}, kind: "cross", beam: null, steps: [], task: 0,
};
const PLAIN = {off: new Set(), causal: true};
const switches = () => ({off: state.off, causal: state.causal});
const isChanged = () => state.off.size > 0 || !state.causal || state.forced.length > 0;
const target = id => page.target.pieces[id];
const sources = () => state.ids.map(id => page.source.pieces[id]);

// ---- Translating ----

async function start() {
  const {ids, cut} = page.source.encode($("text").value, page.search.max_source_length);
  if (ids.length < 2) return say(words.empty);
  Object.assign(state, {ids, forced: [], original: null, changed: null, cut});
  state.chosen = {which: "original", position: 0};
  const task = ++state.task;
  restartBeam();
  $("pieces").replaceChildren(...sources().map(piece => make("span", {class: "piece"}, piece)));
  state.original = await translated(task, PLAIN, [], "original");
  if (task === state.task) await update();
}
// After a change of the switches or the forced beginning.
async function update() {
  const task = ++state.task;
  restartBeam();
  state.changed = null;
  if (isChanged()) state.changed = await translated(task, switches(), state.forced, "changed");
  if (task !== state.task) return;
  if (!isChanged()) state.chosen.which = "original";
  show();
}
// A translation that appears token by token; null if another one has begun meanwhile.
async function translated(task, how, given, which) {
  say(words.working);
  const source = page.model.encode(state.ids, how);
  let found = null;
  for (found of greedy(page.model, source, how, page.search.max_target_length, given)) {
    showTranslation(which, found);
    await pause();
    if (task !== state.task) return null;
  }
  say(state.cut ? words.cut : "");
  return found;
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
  if (state.off.size) changes.push(`${words.off}: ${[...state.off].map(headName).join(", ")}`);
  if (!state.causal) changes.push(words.noMask);
  if (state.forced.length) changes.push(`${words.forced}: ${state.forced.map(target).join(" ")}`);
  $("changes").textContent = changes.join(". ") || words.none;
  $("undo").hidden = !changes.length;
  $("causal").checked = state.causal;
  showLikely();
  showHeads();
}
function headName(name) {
  const [kind, layer, head] = name.split(".");
  return `${words[kind]} ${+layer + 1}.${+head + 1}`;
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
  $("nextTitle").textContent = words.next(position + 1, which);
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
  $("axes").textContent = `${words.axes[state.kind]} ${words.of[state.changed ? "changed" : "original"]}`;
  $("cell").textContent = "";
  const run = state.changed ?? state.original;
  const layers = run?.attention ? run.attention[state.kind] : [];
  const written = (run?.ids ?? []).map(target), read = [target(BOS), ...written.slice(0, -1)];
  const [rows, columns] = {
    encoder: [sources(), sources()], decoder: [written, read], cross: [written, sources()],
  }[state.kind];
  $("heads").replaceChildren(...layers.flatMap((heads, layer) => heads.map((weights, head) => {
    const name = `${state.kind}.${layer}.${head}`, on = !state.off.has(name);
    const title = words.head(layer + 1, head + 1, on);
    const toggle = () => { on ? state.off.add(name) : state.off.delete(name); update(); };
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
  const left = longest(rows), top = longest(columns), scale = devicePixelRatio || 1;
  const width = left + CELL * columns.length + 1, height = top + CELL * rows.length + 1;
  Object.assign(canvas, {width: width * scale, height: height * scale});
  Object.assign(canvas.style, {width: `${width}px`, height: `${height}px`});
  pen.scale(scale, scale);
  Object.assign(pen, {font: FONT, fillStyle: ink, textBaseline: "middle", textAlign: "right"});
  rows.forEach((label, t) => pen.fillText(label, left - 4, top + CELL * (t + 0.5), LONGEST_LABEL));
  columns.forEach((label, s) => {
    pen.save();
    pen.translate(left + CELL * (s + 0.5), top - 4);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = "left";
    pen.fillText(label, 0, 0, LONGEST_LABEL);
    pen.restore();
  });
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
  state.beam = null;
  state.steps = [];
  showBeam();
}
function stepBeam() {
  if (state.ids.length < 2) return;
  const how = {off: new Set(state.off), causal: state.causal};
  state.beam ??= new Beam(page.model, page.model.encode(state.ids, how), how, page.search, +$("width").value);
  if (state.beam.done) return;
  state.beam.step();
  state.steps.push(state.beam.hypotheses);
}
function showBeam() {
  const done = Boolean(state.beam?.done);
  $("step").disabled = $("end").disabled = done;
  $("beamSaid").textContent = done ? `${words.found}: ${page.target.decode(state.beam.hypotheses[0].ids)}` : "";
  const tables = state.steps.map((hypotheses, n) => make("section", {}, make("h3", {}, words.stepTitle(n + 1)), make("table", {},
    make("tr", {}, make("th", {}, "#"), ...words.columns.map(word => make("th", {}, word))),
    ...hypotheses.map((one, rank) => make("tr", rank === 0 ? {class: "best"} : {},
      make("td", {class: "number"}, `${rank + 1}`), make("td", {class: "number"}, n ? `${one.parent + 1}` : "–"),
      make("td", {dir: "auto"}, one.ids.map(target).join(" ")),
      ...[one.logProb, one.score].map(value => make("td", {class: "number"}, value.toFixed(3))))))));
  $("steps").replaceChildren(...tables.reverse());  // the newest first
}

// ---- The language, and what each control does ----

function speak(language) {
  words = WORDS[language];
  document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  document.title = words.title;
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = words[element.dataset.word];
  $("language").textContent = words.language;
  $("language").lang = language === "zh" ? "en" : "zh-Hans";
  $("examples").options[0].textContent = words.examples;
  $("examples").ariaLabel = words.examples;
  const count = Object.values(page.shapes).reduce((total, shape) => total + shape.reduce((a, b) => a * b, 1), 0);
  $("facts").textContent = words.facts(page.config, count.toLocaleString("en"), page.target.pieces.length);
  $("kinds").replaceChildren(...["encoder", "decoder", "cross"].map(kind => make("button", {
    type: "button", value: kind, onclick: () => { state.kind = kind; showHeads(); },
  }, words[kind])));
  show();
  showBeam();
}
function undo() {
  Object.assign(state, {forced: [], causal: true});
  state.off.clear();
  update();
}
async function begin() {
  page = await load(JSON.parse($("model").textContent));
  $("examples").append(make("option", {value: ""}), ...page.examples.map(text => make("option", {dir: "auto"}, text)));
  $("examples").hidden = !page.examples.length;
  $("vocabulary").append(...page.target.pieces.map(piece => make("option", {value: piece})));
  const listen = (id, name, act) => $(id).addEventListener(name, event => { event.preventDefault(); act(event); });
  listen("form", "submit", start);
  listen("examples", "change", () => { $("text").value = $("examples").value; $("examples").value = ""; start(); });
  listen("force", "submit", () => {
    const id = page.target.pieces.indexOf($("word").value);
    id === -1 || id === PAD || id === BOS ? say(words.noPiece($("word").value)) : forceAt(id);
  });
  $("causal").addEventListener("change", () => { state.causal = $("causal").checked; update(); });
  listen("undo", "click", undo);
  listen("language", "click", () => {
    location.hash = words === WORDS.en ? "zh" : "en";  // so that a link or a reload keeps it
    speak(location.hash.slice(1));
  });
  listen("width", "change", restartBeam);
  listen("restart", "click", restartBeam);
  listen("step", "click", () => { stepBeam(); showBeam(); });
  listen("end", "click", () => { do stepBeam(); while (state.beam && !state.beam.done); showBeam(); });
  const asked = location.hash.slice(1) in WORDS ? location.hash.slice(1) : navigator.language;
  speak(asked.startsWith("zh") ? "zh" : "en");
  $("text").value = page.examples[0] ?? "";
  if ($("text").value) await start();
}
const ready = begin();
