// SPDX-License-Identifier: Apache-2.0
// Who is let in: keys that are made, rotated and revoked while the server runs, browser tokens, callers without a key, web
// origins; and what a tier allows beside rates: prompts, time. With a redis-server of the test's own.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createHash, createHmac } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, statSync, readdirSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chat, user } from './client.mjs';
import { localOnly, request, ROOT, SLUICE, startServer } from './harness.mjs';

const ORIGIN = 'https://chat.example';
const configured = 'sk-of-the-configuration';
const digest = createHash('sha256').update(configured).digest('hex');

/** etc/sluice.yaml with one key more, which is bound to an origin, and small tiers. */
function edit(yaml) {
  return yaml
    .replace('  keys: []\n', `  keys:\n    - name: bound\n      sha256: ${digest}\n      tier: paid\n      origins: [${ORIGIN}]\n`)
    .replace('  tiers:\n', '  tiers:\n    - name: tiny\n      max_prompt: 5\n      deadline: 400ms\n      requests_per_minute: 30\n      tokens_per_day: 5000\n      concurrency: 2\n      subject_requests_per_minute: 2\n');
}

/** A redis-server on a unix socket: {address, stop, freeze}. */
async function startRedis() {
  const dir = mkdtempSync(join(tmpdir(), 'keys-redis-'));
  const socket = join(dir, 's');
  chmodSync(dir, 0o755); // a Redis of others, for any user here
  const child = spawn('redis-server', ['--port', '0', '--unixsocket', socket, '--unixsocketperm', '777', '--dir', dir, '--save', '', '--appendonly', 'no'], { stdio: 'ignore' });
  for (let tries = 0; ; tries++) {
    const up = await new Promise((done) => {
      const s = net.connect(socket, () => { s.destroy(); done(true); });
      s.once('error', () => done(false));
    });
    if (up) break;
    if (tries > 500) throw new Error('redis-server does not start');
    await new Promise((done) => setTimeout(done, 10));
  }
  const stop = () => new Promise((done) => {
    if (child.exitCode !== null || child.signalCode !== null) return done();
    child.once('close', done);
    child.kill('SIGKILL');
  });
  process.once('exit', () => { child.kill('SIGKILL'); rmSync(dir, { recursive: true, force: true }); });
  return { address: `unix:${socket}`, stop };
}

