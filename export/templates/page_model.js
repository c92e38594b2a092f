// The model of a run: text to pieces, the forward pass, and the search. It needs no library.
"use strict";
const PAD = 0, UNK = 1, BOS = 2, EOS = 3, SPACE = "▁";

const bytesOf = base64 => Uint8Array.from(atob(base64), character => character.charCodeAt(0));
async function unpacked(base64) {
  const stream = new Blob([bytesOf(base64)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// ---- Text to pieces and back, as SentencePiece does it ----
// The rules that normalise text: a trie of UTF-8 texts (a double array), then their replacements.
class Normalizer {
  constructor(bytes, options) {
    const view = new DataView(bytes.buffer);
    const length = bytes.length ? view.getUint32(0, true) / 4 : 0;  // there may be no rules
    this.units = Uint32Array.from({length}, (_, n) => view.getUint32(4 + 4 * n, true));
    this.texts = bytes.subarray(4 + 4 * length);
    this.options = options;
  }
  static offset(unit) { return (unit >>> 10) << ((unit & 512) >>> 6); }
  // What stands for the beginning of the text from `at` on: [its bytes, how many bytes it stands for].
  prefix(text, at) {
    let found = null, place = Normalizer.offset(this.units[0]);
    for (let n = at; n < text.length; n++) {
      place ^= text[n];
      const unit = this.units[place];
      if ((unit & 0x800000ff) >>> 0 !== text[n]) break;
      place ^= Normalizer.offset(unit);
      if (unit >>> 8 & 1) found = [this.units[place] & 0x7fffffff, n + 1 - at];
    }
    if (found) return [this.texts.subarray(found[0], this.texts.indexOf(0, found[0])), found[1]];
    const first = text[at], size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return [text.subarray(at, at + size), size];
  }
  // The text with "▁" for each space; with "▁" before it, unless it is blank.
  run(text) {
    const {prefix, merge, escape} = this.options, bytes = new TextEncoder().encode(text);
    const decoder = new TextDecoder("utf-8", {ignoreBOM: true});
    let found = "", afterSpace = merge;
    for (let at = 0; at < bytes.length;) {
      const [begins, size] = this.prefix(bytes, at);
      const part = decoder.decode(begins).replace(afterSpace ? /^ +/ : "", "");
      if (part) { found += part; afterSpace = merge && part.endsWith(" "); }
      at += size;
    }
    if (merge) found = found.replace(/ +$/, "");
    if (found && prefix) found = ` ${found}`;
    return escape ? found.replaceAll(" ", SPACE) : found;
  }
}

class Tokenizer {
  // side: {kind, pieces, scores, types, byteFallback} of a SentencePiece model.
  constructor(side, normalizer) {
    Object.assign(this, side, {normalizer, ids: new Map(), bytes: new Map()});
    side.pieces.forEach((piece, id) => {
      if (side.types[id] === 1) this.ids.set(piece, id);
      if (side.types[id] === 6) this.bytes.set(parseInt(piece.slice(1, -1)), id);
    });
    this.longest = Math.max(...[...this.ids.keys()].map(piece => [...piece].length));
    const scores = [...this.ids.values()].map(id => side.scores[id]);
    this.unknownScore = Math.fround(Math.min(...scores) - 10);
  }
  // The ids of a text, of at most `length` with eos at the end, and whether the text was cut.
  encode(text, length) {
    const clean = [...text.replace(/\p{Cc}+/gu, " ")], kept = clean.slice(0, length * 16);
    const symbols = [...this.normalizer.run(kept.join(""))];
    const split = this.kind === "unigram" ? this.unigram(symbols)
      : this.kind === "bpe" ? this.bytePairs(symbols) : symbols;
    const ids = [];
    for (const piece of split) {
      const id = this.ids.get(piece);
      if (id !== undefined) ids.push(id);
      else if (this.byteFallback)
        for (const byte of new TextEncoder().encode(piece)) ids.push(this.bytes.get(byte));
      else if (ids.at(-1) !== UNK) ids.push(UNK);
    }
    const cut = ids.length > length - 1 || kept.length < clean.length;
    return {ids: [...ids.slice(0, length - 1), EOS], cut};
  }
  // The most probable pieces (Viterbi). best[n] is the best split of the first n characters.
  unigram(symbols) {
    const best = [{score: 0}], found = [];
    const extend = (start, end, piece, gain) => {
      const score = Math.fround(best[start].score + gain);  // SentencePiece adds in float32
      if (!best[end] || score > best[end].score) best[end] = {score, start, piece};
    };
    symbols.forEach((symbol, start) => {
      for (let end = start + 1; end <= Math.min(symbols.length, start + this.longest); end++) {
        const piece = symbols.slice(start, end).join(""), id = this.ids.get(piece);
        if (id !== undefined) extend(start, end, piece, this.scores[id]);
      }
      if (!this.ids.has(symbol)) extend(start, start + 1, symbol, this.unknownScore);
    });
    for (let at = symbols.length; at > 0; at = best[at].start) found.unshift(best[at].piece);
    return found;
  }
  // Merges the neighbours whose piece has the highest score, the first of equals, until none is left.
  bytePairs(symbols) {
    const found = [...symbols];
    for (;;) {
      let at = -1, highest = -Infinity;
      for (let n = 0; n + 1 < found.length; n++) {
        const id = this.ids.get(found[n] + found[n + 1]);
        if (id !== undefined && this.scores[id] > highest) { highest = this.scores[id]; at = n; }
      }
      if (at < 0) return found;
      found.splice(at, 2, found[at] + found[at + 1]);
    }
  }
  decode(ids) {
    const {prefix, merge} = this.normalizer.options;
    let text = "", bytes = [];
    const flush = () => { text += Tokenizer.characters(bytes); bytes = []; };
    for (const id of ids.filter(id => id > EOS)) {
      if (this.types[id] === 6) { bytes.push(parseInt(this.pieces[id].slice(1, -1))); continue; }
      flush();
      if (this.types[id] !== 1) continue;
      const begins = !text && (prefix || merge), piece = this.pieces[id];
      text += (begins ? piece.replace(/^▁/, "") : piece).replaceAll(SPACE, " ");
    }
    flush();
    return text;
  }
  // The text of bytes; each byte that is in no character becomes U+FFFD.
  static characters(bytes) {
    const decoder = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true});
    const decoded = part => { try { return decoder.decode(Uint8Array.from(part)); } catch { return null; } };
    let text = "";
    for (let at = 0, size; at < bytes.length; at += size ?? 1) {
      size = [1, 2, 3, 4].find(n => at + n <= bytes.length && decoded(bytes.slice(at, at + n)) !== null);
      text += size ? decoded(bytes.slice(at, at + size)) : "\ufffd";
    }
    return text;
  }
}

// ---- The forward pass: a sequence is an array of rows, one row for each token ----
const sum = row => row.reduce((total, value) => total + value, 0);
const added = (x, y) => x.map((row, t) => row.map((value, i) => value + y[t][i]));
const dot = (a, from, b, start, size) => {
  let found = 0;
  for (let i = 0; i < size; i++) found += a[from + i] * b[start + i];
  return found;
};
function logSoftmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const total = Math.log(sum(logits.map(logit => Math.exp(logit - largest))));
  return logits.map(logit => logit - largest - total);
}
// A row that may see nothing is 0.
const softmax = scores => scores.some(score => score > -Infinity)
  ? logSoftmax(scores).map(score => Math.exp(score)) : scores.map(() => 0);
