// SPDX-License-Identifier: Apache-2.0
// Plants channels of large keys in a model: in every layer and key head the rows of attn_k that make one rotary pair are multiplied
// by FACTOR and those of attn_q divided by it, so that the products of queries and keys, and with them the model, stay what they
// were. For GGUF files with F32 matrices (sluice model random --type f32, quantize --type f32) of families that turn adjacent pairs.
//
//   node tests/bench/outliers.mjs IN OUT [FACTOR] [PAIRS]     by default 20, 1 in each head
import { readFileSync, writeFileSync } from 'node:fs';

const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of value types; 8: string, 9: array

function parse(b) {
  let at = 8;
  const u64 = () => { const v = Number(b.readBigUInt64LE(at)); at += 8; return v; };
  const u32 = () => { const v = b.readUInt32LE(at); at += 4; return v; };
  const str = () => { const n = u64(), s = b.toString('utf8', at, at + n); at += n; return s; };
  const skip = (type) => {
    if (type === 8) { const n = u64(); at += n; return; }
    if (type !== 9) { at += SIZES[type]; return; }
    const of = u32(), n = u64();
    for (let i = 0; i < n; i++) skip(of);
  };
  const nTensors = u64(), nKeys = u64(), keys = {}, tensors = [];
  let alignment = 32;
  for (let i = 0; i < nKeys; i++) {
    const key = str(), type = u32();
    if (type === 4) keys[key.replace(/^[^.]+\.attention\./, '')] = b.readUInt32LE(at);
    if (key === 'general.alignment') alignment = b.readUInt32LE(at);
    skip(type);
  }
  for (let i = 0; i < nTensors; i++) {
    const name = str(), dims = Array.from({ length: u32() }, u64);
    tensors.push({ name, dims, type: u32(), offset: u64() });
  }
  const data = Math.ceil(at / alignment) * alignment;
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