describe('keys of the store', () => {
  let redis, server, state;
  const sets = () => [`cache.address=${redis.address}`, 'engine.echo.rate=0', 'engine.echo.ttft=1ms', 'gateway.anonymous=tiny'];

  /** sluice keys …: {code, out, err}. */
  const keys = (...args) => new Promise((done) => {
    execFile(SLUICE, ['keys', ...args, '-c', join(state, 'sluice.yaml'), '--state', state, '--set', `cache.address=${redis.address}`], { cwd: ROOT },
      (e, out, err) => done({ code: e === null ? 0 : e.code, out: out.trim(), err }));
  });
  const bearer = (key, more = {}) => ({ headers: { authorization: `Bearer ${key}`, ...more } });
  const models = async (key, more) => (await request(server.http, '/v1/models', bearer(key, more))).status;
  const post = async (path, key, body, more) => {
    const r = await request(server.http, path, { method: 'POST', headers: { ...(key ? { authorization: `Bearer ${key}` } : {}), 'content-type': 'application/json', ...more }, body: JSON.stringify(body) });
    return { ...r, json: JSON.parse(r.body) };
  };
  const usage = async (key) => JSON.parse((await request(server.http, '/v1/usage', key ? bearer(key) : {})).body);
  /** Until what is asked for is so: revocations are seen after 30 s at most, unknown keys after 2 s. */
  const until = async (what, ms) => {
    for (const end = Date.now() + ms; !(await what());) {
      assert.ok(Date.now() < end, `not within ${ms} ms`);
      await new Promise((done) => setTimeout(done, 100));
    }
  };

  before(async () => {
    redis = await startRedis();
    server = await startServer({ echo: true, edit, sets: sets() });
    state = server.state;
  });
  after(async () => {
    assert.equal(await server?.stop(), 0, server?.log());
    await redis?.stop();
  });

  test('a key is made while the server runs, works at once, is listed, and only its hash is kept', async () => {
    const made = await keys('create', 'alice', '--tier', 'paid', '--tenant', 'acme');
    assert.equal(made.code, 0, made.err);
    assert.match(made.out, /^sk-sluice-[0-9a-f]{48}$/);
    const r = await chat(server.http, made.out, { model: 'default', messages: user('a b c') });
    assert.equal(r.status, 200);
    assert.equal((await post('/v1/chat/completions', made.out, { model: 'default', messages: user('a b c') })).status, 200);
    const [listed] = JSON.parse((await keys('list', '--json')).out);
    assert.deepEqual([listed.name, listed.tier, listed.tenant, listed.state], ['alice', 'paid', 'acme', 'valid']);
    assert.ok(!(await keys('list')).out.includes(made.out), 'the key itself is shown once');
    assert.equal((await keys('create', 'alice', '--tier', 'paid')).code, 64, 'a name is taken');
    assert.equal((await keys('create', 'eve', '--tier', 'gold')).code, 64, 'a tier that is not there');
    assert.ok(!server.log().includes(made.out));
    const u = await usage(made.out);
    assert.deepEqual([u.kind, u.key, u.tier], ['key', 'alice', 'paid']);
  });

  test('rotated with a time of grace: both work, and they are one tenant', async () => {
    const first = (await keys('create', 'bob', '--tier', 'paid')).out;
    const stored = await post('/v1/responses', first, { model: 'default', input: 'a b' });
    assert.equal(stored.status, 200);
    const second = (await keys('rotate', 'bob', '--grace', '1h')).out;
    assert.notEqual(first, second);
    assert.deepEqual([await models(first), await models(second)], [200, 200]);
    const again = await request(server.http, `/v1/responses/${stored.json.id}`, bearer(second));
    assert.equal(again.status, 200, 'what the tenant has stays the tenant\'s');
    const foreign = (await keys('create', 'carol', '--tier', 'paid')).out;
    assert.equal((await request(server.http, `/v1/responses/${stored.json.id}`, bearer(foreign))).status, 404);
  });

  test('a revoked key that no gateway has seen is unknown at once; an expired one too', async () => {
    const gone = (await keys('create', 'gone', '--tier', 'paid')).out;
    assert.match((await keys('revoke', 'gone')).out, /^1 revoked/);
    assert.equal(await models(gone), 401);
    const short = (await keys('create', 'short', '--tier', 'paid', '--expires', '1s')).out;
    await until(async () => (await models(short)) === 401, 50000);
    assert.equal((await keys('revoke', 'nobody')).code, 1);
  });

  test('a key that nobody has made', async () => {
    assert.equal(await models('sk-unknown'), 401);
    assert.equal((await post('/v1/chat/completions', 'sk-unknown', { model: 'default', messages: user('a') })).json.error.code, 'invalid_api_key');
  });

  test('an administrator\'s key of the store reads metrics and nothing else', async () => {
    const admin = (await keys('create', 'ops', '--tier', 'admin')).out;
    assert.equal((await request(server.http, '/metrics', bearer(admin))).status, 200);
    assert.equal(await models(admin), 403);
    assert.equal((await post('/v1/browser_tokens', admin, { subject: 'u' })).status, 403);
  });

  test('browser tokens: made by a key, worth what it is worth, for some pages, for a while', async () => {
    const key = (await keys('create', 'site', '--tier', 'paid', '--origin', ORIGIN, '--origin', 'http://localhost:*')).out;
    for (const by of [key, server.keys.paid]) {
      const made = await post('/v1/browser_tokens', by, { subject: 'user-7', ttl: 60, origins: [ORIGIN] });
      assert.equal(made.status, 200, made.body);
      assert.equal(made.headers['cache-control'], 'no-store');
      const { token, expires_at: ends } = made.json;
      assert.ok(Math.abs(ends - Date.now() / 1000 - 60) < 5);
      assert.equal(await models(token), 200);
      assert.equal(await models(token, { origin: ORIGIN }), 200);
      assert.equal(await models(token, { origin: 'https://evil.example' }), 403);
      assert.equal((await chat(server.http, token, { model: 'default', messages: user('a') })).status, 200);
      const u = await usage(token);
      assert.deepEqual([u.kind, u.subject, u.tier, u.expires_at], ['browser_token', 'user-7', 'paid', ends]);
      assert.equal((await post('/v1/browser_tokens', token, { subject: 'x' })).status, 403, 'a token makes no token');
      assert.equal((await request(server.http, '/metrics', bearer(token))).status, 403);
      // What it made it may read by its id; what others of the key made it doesn't learn of.
      const own = (await post('/v1/conversations', token, {})).json.id;
      assert.equal((await request(server.http, `/v1/conversations/${own}`, bearer(token))).status, 200);
      assert.equal((await request(server.http, '/v1/conversations', bearer(token))).status, 403, 'a token lists nothing');
      assert.match((await request(server.http, '/v1/conversations', bearer(by))).body, new RegExp(own));
      // Forged: another payload under the old signature, another secret, cut short.
      const [head, payload, mac] = token.split('.');
      const other = Buffer.from(Buffer.from(payload, 'base64url').toString().replace('user-7', 'user-8')).toString('base64url');
      const signed = createHmac('sha256', Buffer.alloc(32)).update(`${head}.${payload}`).digest('base64url');
      for (const bad of [`${head}.${other}.${mac}`, `${head}.${payload}.${signed}`, token.slice(0, -1), `${head}.${payload}`, `${head}.${payload}.`, 'sbt_0.e30.AA', `sbt_1.${payload}.${mac}`])
        assert.equal(await models(bad), 401, bad);
    }
    for (const [body, param] of [[{ subject: 'u', ttl: 59 }, 'ttl'], [{ subject: 'u', ttl: 3601 }, 'ttl'], [{ subject: '' }, 'subject'], [{}, 'subject'],
      [{ subject: 'u', origins: ['https://evil.example'] }, 'origins'], [{ subject: 'u', origins: ['nonsense'] }, 'origins'], [{ subject: 'u', tier: 'paid' }, 'tier']]) {
      const r = await post('/v1/browser_tokens', key, body);
      assert.deepEqual([r.status, r.json.error.param], [400, param], r.body);
    }
  });

  test('one subject of a key uses up its own requests only', async () => {
    const key = (await keys('create', 'many', '--tier', 'tiny')).out;
    const token = async (subject) => (await post('/v1/browser_tokens', key, { subject })).json.token;
    const [one, other] = [await token('one'), await token('other')];
    const ask = (by) => post('/v1/chat/completions', by, { model: 'default', messages: user('a') });
    assert.equal((await ask(one)).status, 200);
    assert.equal((await ask(await token('one'))).status, 200);
    const refused = await ask(one);
    assert.deepEqual([refused.status, refused.json.error.type], [429, 'requests']);
    assert.ok(Number(refused.headers['retry-after-ms']) > 1000);
    assert.equal((await usage(one)).remaining.subject_requests_per_minute.remaining, 0);
    assert.equal((await ask(other)).status, 200);
    assert.equal((await ask(key)).status, 200);
  });

  test("what a token's subject made is that subject's and the key's", async () => {
    const key = (await keys('create', 'owner', '--tier', 'paid')).out;
    const token = async (subject) => (await post('/v1/browser_tokens', key, { subject })).json.token;
    const [a, again, b] = [await token('a'), await token('a'), await token('b')];
    const ask = async (method, path, by, body) => {
      const r = await request(server.http, path, { method, headers: { authorization: `Bearer ${by}`, 'content-type': 'application/json' }, body: body && JSON.stringify(body) });
      return { status: r.status, text: r.body.replace(/(resp|conv)_[0-9a-f]+/g, 'ID'), json: r.body === '' ? null : JSON.parse(r.body.startsWith('{') ? r.body : 'null') };
    };
    const made = (await ask('POST', '/v1/responses', a, { model: 'default', input: 'a b', background: true })).json.id;
    const conv = (await ask('POST', '/v1/conversations', a, { items: [{ role: 'user', content: 'mine' }] })).json.id;
    const own = (await ask('POST', '/v1/conversations', key, {})).json.id;
    assert.match(made, /^resp_[0-9a-f]{48}$/);
    assert.match(conv, /^conv_[0-9a-f]{48}$/);
    assert.match(own, /^conv_[0-9a-f]{32}$/);
    await until(async () => (await ask('GET', `/v1/responses/${made}`, a)).json.status === 'completed', 50000);
    const none = { response: `resp_${'0'.repeat(48)}`, conversation: `conv_${'0'.repeat(48)}` };
    const cases = (response, conversation) => [
      ['GET', `/v1/responses/${response}`], ['GET', `/v1/responses/${response}?stream=true&starting_after=1`],
      ['GET', `/v1/responses/${response}/input_items`], ['POST', `/v1/responses/${response}/cancel`], ['DELETE', `/v1/responses/${response}`],
      ['GET', `/v1/streams/${response}`], ['DELETE', `/v1/streams/${response}`],
      ['POST', '/v1/responses', { model: 'default', input: 'c', previous_response_id: response }],
      ['POST', '/v1/responses', { model: 'default', input: 'c', conversation }],
      ['GET', `/v1/conversations/${conversation}`], ['POST', `/v1/conversations/${conversation}`, { metadata: {} }],
      ['GET', `/v1/conversations/${conversation}/items`], ['POST', `/v1/conversations/${conversation}/items`, { items: [{ role: 'user', content: 'x' }] }],
      ['DELETE', `/v1/conversations/${conversation}`],
    ];
    const unknown = cases(none.response, none.conversation), theirs = cases(made, conv);
    for (const [i, [method, path, body]] of theirs.entries()) {
      const r = await ask(method, path, b, body), u = await ask(...unknown[i].slice(0, 2), b, unknown[i][2]);
      assert.deepEqual([r.status, r.text], [u.status, u.text], `${method} ${path}`);
      assert.ok(r.status === 404 || r.status === 400, `${method} ${path}: ${r.status}`);
    }
    assert.equal((await ask('GET', `/v1/conversations/${own}`, a)).status, 404, "what the key made is none of its subjects'");
    for (const by of [again, key]) {
      assert.equal((await ask('GET', `/v1/responses/${made}`, by)).status, 200);
      assert.equal((await ask('GET', `/v1/responses/${made}/input_items`, by)).status, 200);
      assert.equal((await ask('GET', `/v1/streams/${made}`, by)).status, 200);
      assert.equal((await ask('POST', '/v1/responses', by, { model: 'default', input: 'c', previous_response_id: made })).status, 200);
      assert.equal((await ask('POST', '/v1/responses', by, { model: 'default', input: 'c', conversation: conv })).status, 200);
    }
    assert.equal((await ask('DELETE', `/v1/responses/${made}`, again)).status, 200);
    assert.equal((await ask('DELETE', `/v1/conversations/${conv}`, key)).status, 200);
    assert.equal((await ask('GET', `/v1/conversations/${conv}`, a)).status, 404);
  });

  test('a key for repeating a request is one of the subject, not of all for whom there are tokens', async () => {
    const key = (await keys('create', 'apart', '--tier', 'paid')).out;
    const token = async (subject) => (await post('/v1/browser_tokens', key, { subject })).json.token;
    const ask = async (by) => (await post('/v1/chat/completions', by, { model: 'default', messages: user('a') }, { 'idempotency-key': 'order-1' })).json.id;
    const [one, other] = [await token('one'), await token('other')];
    const mine = await ask(one);
    assert.equal(await ask(await token('one')), mine);
    const ids = [mine, await ask(other), await ask(key)];
    assert.equal(new Set(ids).size, 3, ids.join(' '));
  });

  test('origins of a configured key', async () => {
    assert.equal(await models(configured), 200);
    assert.equal(await models(configured, { origin: ORIGIN }), 200);
    const r = await request(server.http, '/v1/models', bearer(configured, { origin: 'http://localhost:3000' }));
    assert.deepEqual([r.status, JSON.parse(r.body).error.code], [403, 'origin_not_allowed']);
    assert.equal(await models(server.keys.paid, { origin: 'https://any.example' }), 200, 'a key without a list may be used from anywhere');
  });

  test('without a key: the anonymous tier, by address, with its limits', async () => {
    const u = await usage(null);
    assert.deepEqual([u.kind, u.tier, u.limits.max_prompt, u.limits.deadline_ms], ['anonymous', 'tiny', 5, 400]);
    assert.equal(u.remaining.requests_per_minute.remaining, 30);
    assert.equal((await usage(null)).remaining.requests_per_minute.remaining, 30, 'looking costs nothing');
    const r = await post('/v1/chat/completions', null, { model: 'default', messages: user('a b') });
    assert.equal(r.status, 200, r.body);
    const later = await usage(null);
    assert.ok(later.remaining.requests_per_minute.remaining < 30);
    await until(async () => (await usage(null)).remaining.tokens_per_day.remaining === 5000 - r.json.usage.total_tokens, 30000);
    assert.equal((await post('/v1/browser_tokens', null, { subject: 'u' })).status, 403);
    assert.equal((await request(server.http, '/v1/conversations')).status, 403, 'neighbours share an address');
    assert.equal((await request(server.http, '/metrics')).status, 401);
    const wrong = await post('/v1/chat/completions', 'nonsense', { model: 'default', messages: user('a') });
    assert.ok(wrong.status === 401 || wrong.status === 429, 'a wrong key is not no key');
  });

  test('a prompt that is longer than its tier allows', async () => {
    const r = await post('/v1/chat/completions', null, { model: 'default', messages: user('1 2 3 4 5 6 7 8') });
    assert.equal(r.status, 400);
    assert.equal(r.json.error.code, 'context_length_exceeded');
    assert.match(r.json.error.message, /at most 5 tokens; yours has 8/);
  });

  test('guessing locks out no honest key of the same address', async () => {
    const honest = [];
    for (let i = 0; i < 4; i++) honest.push((await keys('create', `behind-the-proxy-${i}`, '--tier', 'paid')).out);
    let guesses = 0, stop = false;
    const guess = async (k) => {
      while (!stop && guesses < 20000) {
        const status = await models(`sk-guess-${k}-${guesses++}`);
        assert.ok(status === 401 || status === 429, String(status));
      }
    };
    const guessing = Array.from({ length: 16 }, (_, k) => guess(k));
    while (guesses < 200) await new Promise((done) => setImmediate(done)); // far more than an address may miss
    for (const key of honest) assert.equal(await models(key), 200, 'a key that this server has never seen');
    stop = true;
    await Promise.all(guessing);
    assert.match(await server.metrics(), /sluice_http_limited_total\{limit="unknown_keys"\} [1-9]/);
  });

  test('times of the store are told in seconds', async () => {
    const text = await server.metrics();
    const count = (le) => Number(text.match(new RegExp(`^sluice_cache_redis_seconds_bucket\\{le="${le}"\\} (\\d+)$`, 'm'))?.[1]);
    assert.ok(count('\\+Inf') > 0, 'the store was asked');
    assert.ok(count('5e-05') < count('\\+Inf'), 'no answer of Redis comes in no time');
  });

  test('who tries many keys gets 429 and known keys go on', async () => {
    const known = (await keys('create', 'steady', '--tier', 'paid')).out;
    assert.equal(await models(known), 200);
    const seen = await Promise.all(Array.from({ length: 60 }, (_, i) => models(`sk-guess-${i}`)));
    assert.ok(seen.includes(429) && seen.every((s) => s === 401 || s === 429), String(seen));
    assert.equal(await models(known), 200);
    assert.equal(await models(server.keys.free), 200, 'a key of the configuration never asks the store');
    assert.match(await server.metrics(), /sluice_http_limited_total\{limit="unknown_keys"\} [1-9]/);
  });
});

