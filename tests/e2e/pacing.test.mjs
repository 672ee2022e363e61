// SPDX-License-Identifier: Apache-2.0
// A paced tier reads an even flow, one token a tick, while the engine makes its tokens in bursts; an unpaced one gets
// them as they are made.
// Still: it measures the gaps between tokens.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chat, user } from './client.mjs';
import { startServer } from './harness.mjs';

const WORDS = Array.from({ length: 34 }, (_, i) => `w${i}`).join(' ');
const PACE = 10;
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
  let best;
  // The machine may stop us for a while: the better of two runs tells of the gateway.
  for (let i = 0; i < 2 && !(best?.sd < 15); i++) {
    const { r, at } = await arrivals(server.keys.free);
    assert.ok(at[0] - r.started < 1000, 'the first is not delayed');
    assert.ok(at.length >= 34 - BURST, `${at.length} events`);
    // From the burst's last token on: nothing is silent after it.
    const steady = at.slice(-(34 - BURST) - 1);
    const d = deviation(steady.slice(1).map((t, k) => t - steady[k]));
    if (!best || d.sd < best.sd) best = d;
  }
  assert.ok(Math.abs(best.mean - 1000 / PACE) < 8, `a mean of ${best.mean} ms`);
  assert.ok(best.sd < 15, `a deviation of ${best.sd} ms`);
});

test('an unpaced one gets bursts as they are made', async () => {
  const { r, at } = await arrivals(server.keys.paid);
  assert.ok(at.at(-1) - r.started < 34 / PACE * 1000 / 2);
  assert.ok(at.length < 20, 'tokens that came together are together');
});
