// SPDX-License-Identifier: Apache-2.0
// The OpenAI wire format as real clients see it: the openai library, curl over every HTTP version, and plain requests for
// what no library sends. The engine is the echo engine, so every answer is known. With one gateway thread and with four.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { chat, eventsOf, metric, until, user } from './client.mjs';
import { localOnly, request, startServer } from './harness.mjs';

const json = { 'content-type': 'application/json' };

for (const threads of [1, 4]) {
  describe(`the API with ${threads} gateway thread(s)`, () => {
    let server, openai;
    const bearer = (key) => ({ authorization: `Bearer ${key}` });
    const ask = (body, key = server.keys.paid, headers = {}) => request(server.http, '/v1/chat/completions',
      { method: 'POST', headers: { ...json, ...bearer(key), ...headers }, body: typeof body === 'string' ? body : JSON.stringify(body) });
    const idle = async () => metric(await server.metrics(), 'sluice_engine_running') === 0;
    const cancelled = async () => metric(await server.metrics(), 'sluice_engine_cancelled_total') || 0;

    before(async () => {
      server = await startServer({ echo: true, sets: [`gateway.threads=${threads}`, 'engine.echo.ttft=5ms', 'engine.echo.rate=200'] });
      openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
    });
    after(async () => {
      if (!server) return;
      const how = await server.stop();
      assert.equal(how, 0, server.log());
      for (const key of Object.values(server.keys)) assert.ok(!server.log().includes(key), 'a key stands in the log');
      assert.ok(!server.log().includes('canary'), 'a prompt stands in the log');
    });

    test('the library streams', async () => {
      const chunks = [];
      const stream = await openai.chat.completions.create({ model: 'default', messages: user('one two canary'), stream: true,
        stream_options: { include_usage: true } });
      for await (const c of stream) chunks.push(c);
      assert.equal(chunks[0].choices[0].delta.role, 'assistant');
      assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? '').join(''), 'one two canary');
      assert.equal(new Set(chunks.map((c) => `${c.id} ${c.created} ${c.model}`)).size, 1);
      assert.match(chunks[0].id, /^chatcmpl-/);
      const last = chunks.at(-1);
      assert.deepEqual(last.choices, []);
      assert.equal(last.usage.total_tokens, last.usage.prompt_tokens + last.usage.completion_tokens);
      assert.ok(chunks.slice(0, -1).every((c) => c.usage === null));
      assert.deepEqual(chunks.slice(0, -1).map((c) => c.choices[0].finish_reason).filter(Boolean), ['stop']);
      assert.equal(chunks.at(-2).choices[0].finish_reason, 'stop');
    });

    test('the library gets a whole answer', async () => {
      const { data, response } = await openai.chat.completions.create({ model: 'demo-small', messages: user('안녕 "q"\n\u{1F600}') }).withResponse();
      assert.equal(data.choices[0].message.content, '안녕 "q"\n\u{1F600}');
      assert.equal(data.choices[0].message.role, 'assistant');
      assert.equal(data.choices[0].finish_reason, 'stop');
      assert.equal(data.model, 'demo-small');
      assert.match(response.headers.get('x-request-id'), /^req_/);
    });

    test('max_tokens ends with length', async () => {
      const r = await openai.chat.completions.create({ model: 'default', messages: user('a b c d e'), max_completion_tokens: 2 });
      assert.equal(r.choices[0].finish_reason, 'length');
      assert.equal(r.usage.completion_tokens, 2);
    });

    test('the library gets several choices with log probabilities, whole and streamed', async () => {
      const body = { model: 'default', messages: user('one two three'), n: 3, logprobs: true, top_logprobs: 20 };
      const whole = await openai.chat.completions.create(body);
      assert.deepEqual(whole.choices.map((c) => [c.index, c.message.content, c.finish_reason]), [0, 1, 2].map((i) => [i, 'one two three', 'stop']));
      assert.equal(whole.usage.completion_tokens, 12);
      for (const c of whole.choices) {
        assert.deepEqual(c.logprobs.content.map((t) => t.token), ['one ', 'two ', 'three']);
        for (const t of c.logprobs.content) assert.deepEqual(t.top_logprobs, [{ token: t.token, logprob: t.logprob, bytes: t.bytes }]);
        assert.ok(Object.is(c.logprobs.content[0].logprob, 0), 'no -0');
      }
      const text = ['', '', ''], ends = [[], [], []];
      for await (const chunk of await openai.chat.completions.create({ ...body, max_tokens: 2, stream: true }))
        for (const c of chunk.choices) {
          text[c.index] += c.delta.content ?? '';
          if (c.finish_reason) ends[c.index].push(c.finish_reason);
        }
      assert.deepEqual([text, ends], [['one two ', 'one two ', 'one two '], [['length'], ['length'], ['length']]]);
    });

    test('the library leaves before the first token, and runs out of time: nothing is left', async () => {
      const quit = new AbortController();
      const stopped = await cancelled();
      // Read from the beginning: of a stream that nobody reads yet the library does not tell the end.
      const reading = (async () => {
        const body = { model: 'default', messages: user('slow-small@2000 slow-large@2000 a'), stream: true };
        for await (const e of await openai.chat.completions.create(body, { signal: quit.signal })) assert.equal(e.choices[0].delta.content, '');
        throw new OpenAI.APIUserAbortError();
      })();
      await until(async () => metric(await server.metrics(), 'sluice_generations{state="running"}') === 1, 30000);
      quit.abort();
      await assert.rejects(reading, OpenAI.APIUserAbortError);
      assert.ok(await until(async () => await cancelled() === stopped + 1, 30000), 'it ended by itself');
      await assert.rejects(openai.chat.completions.create({ model: 'default', messages: user(`repeat ${'w '.repeat(50)}`), max_tokens: 2000 }, { timeout: 200 }),
        OpenAI.APIConnectionTimeoutError);
      assert.ok(await until(async () => await cancelled() === stopped + 2 && await idle(), 30000));
    });

    test('the library raises typed errors', async () => {
      await assert.rejects(openai.chat.completions.create({ model: 'nope', messages: user('x') }),
        (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found' && e.param === 'model');
      await assert.rejects(openai.chat.completions.create({ model: 'default', messages: user('x'), temperature: 3 }),
        (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
      await assert.rejects(openai.chat.completions.create({ model: 'default', messages: user('x'), web_search_options: {} }),
        (e) => e instanceof OpenAI.BadRequestError && e.code === 'unsupported_parameter' && e.param === 'web_search_options');
      await assert.rejects(openai.embeddings.create({ model: 'default', input: 'x' }), OpenAI.NotFoundError);
      const wrong = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: 'sk-wrong', maxRetries: 0 });
      await assert.rejects(wrong.models.list(), (e) => e instanceof OpenAI.AuthenticationError && e.code === 'invalid_api_key');
      await assert.rejects(openai.chat.completions.create({ model: 'default', messages: user('word '.repeat(5000)), stream: true }),
        (e) => e instanceof OpenAI.BadRequestError && e.code === 'context_length_exceeded');
    });

    test('models', async () => {
      const ids = [];
      for await (const m of openai.models.list()) ids.push(m.id);
      assert.deepEqual(ids.sort(), ['auto', 'demo-large', 'demo-small']);
      const m = await openai.models.retrieve('demo-small');
      assert.equal(m.owned_by, 'sluice');
      assert.equal(m.context_length, 4096);
      await assert.rejects(openai.models.retrieve('x'), OpenAI.NotFoundError);
    });

    test('the same events over HTTP/1.1, h2c and h2', () => {
      const body = JSON.stringify({ model: 'default', stream: true, seed: 5, messages: user('same wörds here') });
      const seen = new Set();
      for (const how of [['--http1.1', server.http], ['--http2-prior-knowledge', server.http],
        ['--http1.1', server.https], ['--http2', server.https]]) {
        const r = spawnSync('curl', ['-sSN', '--cacert', server.caFile, how[0], '-H', `authorization: Bearer ${server.keys.paid}`, '-H',
          'content-type: application/json', '-d', body, `${how[1]}/v1/chat/completions`], { encoding: 'utf8' });
        assert.equal(r.status, 0, r.stderr);
        assert.match(r.stdout, /data: \[DONE\]\n\n$/);
        seen.add(eventsOf(r.stdout).join('\n'));
      }
      assert.equal(seen.size, 1);
    });

    for (const stream of [true, false]) {
      test(`a client that leaves stops its work (stream: ${stream})`, async () => {
        const long = JSON.stringify({ model: 'default', stream, messages: user('word '.repeat(1500)) });
        for (const version of ['--http1.1', '--http2-prior-knowledge']) {
          const stopped = await cancelled();
          const r = spawnSync('curl', ['-sN', '-m', '0.4', version, '-H', `authorization: Bearer ${server.keys.paid}`, '-H',
            'content-type: application/json', '-d', long, '-o', '/dev/null', `${server.http}/v1/chat/completions`]);
          assert.equal(r.status, 28, 'curl was to run into its time limit');
          assert.ok(await until(async () => await cancelled() === stopped + 1 && await idle(), 20000), 'the engine still runs it');
        }
      });
    }

    test('concurrency of a key', async () => {
      const body = { model: 'default', messages: user('word '.repeat(300)), max_tokens: 300 };
      const refused = [];
      let enough = false;
      const all = Array.from({ length: 7 }, () => chat(server.http, server.keys.free, body, { onEvent: () => (enough ? 'abort' : undefined) })
        .then((r) => { if (r.status !== 200) refused.push(r); return r; }));
      await until(() => refused.length === 3, 30000);
      enough = true;
      assert.deepEqual((await Promise.all(all)).map((r) => r.status).sort(), [200, 200, 200, 200, 429, 429, 429]);
      assert.ok(await until(idle, 20000));
      assert.equal((await ask({ model: 'default', messages: user('x') }, server.keys.free)).status, 200, 'the places are free again');
      for (const r of refused) {
        assert.ok(Number(r.headers['retry-after']) >= 1);
        assert.deepEqual({ ...JSON.parse(r.body).error, message: '' },
          { message: '', type: 'rate_limit_error', param: null, code: 'concurrency_limit' });
      }
    });

    test('bodies that are refused', async () => {
      const whole = { model: 'default', messages: user('x') };
      assert.equal((await ask('{')).status, 400);
      assert.equal((await ask('')).status, 400);
      assert.equal((await ask(`${JSON.stringify(whole)} x`)).status, 400);
      assert.equal((await ask(whole, server.keys.paid, { 'content-type': 'text/plain' })).status, 415);
      assert.equal((await ask(whole, server.keys.paid, { 'content-encoding': 'gzip' })).status, 415);
      assert.equal((await ask(whole, server.keys.paid, { 'content-type': 'Application/JSON; charset=utf-8' })).status, 200);
      const big = await request(server.http, '/v1/chat/completions', { method: 'POST',
        headers: { ...json, ...bearer(server.keys.paid), 'content-length': String(2 << 20), expect: '100-continue' } }).catch((e) => e);
      assert.equal(big.status, 413);
    });

    test('every route asks for what it should', async () => {
      const doc = JSON.parse((await request(server.http, '/openapi.json')).body);
      for (const [path, methods] of Object.entries(doc.paths)) {
        for (const [method, op] of Object.entries(methods)) {
          const at = path.replace('{model}', 'demo-small').replace('{file}', 'app.js');
          const send = (headers) => request(server.http, at, { method: method.toUpperCase(), headers: { ...json, ...headers }, body: method === 'post' ? '{}' : undefined });
          const none = await send({});
          if (op.security) { assert.notEqual(none.status, 401, at); continue; }
          assert.equal(none.status, 401, at);
          assert.equal(none.headers['www-authenticate'], 'Bearer');
          assert.match(none.headers['x-request-id'], /^req_/);
          assert.equal((await send(bearer('sk-sluice-free-00000000000000000000000000000000'))).status, 401, at);
          assert.equal((await send({ authorization: `Basic ${server.keys.paid}` })).status, 401, at);
          const operators = at === '/metrics' || at.startsWith('/v1/admin/') || at.endsWith('load_lora_adapter');
          const foreign = operators ? server.keys.paid : server.keys.admin;
          assert.equal((await send(bearer(foreign))).status, 403, at);
        }
      }
      for (const path of ['//v1/models', '/v1/%6dodels', '/v1/models/', '/v1/models//demo-small', '/v1/models/demo-small/', '/v1/./models', '/v1', '/metrics/'])
        assert.equal((await request(server.http, path, { headers: bearer(server.keys.paid) })).status, 404, path);
      assert.equal((await request(server.http, '/v1/models/demo%2Dsmall', { headers: bearer(server.keys.paid) })).status, 200);
      const bad = await request(server.http, '/v1/models/demo%ff', { headers: bearer(server.keys.paid) });
      assert.equal(JSON.parse(bad.body).error.code, 'model_not_found');
      const wrong = await request(server.http, '/v1/models', { method: 'DELETE', headers: bearer(server.keys.paid) });
      assert.equal(wrong.status, 405);
      assert.equal(wrong.headers.allow, 'GET, HEAD, OPTIONS');
      for (const path of ['/v1/chat/foo', '/v1/embeddings/x', '/v1/responses/compact', '/v1/responses/resp_1/unknown', '/v1/models/a/b']) {
        const unknown = await request(server.http, path, { method: 'POST', headers: bearer(server.keys.paid), body: '{}' });
        assert.deepEqual([unknown.status, JSON.parse(unknown.body).error.code], [404, 'unsupported_endpoint'], path);
      }
      assert.equal(JSON.parse((await request(server.http, '/v2/models')).body).error.code, 'unknown_url');
    });

    test('cross-origin requests', async () => {
      const preflight = (origin) => request(server.http, '/v1/chat/completions', { method: 'OPTIONS', headers: { origin,
        'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization, x-stainless-os, x-evil' } });
      const good = await preflight('http://localhost:5173');
      assert.equal(good.status, 204);
      assert.equal(good.headers['access-control-allow-origin'], 'http://localhost:5173');
      assert.match(good.headers['access-control-allow-headers'], /authorization.*x-stainless-os/);
      assert.doesNotMatch(good.headers['access-control-allow-headers'], /evil/);
      assert.equal(good.headers['access-control-max-age'], '7200');
      for (const origin of ['http://evil.example', 'http://localhost:5173.evil.example', 'http://localhost.evil.example', 'null'])
        assert.equal((await preflight(origin)).headers['access-control-allow-origin'], undefined, origin);
    });

    test('the page', async () => {
      const page = await request(server.http, '/');
      assert.equal(page.status, 200);
      assert.match(page.headers['content-security-policy'], /^default-src 'none'; script-src 'self';/);
      assert.equal(page.headers['x-content-type-options'], 'nosniff');
      const again = await request(server.http, '/', { headers: { 'if-none-match': page.headers.etag } });
      assert.equal(again.status, 304);
      assert.equal(again.body, '');
      const head = await request(server.http, '/', { method: 'HEAD' });
      assert.equal(head.headers['content-length'], String(Buffer.byteLength(page.body)));
      assert.equal((await request(server.http, '/www/none.js')).status, 404);
      const library = await request(server.http, '/www/vendor/temml.js');
      assert.match(library.headers['content-type'], /^text\/javascript/);
      assert.match(library.body, /export default temml;\n$/);
      assert.match((await request(server.http, '/www/vendor/temml.LICENSE.txt')).body, /^The MIT License/);
      assert.equal((await request(server.http, '/www/temml.js')).status, 404);
      const client = await request(server.http, '/client.js');
      assert.match(client.headers['content-type'], /^text\/javascript/);
      assert.match(client.body, /export function createClient/);
      const types = await request(server.http, '/client.d.ts');
      assert.match(types.headers['content-type'], /^text\/plain/);
      assert.match(types.body, /export function createClient/);
      for (const path of ['/client.', '/client.css', '/client.js/']) assert.equal((await request(server.http, path)).status, 404);
    });

    test('metrics count what happened', async () => {
      assert.ok(await until(idle, 50000));
      const text = await server.metrics();
      assert.equal(metric(text, 'sluice_engine_up'), 1);
      assert.ok(metric(text, 'sluice_answers_total{route="chat",class="2xx"}') > 0);
      assert.ok(metric(text, 'sluice_tokens_total{tier="paid",kind="completion"}') > 0);
      for (const state of ['submitted', 'queued', 'running'])
        assert.ok(await until(async () => metric(await server.metrics(), `sluice_generations{state="${state}"}`) === 0, 20000), state);
    });
  });
}

