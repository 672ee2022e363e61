// SPDX-License-Identifier: Apache-2.0
// A Redis that real sentinels watch: its primary is killed under load, a replica takes over, and the gateway follows.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chat, metric, until, user } from './client.mjs';
import { freePorts, hasRedis, request, SLUICE, startServer } from './harness.mjs';

const skip = hasRedis() ? false : 'redis-server is not installed';
const PATIENCE = 100_000;

describe('a Redis behind sentinels', { skip }, () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-sentinels-')), secret = join(dir, 'secret');
  const children = new Map();
  let primary, replica, sentinels, address, server;

  const start = (port, ...args) => {
    const home = join(dir, String(port));
    mkdirSync(home, { recursive: true });
    const child = spawn('redis-server', [...args, '--port', String(port), '--bind', '127.0.0.1', '--dir', home], { stdio: 'ignore' });
    children.set(port, child);
    return child;
  };
  // Its answer; '' where there is none.
  const say = (port, ...words) => spawnSync('redis-cli', ['-h', '127.0.0.1', '-p', String(port), ...(sentinels.includes(port) ? ['-a', 'watch', '--no-auth-warning'] : []), ...words],
    { encoding: 'utf8', timeout: 10_000 }).stdout ?? '';
  const field = (text, name) => text.split(/\r?\n/).find((l, i, all) => all[i - 1] === name) ?? '';
  const redis = ['--save', '', '--appendonly', 'no', '--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];

  before(async () => {
    const ports = await freePorts(5);
    [primary, replica] = ports;
    sentinels = ports.slice(2);
    start(primary, ...redis);
    start(replica, ...redis, '--replicaof', '127.0.0.1', String(primary));
    assert.ok(await until(() => say(replica, 'INFO', 'replication').includes('master_link_status:up'), PATIENCE));
    for (const port of sentinels) {
      const conf = join(dir, `${port}.conf`);
      writeFileSync(conf, [`sentinel monitor main 127.0.0.1 ${primary} 2`, 'sentinel down-after-milliseconds main 1000',
        'sentinel failover-timeout main 5000', 'requirepass watch', ''].join('\n'));
      start(port, conf, '--sentinel');
    }
    const knowsAll = (port) => {
      const known = say(port, 'SENTINEL', 'MASTER', 'main');
      return field(known, 'num-other-sentinels') === '2' && field(known, 'num-slaves') === '1';
    };
    assert.ok(await until(() => sentinels.every(knowsAll), PATIENCE), 'the sentinels do not find each other');
    writeFileSync(secret, 'watch\n', { mode: 0o600 });
    // One of them is not there, and is asked first.
    const [nobody] = await freePorts(1);
    address = `sentinel:main@${[nobody, ...sentinels].map((p) => `127.0.0.1:${p}`).join(',')}`;
    server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'engine.echo.rate=20', 'gateway.threads=2', `cache.address=${address}`,
      `cache.sentinel_password_file=${secret}`, 'cache.timeout=2s', 'cache.backoff_max=200ms', 'gateway.tiers.paid.concurrency=200',
      'gateway.tiers.paid.requests_per_minute=0', 'gateway.tiers.paid.tokens_per_minute=0'] });
  });
  after(async () => {
    if (server) assert.equal(await server.stop(), 0, server.log());
    for (const child of children.values()) child.kill('SIGKILL');
    rmSync(dir, { recursive: true, force: true });
  });

  const up = () => until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, PATIENCE);
  const post = (body) => request(server.http, '/v1/responses', { method: 'POST', body: JSON.stringify(body),
    headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
  const get = (id) => request(server.http, `/v1/responses/${id}`, { headers: { authorization: `Bearer ${server.keys.paid}` } });

  test('is found, with a sentinel missing', async () => {
    assert.ok(await up(), server.log());
    assert.match(server.log(), new RegExp(`the sentinel names 127\\.0\\.0\\.1, port ${primary}`));
    assert.ok(Number(say(primary, 'DBSIZE')) >= 1);
  });

  test('is looked at by the doctor', () => {
    const said = spawnSync(SLUICE, ['doctor', '-c', 'etc/sluice.yaml', '--state', server.state, '--set', `cache.address=${address}`, '--set',
      `cache.sentinel_password_file=${secret}`, '--set', 'engine.models='], { encoding: 'utf8' });
    assert.match(said.stdout, /store +Redis [\d.]+ at sentinel:main@/, said.stdout + said.stderr);
    const wrong = join(dir, 'wrong');
    writeFileSync(wrong, 'other\n', { mode: 0o600 });
    const refused = spawnSync(SLUICE, ['doctor', '-c', 'etc/sluice.yaml', '--state', server.state, '--set', `cache.address=${address}`, '--set',
      `cache.sentinel_password_file=${wrong}`, '--set', 'engine.models='], { encoding: 'utf8' });
    assert.match(refused.stdout, /store +Redis at sentinel:main@\S+: the sentinel at 127\.0\.0\.1, port \d+: WRONGPASS/, refused.stdout + refused.stderr);
    assert.match(refused.stdout, /cache\.sentinel_password_file: a file whose first line is the password/);
  });

  test('fails over under load: no stream is lost, and what was stored is there', async () => {
    const made = await post({ model: 'default', input: 'to be kept', store: true, max_output_tokens: 16 });
    assert.equal(made.status, 200, made.body);
    const { id, output } = JSON.parse(made.body);
    assert.ok(await until(() => Number(say(primary, 'WAIT', '1', '1000')) === 1, PATIENCE));
    let showing = 0, all;
    const shown = new Promise((r) => { all = r; });
    const streams = Promise.all(Array.from({ length: 32 }, (_, i) => {
      let seen = false;
      return chat(server.http, server.keys.paid, { model: 'default', messages: user(`Stream ${i} ${'word '.repeat(100)}`), max_tokens: 100,
        stream_options: { include_usage: true } }, { onEvent: () => { if (!seen) { seen = true; if (++showing === 32) all(); } } });
    }));
    await shown;
    children.get(primary).kill('SIGKILL');
    for (const [i, r] of (await streams).entries()) {
      assert.equal(r.error, null, `stream ${i}`);
      assert.deepEqual(r.errors, [], `stream ${i}`);
      assert.ok(r.done && r.usage.completion_tokens === 100, `stream ${i}: ${r.body.slice(-300)}`);
    }
    assert.ok(await until(() => new RegExp(`the sentinel names 127\\.0\\.0\\.1, port ${replica}`).test(server.log()), PATIENCE), server.log());
    assert.ok(await up(), server.log());
    const kept = await get(id);
    assert.equal(kept.status, 200, kept.body);
    assert.deepEqual(JSON.parse(kept.body).output, output);
    const next = await post({ model: 'default', input: 'after it', previous_response_id: id, store: true, max_output_tokens: 16 });
    assert.equal(next.status, 200, next.body);
    assert.equal((await get(JSON.parse(next.body).id)).status, 200);
  });

  test('comes back as a replica, and the gateway stays where it is', async () => {
    start(primary, ...redis);
    assert.ok(await until(() => say(primary, 'INFO', 'replication').includes('role:slave'), PATIENCE));
    assert.ok(await up(), server.log());
    const made = await post({ model: 'default', input: 'on the new one', store: true, max_output_tokens: 16 });
    assert.equal((await get(JSON.parse(made.body).id)).status, 200);
    assert.match(server.log().match(/the sentinel names.*/g).at(-1), new RegExp(`port ${replica}$`));
  });
});
