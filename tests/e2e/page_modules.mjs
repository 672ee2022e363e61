// SPDX-License-Identifier: Apache-2.0
// The page's modules for Node. Node takes a .js file for a module only beside a package.json that says so; the page's folder has
// none, so the modules are loaded from a copy.
import { webcrypto } from 'node:crypto';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

globalThis.crypto ??= webcrypto; // Node 18 has it, but not as a global

export const www = new URL('../../gateway/www/', import.meta.url);

/** A folder with them. */
export const copy = await mkdtemp(join(tmpdir(), 'sluice-page-'));
await cp(fileURLToPath(www), copy, { recursive: true });
await writeFile(join(copy, 'package.json'), '{"type":"module"}');
after(() => rm(copy, { recursive: true }));

/** A module of the page, by the name of its file. */
export const load = (name) => import(pathToFileURL(join(copy, name)));
