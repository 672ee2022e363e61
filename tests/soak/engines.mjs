// SPDX-License-Identifier: Apache-2.0
// Kills engines under load: `node tests/soak/engines.mjs [ROUNDS [SEED]]`. Each round starts answers of every kind on two
// engines, kills one of them at a random moment with SIGKILL, and checks that each answer is a beginning of the one it must be,
// that one which can be resumed or had not begun is complete, that no other one got more than one error, and that the survivor's
// answers are complete. At the end both engines stop without a leak: their tear-down asserts.
import assert from 'node:assert/strict';
import { chat, until, user } from '../e2e/client.mjs';
import { request, startServer } from '../e2e/harness.mjs';
import { random } from '../e2e/page_corpus.mjs';
import { samples, sum } from '../e2e/prometheus.mjs';

const ROUNDS = Number(process.argv[2] ?? 100), SEED = Number(process.argv[3] ?? 1), ANSWERS = 8;
const rnd = random(SEED);
const server = await startServer({ sets: ['gateway.threads=2', 'cache.store=memory', 'engine.kv_memory=16MiB', 'engines.b.threads=1', 'engine.models=',
  'engine.models.m.path=etc/models/demo-small.gguf', 'gateway.default_model=m', 'gateway.routing.policy=round_robin', 'supervisor.backoff_min=1ms', 'supervisor.backoff_max=1ms'],
  edit: (yaml) => yaml.replaceAll(/pace_tps: \d+/g, 'pace_tps: 200').replaceAll(/concurrency: \d+/g, 'concurrency: 64').replaceAll('coalesce: user', 'coalesce: "off"') });
const health = async () => JSON.parse((await request(server.http, '/health')).body);
const ask = (body, logged) => chat(server.http, server.keys.paid, body, { headers: logged ? { 'x-sluice-events': '1' } : {} });
const bodies = Array.from({ length: ANSWERS }, (_, i) => ({ model: 'm', max_tokens: 60, temperature: 1, seed: 100 * SEED + i, ignore_eos: true, n: i % 4 === 3 ? 2 : 1,
  messages: user(`Story ${i} of ${SEED}.`) }));
const texts = (r) => [0, 1].map((at) => r.events.flatMap((e) => e.choices ?? []).filter((c) => c.index === at).map((c) => c.delta?.content ?? '').join(''));
const want = [];
let killed = 0, lost = 0;
try {
  for (const b of bodies) want.push(texts(await ask(b, false)));
  for (let round = 0; round < ROUNDS; round++) {
    assert.ok(await until(async () => (await health()).status === 'ok', 60_000), `round ${round}: an engine does not come back`);
    const victim = rnd(2) ? 'engine' : 'engine b', pid = (await server.pids())[victim];
    const kill = new Promise((done) => setTimeout(() => { try { process.kill(pid, 'SIGKILL'); killed++; } catch { /* gone */ } done(); }, rnd(400)));
    const got = await Promise.all(bodies.map((b, i) => ask(b, i % 2 === 1)));
    await kill;
    got.forEach((r, i) => {
      const what = `round ${round}, answer ${i}: ${r.status} ${r.body.slice(-300)}`;
      texts(r).forEach((t, at) => assert.ok(want[i][at].startsWith(t), `foreign text: ${what}`));
      assert.ok(r.errors.length <= 1, what);
      const whole = r.done && r.errors.length === 0;
      if (whole) assert.deepEqual(texts(r), want[i], what);
      if (!whole) lost++;
      // What can be resumed is made again, unless nothing else was up: the other engine may still be starting from the round before.
      if (!whole && i % 2 === 1) assert.fail(`lost although it can be resumed: ${what}`);
    });
    if (round % 10 === 9) console.log(`${round + 1} rounds: ${killed} kills, ${lost} of ${(round + 1) * ANSWERS} answers lost, ` +
      `${sum(samples(await server.metrics()), 'sluice_generations_remade_total')} made again`);
  }
  assert.ok(await until(async () => { const f = samples(await server.metrics());
    return sum(f, 'sluice_engine_link_running') + sum(f, 'sluice_engine_link_waiting') + sum(f, 'sluice_generations') === 0; }, 60_000), 'something is left');
} finally {
  const status = await server.stop();
  assert.equal(status, 0, server.log());
  assert.doesNotMatch(server.log(), /BUG|AddressSanitizer|assert/);
}
