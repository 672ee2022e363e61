// SPDX-License-Identifier: Apache-2.0
// Eight models on demand with room for three under 32 clients: every request is answered, those that wait are told how far
// their model is, the list of models says what is in memory, and the memory of weights stays within its bound. A cascade's
// pair on demand, also when the engine dies while it loads; waits that end; tenants that ask for a time in memory.
// ON_DEMAND_SECONDS=60 ON_DEMAND_SHAPE=… is the soak (tests/soak/run.sh); by default each client asks three times.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { localOnly, OVER_UPSTREAM, request, SLUICE, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const LOCAL = localOnly('which of its models are in memory');

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

  test('none is in memory at first, and each takes requests', LOCAL, async () => {
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
    if (OVER_UPSTREAM) return; // it has its memory to itself
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
    bad('gateway.tiers.paid.keep_alive=60d', /gateway\.tiers\.paid\.keep_alive/);
    bad('engine.kv_memory=half', /'half' is not a size such as .*, or auto/);
    bad('engine.kv_memory=0', /engine\.kv_memory/);
    assert.match(config('show'), /kv_memory: auto/);
    assert.match(config('show', 'engine.kv_memory=64MiB'), /kv_memory: 64MiB/);
    assert.match(config('show', 'engine.kv_memory=auto'), /kv_memory: auto/);
  });
});

// Of the same shape as the models above, so that one's size bounds them.
const made = (name, seed) => execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-llama', '--type', 'f16', '--force', '--seed', String(seed), file(name)]);
const listed = (more) => (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line +
  more.map((n) => `    - name: ${n}\n      path: ${file(n)}\n      start: on_demand\n      keep_alive: 0\n`).join(''));
const unlimited = ['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].flatMap((k) => [`gateway.tiers.paid.${k}=0`, `gateway.tiers.free.${k}=0`]);
const room = (models) => Math.ceil(models * statSync(file('third')).size / MIB);

async function serve(more, sets, edit = (text) => text) {
  mkdirSync(folder, { recursive: true });
  for (const [i, n] of ['small', 'large', ...more].entries()) made(n, i + 1);
  const server = await startServer({ edit: (text) => edit(listed(more)(text)), sets: [...unlimited, 'gateway.queue.tell=100ms',
    'gateway.tiers.paid.concurrency=64', 'gateway.tiers.paid.coalesce=off', ...sets()] });
  const post = async (path, body, key = server.keys.paid) => {
    const r = await fetch(`${server.http}${path}`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` }, body: JSON.stringify(body) });
    return { status: r.status, headers: r.headers, text: await r.text() };
  };
  const state = async (name) => JSON.parse((await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${server.keys.paid}` } })).body).data.find((m) => m.id === name).state;
  return { server, post, state, stop: async () => { rmSync(folder, { recursive: true, force: true }); assert.equal(await server.stop(), 0, server.log()); } };
}

/** A cascade whose pair is on demand beside a third model, with room for two. Nothing is sure enough: every answer is taken over. */
const servePair = (turn) => serve(['third'], () => [
  ...['small', 'large'].flatMap((n) => [`engine.models.demo-${n}.path=${file(n)}`, `engine.models.demo-${n}.start=on_demand`]), 'engine.models.demo-large.head=',
  `engine.on_demand.memory=${room(2.1)}MiB`, `engine.on_demand.turn=${turn}`, 'cascade.takeover=1m', 'cascade.hold.time=1m', 'cascade.least_escalations=1000000'],
(text) => text.replace(/^ {2}tiers: \[\]$/m, '  tiers: [{name: paid, mode: auto, hard: 1, race: 1, sure: 1, low: 1, drop: 0}]'));

