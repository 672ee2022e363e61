// SPDX-License-Identifier: Apache-2.0
// Real clients against a real server: see client_suite.mjs for what each does. proxies.test.mjs runs the same behind nginx,
// HAProxy and others.
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { SUITE_SETS, clientSuite } from './client_suite.mjs';
import { startServer } from './harness.mjs';

describe('clients', { timeout: 120_000 }, () => {
  const x = {};
  before(async () => {
    x.server = await startServer({ echo: true, sets: SUITE_SETS });
    Object.assign(x, { http: x.server.http, https: x.server.https });
  });
  after(async () => {
    const how = await x.server?.stop();
    assert.equal(how, 0, x.server?.log());
  });
  clientSuite(x, { h2c: true });
});
