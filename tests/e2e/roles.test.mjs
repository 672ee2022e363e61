// SPDX-License-Identifier: Apache-2.0
// Two engines of role auto under load: long prompts get one of them, long answers get it back, and every stream that runs
// meanwhile has the text of one engine alone.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { chat, until, user } from './client.mjs';
import { figures, words } from './engines_traffic.mjs';
import { localOnly, request, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';
import { sum } from './prometheus.mjs';

const PATIENCE = 180_000, ENGINES = ['engine', 'b'];
const ALONE = ['gateway.threads=2', 'cache.store=memory', 'engine.kv_memory=4MiB', 'engine.serves=demo-small', 'gateway.tiers.paid.coalesce=off',
  ...['requests_per_minute', 'tokens_per_minute', 'tokens_per_day'].map((k) => `gateway.tiers.paid.${k}=0`)];
// A target that no prompt meets, and none per token: what decides are prompts, then pages. Paced answers hold their pages for long.
const AUTO = [...ALONE, 'engine.role=auto', 'engines.b.role=auto', 'handover.memory=32MiB', 'handover.tokens=64', 'planner.period=100ms', 'planner.dwell=1s',
  'gateway.tiers.paid.ttft_target=1ms', 'gateway.tiers.paid.itl_target=0', 'gateway.tiers.free.itl_target=0', 'gateway.tiers.paid.when_late=queue', 'gateway.tiers.paid.pace_tps=12', 'gateway.tiers.paid.burst=1'];
const servers = [];
after(() => Promise.all(servers.map((s) => s.stop())));
const start = async (sets) => { const s = await startServer({ sets }); servers.push(s); return s; };

const answer = (seed, max_tokens, n_words) => ({ model: 'demo-small', max_tokens, seed, ignore_eos: true, messages: user(words(random(seed), n_words)) });
const ask = (server, b) => chat(server.http, server.keys.paid, b);
const roles = (f) => Object.fromEntries(ENGINES.map((engine) => [engine, ['both', 'prefill', 'decode'].find((role) => sum(f, 'sluice_engine_role', { engine, role }) === 1)]));
const count = (f, role) => Object.values(roles(f)).filter((r) => r === role).length;

/** Sends bodies, `width` at a time, until the engines' roles are as wanted. Returns [body, result] of all. */
async function load(server, width, body, wanted) {
  const all = [];
  let stop = false, seed = 0;
  const one = async () => { while (!stop) { const b = body(seed++); all.push([b, await ask(server, b)]); } };
  const running = Array.from({ length: width }, one);
  const seen = await until(async () => { const f = await figures(server); return wanted(f) && f; }, PATIENCE);
  stop = true;
  await Promise.all(running);
  assert.ok(seen, `the roles stay: ${JSON.stringify(roles(await figures(server)))}\n${server.log()}`);
  return all;
}

test('a pair of engines changes roles under load, and no stream is lost', { timeout: 900_000, ...localOnly('roles of engines that share pages') }, async () => {
  const server = await start(AUTO), status = async () => JSON.parse((await request(server.http, '/v1/admin/status', { headers: { authorization: `Bearer ${server.keys.admin}` } })).body).roles;
  const first = await status();
  assert.deepEqual(first.engines.map((e) => [e.name, e.role, e.auto, e.up]), ENGINES.map((name) => [name, 'both', true, true]));
  assert.deepEqual([first.changes, first.changed_at, first.last_change], [0, null, null]);
  const epoch = JSON.stringify(await server.pids());

  // Streams that run over both changes, on both engines.
  const held = Array.from({ length: 4 }, (_, i) => answer(9000 + i, 600, 4)), running = held.map((b) => ask(server, b));
  assert.ok(await until(async () => { const f = await figures(server); return ENGINES.every((engine) => sum(f, 'sluice_engine_link_running', { engine }) > 0); }, PATIENCE), 'both engines answer');

  const prompts = await load(server, 2, (i) => answer(100 + i, 2, 60), (f) => count(f, 'prefill') === 1 && sum(f, 'sluice_handovers_ended_total', { end: 'all' }) > 3);
  const split = await status();
  assert.deepEqual(split.engines.map((e) => e.role).sort(), ['decode', 'prefill']);
  assert.ok(split.changes >= 2 && split.changed_at > 0);
  assert.match(split.last_change, /prefill.*: ttft, pressure \d+\.\d\d with 0 for prompts, \d+\.\d\d with 1/);
  assert.ok(split.pressure.ttft > 0, JSON.stringify(split));

  const answers = await load(server, 14, (i) => answer(5000 + i, 400, 4), (f) => count(f, 'both') === 2);
  const end = await status();
  assert.match(end.last_change, /both.*: kv, pressure/);
  const f = await figures(server);
  assert.ok(sum(f, 'sluice_role_changes_total', { why: 'ttft' }) >= 2 && sum(f, 'sluice_role_changes_total', { why: 'kv' }) >= 2, server.log());
  assert.equal(sum(f, 'sluice_role_changes_total'), end.changes);

  // Every one of them is whole, and the engines are the processes they were.
  const all = [...held.map((b) => [b, null]), ...prompts, ...answers], ended = await Promise.all(running);
  held.forEach((_, i) => { all[i][1] = ended[i]; });
  assert.equal(JSON.stringify(await server.pids()), epoch);
  assert.ok(await until(async () => sum(await figures(server), 'sluice_handovers') === 0, PATIENCE), 'a hand-over is left');
  const alone = await start(ALONE);
  const some = process.env.THOROUGH ? [20, 20, 6] : [8, 6, 3]; // of prompts, and of the first and last answers
  for (const [b, r] of [...all.slice(0, 4 + some[0]), ...answers.slice(0, some[1]), ...answers.slice(-some[2])])
    assert.equal(r.text, (await ask(alone, b)).text);
  for (const [b, r] of all) {
    assert.deepEqual([r.status, r.errors.length, r.done, r.error], [200, 0, true, null], r.body.slice(-400));
    assert.equal(r.finish, 'length', JSON.stringify(b));
  }
});