describe('the time of an answer', () => {
  let server;
  before(async () => { server = await startServer({ echo: true, edit, sets: ['engine.echo.rate=5', 'engine.echo.ttft=1ms', 'gateway.anonymous=tiny', 'cache.store=memory'] }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  const words = 'a b c d e';
  const long = { model: 'default', messages: user(words), min_tokens: 100, max_tokens: 200 };

  test('ends it with "length" and says why, streamed and whole', localOnly('how many tokens a prompt has before it is answered'), async () => {
    const key = { 'content-type': 'application/json' };
    const streamed = await request(server.http, '/v1/chat/completions', { method: 'POST', headers: key, body: JSON.stringify({ ...long, stream: true }) });
    assert.equal(streamed.status, 200, streamed.body);
    const events = streamed.body.split('\n\n').filter((e) => e.startsWith('data: {')).map((e) => JSON.parse(e.slice(6)));
    const last = events.find((e) => e.choices[0]?.finish_reason);
    assert.deepEqual([last.choices[0].finish_reason, last.sluice], ['length', { ended_by: 'deadline' }]);
    const whole = JSON.parse((await request(server.http, '/v1/chat/completions', { method: 'POST', headers: key, body: JSON.stringify(long) })).body);
    assert.deepEqual([whole.choices[0].finish_reason, whole.sluice], ['length', { ended_by: 'deadline' }]);
    assert.ok(whole.choices[0].message.content.length > 0, 'what was made is told');
    const capped = JSON.parse((await request(server.http, '/v1/chat/completions', { method: 'POST', headers: key, body: JSON.stringify({ ...long, min_tokens: 1, max_tokens: 1 }) })).body);
    assert.deepEqual([capped.choices[0].finish_reason, capped.sluice], ['length', undefined], 'what was asked for is no surprise');
  });

  test('browser tokens without Redis: the secret is a file of the state folder', async () => {
    const r = await request(server.http, '/v1/browser_tokens', { method: 'POST', headers: { authorization: `Bearer ${server.keys.free}`, 'content-type': 'application/json' }, body: '{"subject":"u"}' });
    const { token } = JSON.parse(r.body);
    assert.equal((await request(server.http, '/v1/models', { headers: { authorization: `Bearer ${token}` } })).status, 200);
    const dir = join(server.state, 'token-secrets');
    const files = readdirSync(dir);
    assert.equal(files.length, 1);
    assert.equal(statSync(join(dir, files[0])).mode & 0o777, 0o600);
  });

  test('sluice keys refuses a store that is memory', async () => {
    const { code, err } = await new Promise((done) => execFile(SLUICE, ['keys', 'list', '--set', 'cache.store=memory'], { cwd: ROOT }, (e, out, text) => done({ code: e?.code, err: text })));
    assert.equal(code, 64);
    assert.match(err, /needs? .*Redis|need Redis/);
  });
});
