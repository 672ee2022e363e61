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

/** A new folder with them: what is loaded from it has a state of its own. */
export async function copied() {
  const folder = await mkdtemp(join(tmpdir(), 'sluice-page-'));
  await cp(fileURLToPath(www), folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  after(() => rm(folder, { recursive: true }));
  return folder;
}

export const copy = await copied();

/** A module of the page, by the name of its file. */
export const load = (name, folder = copy) => import(pathToFileURL(join(folder, name)));
