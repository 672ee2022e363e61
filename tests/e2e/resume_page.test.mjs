// SPDX-License-Identifier: Apache-2.0
// The page and the client module against a real server whose connections break: reloads in mid-answer, a line that is cut
// fifty times, Stop after a reload. The echo engine says the question's words, so the whole answer is known.
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { launch } from './chromium.mjs';
import { until } from './client.mjs';
import { ROOT, request, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';

const COUNTED = Array.from({ length: 150 }, (_, i) => (i % 10 === 9 ? `물${i}` : `w${i}`)).join(' ');
const id = (name) => `[data-testid="${name}"]`;

let server, browser, createClient, folder;
let keeps = false; // the server's description names the resource

before(async () => {
  server = await startServer({ echo: true, sets: ['gateway.threads=4', 'engine.echo.rate=100'] });
  keeps = Object.keys(JSON.parse((await request(server.http, '/openapi.json')).body).paths).some((p) => p.startsWith('/v1/streams/'));
  browser = await launch();
  folder = await mkdtemp(join(tmpdir(), 'sluice-resume-'));
  await cp(join(ROOT, 'gateway/www/client.js'), join(folder, 'client.mjs'));
  ({ createClient } = await import(pathToFileURL(join(folder, 'client.mjs'))));
});

after(async () => {
  await browser?.close();
  await server?.stop();
  await rm(folder, { recursive: true, force: true });
});

const resumes = (name, body) => test(name, { timeout: 600_000 }, async (t) => {
  if (!keeps) { t.skip('this server keeps no streams'); return; }
  await body();
});

/** A number of the server's metrics, summed over labels. */
async function gauge(name) {
  const lines = (await server.metrics()).split('\n').filter((l) => l.startsWith(name) && ' {'.includes(l[name.length]));
  assert.ok(lines.length > 0, `no metric ${name}`);
  return lines.reduce((sum, l) => sum + Number(l.slice(l.lastIndexOf(' ') + 1)), 0);
}

async function visit() {
  const page = await (await browser.newContext({ locale: 'en-US' })).newPage();
  page.setDefaultTimeout(20_000);
  await page.goto(server.page);
  await page.locator(`${id('model-select')}:enabled`).waitFor();
  const answer = page.locator(id('answer-text')).last();
  return {
    page, answer,
    ask: async (text) => {
      await page.fill(id('composer'), text);
      await page.press(id('composer'), 'Enter');
    },
    grown: (n) => page.waitForFunction((min) => [...document.querySelectorAll('[data-testid="answer-text"]')].at(-1)?.textContent.length > min, n),
    done: () => page.locator(`${id('regenerate')}, ${id('try-again')}`).waitFor(),
  };
}

resumes('reloading the page in mid-answer continues the answer exactly', async () => {
  const v = await visit();
  await v.ask(COUNTED);
  for (const n of [40, 200, 400]) {
    await v.grown(n);
    await v.page.reload();
  }
  await v.done();
  assert.equal(await v.answer.textContent(), COUNTED);
  assert.equal(await v.page.locator(id('end')).count(), 0);
  assert.equal(await v.page.locator(id('error')).count(), 0);
  await v.page.context().close();
});

resumes('Stop after a reload ends the work of the engine', async () => {
  const v = await visit();
  await v.ask(`repeat ${COUNTED}`);
  await v.grown(40);
  await v.page.reload();
  await v.grown(80);
  assert.equal(await gauge('sluice_engine_running'), 1);
  await v.page.locator(id('stop')).click();
  assert.ok(await until(async () => await gauge('sluice_engine_running') === 0, 100_000), 'the engine still makes it');
  await v.done();
  assert.match(await v.page.locator(id('end')).textContent(), /Stopped/);
  await v.page.context().close();
});

/** A line to the server that breaks after so many bytes, a new number for each connection; then it holds. */
async function brittleLine(lengths) {
  const { hostname, port } = new URL(server.http);
  const line = net.createServer((down) => {
    const up = net.connect(port, hostname);
    let left = lengths.shift() ?? Infinity;
    const end = () => { down.destroy(); up.destroy(); };
    for (const s of [up, down]) s.on('error', end).on('close', end);
    down.pipe(up);
    up.on('data', (bytes) => {
      down.write(bytes.subarray(0, Math.min(left, bytes.length)), left <= bytes.length ? end : undefined);
      left -= bytes.length;
    });
  });
  await new Promise((resolve) => { line.listen(0, '127.0.0.1', resolve); });
  return { base: `http://127.0.0.1:${line.address().port}`, close: () => new Promise((resolve) => { line.close(resolve); }) };
}

resumes('an answer over a line that breaks fifty times is the whole answer', async () => {
  const rnd = random(50);
  // The first is long enough for the headers, without which there is nothing to come back to.
  const lengths = Array.from({ length: 50 }, (_, i) => (i === 0 ? 2500 : 1 + rnd(1200)));
  const line = await brittleLine(lengths);
  const clock = { now: () => Date.now(), random: Math.random, pause: () => sleep(2) };
  const client = createClient({ baseURL: line.base, apiKey: server.keys.free, clock });
  const run = client.chat({ model: 'demo-small', messages: [{ role: 'user', content: COUNTED }] });
  assert.equal(await run.answer(), COUNTED);
  assert.deepEqual([run.finishReason, run.usage.completion_tokens], ['stop', 151]); // 150 words and the end
  assert.equal(lengths.length, 0, 'all of them broke');
  await line.close();
});

test('the server takes what the page sends: options, files, Continue, and keeps a chat for another browser', async () => {
  const v = await visit();
  const none = async () => assert.deepEqual(await v.page.locator(id('error')).allTextContents(), []);
  const set = async (values, kept) => {
    await v.page.click(id('options-open'));
    for (const [name, value] of Object.entries(values)) await v.page.fill(id(`opt-${name}`), value);
    if (kept) await v.page.check(id('opt-server'));
    await v.page.click(id('options-save'));
  };
  await set({ system: 'Be brief.', temperature: '0', 'top-p': '0.5', 'max-tokens': '3', seed: '7', stop: 'END' });
  await v.page.setInputFiles(id('file-input'), { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('in a file') });
  await v.page.locator(id('file-chip')).waitFor();
  await v.ask('one two three four five six seven eight');
  await v.page.locator(id('continue')).waitFor();
  await none();
  const first = await v.answer.textContent();
  await v.page.click(id('continue'));
  await v.page.waitForFunction(([sel, text]) => document.querySelector(sel).textContent.length > text.length, [id('answer-text'), first]);
  await v.page.locator(id('regenerate')).waitFor();
  await none();
  assert.ok((await v.answer.textContent()).startsWith(first));
  await set({}, true);
  await v.page.locator(id('chip-server')).waitFor();
  assert.equal(await v.page.locator('#notice').isVisible(), false);
  const w = await visit();
  await w.page.click(id('server-open'));
  await w.page.locator(id('server-chat')).click();
  await w.answer.waitFor();
  assert.equal(await w.answer.textContent(), await v.answer.textContent());
  assert.deepEqual(await w.page.locator(id('message-file')).locator('summary').allTextContents(), ['a.txt']);
  await w.ask('nine ten');
  await w.page.locator(id('regenerate')).waitFor();
  let there = false;
  for (let i = 0; i < 20 && !there; i++) { // the server has it once the answer has ended
    await v.page.reload();
    there = await v.page.locator('.bubble', { hasText: 'nine ten' }).waitFor({ timeout: 3000 }).then(() => true, () => false);
  }
  assert.ok(there, 'the other browser shows what was asked in this one');
  assert.equal(await v.page.locator('#notice').isVisible(), false);
});