describe('a cascade whose models are on demand', () => {
  let s;
  before(async () => { s = await servePair('3s'); });
  after(() => s?.stop());

  test('waits for its second model are told', LOCAL, async () => {
    assert.deepEqual([await s.state('demo-small'), await s.state('demo-large')], ['absent', 'absent']);
    assert.equal((await s.post('/v1/completions', { model: 'third', prompt: 'hello', max_tokens: 4 })).status, 200);
    // The third one stays for its turn, so that there is room for one of the pair only, until then.
    const r = await s.post('/v1/completions', { model: 'auto', prompt: 'once upon a time', max_tokens: 24, stream: true });
    assert.equal(r.status, 200, r.text);
    assert.match(r.text, /"escalated":true,"reason":"held"/);
    assert.match(r.text, /^: queue position=\d+ wait_ms=\d+\n: loading \d+ %\n/m);
    assert.ok(r.text.indexOf(': loading') < r.text.indexOf('data:'));
    assert.match(r.text, /data: \[DONE\]\n\n$/);
    assert.deepEqual([await s.state('demo-small'), await s.state('demo-large')], ['ready', 'ready']);
  });

  test('beside a third model, with room for two, every answer is whole', async () => {
    const ask = async (i) => {
      for (let k = 0; k < 3; k++) {
        const model = i % 3 === 2 ? 'third' : 'auto';
        const r = await s.post('/v1/completions', { model, prompt: `client ${i} for the ${k}th time`, max_tokens: 24, stream: true });
        assert.equal(r.status, 200, r.text);
        assert.doesNotMatch(r.text, /"error"/);
        assert.match(r.text, /data: \[DONE\]\n\n$/);
        if (model === 'auto') assert.match(r.text, /"escalated":true,"reason":"held"/);
      }
    };
    await Promise.all(Array.from({ length: 9 }, (_, i) => ask(i)));
    const loads = Number(/^sluice_engine_model_loads_total (\d+)$/m.exec(await s.server.metrics())?.[1]);
    assert.ok(OVER_UPSTREAM || loads >= 3);
  });
});

describe('an engine that dies while a pair on demand loads', LOCAL, () => {
  let s;
  before(async () => { s = await servePair('1h'); });
  after(() => s?.stop());

  test('ends what waits once, whatever keep_alive is asked for meanwhile; then all works again', async () => {
    const ask = (model) => s.post('/v1/completions', { model, prompt: 'once upon a time', max_tokens: 8, stream: true });
    assert.equal((await ask('third')).status, 200); // it stays for its turn, so that the second one of the pair is waited for
    const r = await fetch(`${s.server.http}/v1/completions`, { method: 'POST', headers: { 'content-type': 'application/json', authorization: `Bearer ${s.server.keys.paid}` },
      body: JSON.stringify({ model: 'auto', prompt: 'once upon a time', max_tokens: 400, stream: true }) });
    const { engine } = await s.server.pids();
    const keeps = [0, -1, '1h', 1e300, '-5m', '999999999h'], models = ['third', 'auto', 'demo-small', 'demo-large'];
    let text = '', asks = [];
    for await (const piece of r.body.pipeThrough(new TextDecoderStream())) {
      text += piece;
      if (asks.length > 0 || !/^: loading \d+ %$/m.test(text)) continue;
      asks = Array.from({ length: 48 }, (_, i) => s.post('/api/generate', { model: models[i % 4], keep_alive: keeps[i % 6] }));
      process.kill(engine, 'SIGKILL');
    }
    assert.equal(asks.length, 48, text);
    assert.equal(text.match(/^data: (.*"error"|\[DONE\])/gm)?.length, 1, text); // whole, if the first model was done with it
    for (const { status, text: body } of await Promise.all(asks)) assert.ok([200, 503].includes(status), body);
    const end = Date.now() + 120000;
    for (const model of ['auto', 'demo-small', 'demo-large']) { // nothing of the third one's is left to wait for
      let back;
      while ((back = await ask(model)).status === 503 && Date.now() < end) await sleep(20);
      assert.equal(back.status, 200, back.text);
      assert.match(back.text, /data: \[DONE\]\n\n$/);
      assert.doesNotMatch(back.text, /"error"/);
    }
    assert.deepEqual(await Promise.all(['demo-small', 'demo-large', 'third'].map(s.state)), ['ready', 'ready', 'absent']);
  });
});

