// SPDX-License-Identifier: Apache-2.0
// What an administrator sees and does: the API under /v1/admin and the page on it, against real servers with two gateway threads.
// The prompts hold a canary that must be in no reply, no line of the log and no dump of the flight recorder.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile, readdir, stat } from 'node:fs/promises';
import http from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { CHROMIUM, launch } from './chromium.mjs';
import { until } from './client.mjs';
import { localOnly, SLUICE, request, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const CANARY = 'kumquat-7319';
const id = (name) => `[data-testid="${name}"]`;
/** Waits for what probe asks for, less often than administrators may ask. */
const eventually = async (probe) => { assert.ok(await until(probe, 60_000, 200), 'it has not come'); };

let server;

before(async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=2', 'engine.echo.rate=2', 'gateway.metrics_public=true', 'supervisor.drain=2s', 'gateway.drain=1s',
    ...['base.of=shop', 'base.model=demo-small', 'base.weight=1', 'next.of=shop', 'next.model=demo-large', 'next.weight=1'].map((s) => `gateway.variants.${s}`)] });
});
after(async () => { await server?.stop(); });

const as = (key) => (key === undefined ? {} : { authorization: `Bearer ${key}` });
const admin = async (path, { method = 'GET', key = server.keys.admin, body } = {}) => {
  const headers = { ...as(key), ...(body !== undefined && { 'content-type': 'application/json' }) };
  const r = await request(server.http, `/v1/admin/${path}`, { method, headers, body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body) });
  return { ...r, value: r.body === '' ? null : JSON.parse(r.body) };
};

/** A stream that lasts until it is cancelled: {text(), ended}. */
function stream(key = server.keys.paid, words = `${CANARY} `.repeat(400)) {
  let text = '';
  const ended = new Promise((done, failed) => {
    const req = http.request(`${server.http}/v1/chat/completions`, { method: 'POST', agent: false, headers: { ...as(key), 'content-type': 'application/json' } }, (res) => {
      res.setEncoding('utf8').on('data', (d) => { text += d; }).on('end', () => done(res.statusCode)).on('error', failed);
    });
    req.on('error', failed);
    req.end(JSON.stringify({ model: 'demo-small', stream: true, messages: [{ role: 'user', content: words }] }));
  });
  return { text: () => text, ended, id: () => /"id":"([^"]+)"/.exec(text)?.[1] };
}

const ROUTES = [['GET', 'status'], ['GET', 'streams'], ['DELETE', 'streams/chatcmpl-1'], ['GET', 'history'], ['GET', 'log'], ['POST', 'log'], ['POST', 'reload'], ['POST', 'drain'], ['POST', 'flight'], ['GET', 'variants'], ['POST', 'variants']];

