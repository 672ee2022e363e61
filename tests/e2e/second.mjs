// SPDX-License-Identifier: Apache-2.0
// A second gateway beside a running server: on the same engine and the same Redis, as on another box.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './client.mjs';
import { request, SLUICE } from './harness.mjs';

/** sets: as for startServer, what both must have alike. {http, log(), stop()}. */
export async function startSecondGateway(server, sets) {
  const probe = net.createServer().listen(0, '127.0.0.1');
  await new Promise((r) => probe.once('listening', r));
  const { port } = probe.address();
  await new Promise((r) => probe.close(r));
  const base = `http://127.0.0.1:${port}`, state = mkdtempSync(join(tmpdir(), 'sluice-e2e-'));
  const child = spawn(SLUICE, ['gateway', '-c', 'etc/sluice.yaml', '--state', state, ...[...sets,
    `gateway.http=127.0.0.1:${port}`, 'gateway.https=off', `gateway.engine_socket=${server.state}/run/engine.sock`,
    `cache.address=unix:${server.state}/run/redis.sock`].flatMap((s) => ['--set', s])], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.setEncoding('utf8').on('data', (d) => { log += d; });
  const stop = () => {
    child.kill('SIGKILL');
    rmSync(state, { recursive: true, force: true });
  };
  const ready = await until(async () => { try { return (await request(base, '/ready')).status === 200; } catch { return false; } }, 100000);
  if (!ready || !await until(() => /connected to Redis/.test(log), 50000)) {
    stop();
    throw new Error(`no second gateway: ${log}`);
  }
  return { http: base, pid: child.pid, log: () => log, stop };
}
