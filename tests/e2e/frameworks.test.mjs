// SPDX-License-Identifier: Apache-2.0
// frameworks_suite.mjs, where Node is new enough for what it imports.
import { test } from 'node:test';

const [major] = process.versions.node.split('.').map(Number);
if (major >= 20) await import('./frameworks_suite.mjs');
else test('frameworks', { skip: 'LangChain needs Node 20' }, () => {});
