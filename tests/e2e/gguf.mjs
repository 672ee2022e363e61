// SPDX-License-Identifier: Apache-2.0
// GGUF files for tests: a model with another chat template.
import { readFileSync, writeFileSync } from 'node:fs';

const SIZES = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]; // of value types; 8: string, 9: array

/** Copies the model `from` to `to` with this chat template. control: texts that become control tokens, for the vocabulary's last
 * normal tokens. */
export function withTemplate(from, to, template, control = []) {
  const b = readFileSync(from), edits = [];
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
  const string = (text) => {
    const bytes = Buffer.from(text), length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(bytes.length));
    return Buffer.concat([length, bytes]);
  };
  const nTensors = u64(), nKeys = u64(), tokens = [];
  let alignment = 32, types;
  for (let i = 0; i < nKeys; i++) {
    const key = str(), type = u32(), value = at;
    if (key === 'general.alignment') alignment = b.readUInt32LE(at);
    if (key === 'tokenizer.ggml.tokens') {
      at += 4;
      for (let n = u64(); n > 0; n--) { const begin = at; str(); tokens.push([begin, at]); }
    } else {
      skip(type);
    }
    if (key === 'tokenizer.ggml.token_type') types = value + 12;
    if (key === 'tokenizer.chat_template') edits.push([value, at, string(template)]);
  }
  for (let i = 0; i < nTensors; i++) { str(); const dims = u32(); at += 8 * dims + 12; }
  const data = Math.ceil(at / alignment) * alignment;
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
  head.push(b.subarray(done, at));
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
