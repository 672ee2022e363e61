// SPDX-License-Identifier: Apache-2.0
// The context that a model of 0.6 billion parameters gets on this machine with the configuration as it comes: all of it, or
// a line that says what is lacking.
//
//   node tests/soak/context.mjs [--shape NAME]
//
// Prints the engine's lines about memory and one of JSON. Exits with 1 if a short context has no reason.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SLUICE, startServer } from '../e2e/harness.mjs';

const { values } = parseArgs({ options: { shape: { type: 'string', default: 'qwen3-0.6b' } } });
const folder = mkdtempSync(join(tmpdir(), 'sluice-context-')), file = join(folder, 'model.gguf');
let failed = 1;
try {
  execFileSync(SLUICE, ['model', 'random', '--shape', values.shape, '--type', 'q8_0', file]);
  const server = await startServer({ edit: (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => `${line}    - name: measured\n      path: ${file}\n`) });
  const log = server.log();
  for (const line of log.split('\n')) if (/memory: |model measured/.test(line)) console.log(line);
  const [, has, of] = /model measured is ready, (\d+) of (\d+) tokens/.exec(log) ?? [];
  const reason = /model measured: context .* would be needed, .* left; .*/.test(log);
  console.log(JSON.stringify({ shape: values.shape, context: Number(has), of: Number(of), reason }));
  failed = has !== undefined && (has === of || reason) ? 0 : 1;
  await server.stop();
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exit(failed);