// The error function, Abramowitz and Stegun 7.1.26: wrong by at most 1.5e-7.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const series = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
  return Math.sign(x) * (1 - series.reduce((y, a) => (y + a) * t, 0) * Math.exp(-x * x));
}
const silu = x => x / (1 + Math.exp(-x));
const geluTanh = x => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const ACTIVATIONS = {
  relu: x => Math.max(x, 0), gelu: x => x * (1 + erf(x / Math.SQRT2)) / 2, gelu_tanh: geluTanh,
  silu, swiglu: silu, geglu: geluTanh,
};

class Model {
  // config: the options of the run's model. shapes: {name: shape} in the order of `bytes`, float32.
  constructor(config, shapes, bytes) {
    this.config = config;
    this.weights = {};
    let at = 0;
    for (const [name, shape] of Object.entries(shapes)) {
      const size = shape.reduce((a, b) => a * b, 1);
      this.weights[name] = new Float32Array(bytes.buffer, at, size);
      at += 4 * size;
    }
  }
  // x W + b
  dense(name, x) {
    const kernel = this.weights[`${name}/kernel`], bias = this.weights[`${name}/bias`];
    const width = kernel.length / x[0].length;
    return x.map(row => {
      const found = bias ? Float64Array.from(bias) : new Float64Array(width);
      row.forEach((value, i) => {
        if (value) for (let j = 0; j < width; j++) found[j] += value * kernel[i * width + j];
      });
      return found;
    });
  }
  // LayerNorm, or RMSNorm, which has no mean and no shift.
  norm(name, x) {
    const gain = this.weights[`${name}/gamma`], shift = this.weights[`${name}/beta`];
    return x.map(row => {
      const mean = shift ? sum(row) / row.length : 0;
      const variance = sum(row.map(value => (value - mean) ** 2)) / row.length;
      const scale = 1 / Math.sqrt(variance + this.config.epsilon);
      return row.map((value, i) => (value - mean) * scale * gain[i] + (shift ? shift[i] : 0));
    });
  }
  residual(name, x, sublayer) {
    const norm = y => this.norm(`${name}/layer_norm`, y);
    return this.config.norm === "pre" ? added(x, sublayer(norm(x))) : norm(added(x, sublayer(x)));
  }
  feedForward(name, x) {
    const {activation} = this.config, act = ACTIVATIONS[activation];
    const hidden = this.dense(`${name}/inner`, x).map(row => row.map(act));
    const gate = activation.endsWith("glu") ? this.dense(`${name}/gate`, x) : null;
    const gated = gate ? hidden.map((row, t) => row.map((value, i) => value * gate[t][i])) : hidden;
    return this.dense(`${name}/outer`, gated);
  }
  // softmax(Q Kᵀ / √d_k) V for each head. seen(t, s): whether query t may attend to key s.
  // off[h]: the output of head h is 0. weights[h][t][s] receives the attention of all heads.
  attention(name, query, memory, seen, off, weights) {
    const {num_heads: heads} = this.config, groups = this.config.num_key_value_heads ?? heads;
    const [q, k, v] = [this.dense(`${name}/query`, query), ...this.keysAndValues(name, memory)];
    const size = q[0].length / heads, joined = q.map(row => new Float64Array(row.length));
    for (let h = 0; h < heads; h++) {
      const from = h * size, start = Math.floor(h * groups / heads) * size;
      weights.push(q.map((row, t) => {
        const scores = k.map((key, s) =>
          seen(t, s) ? dot(row, from, key, start, size) / Math.sqrt(size) : -Infinity);
        const shares = softmax(scores);
        if (!off(h)) shares.forEach((share, s) => {
          for (let i = 0; i < size; i++) joined[t][from + i] += share * v[s][start + i];
        });
        return shares;
      }));
    }
    return this.dense(`${name}/output`, joined);
  }
  // The keys and values of a source are the same at each step.
  keysAndValues(name, memory) {
    memory.projected ??= {};
    return memory.projected[name] ??= ["key", "value"].map(one => this.dense(`${name}/${one}`, memory));
  }
  embedded(side, ids) {
    const {d_model: width, positions, tie_embeddings: tied} = this.config;
    const owner = ["embeddings", "all"].includes(tied) ? "target" : side;
    const matrix = this.weights[`${owner}_embedding/embeddings`];
    const learned = this.weights[`${side}_positions/embeddings`];
    const x = ids.map((id, t) => Float64Array.from({length: width}, (_, i) => {
      const value = matrix[id * width + i] * Math.sqrt(width);
      if (positions === "learned") return value + learned[t * width + i];
      if (positions === "none") return value;
      // The library computes the angles in float32.
      const angle = Math.fround(t * Math.fround(10000 ** (-(i - i % 2) / width)));
      return value + (i % 2 ? Math.cos(angle) : Math.sin(angle));
    }));
    return this.config.embedding_norm ? this.norm(`${side}_embedding_norm`, x) : x;
  }
  ended(stack, x) {
    const {norm, last_norm: last} = this.config;
    return last ?? norm === "pre" ? this.norm(`${stack}/final_norm`, x) : x;
  }
  // switches: {off: a set of "encoder.0.1" (kind, layer, head); causal, padding: whether the mask is on}.
  encode(ids, switches) {
    const read = ids.map(id => id === EOS && !this.config.source_eos ? PAD : id), attention = [];
    let x = this.embedded("source", read);
    const seen = (_, s) => ids[s] === PAD ? !switches.padding : read[s] !== PAD;
    for (let n = 0; n < this.config.num_encoder_layers; n++) {
      const name = `encoder/layer_${n}`, off = h => switches.off.has(`encoder.${n}.${h}`);
      attention.push([]);
      x = this.residual(`${name}/attention_residual`, x, y =>
        this.attention(`${name}/self_attention`, y, y, seen, off, attention[n]));
      x = this.residual(`${name}/feed_forward_residual`, x, y => this.feedForward(`${name}/feed_forward`, y));
    }
    return {memory: this.ended("encoder", x), seen, attention};
  }
  // ids begin with bos. Logits of the next token: those of the last position, or of all.
  decode(ids, source, switches, all = false) {
    const decoder = [], cross = [];
    let x = this.embedded("target", ids);
    for (let n = 0; n < this.config.num_decoder_layers; n++) {
      const name = `decoder/layer_${n}`, off = kind => h => switches.off.has(`${kind}.${n}.${h}`);
      const past = (t, s) => s <= t || !switches.causal;
      decoder.push([]);
      cross.push([]);
      x = this.residual(`${name}/self_residual`, x, y =>
        this.attention(`${name}/self_attention`, y, y, past, off("decoder"), decoder[n]));
      x = this.residual(`${name}/cross_residual`, x, y =>
        this.attention(`${name}/cross_attention`, y, source.memory, source.seen, off("cross"), cross[n]));
      x = this.residual(`${name}/feed_forward_residual`, x, y => this.feedForward(`${name}/feed_forward`, y));
    }
    x = this.ended("decoder", all ? x : x.slice(-1));
    return {logits: this.logits(x), attention: {encoder: source.attention, decoder, cross}};
  }
  logits(x) {
    if (!["target", "all"].includes(this.config.tie_embeddings)) return this.dense("output_projection", x);
    const matrix = this.weights["target_embedding/embeddings"], width = x[0].length;
    const bias = this.weights["output_projection/bias"];
    return x.map(row => Float64Array.from({length: matrix.length / width}, (_, id) =>
      dot(row, 0, matrix, id * width, width) + (bias ? bias[id] : 0)));
  }
}

