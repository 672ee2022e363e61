// SPDX-License-Identifier: Apache-2.0
// The ports that tests take: processes that ask at the same time, of one run of the tests or of several on a machine, never get
// the same one, and a port is free again once the process that took it has ended.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { until } from './client.mjs';
import { ROOT } from './harness.mjs';

/** A process that takes n ports and keeps them until its standard input ends: {ports, end()}. */
async function taker(n, range) {
  const script = `import { freePorts } from './tests/e2e/harness.mjs';
    console.log(JSON.stringify(await freePorts(${n}).catch((e) => e.message)));
    process.stdin.resume();`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script],
    { cwd: ROOT, env: { ...process.env, SLUICE_PORTS: range }, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((done) => child.once('close', done));
  const [line] = await Promise.race([createInterface(child.stdout)[Symbol.asyncIterator]().next().then((r) => [r.value]), ended.then(() => [])]);
  return { ports: JSON.parse(line), end: () => { child.stdin.end(); return ended; } };
}

test('processes that ask at once get different ports, and an ended one leaves its own', async () => {
  const from = 1024 + 24 * (process.pid % 370), range = `${from}-${from + 23}`; // below those that tests ask for
  const takers = await Promise.all([8, 8, 8].map((n) => taker(n, range)));
  try {
    const given = takers.flatMap((t) => (typeof t.ports === 'string' ? [] : t.ports)); // somebody else may have some of them
    assert.equal(new Set(given).size, given.length, `${given}`);
    takers.push(await taker(24, range));
    assert.equal(takers[3].ports, `no 24 free ports in ${range}`);
  } finally { await Promise.all(takers.map((t) => t.end())); }
  assert.ok(await until(async () => {
    const next = await taker(1, range);
    await next.end();
    return typeof next.ports !== 'string';
  }, 60_000), 'free again');
});
