// SPDX-License-Identifier: Apache-2.0
// Plants channels of large keys in a model: in every layer and key head the rows of attn_k that make one rotary pair are multiplied
// by FACTOR and those of attn_q divided by it, so that the products of queries and keys, and with them the model, stay what they
// were. For GGUF files with F32 matrices (sluice model random --type f32, quantize --type f32) of families that turn adjacent pairs.
//
//   node tests/bench/outliers.mjs IN OUT [FACTOR] [PAIRS]     by default 20, 1 in each head
import { readFileSync, writeFileSync } from 'node:fs';
import { reader } from '../e2e/gguf.mjs';

function parse(b) {
  const r = reader(b);
  const nTensors = r.u64(), nKeys = r.u64(), keys = {}, tensors = [];
  let alignment = 32;
  for (let i = 0; i < nKeys; i++) {
    const key = r.str(), type = r.u32();
    if (type === 4) keys[key.replace(/^[^.]+\.attention\./, '')] = b.readUInt32LE(r.at);
    if (key === 'general.alignment') alignment = b.readUInt32LE(r.at);
    r.skip(type);
  }
  for (let i = 0; i < nTensors; i++) {
    const name = r.str(), dims = Array.from({ length: r.u32() }, r.u64);
    tensors.push({ name, dims, type: r.u32(), offset: r.u64() });
  }
  const data = Math.ceil(r.at / alignment) * alignment;
  return { keys, tensors: tensors.map((t) => ({ ...t, at: data + t.offset })) };
}

const [from, to, factor = '20', pairs = '1'] = process.argv.slice(2);
if (to === undefined) throw new Error('usage: outliers.mjs IN OUT [FACTOR] [PAIRS]');
const b = readFileSync(from), { keys, tensors } = parse(b);
const heads = keys.head_count, kvHeads = keys.head_count_kv ?? heads;

/** Multiplies a row of a matrix. */
function scale(t, row, by) {
  for (let i = 0; i < t.dims[0]; i++) {
    const at = t.at + 4 * (row * t.dims[0] + i);
    b.writeFloatLE(b.readFloatLE(at) * by, at);
  }
}

for (const t of tensors.filter((x) => /\.attn_[qk]\.weight$/.test(x.name))) {
  if (t.type !== 0) throw new Error(`${t.name} is not F32`);
  const isKey = t.name.includes('attn_k'), n = isKey ? kvHeads : heads, dim = t.dims[1] / n, layer = Number(t.name.split('.')[1]);
  for (let h = 0; h < n; h++) {
    const kvHead = isKey ? h : Math.floor(h / (heads / kvHeads));
    for (let p = 0; p < Number(pairs); p++) {
      const pair = (3 + 7 * layer + 5 * kvHead + 11 * p) % (dim / 2); // another one in each head
      for (const row of [2 * pair, 2 * pair + 1]) scale(t, h * dim + row, isKey ? Number(factor) : 1 / Number(factor));
    }
  }
}
writeFileSync(to, b);
