// SPDX-License-Identifier: Apache-2.0
// Eight models on demand with room for three under 32 clients: every request is answered, those that wait are told how far
// their model is, the list of models says what is in memory, and the memory of weights stays within its bound.
// ON_DEMAND_SECONDS=60 ON_DEMAND_SHAPE=… is the soak (tests/soak/run.sh); by default each client asks three times.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { request, SLUICE, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const MODELS = 8, ROOM = 3, CLIENTS = 32, EACH = 3, SHAPE = process.env.ON_DEMAND_SHAPE ?? 'tiny-llama';
const SECONDS = Number(process.env.ON_DEMAND_SECONDS ?? 0), MIB = 1 << 20;
const folder = mkdtempSync(join(tmpdir(), 'sluice-demand-'));
const names = Array.from({ length: MODELS }, (_, i) => `m${i}`);
const file = (name) => join(folder, `${name}.gguf`);
const models = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line +
  names.map((n) => `    - name: ${n}\n      path: ${file(n)}\n      start: on_demand\n      keep_alive: 5s\n`).join(''));

describe('models on demand', () => {
  let server, bound, doc, fileRss, engine;
  const auth = () => ({ 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` });
  const list = async () => JSON.parse((await request(server.http, '/v1/models', { headers: auth() })).body).data.filter((m) => names.includes(m.id));
  const ask = async (model, prompt, stream) => {
    const r = await fetch(`${server.http}/v1/completions`, { method: 'POST', headers: auth(),
      body: JSON.stringify({ model, prompt, max_tokens: 8, stream }) });
    return { status: r.status, text: await r.text() };
  };
  const weightsRss = () => Number(/^RssFile:\s+(\d+) kB/m.exec(readFileSync(`/proc/${engine}/status`, 'utf8'))[1]) * 1024;

  before(async () => {
    // The last one is rearranged for the kernels and comes from the cache of weights.
    names.forEach((n, i) => execFileSync(SLUICE, ['model', 'random', '--shape', SHAPE, '--type', i < MODELS - 1 ? 'f16' : 'q8_0', '--seed', String(i + 1), file(n)]));
    const one = statSync(file(names[0])).size;
    bound = Math.ceil((ROOM + 0.1) * one / MIB) * MIB;
    server = await startServer({ edit: models, sets: [`engine.on_demand.memory=${bound / MIB}MiB`, 'engine.on_demand.turn=400ms',
      'engine.max_sequences=16', 'gateway.queue.tell=100ms', 'gateway.tiers.paid.concurrency=64', 'gateway.tiers.paid.coalesce=off',
      ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
    doc = JSON.parse((await request(server.http, '/openapi.json')).body);
    engine = (await server.pids()).engine;
    fileRss = weightsRss();
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('none is in memory at first, and each takes requests', async () => {
    const all = await list();
    assert.deepEqual(all.map((m) => m.state), names.map(() => 'absent'), server.log());
    assert.deepEqual(violations(doc, { $ref: '#/components/schemas/ModelList' }, { object: 'list', data: all }), []);
    const r = await ask('m0', 'once upon a time', false);
    assert.equal(r.status, 200, r.text);
    assert.equal((await list()).find((m) => m.id === 'm0').state, 'ready');
  });

  test('no request is lost, waits are told, memory is bounded', async () => {
    let told = 0, most = 0, answered = 0, longest = 0;
    const until = Date.now() + SECONDS * 1000;
    const sampler = setInterval(() => { most = Math.max(most, weightsRss()); }, 20);
    const client = async (i) => {
      for (let k = 0; SECONDS > 0 ? Date.now() < until : k < EACH; k++) {
        const stream = (i + k) % 2 === 0, began = Date.now();
        const r = await ask(names[(i * 5 + k * 3) % MODELS], `client ${i} asks for the ${k}th time`, stream);
        assert.equal(r.status, 200, r.text);
        if (stream) assert.match(r.text, /data: \[DONE\]\n\n$/);
        else assert.ok(JSON.parse(r.text).choices[0].finish_reason, r.text);
        if (/^: loading \d+ %$/m.test(r.text)) told++;
        assert.doesNotMatch(r.text, /"error"/);
        answered++;
        longest = Math.max(longest, Date.now() - began);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, (_, i) => client(i)));
    clearInterval(sampler);
    assert.ok(SECONDS > 0 || answered === CLIENTS * EACH);
    assert.ok(told > 0, 'nobody was told');
    const metrics = await server.metrics();
    const value = (name) => Number(new RegExp(`^${name} (\\S+)$`, 'm').exec(metrics)[1]);
    const loads = value('sluice_engine_model_loads_total');
    assert.ok(loads >= MODELS && value('sluice_engine_model_evictions_total') >= loads - ROOM, metrics);
    assert.ok(value('sluice_engine_models_resident') <= ROOM);
    // A page of the system at both ends of each matrix may stay; the program's own pages are counted in both.
    assert.ok(most - fileRss <= bound + 4 * MIB, `${most - fileRss} bytes of files, ${bound} allowed`);
    if (SECONDS > 0) console.log(`${answered} answers, ${loads} loads, ${told} told, the longest took ${longest} ms, ${((most - fileRss) / MIB).toFixed(1)} of ${bound / MIB} MiB`);
  });

  test('the configuration says what it can not be', () => {
    const config = (verb, ...sets) => execFileSync(SLUICE, ['config', verb, '-c', 'etc/sluice.yaml', ...sets.flatMap((s) => ['--set', s])],
      { stdio: 'pipe', encoding: 'utf8' });
    const bad = (set, why) => assert.throws(() => config('check', set), (e) => why.test(e.stderr + e.stdout));
    bad('engine.models.demo-small.start=on_demand', /a model with a role is always in memory/);
    bad('engine.kv_memory=half', /'half' is not a size such as .*, or auto/);
    bad('engine.kv_memory=0', /engine\.kv_memory/);
    assert.match(config('show'), /kv_memory: auto/);
    assert.match(config('show', 'engine.kv_memory=64MiB'), /kv_memory: 64MiB/);
    assert.match(config('show', 'engine.kv_memory=auto'), /kv_memory: auto/);
  });
});
