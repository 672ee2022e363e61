// SPDX-License-Identifier: Apache-2.0
// Whether another tenant can tell that a prompt is in the prefix tree: by what is told, and by how long it takes.
// Perf: distributions of times. CI looks at the numbers only.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import http from 'node:http';
import { test } from 'node:test';
import { startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { PERF, figure } from './perf.mjs';

const ROUNDS = PERF ? 60 : 10, TOKENS = 400;
const KEYS = { victim: 'sk-victim-0000000000', stranger: 'sk-stranger-00000000' };
const sha = (s) => createHash('sha256').update(s).digest('hex');

/** How likely one of `a` is above one of `b`: 0.5 when nothing can be told (Mann and Whitney's U over n·m). */
function above(a, b) {
  let u = 0;
  for (const x of a) for (const y of b) u += x > y ? 1 : x === y ? 0.5 : 0;
  return u / (a.length * b.length);
}

test('a prompt that another tenant has cached is like a fresh one, in numbers and in times', { timeout: 1200_000 }, async () => {
  const server = await startServer({ sets: ['gateway.threads=1', 'engine.share_prefixes=false'],
    edit: (yaml) => yaml.replace(/\n {2}keys: \[\][^\n]*/, `\n  keys:\n${Object.entries(KEYS).map(([name, key]) =>
      `    - {name: ${name}, sha256: ${sha(key)}, tier: paid}\n`).join('')}`) });
  const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
  const rnd = random(11);
  // Tokens, of which the first is another one each time: no two prompts begin alike by chance.
  let n = 0;
  const prompt = () => [300 + n++, ...Array.from({ length: TOKENS - 1 }, () => 300 + rnd(600))];
  /** One token of an answer: how many tokens of the prompt were cached, and the milliseconds. */
  const ask = (key, tokens) => new Promise((done, failed) => {
    const body = JSON.stringify({ model: 'demo-large', prompt: tokens, max_tokens: 1, temperature: 0 });
    const t0 = performance.now();
    const req = http.request(`${server.http}/v1/completions`, { method: 'POST', agent,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) } }, (res) => {
      let text = '';
      res.setEncoding('utf8').on('data', (d) => { text += d; }).on('error', failed).on('end', () => {
        const ms = performance.now() - t0;
        if (res.statusCode !== 200) { failed(new Error(text)); return; }
        const { usage } = JSON.parse(text);
        done({ ms, cached: usage.prompt_tokens_details?.cached_tokens ?? 0, n: usage.prompt_tokens });
      });
    });
    // A connection that was idle for too long, because this process was stopped, is closed by then: asked again on a new one.
    req.on('error', (e) => { if (req.reusedSocket && e.code === 'ECONNRESET') ask(key, tokens).then(done, failed); else failed(e); });
    req.end(body);
  });
  try {
    for (let i = 0; i < 5; i++) for (const key of Object.values(KEYS)) await ask(key, prompt());
    const seen = [], fresh = [], own = [];
    for (let i = 0; i < ROUNDS; i++) {
      const theirs = prompt();
      // The victim's second time, with the same text just before it as the stranger's will have: the control.
      await ask(KEYS.victim, theirs);
      own.push(await ask(KEYS.victim, theirs));
      const turns = [() => ask(KEYS.stranger, theirs).then((r) => seen.push(r)), () => ask(KEYS.stranger, prompt()).then((r) => fresh.push(r))];
      if (rnd(2)) turns.reverse();
      for (const turn of turns) await turn();
    }
    const times = (list) => list.map((r) => r.ms);
    for (const list of [seen, fresh]) assert.deepEqual([...new Set(list.map((r) => r.cached))], [0]);
    assert.ok(own.every((r) => r.cached >= r.n - 17), 'the victim finds its own');
    const told = above(times(fresh), times(own)), untold = above(times(fresh), times(seen));
    const median = (list) => times(list).sort((a, b) => a - b)[list.length >> 1].toFixed(2);
    const figures = `own ${median(own)} ms, seen ${median(seen)} ms, fresh ${median(fresh)} ms; fresh is above own with ${told.toFixed(3)}, ` +
      `above seen with ${untold.toFixed(3)}`;
    // The measurement would show it: one's own prefix is told from a fresh prompt.
    figure(told > 0.85, figures);
    // Four standard deviations of the statistic where nothing can be told: sqrt((n + m + 1) / 12nm).
    const bound = 4 * Math.sqrt((2 * ROUNDS + 1) / (12 * ROUNDS * ROUNDS));
    figure(Math.abs(untold - 0.5) < bound, figures);
  } finally {
    agent.destroy();
    assert.equal(await server.stop(), 0, server.log());
  }
});
