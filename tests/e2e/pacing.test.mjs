// SPDX-License-Identifier: Apache-2.0
// A paced tier reads an even flow, one token a tick, while the engine makes its tokens in bursts; an unpaced one gets
// them as they are made.
// Perf: the gaps between tokens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chat, user } from './client.mjs';
import { startServer } from './harness.mjs';
import { figure, measured } from './perf.mjs';

const WORDS = Array.from({ length: 34 }, (_, i) => `w${i}`).join(' ');
const PACE = 4;
const BURST = 4;

let server;
before(async () => {
  server = await startServer({ echo: true, edit: (yaml) => yaml.replace('pace_tps: 30', `pace_tps: ${PACE}`),
    sets: ['engine.echo.rate=40', 'engine.echo.burst=7', 'engine.echo.ttft=10ms'] });
});
after(async () => assert.equal(await server?.stop(), 0, server?.log()));

/** When each piece of text came, in ms. */
async function arrivals(key) {
  const r = await chat(server.http, key, { model: 'default', messages: user(WORDS) });
  assert.equal(r.text, WORDS);
  return { r, at: r.times.filter((_, i) => r.events[i].choices[0]?.delta?.content) };
}

const deviation = (list) => {
  const mean = list.reduce((a, b) => a + b) / list.length;
  return { mean, sd: Math.sqrt(list.reduce((s, x) => s + (x - mean) ** 2, 0) / list.length) };
};

test('after the first burst, one token a tick', async () => {
  await measured(async () => {
    const { r, at } = await arrivals(server.keys.free);
    // The engine makes seven at a time, which arrive together where nothing is paced.
    // (A machine that stands still for some ticks joins their tokens.)
    assert.ok(at.length >= 20, `${at.length} events`);
    // From the burst's last token on: nothing is silent after it.
    const steady = at.slice(-(34 - BURST) - 1);
    const { mean, sd } = deviation(steady.slice(1).map((t, k) => t - steady[k]));
    return { good: at[0] - r.started < 1000 && Math.abs(mean - 1000 / PACE) < 8 && sd < 15,
      text: `paced: the first after ${at[0] - r.started} ms, then every ${mean.toFixed(1)} ms of ${1000 / PACE}, deviation ${sd.toFixed(1)} ms` };
  });
});

test('an unpaced one gets bursts as they are made', async () => {
  const { r, at } = await arrivals(server.keys.paid);
  figure(at.at(-1) - r.started < 1700, `not paced: the last after ${at.at(-1) - r.started} ms`);
  assert.ok(at.length < 20, 'tokens that came together are together');
});