// ---- Search ----
// The ids that may follow, the most probable first. Pad and bos never follow; at the end only eos.
function likeliest(logProbs, count, last = false) {
  if (last) return [EOS];
  const ids = [...logProbs.keys()].filter(id => id !== PAD && id !== BOS);
  return ids.sort((a, b) => logProbs[b] - logProbs[a] || a - b).slice(0, count);
}

// Greedy search after given ids. Yields {ids, logProbs, attention} after each token.
function* greedy(model, source, switches, limit, given = []) {
  const found = {ids: [], logProbs: [], attention: null};
  while (found.ids.at(-1) !== EOS && found.ids.length < limit) {
    const {logits, attention} = model.decode([BOS, ...found.ids], source, switches);
    const logProbs = logSoftmax(logits[0]), position = found.ids.length;
    found.ids.push(given[position] ?? likeliest(logProbs, 1, position === limit - 1)[0]);
    found.logProbs.push(logProbs);
    found.attention = attention;
    yield found;
  }
}

// Beam search. Each step replaces `hypotheses`, best first: {ids, logProb, score, ended, parent}.
class Beam {
  constructor(model, source, switches, search, width) {
    Object.assign(this, {model, source, switches, search, width});
    this.hypotheses = [{ids: [], logProb: 0, score: 0, ended: false, parent: null}];
  }
  penalty(length) {
    const isPower = this.search.length_penalty_form === "power";
    return (isPower ? length : (5 + length) / 6) ** this.search.length_penalty;
  }
  // Whether no open hypothesis can overtake the best one, which has ended.
  get done() {
    const open = this.hypotheses.filter(one => !one.ended).map(one => one.logProb);
    const hope = Math.max(...open) / this.penalty(this.search.max_target_length);
    return this.hypotheses[0].ended && (!open.length || this.hypotheses[0].score > hope);
  }
  step() {
    const candidates = this.hypotheses.flatMap((one, parent) => {
      if (one.ended) return [{...one, parent}];
      const logits = this.model.decode([BOS, ...one.ids], this.source, this.switches).logits[0];
      const logProbs = logSoftmax(logits), last = one.ids.length === this.search.max_target_length - 1;
      return likeliest(logProbs, this.width, last).map(id => {
        const logProb = one.logProb + logProbs[id], ids = [...one.ids, id];
        return {ids, logProb, score: logProb / this.penalty(ids.length), ended: id === EOS, parent};
      });
    });
    this.hypotheses = candidates.sort((a, b) => b.score - a.score).slice(0, this.width);
  }
}

// What the page contains, ready to use: {model, source, target, search, ...}.
async function load(found) {
  const side = async ({normalizer, ...rest}) =>
    new Tokenizer(rest, new Normalizer(await unpacked(normalizer.rules), normalizer));
  const source = await side(found.source);
  const target = found.target ? await side(found.target) : source;
  return {...found, source, target, model: new Model(found.config, found.shapes, bytesOf(found.weights))};
}
