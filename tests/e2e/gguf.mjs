// SPDX-License-Identifier: Apache-2.0
// GGUF files for tests: a model with another chat template.
import { readFileSync, writeFileSync } from 'node:fs';

const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of value types; 8: string, 9: array

/** Reads the scalars of a file's bytes, from behind its magic number and version on. */
export function reader(b) {
  const r = { at: 8 };
  r.u64 = () => { const v = Number(b.readBigUInt64LE(r.at)); r.at += 8; return v; };
  r.u32 = () => { const v = b.readUInt32LE(r.at); r.at += 4; return v; };
  r.str = () => { const n = r.u64(), text = b.toString('utf8', r.at, r.at + n); r.at += n; return text; };
  r.skip = (type) => {
    if (type === 8) { const n = r.u64(); r.at += n; return; }
    if (type !== 9) { r.at += SIZES[type]; return; }
    const of = r.u32(), n = r.u64();
    for (let i = 0; i < n; i++) r.skip(of);
  };
  return r;
}

/** Copies the model `from` to `to` with this chat template. control: texts that become control tokens, for the vocabulary's last
 * normal tokens. */
export function withTemplate(from, to, template, control = []) {
  const b = readFileSync(from), r = reader(b), edits = [];
  const string = (text) => {
    const bytes = Buffer.from(text), length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(bytes.length));
    return Buffer.concat([length, bytes]);
  };
  const nTensors = r.u64(), nKeys = r.u64(), tokens = [];
  let alignment = 32, types;
  for (let i = 0; i < nKeys; i++) {
    const key = r.str(), type = r.u32(), value = r.at;
    if (key === 'general.alignment') alignment = b.readUInt32LE(r.at);
    if (key === 'tokenizer.ggml.tokens') {
      r.at += 4;
      for (let n = r.u64(); n > 0; n--) { const begin = r.at; r.str(); tokens.push([begin, r.at]); }
    } else {
      r.skip(type);
    }
    if (key === 'tokenizer.ggml.token_type') types = value + 12;
    if (key === 'tokenizer.chat_template') edits.push([value, r.at, string(template)]);
  }
  for (let i = 0; i < nTensors; i++) { r.str(); const dims = r.u32(); r.at += 8 * dims + 12; }
  const data = Math.ceil(r.at / alignment) * alignment;
  for (let id = tokens.length - 1, left = [...control]; left.length > 0; id--) {
    if (b.readInt32LE(types + 4 * id) !== 1) continue;
    b.writeInt32LE(3, types + 4 * id);
    edits.push([...tokens[id], string(left.pop())]);
  }
  const head = [];
  let done = 0;
  for (const [begin, end, bytes] of edits.sort((x, y) => x[0] - y[0])) {
    head.push(b.subarray(done, begin), bytes);
    done = end;
  }
  head.push(b.subarray(done, r.at));
  const size = head.reduce((n, part) => n + part.length, 0);
  writeFileSync(to, Buffer.concat([...head, Buffer.alloc((alignment - (size % alignment)) % alignment), b.subarray(data)]));
}

/** A template whose model writes calls and reasoning, each in its tags. */
export const HERMES = `{%- if tools %}<|im_start|>system
You may call functions. <tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>
For each call return JSON within <tool_call></tool_call> tags: <tool_call>{"name": <function-name>, "arguments": <args-json-object>}</tool_call><|im_end|>
{% endif %}{%- for m in messages %}<|im_start|>{{ m.role }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking %}<think>
{% endif %}{% endif %}`;
