// SPDX-License-Identifier: Apache-2.0
// GGUF files for tests: a model with another chat template.
import { readFileSync, writeFileSync } from 'node:fs';

const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of value types; 8: string, 9: array

/** Copies the model `from` to `to` with this chat template. */
export function withTemplate(from, to, template) {
  const b = readFileSync(from);
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
  const nTensors = u64(), nKeys = u64();
  let alignment = 32, begin, end;
  for (let i = 0; i < nKeys; i++) {
    const key = str(), type = u32(), value = at;
    if (key === 'general.alignment') alignment = b.readUInt32LE(at);
    skip(type);
    if (key === 'tokenizer.chat_template') [begin, end] = [value, at];
  }
  for (let i = 0; i < nTensors; i++) { str(); const dims = u32(); at += 8 * dims + 12; }
  const data = Math.ceil(at / alignment) * alignment;
  const text = Buffer.from(template), length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const head = Buffer.concat([b.subarray(0, begin), length, text, b.subarray(end, at)]);
  const pad = Buffer.alloc((alignment - (head.length % alignment)) % alignment);
  writeFileSync(to, Buffer.concat([head, pad, b.subarray(data)]));
}
