// SPDX-License-Identifier: Apache-2.0
// The demonstration model with a chat template of tools and reasoning that it was not trained on: its answers are held to what a
// test needs. Its own tools are in demo_tools.test.mjs.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, startServer } from './harness.mjs';
import { HERMES, withTemplate } from './gguf.mjs';

/** Makes one token of `from`'s text, which has as many bytes, stand for `to`. */
function renameToken(path, from, to) {
  const b = readFileSync(path), at = b.indexOf(Buffer.concat([Buffer.from([from.length, 0, 0, 0, 0, 0, 0, 0]), from]));
  assert.ok(at > 0 && from.length === to.length);
  to.copy(b, at + 8);
  writeFileSync(path, b);
}

/** Of a model with `marked`: the one token that is <tool_call>. A bias for it makes the model call. */
export const MARKER = 1934;

/** A server with demo-large as such a model. sets: more settings; marked: <tool_call> is one token; control: texts that are control
 * tokens. Its stop() asserts that it ended well. */
export async function startToolServer({ template = HERMES, sets = [], marked = false, control = [] } = {}) {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-tools-'));
  withTemplate(join(ROOT, 'etc/models/demo-large.gguf'), join(dir, 'tools.gguf'), template, control);
  if (marked) renameToken(join(dir, 'tools.gguf'), Buffer.from('\u0120Wednesday'), Buffer.from('<tool_call>'));
  const server = await startServer({ sets: ['engine.models=', `engine.models.demo-large.path=${join(dir, 'tools.gguf')}`, ...sets] });
  const stop = async () => {
    const how = await server.stop();
    rmSync(dir, { recursive: true, force: true });
    assert.equal(how, 0, server.log());
  };
  return { ...server, stop };
}

export const quoted = (s) => s.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
/** A call as this model writes it. */
export const callText = (name, args) => `<tool_call>\n{"name": "${name}", "arguments": ${args}}\n</tool_call>`;

/** fetch that notes what a client sends: {bodies, fetch}. It adds one seed, for clients that send none: each run has the same answers. */
export function noted() {
  const bodies = [];
  return { bodies, fetch: async (url, init) => {
    const body = JSON.parse(init.body);
    bodies.push(body);
    return fetch(url, { ...init, body: JSON.stringify({ seed: 11, ...body }) });
  } };
}
