// SPDX-License-Identifier: Apache-2.0
// 200 adapters loaded, replaced and unloaded while 16 streams run, for as long as --seconds says (60): no stream fails,
// each has the text of its adapter, and the engine's memory is back where it was within one percent.
// node tests/soak/adapters.mjs [--seconds N] [--adapters N] [--streams N] [--seed N]
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { request, SLUICE, startServer } from '../e2e/harness.mjs';

const option = (name, otherwise) => {
  const at = process.argv.indexOf(`--${name}`);
  return at < 0 ? otherwise : Number(process.argv[at + 1]);
};
const SECONDS = option('seconds', 60), ADAPTERS = option('adapters', 200), STREAMS = option('streams', 16);
let seed = option('seed', 1) >>> 0;
const draw = (n) => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % n;

const folder = mkdtempSync(join(tmpdir(), 'sluice-soak-'));
const file = (name) => join(folder, name);
const sluice = (...args) => execFileSync(SLUICE, ['model', ...args]);
const KINDS = 4; // of files; names share them
sluice('random', '--shape', 'tiny-llama', '--type', 'f32', '--seed', '4', file('base.gguf'));
for (let i = 0; i < KINDS; i++) sluice('adapter', 'make', file('base.gguf'), file(`k${i}.gguf`), '--rank', `${4 << i % 3}`, '--alpha', '40', '--seed', `${i + 1}`);
chmodSync(folder, 0o755);
execFileSync('chmod', ['-R', 'a+rX', folder]);

const server = await startServer({
  edit: (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => `${line}    - name: base\n      path: ${file('base.gguf')}\n`)
    .replace(/^  adapter_folders: \[\]\n/m, `  adapter_folders:\n    - name: soak\n      path: ${folder}\n      model: base\n`),
  sets: ['engine.kv_type=f32', 'engine.kv_memory=4MiB', 'engine.backend=auto', 'engine.adapter_slots=8', 'engine.adapter_turn=20ms', 'engine.max_sequences=16',
    'gateway.metrics_public=true', 'gateway.tiers.paid.concurrency=64', 'gateway.limits.requests_per_key=0',
    ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });

const post = (path, body, key) => request(server.http, path, { method: 'POST', body: JSON.stringify(body),
  headers: { authorization: `Bearer ${server.keys[key]}`, 'content-type': 'application/json' } });
const load = async (name, kind) => {
  const r = await post('/v1/load_lora_adapter', { lora_name: name, lora_path: `k${kind}.gguf` }, 'admin');
  assert.equal(r.status, 200, `${r.body}`);
};
const unload = async (name) => {
  const r = await post('/v1/unload_lora_adapter', { lora_name: name }, 'admin');
  assert.equal(r.status, 200, `${r.body}`);
};
const stream = async (model) => {
  const r = await post('/v1/completions', { model, prompt: 'once upon a time', max_tokens: 24, temperature: 0, ignore_eos: true, logprobs: 0, stream: true }, 'paid');
  const events = `${r.body}`.split('\n\n').filter((e) => e.startsWith('data: ')).map((e) => e.slice(6));
  assert.equal(r.status, 200, `${r.body}`);
  assert.equal(events.at(-1), '[DONE]', `${r.body}`);
  const choices = events.slice(0, -1).map((e) => JSON.parse(e)).map((e) => { assert.equal(e.error, undefined); return e.choices[0]; });
  return JSON.stringify([choices.map((c) => c.text).join(''), choices.flatMap((c) => c.logprobs?.token_logprobs ?? [])]); // to the last bit
};
const resident = async () => Number(/^RssAnon:\s+(\d+) kB/m.exec(readFileSync(`/proc/${(await server.pids()).engine}/status`, 'utf8'))[1]);

process.on('exit', () => { try { process.kill(server.pid); } catch { /* it has ended */ } });

/** One name of each kind that stays: what its answers must be. */
const texts = [];
for (let i = 0; i < KINDS; i++) {
  await load(`stay${i}`, i);
  texts.push(await stream(`base:stay${i}`));
}
assert.equal(new Set(texts).size, KINDS);

const kinds = new Map(); // what a name has
const changing = new Set();
let asked = 0, changes = 0;
async function change() {
  const name = `a${draw(ADAPTERS)}`;
  if (changing.has(name)) return;
  changing.add(name);
  if (kinds.has(name) && draw(3) === 0) {
    kinds.delete(name);
    await unload(name);
  } else {
    const kind = draw(KINDS);
    await load(name, kind);
    kinds.set(name, kind);
  }
  changes++;
  changing.delete(name);
}
async function ask() {
  const names = [...kinds.keys()].filter((n) => !changing.has(n));
  const stays = names.length === 0 || draw(2) === 0;
  const name = stays ? `stay${draw(KINDS)}` : names[draw(names.length)];
  const before = kinds.get(name);
  const text = await stream(`base:${name}`).catch((e) => {
    if (!stays && /model_not_found/.test(e.message)) return null; // it was unloaded just before it began
    throw e;
  });
  asked++;
  if (text === null) return;
  if (stays) assert.equal(text, texts[Number(name.slice(4))]);
  else assert.ok(texts.includes(text), `${name} (${before}): ${text}`); // replaced meanwhile, or not
}
const round = async (seconds) => {
  const end = Date.now() + seconds * 1000;
  const loop = async (what) => { while (Date.now() < end) await what(); };
  await Promise.all([...Array.from({ length: STREAMS }, () => loop(ask)), loop(change), loop(change)]);
  for (const name of kinds.keys()) await unload(name);
  kinds.clear();
};
await round(Math.max(3, SECONDS / 3)); // pools and caches fill once
const before = await resident();
await round(SECONDS);
const after = await resident();
console.log(JSON.stringify({ seconds: SECONDS, answers: asked, changes, before_kb: before, after_kb: after, grown: after / before - 1 }));
assert.ok(after <= before * 1.01, `${before} kB before, ${after} kB after`);
assert.equal(await server.stop(), 0, server.log());
rmSync(folder, { recursive: true, force: true });
