// SPDX-License-Identifier: Apache-2.0
// Clients behind real proxies, with the configurations that etc/proxies.md documents: the suites of clients.test.mjs through
// each, what each adds to the way of one event, and what a restart of one does to an answer. A proxy that is not
// installed is skipped by name.
// Alone: it measures what a proxy adds.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { browserSuite, launchBrowsers } from './browser_suite.mjs';
import { curl, until, user } from './client.mjs';
import { LIBRARIES, SUITE_SETS, clientSuite } from './client_suite.mjs';
import { ROOT, startServer } from './harness.mjs';
import { PROXIES, installed, startProxy } from './proxies.mjs';

const ADDED_MS = 5;
const ROUNDS = 2, EVENTS = 40; // 0.2 s each way and round

const absent = (name) => !installed(name) && `${name} is not installed`;
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

const QUESTION = JSON.stringify({ model: 'default', stream: true, messages: user('clock'), max_tokens: EVENTS });
const head = (server) => ({ authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' });

/** The body of one streamed answer, over HTTP/1.1 in cleartext or over HTTP/2 with TLS: a readable, when it is there. */
const BODIES = {
  'HTTP/1.1': (server, at) => new Promise((done, failed) => {
    http.request(new URL('/v1/chat/completions', at.http), { method: 'POST', headers: head(server), agent: false }, done)
      .on('error', failed).end(QUESTION);
  }),
  'HTTP/2': async (server, at) => {
    const session = http2.connect(at.https, { ca: readFileSync(server.caFile) });
    const stream = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', ...head(server) });
    stream.on('close', () => session.destroy());
    stream.end(QUESTION);
    return stream;
  },
};

/** Milliseconds from the making of each token to its arrival here; both are of the system's monotonic clock. */
async function delays(server, at, version) {
  const found = [], stamp = /t(\d{20})/g;
  let text = '', seen = 0;
  for await (const piece of await BODIES[version](server, at)) {
    const now = process.hrtime.bigint();
    text += piece.toString('latin1');
    for (let m; (m = stamp.exec(text)); seen = stamp.lastIndex) found.push(Number(now - BigInt(m[1])) / 1e6);
    stamp.lastIndex = seen; // a stamp may have been cut
  }
  assert.equal(found.length, EVENTS, text);
  return found;
}

/** What the way through a proxy adds at the median, both ways measured in turn. */
async function added(server, proxy, version = 'HTTP/1.1') {
  const direct = [], through = [];
  for (let i = 0; i < ROUNDS; i++) {
    direct.push(...await delays(server, server, version));
    through.push(...await delays(server, proxy, version));
  }
  return median(through) - median(direct);
}

/** The same once more where it is too much: the machine may have been busy. */
async function addedAtBest(...args) {
  const ms = await added(...args);
  return ms < ADDED_MS ? ms : Math.min(ms, await added(...args));
}

const folder = mkdtempSync(join(tmpdir(), 'sluice-proxies-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
cpSync(join(ROOT, 'gateway/www/client.js'), join(folder, 'client.mjs'));
const { createClient } = await import(pathToFileURL(join(folder, 'client.mjs')));

describe('the way of one event', { timeout: 120_000 }, () => {
  let server;
  before(async () => { server = await startServer({ echo: true, sets: SUITE_SETS }); });
  after(() => server?.stop());

  async function measured(name, how, { version, edit } = {}) {
    const proxy = await startProxy(name, server, { edit });
    try {
      return await how(server, proxy, version);
    } finally { await proxy.kill(); }
  }

  for (const name of PROXIES) {
    for (const version of Object.keys(BODIES)) {
      test(`${name} adds less than ${ADDED_MS} ms over ${version}`, { skip: absent(name) }, async (t) => {
        const ms = await measured(name, addedAtBest, { version });
        t.diagnostic(`${name} adds ${ms.toFixed(3)} ms at the median`);
        assert.ok(ms < ADDED_MS, `${ms} ms`);
      });
    }
  }

  test("nginx's defaults do not buffer", { skip: absent('nginx') }, async () => {
    const ms = await measured('nginx', addedAtBest, { edit: (block) => block.replace(/(proxy_pass .*\n)(?:\s*proxy_.*\n){4}/, '$1') });
    assert.ok(ms < ADDED_MS, `${ms} ms`);
  });

  // Without these the figures could be right by chance: what the page warns of does show.
  const without = (line) => (block) => {
    assert.ok(block.includes(line));
    return block.replace(line, '');
  };

  test('nginx that buffers shows in the measurement', { skip: absent('nginx') }, async () => {
    const ms = await measured('nginx', added, { edit: (block) => without('proxy_http_version 1.1;')(block)
      .replace('proxy_pass ', 'proxy_ignore_headers X-Accel-Buffering;\nproxy_pass ') });
    assert.ok(ms >= ADDED_MS, `${ms} ms`);
  });

  test('HAProxy without http-no-delay shows in the measurement', { skip: absent('haproxy') }, async () => {
    const ms = await measured('haproxy', added, { edit: without('option http-no-delay') });
    assert.ok(ms >= ADDED_MS, `${ms} ms`);
  });
});

// Two proxies at once, because most of it is waiting. Each has a server of its own.
describe('behind a proxy', { timeout: 240_000, concurrency: 2 }, () => {
  const places = new Map(PROXIES.map((name) => [name, {}]));
  const browsers = new Map();
  let closeBrowsers;
  before(async () => {
    for (const [name, x] of places) {
      if (absent(name)) continue;
      x.server = await startServer({ echo: true, sets: SUITE_SETS });
      x.proxy = await startProxy(name, x.server);
      Object.assign(x, { http: x.proxy.http, https: x.proxy.https });
    }
    if (!PROXIES.every(absent)) closeBrowsers = await launchBrowsers(browsers);
  });
  after(async () => {
    await closeBrowsers?.();
    for (const { proxy, server } of places.values()) {
      await proxy?.kill();
      const how = await server?.stop();
      if (server) assert.equal(how, 0, server.log());
    }
  });

  for (const [name, x] of places) describe(`behind ${name}`, { skip: absent(name), concurrency: 1 }, () => {
    test("the server knows whose request it is, and takes no one's word for it but the proxy's", async () => {
      const ask = async (base, from, more = []) => (await curl(['-sS', '--cacert', x.server.caFile, '--interface', from, ...more,
        '-H', `authorization: Bearer ${x.server.keys.paid}`, `${base}/v1/models/${from}`])).status;
      assert.equal(await ask(x.http, '127.0.0.2'), 0);
      assert.equal(await ask(x.https, '127.0.0.3', ['-H', 'x-forwarded-for: 192.0.2.1']), 0);
      assert.ok(await until(() => ['127.0.0.2', '127.0.0.3'].every((from) => x.server.log().includes(`from ${from}, `)), 2000), x.server.log());
      assert.ok(!x.server.log().includes('from 192.0.2.1'));
    });

    clientSuite(x, { libraries: LIBRARIES.slice(-1), toldOfWhole: name !== 'h2o' });
    browserSuite(x, browsers);

    test('an answer goes on after the proxy was killed and is there again', async () => {
      const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');
      const client = createClient({ baseURL: x.http, apiKey: x.server.keys.paid });
      const run = client.chat({ model: 'default', messages: user(words) });
      let text = '', kills = 0;
      for await (const e of run) {
        if (e.type !== 'delta') continue;
        text += e.text;
        if (kills < 2 && text.length > 200 * (kills + 1)) {
          kills++;
          await x.proxy.kill();
          await x.proxy.start();
        }
      }
      assert.equal(kills, 2);
      assert.equal(text, words);
    });
  });
});
