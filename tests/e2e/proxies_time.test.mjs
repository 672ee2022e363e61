// SPDX-License-Identifier: Apache-2.0
// What real proxies, with the configurations that etc/proxies.md documents, add to the way of one event. A proxy that is
// not installed is skipped by name.
// Perf: what a proxy adds. CI looks only whether the first event passes while the answer is being made.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import { user } from './client.mjs';
import { isIdle, SUITE_SETS } from './client_suite.mjs';
import { startServer } from './harness.mjs';
import { PERF, figure } from './perf.mjs';
import { PROXIES, installed, startProxy } from './proxies.mjs';

const ADDED_MS = 5;
const ROUNDS = 2, EVENTS = 40; // 0.2 s each way and round

const absent = (name) => !installed(name) && `${name} is not installed`;
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

const question = (tokens) => JSON.stringify({ model: 'default', stream: true, messages: user('clock'), max_tokens: tokens });
const head = (key) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' });

/** The body of one streamed answer, over HTTP/1.1 in cleartext or over HTTP/2 with TLS: a readable, when it is there. */
const BODIES = {
  'HTTP/1.1': (server, at, tokens, key = server.keys.paid) => new Promise((done, failed) => {
    http.request(new URL('/v1/chat/completions', at.http), { method: 'POST', headers: head(key), agent: false }, done)
      .on('error', failed).end(question(tokens));
  }),
  'HTTP/2': async (server, at, tokens, key = server.keys.paid) => {
    const session = http2.connect(at.https, { ca: readFileSync(server.caFile) });
    const stream = session.request({ ':method': 'POST', ':path': '/v1/chat/completions', ...head(key) });
    stream.on('close', () => session.destroy());
    stream.end(question(tokens));
    return stream;
  },
};

/** Milliseconds from the making of each token to its arrival here; both are of the system's monotonic clock. */
async function delays(server, at, version) {
  const found = [], stamp = /t(\d{20})/g;
  let text = '', seen = 0;
  for await (const piece of await BODIES[version](server, at, EVENTS)) {
    const now = process.hrtime.bigint();
    text += piece.toString('latin1');
    for (let m; (m = stamp.exec(text)); seen = stamp.lastIndex) found.push(Number(now - BigInt(m[1])) / 1e6);
    stamp.lastIndex = seen; // a stamp may have been cut
  }
  assert.equal(found.length, EVENTS, text);
  return found;
}

/**
 * Whether tokens pass as they are made, four in a second (the free tier's pace). A buffer, of a page at least, lets some
 * twenty through at once.
 */
async function passes(server, proxy, version = 'HTTP/1.1') {
  assert.ok(await isIdle(server), 'an earlier one goes on');
  let text = '';
  for await (const piece of await BODIES[version](server, proxy, 200, server.keys.free)) {
    text += piece.toString('latin1');
    if (/t\d{20}/.test(text)) break; // and so the connection ends
  }
  const n = text.match(/t\d{20}/g)?.length ?? 0;
  return n > 0 && n < 10;
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

describe('the way of one event', { timeout: 600_000 }, () => {
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
      test(`the first event passes ${name} at once over ${version}`, { skip: absent(name) }, async () => {
        assert.ok(await measured(name, passes, { version }), 'it waits for others');
      });

      if (PERF) test(`${name} adds less than ${ADDED_MS} ms over ${version}`, { skip: absent(name) }, async () => {
        const ms = await measured(name, addedAtBest, { version });
        figure(ms < ADDED_MS, `${name} adds ${ms.toFixed(3)} ms over ${version}`);
      });
    }
  }

  test("the first event passes nginx's defaults at once", { skip: absent('nginx') }, async () => {
    assert.ok(await measured('nginx', passes, { edit: (block) => block.replace(/(proxy_pass .*\n)(?:\s*proxy_.*\n){4}/, '$1') }), 'it waits for others');
  });

  if (!PERF) return;

  test("nginx's defaults do not buffer", { skip: absent('nginx') }, async () => {
    const ms = await measured('nginx', addedAtBest, { edit: (block) => block.replace(/(proxy_pass .*\n)(?:\s*proxy_.*\n){4}/, '$1') });
    figure(ms < ADDED_MS, `nginx's defaults add ${ms.toFixed(3)} ms`);
  });

  // Without these the figures could be right by chance: what the page warns of does show.
  const without = (line) => (block) => {
    assert.ok(block.includes(line));
    return block.replace(line, '');
  };

  test('nginx that buffers shows in the measurement', { skip: absent('nginx') }, async () => {
    const ms = await measured('nginx', added, { edit: (block) => without('proxy_http_version 1.1;')(block)
      .replace('proxy_pass ', 'proxy_ignore_headers X-Accel-Buffering;\nproxy_pass ') });
    figure(ms >= ADDED_MS, `nginx that buffers adds ${ms.toFixed(3)} ms`);
  });

  test('HAProxy without http-no-delay shows in the measurement', { skip: absent('haproxy') }, async () => {
    const ms = await measured('haproxy', added, { edit: without('option http-no-delay') });
    figure(ms >= ADDED_MS, `HAProxy without http-no-delay adds ${ms.toFixed(3)} ms`);
  });
});
