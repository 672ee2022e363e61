// SPDX-License-Identifier: Apache-2.0
// Clients behind real proxies, with the configurations that etc/proxies.md documents: the suites of clients.test.mjs through
// each, and what a restart of one does to an answer (what each adds to the way of one event: proxies_time.test.mjs). A proxy
// that is not installed is skipped by name.
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { browserSuite, launchBrowsers } from './browser_suite.mjs';
import { curl, until, user } from './client.mjs';
import { CURRENT, SUITE_SETS, clientSuite } from './client_suite.mjs';
import { ROOT, startServer } from './harness.mjs';
import { PROXIES, installed, startProxy } from './proxies.mjs';

const absent = (name) => !installed(name) && `${name} is not installed`;

const folder = mkdtempSync(join(tmpdir(), 'sluice-proxies-'));
process.once('exit', () => rmSync(folder, { recursive: true, force: true }));
cpSync(join(ROOT, 'gateway/www/client.js'), join(folder, 'client.mjs'));
const { createClient } = await import(pathToFileURL(join(folder, 'client.mjs')));

// Two proxies at once, because most of it is waiting. Each has a server of its own.
describe('behind a proxy', { timeout: 960_000, concurrency: 2 }, () => {
  const places = new Map(PROXIES.map((name) => [name, {}]));
  const browsers = new Map();
  let closeBrowsers;
  before(async () => {
    for (const [name, x] of places) {
      if (absent(name)) continue;
      x.server = await startServer({ echo: true, sets: SUITE_SETS });
      x.proxy = await startProxy(name, x.server);
      Object.assign(x, { http: x.proxy.http, https: x.proxy.https });
    }
    if (!PROXIES.every(absent)) closeBrowsers = await launchBrowsers(browsers);
  });
  after(async () => {
    await closeBrowsers?.();
    for (const { proxy, server } of places.values()) {
      await proxy?.kill();
      const how = await server?.stop();
      if (server) assert.equal(how, 0, server.log());
    }
  });

  for (const [name, x] of places) describe(`behind ${name}`, { skip: absent(name), concurrency: 1 }, () => {
    test("the server knows whose request it is, and takes no one's word for it but the proxy's", async () => {
      const ask = async (base, from, more = []) => (await curl(['-sS', '--cacert', x.server.caFile, '--interface', from, ...more,
        '-H', `authorization: Bearer ${x.server.keys.paid}`, `${base}/v1/models/${from}`])).status;
      assert.equal(await ask(x.http, '127.0.0.2'), 0);
      assert.equal(await ask(x.https, '127.0.0.3', ['-H', 'x-forwarded-for: 192.0.2.1']), 0);
      assert.ok(await until(() => ['127.0.0.2', '127.0.0.3'].every((from) => x.server.log().includes(`from ${from}, `)), 20000), x.server.log());
      assert.ok(!x.server.log().includes('from 192.0.2.1'));
    });

    clientSuite(x, { libraries: [CURRENT], toldOfWhole: name !== 'h2o' });
    browserSuite(x, browsers);

    test('an answer goes on after the proxy was killed and is there again', async () => {
      const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(' ');
      const client = createClient({ baseURL: x.http, apiKey: x.server.keys.paid });
      const run = client.chat({ model: 'default', messages: user(words) });
      let text = '', kills = 0;
      for await (const e of run) {
        if (e.type !== 'delta') continue;
        text += e.text;
        if (kills < 2 && text.length > 200 * (kills + 1)) {
          kills++;
          await x.proxy.kill();
          await x.proxy.start();
        }
      }
      assert.equal(kills, 2);
      assert.equal(text, words);
    });
  });
});
