// SPDX-License-Identifier: Apache-2.0
// The page in Chromium against a real server with the demo pair: the cases of page_browser.test.mjs that need no faults.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT, startServer, THREADS } from './harness.mjs';

for (const threads of THREADS) test(`the page in front of the real server, ${threads} gateway thread(s)`, { timeout: 720_000 }, async () => {
  // Paced, so that a long answer is still under way when it is stopped.
  const server = await startServer({ sets: [`gateway.threads=${threads}`, 'gateway.tiers.paid.pace_tps=30'] });
  try {
    const child = spawn(process.execPath, ['--test', join(ROOT, 'tests/e2e/page_browser.test.mjs')], {
      env: { ...process.env, NODE_TEST_CONTEXT: undefined, SLUICE_PAGE: server.page,
        SLUICE_GAUGE: `${server.http}/metrics sluice_engine_running`, SLUICE_GAUGE_KEY: server.keys.admin },
      stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    child.stdout.setEncoding('utf8').on('data', (d) => { out += d; });
    const code = await new Promise((done) => child.on('close', done));
    assert.equal(code, 0, out);
    assert.match(out, /# pass [1-9]/, out);
  } finally {
    await server.stop();
  }
});
