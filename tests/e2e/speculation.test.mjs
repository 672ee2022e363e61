// SPDX-License-Identifier: Apache-2.0
// Speculation through the whole server, on the demo pair: with drafts of every kind the answers are those without, greedy and
// sampled, streamed and whole; what drafts is named in the log; drafts are counted in the metrics, under both names.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { localOnly, request, startServer } from './harness.mjs';

const asked = [
  { messages: [{ role: 'user', content: 'Say the word apple again and again: apple apple apple apple apple apple' }] },
  { messages: [{ role: 'user', content: 'What is the capital of France?' }], temperature: 0.8, seed: 7 },
  { messages: [{ role: 'user', content: 'Count: one two three one two three one two three' }], temperature: 1, seed: 11,
    frequency_penalty: 0.3, logprobs: true, top_logprobs: 2 },
  { messages: [{ role: 'user', content: 'Tell me of the river and the sea' }], temperature: 0.9, seed: 5, n: 3 },
  { messages: [{ role: 'user', content: 'one two three one two three one two' }], stop: ['four', 'three'] },
];

async function answers(server) {
  const out = [];
  for (const body of asked) {
    const r = await request(server.http, '/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'demo-large', temperature: 0, max_tokens: 80, ...body }),
    });
    assert.equal(r.status, 200, r.body);
    const { choices, usage } = JSON.parse(r.body);
    out.push({ choices, completion_tokens: usage.completion_tokens });
  }
  return out;
}

async function counted(server, name) {
  const found = (await request(server.http, '/metrics', { headers: { authorization: `Bearer ${server.keys.admin}` } })).body
    .match(new RegExp(`^${name}(?:\\{model_name="demo-large"\\})? (\\d+)$`, 'm'));
  assert.ok(found, name);
  return Number(found[1]);
}

/** Waits for a count: the engine's statistics come to the gateway now and then. */
async function until(server, name, least) {
  const deadline = Date.now() + 100_000;
  for (;;) {
    const n = await counted(server, name);
    if (n >= least || Date.now() > deadline) return n;
    await new Promise((done) => setTimeout(done, 50));
  }
}

test('answers with drafts are those without', localOnly('its drafts and their counts'), async () => {
  let plain;
  for (const mode of ['off', 'ngram', 'draft', 'head', 'auto']) {
    const server = await startServer({ sets: [`engine.speculation.mode=${mode}`, 'engine.speculation.fixed=true'] });
    try {
      const got = await answers(server);
      plain ??= got;
      assert.deepEqual(got, plain, mode);
      const drafted = await until(server, 'sluice_spec_drafted_tokens_total', mode === 'off' ? 0 : 1);
      assert.equal(drafted > 0, mode !== 'off', mode);
      assert.equal(/demo-small drafts for demo-large/.test(server.log()), mode === 'draft' || mode === 'auto', mode);
      assert.equal(/demo-large drafts by a layer of its own/.test(server.log()), mode === 'head' || mode === 'auto', mode);
      if (mode !== 'auto') continue;
      const accepted = await until(server, 'vllm:spec_decode_num_accepted_tokens_total', 1);
      assert.ok(accepted > 0 && accepted <= await counted(server, 'vllm:spec_decode_num_draft_tokens_total'));
      assert.ok(await counted(server, 'sluice_spec_drafts_total') > 0);
    } finally {
      assert.equal(await server.stop(), 0, server.log());
    }
  }
});
