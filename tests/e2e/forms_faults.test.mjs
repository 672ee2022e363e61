// SPDX-License-Identifier: Apache-2.0
// Answers of a form, other APIs and vectors while the gateway, the engine or Redis is killed, and for a client that reads
// slowly. Everything ends: whole, or with an error of its API; a constrained stream goes on with the same bytes.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { metric, until, user } from './client.mjs';
import { hasRedis, SLUICE, startServer } from './harness.mjs';

const WAIT_MS = 100_000;
const skip = hasRedis() ? false : 'redis-server is not installed';
const folder = mkdtempSync(join(tmpdir(), 'sluice-faults-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));

const ITEMS = 40;
const LIST = { type: 'array', items: { type: 'integer', minimum: 0, maximum: 999 }, minItems: ITEMS, maxItems: ITEMS };
const constrained = { model: 'demo-large', messages: user('Some numbers, please.'), temperature: 1, seed: 5, max_tokens: 400, stream: true,
  response_format: { type: 'json_schema', json_schema: { name: 'list', strict: true, schema: LIST } } };
const texts = Array.from({ length: 40 }, (_, i) => `text ${i} ${'and more '.repeat(40)}`);

/** Every way that is new: [path, body, whether an answer is whole]. */
const ways = {
  'a constrained chat': ['/v1/chat/completions', constrained, (t) => t.endsWith('data: [DONE]\n\n')],
  'a message': ['/v1/messages', { model: 'demo-large', max_tokens: 60, stream: true, messages: user('Say ten words.') }, (t) => t.includes('event: message_stop')],
  'lines of Ollama': ['/api/chat', { model: 'demo-large', messages: user('Say ten words.'), options: { num_predict: 60 } }, (t) => /"done":true[^\n]*\}\n$/.test(t)],
  embeddings: ['/v1/embeddings', { model: 'embedding', input: texts }, (t) => JSON.parse(t).data.length === texts.length],
  scores: ['/v1/rerank', { model: 'embedding', query: 'a text', documents: texts }, (t) => JSON.parse(t).results.length === texts.length],
};
/** An error as that API writes it, whole or as the last event. */
const isError = (t) => /"error":|event: error\n/.test(t);

describe('forms and other APIs', { skip, timeout: 600_000 }, () => {
  let server;
  before(async () => {
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-embedding', '--type', 'f32', join(folder, 'e.gguf')]);
    server = await startServer({ edit: (text) => text.replace(/( *models: # \(dev\).*\n)/, `$1    - name: embedding\n      path: ${join(folder, 'e.gguf')}\n`),
      sets: ['supervisor.backoff_min=10ms', 'supervisor.backoff_max=100ms', 'cache.timeout=100ms', 'gateway.threads=2',
        ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)] });
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  /** {status, headers, text, broken}; never rejects. enough(text): the line is cut there. onText(text): each time. */
  const send = (method, path, body, { headers = {}, enough = () => false, onText = () => {}, slow = 0 } = {}) => new Promise((done) => {
    const req = http.request(new URL(path, server.http), { method, agent: false,
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json', ...headers } }, (res) => {
      let text = '', broken = false;
      const give = () => done({ status: res.statusCode, headers: res.headers, text, broken });
      res.setEncoding('utf8');
      res.on('data', (d) => {
        text += d;
        onText(text);
        if (enough(text)) { req.destroy(); give(); }
        if (slow > 0) { res.pause(); setTimeout(() => res.resume(), slow); }
      });
      res.on('error', () => { broken = true; });
      res.on('close', give);
    });
    req.on('error', () => done({ status: 0, headers: {}, text: '', broken: true }));
    req.end(body && JSON.stringify(body));
  });
  const works = async (name) => {
    const [path, body, whole] = ways[name];
    return until(async () => { const r = await send('POST', path, body); return r.status === 200 && whole(r.text); }, WAIT_MS, 200);
  };
  const data = (text) => [...text.slice(0, text.lastIndexOf('\n\n') + 2).matchAll(/^id: (\d+)\ndata: (.*)$/gm)].map((m) => ({ id: Number(m[1]), data: m[2] }));
  const content = (list) => list.filter((e) => e.data !== '[DONE]').map((e) => JSON.parse(e.data).choices[0]?.delta?.content ?? '').join('');
  const killed = async (name) => {
    const pid = (await server.pids())[name];
    process.kill(pid, 'SIGKILL');
    assert.ok(await until(async () => ![undefined, pid].includes((await server.pids())[name]), WAIT_MS), `${name} comes back`);
  };

  test('a constrained stream goes on behind a killed gateway, with the same bytes', async () => {
    const headers = { 'x-sluice-events': '1' };
    const uncut = content(data((await send('POST', '/v1/chat/completions', constrained, { headers })).text));
    assert.equal(JSON.parse(uncut).length, ITEMS);
    const first = await send('POST', '/v1/chat/completions', constrained, { headers, enough: (t) => data(t).length >= 12 });
    const id = first.headers['x-sluice-stream-id'], got = data(first.text);
    await killed('gateway');
    const rest = await until(async () => {
      const r = await send('GET', `/v1/streams/${id}`, null, { headers: { 'last-event-id': String(got.at(-1).id) } });
      return r.status === 200 && r.text.endsWith('data: [DONE]\n\n') && r;
    }, WAIT_MS, 200);
    assert.ok(rest, 'it is resumed');
    const all = [...got, ...data(rest.text)];
    assert.deepEqual(all.map((e) => e.id), all.map((_, i) => i));
    assert.equal(content(all), uncut);
  });

  test('a killed engine ends each with an error of its API, and each works again', async () => {
    for (const [name, [path, body, whole]] of Object.entries(ways)) {
      assert.ok(await works(name), `${name} before`);
      const computed = async () => metric(await server.metrics(), 'sluice_engine_prefill_tokens_total');
      const before = await computed();
      let ended = false;
      const stream = send('POST', path, body);
      stream.then(() => { ended = true; });
      assert.ok(await until(async () => ended || await computed() > before, WAIT_MS, 1), name);
      await killed('engine');
      const r = await stream;
      if (r.status === 200 && !isError(r.text)) assert.ok(whole(r.text), `${name}: it was done before, or it is whole: ${r.text.slice(-300)}`);
      else assert.ok(isError(r.text) && !r.broken, `${name}: ${r.status} ${r.text.slice(-300)}`);
      assert.ok(await works(name), `${name} again`);
    }
  });

  test('without Redis they are answered, or refused in words', async () => {
    const { redis } = await server.pids();
    process.kill(redis, 'SIGKILL');
    for (const [name, [path, body, whole]] of Object.entries(ways)) {
      const r = await send('POST', path, body);
      assert.ok(r.status === 200 ? whole(r.text) : r.status >= 500 && isError(r.text), `${name}: ${r.status} ${r.text.slice(-300)}`);
    }
    assert.ok(await until(async () => ![undefined, redis].includes((await server.pids()).redis), WAIT_MS));
    for (const name of Object.keys(ways)) assert.ok(await works(name), `${name} with the next one`);
  });

  test('one that reads slowly gets all of it', async () => {
    for (const [name, [path, body, whole]] of Object.entries(ways)) {
      const r = await send('POST', path, body, { slow: 3 });
      assert.ok(r.status === 200 && whole(r.text), `${name}: ${r.status} ${r.text.slice(-300)}`);
    }
  });

  test('one that leaves leaves nothing behind', async () => {
    for (const [path, body] of Object.values(ways)) {
      const url = new URL(path, server.http);
      await new Promise((done) => {
        const req = http.request(url, { method: 'POST', agent: false, headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' } });
        req.on('error', done);
        req.end(JSON.stringify(body), () => setImmediate(() => { req.destroy(); done(); }));
      });
    }
    const idle = async () => { const m = await server.metrics(); return metric(m, 'sluice_engine_running') === 0 && metric(m, 'sluice_engine_waiting') === 0; };
    assert.ok(await until(idle, WAIT_MS), 'all are cancelled');
  });
});
