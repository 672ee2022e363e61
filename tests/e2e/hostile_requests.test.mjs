// SPDX-License-Identifier: Apache-2.0
// Hostile requests: JSON meant to break or to slow a parser, text that is none, numbers beyond all bounds, prompts without end,
// streams that might mix, secrets that might leak, more load than there is room for. Each has the figure that is required of it.
// Perf: how fast is refused.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { OVER_UPSTREAM, request, startServer } from './harness.mjs';
import { PERF, figure, measured } from './perf.mjs';

const MIB = 1 << 20;
const WAIT_MS = 60_000;
const UNLIMITED = ['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`);
const rss = (pid) => Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))[1]) * 1024;
const percentile = (list, p) => [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * p))];

/** One POST with any bytes as body: {status, body, id}. */
function post(server, body, { path = '/v1/chat/completions', key = server.keys.paid } = {}) {
  return new Promise((done, failed) => {
    const url = new URL(server.http);
    const bytes = Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
    const req = http.request({ host: url.hostname, port: url.port, path, method: 'POST', agent: false,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': bytes.length } }, (res) => {
      const pieces = [];
      res.on('data', (d) => pieces.push(d));
      res.on('error', failed);
      res.on('end', () => done({ status: res.statusCode, raw: Buffer.concat(pieces), body: Buffer.concat(pieces).toString(), id: res.headers['x-request-id'] }));
    });
    req.on('error', failed);
    req.end(bytes);
  });
}

const param = (r) => { try { return JSON.parse(r.body).error.param; } catch { return `no JSON: ${r.body}`; } };

