// SPDX-License-Identifier: Apache-2.0
// Reloads and upgrades of the executable under load: what runs goes on, word for word; what comes meanwhile is served.
// Alone: five hundred streams go on meanwhile.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from './client.mjs';
import { THREADS } from './harness.mjs';
import { PATIENCE, assertWhole, awaitLog, connection, endKnocking, knock, reload, server, start, stream, upgrade, words, writeConfig } from './lifecycle.mjs';

for (const threads of THREADS) {
  test(`500 live streams survive a reload and an upgrade, ${threads} gateway thread(s)`, async () => {
    const N = 500, PER = 100, WORDS = 160;
    await start({ changes: [['\n  threads: 1\n', `\n  threads: ${threads}\n`]],
      // Nobody is given up when the whole machine stands still for a while.
      sets: ['engine.echo.rate=20', 'supervisor.hang=5m', 'supervisor.takeover=5m',
        ...['stall', 'handshake', 'header', 'body'].map((w) => `gateway.limits.${w}=10m`)] });
    const sessions = Array.from({ length: N / PER }, (_, i) => connection(i % 2 ? server.https : server.http));
    const contents = Array.from({ length: N }, (_, i) => words(`s${i}`, WORDS));
    knock();
    const streams = contents.map((c, i) => stream(sessions[Math.floor(i / PER)], server.keys.paid, c));
    await Promise.all(streams.map((r) => r.began));

    writeConfig(['\n  threads: 1\n', `\n  threads: ${threads}\n`], ['heartbeat: 10s', 'heartbeat: 11s']);
    await reload();
    const old = (await server.pids()).gateway;
    const now = await upgrade();
    assert.equal(streams.filter((r) => r.over).length, 0, 'all were to be running through it');
    // What comes now is the new process's; the old one has said good-bye in two steps and goes on with what it has.
    assert.ok(await until(() => sessions.every((s) => s.goaways.length === 2), PATIENCE), 'two GOAWAYs each');
    for (const s of sessions) {
      assert.deepEqual(s.goaways.map((g) => g.code), [0, 0]);
      assert.equal(s.goaways[0].last, 2 ** 31 - 1, 'the first promises nothing yet');
      assert.equal(s.goaways[1].last, 2 * PER - 1, 'the second names the last stream');
    }
    const late = connection(server.https);
    assertWhole(await stream(late, server.keys.paid, 'who is there').ended, 'who is there', 'a new connection');
    late.close();

    (await Promise.all(streams.map((r) => r.ended))).forEach((r, i) => assertWhole(r, contents[i], `stream ${i}`));
    await awaitLog('the replaced gateway has ended');
    const seen = await endKnocking();
    assert.deepEqual(seen.failed, []);
    assert.ok(seen.asked > 50, `${seen.asked} new connections`);
    assert.equal((await server.pids()).gateway, now);
    assert.notEqual(old, now);
    assert.equal(await server.stop(), 0, server.log());
    assert.doesNotMatch(server.log(), /killed|signal|exited/);
  });
}