test('no route opens without an administrator’s key', async () => {
  for (const [method, path] of ROUTES) {
    const body = ['log', 'variants'].includes(path) && method === 'POST' ? '{}' : undefined;
    assert.equal((await admin(path, { method, key: null, body })).status, 401, `${method} ${path} with a wrong key`);
    assert.equal((await request(server.http, `/v1/admin/${path}`, { method, headers: body ? { 'content-type': 'application/json' } : {}, body })).status, 401, `${method} ${path} without a key`);
    const paid = await admin(path, { method, key: server.keys.paid, body });
    assert.equal(paid.status, 403, `${method} ${path} with a client's key`);
    assert.equal(paid.value.error.code, 'insufficient_permissions');
  }
  // Not by a cookie, and not for a page of another site.
  assert.equal((await request(server.http, '/v1/admin/reload', { method: 'POST', headers: { cookie: `key=${server.keys.admin}` } })).status, 401);
  const preflight = await request(server.http, '/v1/admin/reload', { method: 'OPTIONS', headers: { origin: 'https://evil.example', 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization' } });
  assert.equal(preflight.headers['access-control-allow-origin'], undefined);
  assert.doesNotMatch(server.log(), /administrator: /);
});

test('streams of all threads are listed and cancelled', async () => {
  const all = [stream(), stream(), stream(server.keys.free), stream(), stream()];
  let list;
  await eventually(async () => {
    list = (await admin('streams')).value;
    return list.streams?.length === all.length && list.streams.every((s) => s.state === 'running') && all.every((s) => s.id());
  });
  assert.equal(list.total, all.length);
  assert.equal(list.left_out, 0);
  assert.deepEqual([list.threads, list.threads_silent], [2, 0]);
  assert.deepEqual(list.streams.map((s) => s.id).sort(), all.map((s) => s.id()).sort());
  assert.deepEqual(Object.fromEntries(list.tiers.map((c) => [c.name, c.running])), { paid: 4, free: 1 });
  const paid = list.streams.filter((s) => s.tier === 'paid');
  assert.equal(new Set(paid.map((s) => s.tenant)).size, 1);
  assert.notEqual(list.streams.find((s) => s.tier === 'free').tenant, paid[0].tenant);
  for (const s of list.streams) assert.match(s.tenant, /^[0-9a-f]{12}$/);
  assert.ok(list.streams.every((s) => s.model === 'demo-small' && s.prompt_tokens > 0 && s.tokens > 0));

  for (const bad of ['x', 'chatcmpl-1', encodeURIComponent(all[0].id().toUpperCase()), '%00', '..%2f', 'a'.repeat(5000), '%F0%9F%92%A5', `${all[0].id()}%20`]) {
    const r = await admin(`streams/${bad}`, { method: 'DELETE' });
    assert.equal(r.status, 404, bad.slice(0, 40));
  }
  for (const s of all) assert.equal((await admin(`streams/${s.id()}`, { method: 'DELETE' })).status, 204);
  for (const s of all) {
    await s.ended;
    const last = s.text().trim().split('\n\n').filter((e) => e.startsWith('data: {')).at(-1);
    assert.equal(JSON.parse(last.slice(6)).error.code, 'cancelled');
  }
  await eventually(async () => (await admin('streams')).value.total === 0);
  assert.equal((await admin(`streams/${all[0].id()}`, { method: 'DELETE' })).status, 404);
  assert.match(server.log(), new RegExp(`administrator: cancel ${all[0].id()}, key dev-admin \\(sha256 [0-9a-f]{12}\\), from 127.0.0.1, req_`));
});

test('status, history and the levels of the log', async () => {
  const status = (await admin('status')).value;
  assert.equal(status.object, 'status');
  assert.deepEqual(status.models.map((m) => [m.id, m.state]), [['demo-small', 'ready'], ['demo-large', 'ready']]);
  assert.equal(status.engines.length, 1);
  assert.equal(status.engines[0].up, true);
  assert.deepEqual(status.tiers.map((t) => t.name).sort(), ['free', 'paid']);
  await eventually(async () => (await admin('history')).value.samples?.at.length > 0);
  const { samples, step_ms } = (await admin('history')).value;
  assert.equal(step_ms, 5000);
  for (const list of Object.values(samples)) assert.equal(list.length, samples.at.length);

  const levels = (await admin('log')).value.levels;
  assert.equal(levels.routing, 'info');
  for (const [body, said] of [['{', /JSON object/], ['[]', /JSON object/], ['{}', /levels is an object/], ['{"levels":{}}', /levels is an object/], [`{"levels":{"step":"debug"}${' '.repeat(5000)}}`, /JSON object/],
    ['{"levels":{"nothing":"info"}}', /levels: nothing is no subsystem/], ['{"levels":{"step":"loud"}}', /levels\.step must be/], ['{"levels":{"step":3}}', /levels\.step must be/]]) {
    const r = await admin('log', { method: 'POST', body });
    assert.equal(r.status, 400, body);
    assert.match(r.value.error.message, said);
  }
  assert.deepEqual((await admin('log')).value.levels, levels);
  const set = await admin('log', { method: 'POST', body: { levels: { routing: 'debug' } } });
  assert.deepEqual(set.value.levels, { ...levels, routing: 'debug' });
  const ask = () => request(server.http, '/v1/chat/completions', { method: 'POST', headers: { ...as(server.keys.paid), 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'default', max_tokens: 1, messages: [{ role: 'user', content: CANARY }] }) });
  await ask();
  assert.match(server.log(), /debug gateway: req_\w+: gets the model demo-large, by default, tier paid/);
  assert.match(server.log(), /administrator: log level of routing from info to debug/);
  process.kill(server.pid, 'SIGHUP'); // the configuration's levels count again
  await eventually(async () => (await admin('log')).value.levels?.routing === 'info');
});

test('replies are as openapi.json says', async () => {
  const doc = JSON.parse((await request(server.http, '/openapi.json')).body);
  const one = stream();
  await eventually(() => one.id());
  for (const [path, name] of [['status', 'AdminStatus'], ['streams', 'AdminStreams'], ['history', 'AdminHistory'], ['log', 'AdminLevels'], ['variants', 'AdminVariants']])
    assert.deepEqual(violations(doc, { $ref: `#/components/schemas/${name}` }, (await admin(path)).value), [], path);
  await admin(`streams/${one.id()}`, { method: 'DELETE' });
  await one.ended;
});

test('a list is bounded, its counts are not; so is the rate of asking', async () => {
  const many = await startServer({ echo: true, sets: ['gateway.threads=1', 'engine.echo.rate=1', 'gateway.tiers.paid.concurrency=1000', 'supervisor.drain=1s', 'gateway.drain=100ms'] });
  const requests = Array.from({ length: 262 }, () => http.request(`${many.http}/v1/completions`, { method: 'POST', agent: false, headers: { ...as(many.keys.paid), 'content-type': 'application/json' } }, (res) => res.resume()));
  try {
    for (const r of requests) {
      r.on('error', () => {});
      r.end(JSON.stringify({ model: 'demo-small', stream: true, prompt: `${CANARY} `.repeat(100) }));
    }
    let list;
    await eventually(async () => {
      const r = await request(many.http, '/v1/admin/streams', { headers: as(many.keys.admin) });
      list = JSON.parse(r.body);
      return list.total === requests.length && list.tiers[0].running === requests.length;
    });
    assert.equal(list.streams.length, 250);
    assert.equal(list.left_out, 12);
    assert.ok(!JSON.stringify(list).includes(CANARY));

    // Asking too often is refused: 20 actions at once, two a second.
    const set = () => request(many.http, '/v1/admin/log', { method: 'POST', headers: { ...as(many.keys.admin), 'content-type': 'application/json' }, body: '{}' });
    const got = await Promise.all(Array.from({ length: 120 }, set));
    assert.deepEqual([...new Set(got.map((r) => r.status))].sort(), [400, 429]);
    await eventually(async () => (await set()).status === 400);
  } finally {
    for (const r of requests) r.destroy();
    await many.stop();
  }
});

test('the engine takes the levels, a dump holds no text', localOnly('its steps'), async () => {
  const real = await startServer({});
  try {
    const call = (path, body) => request(real.http, `/v1/admin/${path}`, { method: 'POST', headers: { ...as(real.keys.admin), ...(body && { 'content-type': 'application/json' }) }, body: body && JSON.stringify(body) });
    const ask = () => request(real.http, '/v1/chat/completions', { method: 'POST', headers: { ...as(real.keys.paid), 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'auto', max_tokens: 8, messages: [{ role: 'user', content: `Say ${CANARY}` }] }) });
    assert.equal((await ask()).status, 200);
    assert.doesNotMatch(real.log(), /debug engine:/);
    assert.equal((await call('log', { levels: { step: 'debug', cache: 'debug', cascade: 'debug' } })).status, 200);
    await eventually(async () => { await ask(); return /debug engine: model \S+: a step of/.test(real.log()); });
    assert.match(real.log(), /debug engine: model \S+: sequence \d+ has \d+ prompt tokens and leaves the cache at token \d+/);
    assert.match(real.log(), /debug gateway: chatcmpl-\w+: plan \w+ because of/);

    assert.equal((await call('flight')).status, 202);
    const folder = join(real.state, 'flight');
    await eventually(() => /engine: the flight recorder was written/.test(real.log()) && /gateway: the flight recorder was written/.test(real.log()));
    const dumps = await readdir(folder);
    assert.deepEqual(dumps.sort(), ['engine-0.flight', 'gateway-0.flight']);
    for (const name of dumps) {
      const path = join(folder, name);
      assert.equal((await stat(path)).mode & 0o777, 0o600);
      assert.ok(!(await readFile(path)).includes(CANARY.slice(0, 7)), `${name} holds text`);
    }
    const shown = dumps.map((name) => execFileSync(SLUICE, ['flight', join(folder, name)], { encoding: 'utf8' }));
    assert.match(shown[0], /^# engine, process \d+,.*\(signal 10\), 1 threads\n[\s\S]* step {2}start model=\d sequence=\d+ prompt=\d+ cached=\d+/);
    assert.match(shown[0], / step {2}step model=\d rows=\d+ prompt_rows=\d+ sequences=1/);
    assert.match(shown[1], / gateway-\d {2}admit priority=\d+ prompt=\d+/);
    assert.match(shown[1], / gateway-\d {2}cascade plan=\d/);

    // A process that fails leaves one, too; the service comes back.
    const { engine } = await real.pids();
    process.kill(engine, 'SIGSEGV');
    await eventually(() => /engine \(process \d+\) was ended by signal 11/.test(real.log()));
    const fault = execFileSync(SLUICE, ['flight', join(folder, 'engine-1.flight')], { encoding: 'utf8' });
    assert.match(fault, /^# engine, .*\(signal 11\)/);
    await eventually(async () => (await ask()).status === 200);
    assert.ok(!real.log().includes(CANARY), 'the log holds text');
  } finally {
    await real.stop();
  }
});

test('the page shows and does all of it', { skip: CHROMIUM === undefined && 'no Chromium', timeout: 600_000 }, async () => {
  const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
  const browser = await launch();
  try {
    const page = await (await browser.newContext({ locale: 'en-US' })).newPage();
    const faults = [];
    page.setDefaultTimeout(60_000);
    page.on('pageerror', (e) => faults.push(String(e)));
    page.on('request', (r) => { if (new URL(r.url()).origin !== server.http) faults.push(`asks ${r.url()}`); });
    page.on('console', (m) => { if (m.type() === 'error' && !/40[13]|429/.test(m.text())) faults.push(m.text()); });
    const look = async (state) => {
      for (const theme of ['light', 'dark']) {
        await page.evaluate((name) => {
          localStorage.setItem('sluice.v1.theme', name);
          dispatchEvent(new Event('sluice-theme'));
        }, theme);
        await page.locator(`html[data-theme="${theme}"]`).waitFor();
        assert.deepEqual(await page.evaluate(`axe.run(document, { runOnly: ${JSON.stringify(RULES)}, resultTypes: ['violations'] })
          .then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ')).join(', ')))`), [], `${theme}, ${state}`);
      }
    };
    const sure = async (yes = true) => page.click(id(yes ? 'ask-yes' : 'ask-no'));

    await page.goto(`${server.http}/admin`);
    await page.locator(id('key-input')).waitFor();
    await page.evaluate(AXE);
    await look('key');
    await page.fill(id('key-input'), server.keys.paid);
    await page.press(id('key-input'), 'Enter');
    await page.locator(id('key-wrong'), { hasText: 'administrator' }).waitFor();
    const one = stream(), two = stream();
    await eventually(() => one.id() && two.id());
    await page.fill(id('key-input'), server.keys.admin);
    await page.press(id('key-input'), 'Enter');
    await page.locator(`${id('streams')} tr`, { hasText: one.id() }).waitFor();
    await page.locator(`${id('models')} tr`, { hasText: 'demo-large' }).waitFor();
    await page.locator(`${id('tiers')} tr`, { hasText: 'paid' }).waitFor();
    await page.locator(id('chart-tokens_per_s')).waitFor();
    await look('board');
    assert.ok(!(await page.content()).includes(CANARY), 'the page shows text');
    assert.ok(!(await page.content()).includes(server.keys.admin) && !page.url().includes('sk-'));

    // By keyboard: to the button, no, then yes.
    const button = page.locator(`[data-testid="cancel"][data-id="${one.id()}"]`);
    await button.focus();
    await page.keyboard.press('Enter');
    await page.locator('dialog[open]').waitFor();
    await look('question');
    await page.keyboard.press('Escape');
    await page.locator('dialog[open]').waitFor({ state: 'detached' });
    assert.equal((await admin('streams')).value.total, 2);
    await button.click();
    await sure();
    await page.locator(id('notice'), { hasText: 'was cancelled' }).waitFor();
    await one.ended;
    await page.locator(`${id('streams')} tr`, { hasText: one.id() }).waitFor({ state: 'detached' });
    assert.equal(await page.locator(`${id('streams')} tr`, { hasText: two.id() }).count(), 1);

    const next = page.locator(`${id('variants')} tr`, { hasText: 'next' });
    await next.locator(id('roll_back')).click();
    await sure(false);
    await next.locator(id('roll_back')).click();
    await sure();
    await next.getByText('rolled back (administrator)').waitFor();
    assert.equal((await admin('variants')).value.variants[1].weight, 0);
    await next.locator(id('restore')).focus();
    await page.keyboard.press('Enter');
    await page.mouse.move(0, 0);
    await look('variant');
    await sure();
    await next.getByText('running').waitFor();
    assert.match(server.log(), /administrator: roll_back variant next of shop.*\n[\s\S]*administrator: restore variant next of shop/);

    await page.selectOption(id('level-step'), 'debug');
    await eventually(async () => (await admin('log')).value?.levels?.step === 'debug');
    const before = server.log().split('reloaded').length;
    await page.click(id('reload'));
    await sure(false);
    assert.equal(server.log().split('administrator: reload').length, 1);
    await page.click(id('reload'));
    await sure();
    await eventually(() => server.log().split('reloaded').length > before);
    await eventually(async () => (await admin('log')).value?.levels?.step === 'info');
    await page.click(id('flight'));
    await eventually(() => /gateway: the flight recorder was written/.test(server.log()));

    await page.click(id('language'));
    await page.locator('h2', { hasText: '진행 중인 답변' }).waitFor();
    assert.equal(await page.getAttribute('html', 'lang'), 'ko');
    await look('Korean');
    await page.setViewportSize({ width: 360, height: 700 });
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'the page is wider than a phone');
    await page.setViewportSize({ width: 1280, height: 900 });

    // Reloaded, this tab still has the key; forgotten, it has not.
    await page.reload();
    await page.locator(id('board')).waitFor();
    await page.click(id('drain'));
    await sure();
    assert.deepEqual(await server.ended, { code: 0, signal: null });
    await two.ended.catch(() => {});
    await page.click(id('leave'));
    await page.locator(id('key-input')).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.getItem('sluice.v1.admin')), null);
    assert.match(server.log(), /administrator: drain, key dev-admin/);
    assert.ok(!server.log().includes(CANARY), 'the log holds text');
    assert.deepEqual(faults.filter((f) => !/ERR_CONNECTION|Failed to load resource|ERR_EMPTY/.test(f)), []);
  } finally {
    await browser.close();
  }
});