describe('hostile requests', () => {
  let server, gateway;
  before(async () => {
    server = await startServer({ echo: true, sets: ['engine.echo.rate=0', 'engine.echo.ttft=1ms', 'log.level=debug', 'gateway.tiers.paid.concurrency=20000', 'gateway.tiers.paid.cleanse=off', ...UNLIMITED] });
    gateway = (await server.pids()).gateway;
  });
  after(async () => {
    const now = (await server?.pids())?.gateway;
    assert.equal(await server?.stop(), 0, server?.log().slice(-4000));
    assert.equal(now, gateway, 'the gateway was restarted');
  });

  test('JSON torture is a 400 (perf: in less than 5 ms)', async () => {
    const good = '"model":"default","messages":[{"role":"user","content":"x"}]';
    const deep = (open, close, n) => open.repeat(n) + close.repeat(n);
    const torture = {
      empty: '', blank: ' \n\t ', word: 'null', number: '1', string: '"x"', array: '[]', 'half an object': '{', 'no value': '{"a":}', 'no key': '{:1}',
      'comma at the end': `{${good},}`, 'two commas': `{${good},,"seed":1}`, 'bytes behind it': `{${good}} x`, 'two objects': `{${good}}{${good}}`,
      'NUL behind it': `{${good}}\0`, BOM: `\ufeff{${good}}`, 'single quotes': "{'model':'default'}", comment: `{${good}/* x */}`,
      'duplicate keys': `{${good},"model":"default"}`, 'duplicate keys inside': '{"model":"default","messages":[{"role":"user","role":"system","content":"x"}]}',
      '1e999': `{${good},"temperature":1e999}`, '-1e999': `{${good},"temperature":-1e999}`, 'a number of 100 kB': `{${good},"seed":${'9'.repeat(100000)}}`,
      'an exponent of 100 kB': `{${good},"temperature":1e${'9'.repeat(100000)}}`, NaN: `{${good},"temperature":NaN}`, Infinity: `{${good},"top_p":Infinity}`,
      'leading zero': `{${good},"seed":01}`, 'plus': `{${good},"seed":+1}`, 'point alone': `{${good},"temperature":.5}`, hex: `{${good},"seed":0x10}`,
      'cut escape': '{"model":"\\u12', 'wrong escape': '{"model":"\\x41"}', 'a line end in a string': '{"model":"a\nb"}', 'a tab in a string': '{"model":"a\tb"}',
      'a string without end': `{"model":"${'a'.repeat(500000)}`, 'a key of 500 kB': `{"${'k'.repeat(500000)}":1}`,
      'deep arrays': deep('[', ']', 500000), 'deep objects': deep('{"a":', '}', 150000), 'deep in a field': `{${good},"metadata":${deep('[', ']', 400000)}}`,
      'deep without end': '['.repeat(1000000), 'deep objects without end': '{"a":'.repeat(200000), 'many messages': `{"model":"default","messages":[${'{},'.repeat(300000)}{}]}`,
      'many keys': `{${Array.from({ length: 60000 }, (_, i) => `"k${i}":1`).join()}}`, 'UTF-16': Buffer.from(`{${good}}`, 'utf16le'), garbage: Buffer.from(Array.from({ length: 4096 }, (_, i) => (i * 167 + 13) & 255)),
    };
    const logged = (id) => { const m = new RegExp(` 400 ([\\d.]+) ms.*${id}`).exec(server.log()); return m ? Number(m[1]) : null; };
    // From the head to the answer, as the server measures it: the best of some, for the machine has other things to do.
    const fastest = async (name, body, tries) => {
      let best = Infinity;
      for (let i = 0; i < (PERF ? tries : 1) && best >= 5; i++) {
        const r = await post(server, body);
        assert.equal(r.status, 400, `${name}: ${r.status} ${r.body.slice(0, 200)}`);
        assert.equal(JSON.parse(r.body).error.type, 'invalid_request_error', name);
        assert.ok(await until(() => logged(r.id) !== null, WAIT_MS), `${name}: not logged`);
        best = Math.min(best, logged(r.id));
      }
      return best;
    };
    // What a body of half a megabyte takes to arrive and be read where nothing is odd about it but a number.
    const plain = await fastest('plain', `{"model":"default","messages":[{"role":"user","content":"${'word '.repeat(100000)}"}],"temperature":9}`, 6);
    for (const [name, body] of Object.entries(torture)) {
      const small = Buffer.byteLength(body) < 20000, best = await fastest(name, body, small ? 3 : 6);
      figure(best < (small ? 5 : Math.max(15, 3 * plain)), `torture, ${name}: ${best} ms; a plain one ${plain} ms`);
    }
  });

  test('what is no text is refused, and every answer is text', async () => {
    const around = (bytes) => Buffer.concat([Buffer.from('{"model":"default","messages":[{"role":"user","content":"a'), Buffer.from(bytes), Buffer.from('b"}]}')]);
    const bad = {
      'a lone continuation': [0x80], 'a cut sequence': [0xe2, 0x82], 'overlong slash': [0xc0, 0xaf], 'overlong NUL': [0xc0, 0x80], 'overlong in three': [0xe0, 0x80, 0xaf],
      'a surrogate in UTF-8': [0xed, 0xa0, 0x80], 'a pair in UTF-8': [0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80], 'beyond U+10FFFF': [0xf4, 0x90, 0x80, 0x80], 'five bytes': [0xf8, 0x88, 0x80, 0x80, 0x80],
      'Latin-1': [0xe4, 0x20], FE: [0xfe], FF: [0xff, 0xff], NUL: [0], 'U+0001': [1], 'escaped NUL': Buffer.from('\\u0000'), 'a lone high surrogate': Buffer.from('\\ud83d'),
      'a lone low surrogate': Buffer.from('\\ude00'), 'a pair the wrong way': Buffer.from('\\ude00\\ud83d'), 'half a pair': Buffer.from('\\ud83d\\u0041'),
    };
    const strict = new TextDecoder('utf-8', { fatal: true });
    for (const [name, bytes] of Object.entries(bad)) {
      const r = await post(server, around(bytes));
      assert.equal(r.status, 400, `${name}: ${r.status} ${r.body}`);
      assert.doesNotThrow(() => strict.decode(r.raw), name);
      assert.doesNotThrow(() => JSON.parse(r.body), name);
      // The same where an error message would quote it.
      const q = await post(server, Buffer.concat([Buffer.from('{"messages":[],"model":"'), Buffer.from(bytes), Buffer.from('"}')]));
      assert.ok(q.status === 400 || q.status === 404, `${name}: ${q.status}`);
      assert.doesNotThrow(() => JSON.parse(strict.decode(q.raw)), name);
    }
    for (const text of ['\ufeff', '\uffff', '\u{10ffff}', '👩‍👩‍👧', 'e\u0301\u0302\u0303', '\u202eabc', '\ufdd0', '\u2028 \u2029', '\ue000', '안녕']) {
      const r = await post(server, { model: 'default', messages: user(`x ${text} y`) });
      assert.equal(r.status, 200, r.body);
      assert.equal(JSON.parse(strict.decode(r.raw)).choices[0].message.content, `x ${text} y`);
    }
  });

  test('numbers beyond all bounds are refused by name, and cost nothing', async () => {
    const huge = [0, -1, 1e9, 2 ** 31, 2 ** 32, 2 ** 53, 1e18, 1e300, 0.5];
    const chatCases = [
      ...huge.flatMap((v) => [['n', v], ['max_tokens', v], ['max_completion_tokens', v]]).filter(([k, v]) => !(k !== 'n' && v > 0 && Number.isInteger(v) && v < 2 ** 31)),
      ...[21, 1e9, -1, 1e300].map((v) => ['top_logprobs', v, { logprobs: true }]),
      ...[1e300, -1e300, 2.001, -0.001].map((v) => ['temperature', v]), ...[0, -1, 1.001, 1e300].map((v) => ['top_p', v]),
      ...[2.1, -2.1, 1e300].flatMap((v) => [['presence_penalty', v], ['frequency_penalty', v]]),
      ['stop', Array(100000).fill('x')], ['stop', ''], ['stop', 'x'.repeat(500000)], ['stop', [[]]],
      ['logit_bias', { 1: 101 }], ['logit_bias', { 1: -1e300 }], ['logit_bias', { '-1': 1 }], ['logit_bias', { 99999999999: 1 }], ['logit_bias', []],
      ['logit_bias', Object.fromEntries(Array.from({ length: 20000 }, (_, i) => [i, 1]))],
      ['seed', 1e300], ['seed', 0.5], ['messages', Array(5000).fill({ role: 'user', content: 'x' })],
    ];
    const completionCases = [['n', 1e9], ['best_of', 1e9], ['best_of', -1], ['logprobs', 1e9], ['prompt', Array(100000).fill('x')], ['prompt', [1e300]], ['prompt', Array(3).fill([-1])],
      ['max_tokens', -1], ['suffix', 'x'.repeat(1000)]];
    const all = [...chatCases.map((c) => ['/v1/chat/completions', { model: 'default', messages: user('x') }, ...c]),
      ...completionCases.map((c) => ['/v1/completions', { model: 'default', prompt: 'x' }, ...c])];
    const round = async () => {
      for (const [path, base, name, value, more] of all) {
        const r = await post(server, JSON.stringify({ ...base, ...more, [name]: value }), { path });
        assert.equal(r.status, 400, `${path} ${name} ${JSON.stringify(value).slice(0, 60)}: ${r.status} ${r.body.slice(0, 200)}`);
        assert.ok(String(param(r)).startsWith(name), `${path} ${name} ${JSON.stringify(value).slice(0, 60)}: ${r.body.slice(0, 300)}`);
      }
    };
    // Written out, for no number of this language is so large: these are JSON, and the parser does not take them.
    for (const [path, json, name] of [['chat/completions', '"messages":[{"role":"user","content":"x"}],"seed":99999999999999999999,"n":1', 'seed'],
      ['chat/completions', '"messages":[{"role":"user","content":"x, {\\"y\\":["}],"max_tokens":-99999999999999999999', 'max_tokens'],
      ['chat/completions', '"messages":[{"role":"user","content":"x"}],"temperature": 1e999 ', 'temperature'],
      ['chat/completions', '"messages":[{"role":"user","content":"x"},{"role":"user","content":"x","weight":1e999}]', 'messages[1].weight'],
      ['completions', '"prompt":[1,2,99999999999999999999]', 'prompt[2]'], ['responses', '"input":"x","max_output_tokens":99999999999999999999', 'max_output_tokens']]) {
      const r = await post(server, `{"model":"default",${json}}`, { path: `/v1/${path}` });
      const { error } = JSON.parse(r.body);
      assert.deepEqual([r.status, error.param, error.code], [400, name, 'invalid_value'], r.body);
      assert.ok(error.message.startsWith(`Invalid value for '${name}': the number is too large (line 1, column `), r.body);
    }
    // The gateway's own count: the engine's come once a second, and may still lack what was asked before.
    const submitted = async () => metric(await server.metrics(), 'sluice_submits_encoded_total');
    const before = await submitted(), size = rss(gateway);
    assert.ok(before > 0);
    // Some memory is allocated once, in any round, and a large body's goes back to the system in a later one: either way
    // five rounds together come to add less than a megabyte. With a leak they never do.
    let start = -Infinity, still = 0;
    const levelled = async () => {
      await round();
      if (rss(gateway) - start < MIB) return ++still === 5;
      start = rss(gateway);
      still = 0;
      return false;
    };
    assert.ok(await until(levelled, WAIT_MS), `grew by ${rss(gateway) - size} bytes`);
    assert.equal(await submitted(), before);
  });

  test('thousands of streams never mix, also when many are broken off', async () => {
    const CONNECTIONS = 10, AT_ONCE = 100, ROUNDS = process.env.THOROUGH ? 10 : 4;
    let whole = 0, broken = 0;
    const one = (session, nonce, leave) => new Promise((done, failed) => {
      const s = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' });
      let text = '';
      s.setEncoding('utf8').on('data', (d) => { text += d; if (leave) s.close(http2.constants.NGHTTP2_CANCEL); });
      s.on('error', leave ? () => {} : failed);
      s.on('close', () => {
        const own = text.split(nonce).length - 1, others = (text.match(/nonce-\d+-\d+-\d+-z/g) ?? []).length;
        if (others !== own) return failed(new Error(`foreign nonce beside ${nonce}: ${text}`));
        if (leave) broken++;
        else if (!text.includes('data: [DONE]') || own !== 1) return failed(new Error(`${nonce}: ${text}`));
        else whole++;
        return done();
      });
      // One word, so that it comes whole in one event.
      s.end(JSON.stringify({ model: 'default', stream: true, messages: user(`${nonce} and more words to be sent behind`) }));
    });
    await Promise.all(Array.from({ length: CONNECTIONS }, async (_, c) => {
      const session = http2.connect(server.http);
      session.on('error', () => {});
      for (let r = 0; r < ROUNDS; r++) {
        // Every tenth leaves: fewer than the bucket of resets allows.
        await Promise.all(Array.from({ length: AT_ONCE }, (__, i) => one(session, `nonce-${c}-${r}-${i}-z`, i % 10 === 9 && r % 2 === 0)));
      }
      session.close();
    }));
    assert.equal(whole + broken, CONNECTIONS * AT_ONCE * ROUNDS);
    assert.ok(broken >= CONNECTIONS * AT_ONCE * ROUNDS / 25, `${broken} broken off`);
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, WAIT_MS), 'work goes on');
  });

  test('neither keys nor prompts get where they do not belong', async () => {
    const prompt = 'CanaryPrompt7f3a', badKey = 'sk-CanaryKey91bc';
    const whole = { model: 'default', messages: user(`${prompt} tell`) };
    await post(server, whole);
    await chat(server.http, server.keys.paid, whole);
    await chat(server.http, server.keys.paid, whole, { onEvent: () => 'abort' });
    const errors = [await post(server, whole, { key: badKey }), await post(server, { ...whole, temperature: 9 }), await post(server, `{"x":"${prompt}"`),
      await post(server, { ...whole, max_tokens: -1 }), await post(server, { ...whole, messages: [{ role: 'user', content: [{ type: prompt }] }] }),
      await post(server, { model: 'default', messages: user(`${prompt} `.repeat(30000)) })];
    for (const r of errors) assert.ok(!r.body.includes(badKey) && !r.body.includes(server.keys.paid), r.body);
    await request(server.http, `/v1/models?key=${badKey}&prompt=${prompt}`, { headers: { authorization: `Bearer ${badKey}`, cookie: `k=${badKey}`, 'x-note': prompt } });
    await request(server.http, `/${prompt}/${badKey}`);
    const later = await post(server, { model: 'default', messages: user('x'), temperature: 9 });
    assert.ok(!later.body.includes('Canary'));
    const metrics = await server.metrics();
    const secrets = [prompt, badKey, ...Object.values(server.keys)];
    for (const secret of secrets) {
      assert.ok(!metrics.includes(secret), `in the metrics: ${secret}`);
      assert.ok(!server.log().includes(secret), `in the log: ${server.log().split('\n').find((l) => l.includes(secret))}`);
      for (const pid of Object.values(await server.pids())) {
        for (const file of ['cmdline', 'environ']) assert.ok(!readFileSync(`/proc/${pid}/${file}`, 'latin1').includes(secret), `in ${file}`);
      }
    }
    const files = (d) => readdirSync(d).flatMap((f) => { const p = join(d, f); const st = statSync(p); return st.isDirectory() ? files(p) : st.isFile() ? [p] : []; });
    for (const file of files(server.state)) {
      if (file.endsWith('dev-keys.yaml')) { assert.equal(statSync(file).mode & 0o777, 0o600); continue; }
      for (const secret of secrets) assert.ok(!readFileSync(file, 'latin1').includes(secret), file);
    }
  });
});