describe('waits for models on demand', LOCAL, () => {
  let s;
  before(async () => {
    s = await serve(['third', 'fourth'], () => [`engine.on_demand.memory=${room(1.1)}MiB`, 'engine.on_demand.turn=1h', 'engine.on_demand.max_wait=1s']);
  });
  after(() => s?.stop());

  test('one that cannot come in time is told, then refused with the cause', async () => {
    const ask = (model, stream) => s.post('/v1/completions', { model, prompt: 'hello', max_tokens: 4, stream });
    let r;
    do r = await ask('third', false); // on a machine that is busy its own weights may be late, too
    while (r.status === 503);
    assert.equal(r.status, 200, r.text);
    r = await ask('fourth', true);
    assert.equal(r.status, 200, r.text);
    assert.match(r.text, /^: queue position=\d+ wait_ms=\d+\n: loading 0 %\n/m);
    assert.match(r.text, /"error":.*did not come in time.*"overloaded"|"overloaded".*did not come in time/);
    assert.ok(r.text.indexOf(': loading') < r.text.indexOf('"error"'));
    r = await ask('fourth', false);
    assert.equal(r.status, 503, r.text);
    assert.match(JSON.parse(r.text).error.message, /did not come in time/);
    assert.ok(Number(r.headers.get('retry-after')) > 0);
    assert.equal((await ask('third', false)).status, 200);
    assert.equal(await s.state('fourth'), 'absent');
  });
});

describe('keep_alive', LOCAL, () => {
  let s;
  const gone = async (name) => {
    const end = Date.now() + 120000;
    while (await s.state(name) !== 'absent' && Date.now() < end) await sleep(20);
    assert.equal(await s.state(name), 'absent');
  };
  before(async () => {
    s = await serve(['third', 'fourth'], () => ['engine.on_demand.memory=1GiB', 'engine.on_demand.turn=1ms', 'gateway.tiers.free.keep_alive=0', 'gateway.tiers.paid.keep_alive=1h']);
  });
  after(() => s?.stop());

  test('0 unloads what no other tenant uses, within the tier', async () => {
    const chat = (model, key, more = {}) => s.post('/api/generate', { model, prompt: 'hello', stream: false, options: { num_predict: 4 }, ...more }, key);
    const { paid, free } = s.server.keys;
    for (const model of ['third', 'fourth']) assert.equal((await chat(model, paid)).status, 200);
    assert.equal((await chat('third', free)).status, 200);
    // It would go first if it might: the engine drops the first one of those that may go.
    assert.equal(JSON.parse((await s.post('/api/generate', { model: 'third', keep_alive: 0 })).text).done_reason, 'unload');
    assert.equal(JSON.parse((await s.post('/api/generate', { model: 'fourth', keep_alive: 0 })).text).done_reason, 'unload');
    await gone('fourth');
    assert.equal(await s.state('third'), 'ready');
    const ps = JSON.parse((await request(s.server.http, '/api/ps', { headers: { authorization: `Bearer ${paid}` } })).body).models.map((m) => m.name);
    assert.ok(ps.some((n) => n.startsWith('third')) && !ps.some((n) => n.startsWith('fourth')), ps.join());
    // Of no effect for a tier without a bound; with an answer as with none.
    assert.equal((await chat('third', free, { keep_alive: 0 })).status, 200);
    assert.equal((await chat('fourth', paid, { keep_alive: '0s' })).status, 200);
    await gone('fourth');
    assert.equal(await s.state('third'), 'ready');
    const bad = await chat('third', paid, { keep_alive: 'soon' });
    assert.equal(bad.status, 400);
    assert.match(JSON.parse(bad.text).error, /'keep_alive'/);
  });
});