test('an engine that dies in mid-stream', async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.die_after=3'] });
  try {
    const body = { model: 'default', messages: user('a b c d e f g h') };
    const r = await chat(server.http, server.keys.paid, body);
    assert.equal(r.status, 200);
    assert.equal(r.errors.length, 1, r.body);
    assert.equal(r.finish, null);
    assert.ok(!r.done);
    assert.ok(await until(async () => (await request(server.http, '/ready')).status === 200, 50000));
    const whole = await chat(server.http, server.keys.paid, { ...body, stream: false });
    assert.equal(whole.status, 503, whole.body);
    assert.ok(Number(whole.headers['retry-after']) >= 1);
    assert.equal((await request(server.http, '/live')).status, 200);
  } finally { await server.stop(); }
});

test('heartbeats while nothing comes', async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=1s', 'gateway.heartbeat=100ms'] });
  try {
    const r = await chat(server.http, server.keys.paid, { model: 'default', messages: user('x y') });
    assert.equal(r.text, 'x y');
    assert.ok(r.done);
    assert.ok(r.comments >= 5 && r.comments <= (r.ended - r.started) / 100 + 1, r.body);
    assert.doesNotMatch(r.body, /: ping\n\n/);
  } finally { await server.stop(); }
});

test('a first token that would come too late is refused before the answer begins', localOnly('how long its first token takes'), async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=300s', 'gateway.limits.first_token=60s'] });
  try {
    // Alone it would be let in: by refusing it nobody gains anything.
    const first = chat(server.http, server.keys.paid, { model: 'default', messages: user('first') }).catch(() => {});
    while (!/^sluice_generations\{state="running"\} 1$/m.test(await server.metrics())) await new Promise((done) => setTimeout(done, 5));
    for (const stream of [true, false]) {
      const r = await chat(server.http, server.keys.paid, { model: 'default', stream, messages: user('x') });
      assert.equal(r.status, 503, r.body);
      assert.ok(Number(r.headers['retry-after']) >= 1);
    }
    const { refusals } = JSON.parse((await request(server.http, '/health')).body);
    assert.deepEqual(refusals.map((why) => [why.reason, why.total, why.predicted_ms >= 300000]), [['late', 2, true]]);
    await server.stop();
    await first;
  } finally { await server.stop(); }
});