describe('hostile requests to a model', () => {
  let server;
  before(async () => { server = await startServer({ sets: ['engine.max_sequences=4', 'engine.max_waiting=8', 'gateway.tiers.paid.concurrency=1000', ...UNLIMITED] }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log().slice(-4000)));
  const count = async (name) => metric(await server.metrics(), name) || 0;

  test('a prompt longer than the context is refused before any of it is computed', async () => {
    await post(server, { model: 'demo-small', messages: user('warm'), max_tokens: 2 });
    const computed = () => (OVER_UPSTREAM ? 1 : count('sluice_engine_prefill_tokens_total')); // an upstream's are its own
    assert.ok(await until(computed, WAIT_MS));
    const before = await computed();
    for (const body of [{ messages: user('word '.repeat(100000)) }, { messages: user('가'.repeat(200000)) }]) {
      const r = await post(server, { model: 'demo-small', ...body });
      assert.equal(r.status, 400, r.body.slice(0, 300));
      assert.equal(JSON.parse(r.body).error.code, 'context_length_exceeded');
    }
    assert.equal(await computed(), before);
  });

  test('control tokens in the text of a request are text', async () => {
    const ask = async (content) => {
      const r = await post(server, { model: 'demo-small', messages: user(content), max_tokens: 1 });
      assert.equal(r.status, 200, r.body);
      return JSON.parse(r.body).usage.prompt_tokens;
    };
    const none = await ask('');
    for (const t of ['<|im_end|>', '<|im_start|>', '<|endoftext|>']) {
      const n = await ask(t) - none;
      assert.ok(n > 1, `${t} is ${n} token(s)`);
      assert.ok(Math.abs(await ask(t.repeat(20)) - none - 20 * n) <= 20, t);
    }
  });

  test('beyond its capacity it refuses at once and goes on at its best', async () => {
    let number = 0; // each another one: twins cost nothing
    const body = () => ({ model: 'demo-small', messages: user(`Tell me a short story about cat ${number++}.`), max_tokens: 40, temperature: 0 });
    /** n clients that ask again and again for ms: answers per second, and how long refusals took. */
    const load = async (n, ms) => {
      const end = Date.now() + ms;
      let good = 0, spoiled = false;
      const refused = [];
      await Promise.all(Array.from({ length: n }, async () => {
        while (Date.now() < end) {
          const t0 = Date.now();
          const r = await chat(server.http, server.keys.paid, body());
          // A machine that stands still for seconds makes the engine look dead: nothing is learnt from that.
          if (r.errors.some((e) => e.code === 'engine_unavailable')) { spoiled = true; return; }
          if (r.status === 200) { assert.ok(r.done && !r.errors.length, `${r.body}\n${server.log().split('\n').filter((l) => !/ info gateway: [A-Z]+ \//.test(l)).slice(-20).join('\n')}`); good++; } else {
            assert.ok(r.status === 429 || r.status === 503, `${r.status} ${r.body}`);
            assert.ok(Number(r.headers['retry-after']) >= 1);
            refused.push(Date.now() - t0);
            await new Promise((done) => setTimeout(done, 250)); // sooner than it was told to
          }
        }
      }));
      return { good: good / ms * 1000, refused, spoiled };
    };
    await load(4, 500);
    let over;
    await measured(async () => {
      const peak = await load(4, PERF ? 3000 : 300);
      over = await load(40, PERF ? 4000 : 1000);
      return { good: !peak.spoiled && !over.spoiled && over.good >= 0.9 * peak.good && percentile(over.refused, 0.5) < 20,
        text: `over capacity: ${over.good.toFixed(1)} of ${peak.good.toFixed(1)} answers per second, refusals after ${percentile(over.refused, 0.5)} ms (${over.refused.length})` };
    }, { tries: 5 });
    assert.ok(over.refused.length > 0, 'nothing was refused');
    assert.ok(await until(async () => await count('sluice_engine_running') === 0, WAIT_MS));
    const r = await chat(server.http, server.keys.paid, body());
    assert.equal(r.status, 200);
  });
});
