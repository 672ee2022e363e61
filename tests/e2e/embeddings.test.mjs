// SPDX-License-Identifier: Apache-2.0
// Embeddings, reranking and scores over the wire, of models that this test writes (random weights): by fetch and by the openai
// package, in batches, with limits, and with errors that name the input.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { until, user } from './client.mjs';
import { localOnly, request, SLUICE, startServer } from './harness.mjs';
import { violations } from './schema.mjs';

const folder = mkdtempSync(join(tmpdir(), 'sluice-embed-'));
const WIDTH = 256, BERT_CONTEXT = 256;
const shapes = ['tiny-bert', 'tiny-reranker', 'tiny-embedding'];
const models = (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => line +
  shapes.map((s) => `    - name: ${s}\n      path: ${join(folder, `${s}.gguf`)}\n`).join('') +
  `    - name: mean\n      path: ${join(folder, 'tiny-embedding.gguf')}\n      pooling: mean\n      matryoshka: on\n`);

const length = (v) => Math.hypot(...v);
const cosine = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0) / length(a) / length(b);
const near = (a, b, by) => assert.ok(Math.abs(a - b) <= by, `${a} is not ${b} within ${by}`);
const numbers = (base64) => { const b = Buffer.from(base64, 'base64'); return Array.from({ length: b.length / 4 }, (_, i) => b.readFloatLE(4 * i)); };

describe('embeddings', () => {
  let server, openai, doc;
  before(async () => {
    for (const shape of shapes) execFileSync(SLUICE, ['model', 'random', '--shape', shape, '--type', 'f32', join(folder, `${shape}.gguf`)]);
    server = await startServer({ edit: models, sets: ['log.requests.to=stderr'] });
    openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
    doc = JSON.parse((await request(server.http, '/openapi.json')).body);
  });
  after(async () => {
    rmSync(folder, { recursive: true, force: true });
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  const ask = async (path, body, key = server.keys.paid) => {
    const r = await fetch(server.http + path, { method: 'POST', body: JSON.stringify(body),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` } });
    const text = await r.text();
    return { status: r.status, headers: r.headers, json: JSON.parse(text) };
  };
  const taken = async (path, body) => {
    const r = await ask(path, body);
    assert.equal(r.status, 200, JSON.stringify(r.json));
    assert.match(r.headers.get('content-type'), /^application\/json/);
    const { schema } = doc.paths[path].post.responses[200].content['application/json'];
    assert.deepEqual(violations(doc, schema, r.json), []);
    return r.json;
  };
  const refused = async (path, body, status, code, param, words = /./) => {
    const r = await ask(path, body);
    assert.deepEqual([r.status, r.json.error.code, r.json.error.param], [status, code, param], JSON.stringify(r.json));
    assert.match(r.json.error.message, words);
  };
  test('each request has a record, which has no text and is not judged', async () => {
    const records = () => server.log().split('\n').filter((l) => l.startsWith('{"time"')).map((l) => JSON.parse(l));
    const ask = (path, body) => request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' }, body: JSON.stringify(body) });
    const one = await ask('/v1/embeddings', { model: 'tiny-bert', input: 'kumquat-7319' });
    const scored = await ask('/v1/score', { model: 'tiny-reranker', text_1: 'a', text_2: ['b', 'c'] });
    const wrong = await ask('/v1/embeddings', { model: 'none', input: 'a' });
    assert.deepEqual([one.status, scored.status, wrong.status], [200, 200, 404]);
    const of = (r) => records().find((l) => l.request_id === r.headers['x-request-id']);
    assert.ok(await until(() => [one, scored, wrong].every(of), 60_000), server.log());
    const { model, tier, status, ended_by, good, tokens_in } = of(one);
    assert.deepEqual({ model, tier, status, ended_by, good }, { model: 'tiny-bert', tier: 'paid', status: 200, ended_by: 'vectors', good: null });
    assert.equal(tokens_in, JSON.parse(one.body).usage.prompt_tokens);
    assert.deepEqual([of(scored).model, of(scored).ended_by, of(wrong).ended_by, of(wrong).status], ['tiny-reranker', 'vectors', 'refused', 404]);
    assert.ok(!server.log().includes('kumquat'));
  });

  const vectors = async (model, input, more = {}) => (await taken('/v1/embeddings', { model, input, ...more })).data.map((d) => d.embedding);

  test('a vector for each input, in order, of length one', async () => {
    for (const model of ['tiny-bert', 'tiny-embedding', 'mean']) {
      const r = await taken('/v1/embeddings', { model, input: ['the fox', 'a hen', 'the fox'] });
      assert.deepEqual(r.data.map((d) => d.index), [0, 1, 2]);
      assert.equal(r.model, model);
      assert.ok(r.usage.prompt_tokens > 3 && r.usage.total_tokens === r.usage.prompt_tokens);
      for (const d of r.data) {
        assert.equal(d.embedding.length, WIDTH);
        near(length(d.embedding), 1, 1e-6);
      }
      assert.deepEqual(r.data[0].embedding, r.data[2].embedding);
      assert.notDeepEqual(r.data[0].embedding, r.data[1].embedding);
      assert.deepEqual(await vectors(model, 'the fox'), [r.data[0].embedding]);
    }
  });

  test('a vector does not depend on its batch', async () => {
    const texts = Array.from({ length: 150 }, (_, i) => `text number ${i} ${'of many '.repeat(i % 20)}`);
    for (const model of ['tiny-bert', 'tiny-embedding', 'mean']) {
      const all = await vectors(model, texts);
      const [alone, others] = await Promise.all([vectors(model, texts[77]), vectors(model, texts.slice(70, 80).reverse())]);
      assert.deepEqual(alone[0], all[77]);
      assert.deepEqual(others, all.slice(70, 80).reverse());
    }
  });

  test('forms: tokens, base64, fewer dimensions', async () => {
    const [whole] = await vectors('tiny-bert', [[2, 20, 30, 3]]);
    assert.deepEqual(await vectors('tiny-bert', [2, 20, 30, 3]), [whole]);
    const [coded] = await vectors('tiny-bert', [2, 20, 30, 3], { encoding_format: 'base64' });
    assert.deepEqual(numbers(coded).map(Math.fround), whole.map(Math.fround));
    assert.deepEqual(await vectors('tiny-bert', [2, 20, 30, 3], { dimensions: WIDTH }), [whole]);
    const [long] = await vectors('mean', [2, 20, 30, 3]), [few] = await vectors('mean', [2, 20, 30, 3], { dimensions: 16 });
    assert.equal(few.length, 16);
    near(length(few), 1, 1e-6);
    near(cosine(few, long.slice(0, 16)), 1, 1e-6);
  });

  test('unknown fields are listed', async () => {
    const listed = async (path, body) => (await ask(path, body)).headers.get('x-sluice-ignored-fields');
    assert.equal(await listed('/v1/embeddings', { model: 'tiny-bert', input: 'a', truncate: 'END', normalize: null }), 'truncate');
    assert.equal(await listed('/v1/rerank', { model: 'tiny-bert', query: 'a', documents: ['b'], max_chunks_per_doc: 1 }), 'max_chunks_per_doc');
    assert.equal(await listed('/v1/score', { model: 'tiny-bert', text_1: 'a', text_2: 'b', user: 'u', query: 'x' }), 'query');
    assert.equal(await listed('/v1/score', { model: 'tiny-bert', text_1: 'a', text_2: 'b' }), null);
  });

  test('the openai package', async () => {
    const r = await openai.embeddings.create({ model: 'tiny-bert', input: ['one', 'two'] }); // it asks for base64
    const [one] = await vectors('tiny-bert', 'one');
    assert.equal(r.data.length, 2);
    assert.deepEqual(Array.from(r.data[0].embedding, Math.fround), one.map(Math.fround));
    await assert.rejects(openai.embeddings.create({ model: 'tiny-bert', input: ['a', ''] }), (e) =>
      e instanceof OpenAI.BadRequestError && e.param === 'input[1]');
  });

  test('errors name the input', async () => {
    const path = '/v1/embeddings', long = 'b '.repeat(BERT_CONTEXT - 1);
    await taken(path, { model: 'tiny-bert', input: ['a', 'b '.repeat(BERT_CONTEXT - 2)] });
    await refused(path, { model: 'tiny-bert', input: ['a', 'b', 'c', long] }, 400, 'context_length_exceeded', 'input[3]', /256 tokens.* 257 tokens/);
    await refused(path, { model: 'tiny-bert', input: long }, 400, 'context_length_exceeded', 'input');
    await refused(path, { model: 'tiny-bert', input: [[2, 3], [4, 512]] }, 400, 'invalid_value', 'input[1]', /does not know/);
    await refused(path, { model: 'tiny-bert', input: Array(2049).fill('a') }, 400, 'array_above_max_length', 'input');
    await refused(path, { model: 'tiny-bert', input: 'a', dimensions: WIDTH + 1 }, 400, 'invalid_value', 'dimensions', /have 256/);
    await refused(path, { model: 'tiny-bert', input: 'a', dimensions: 16 }, 400, 'unsupported_parameter', 'dimensions', /cannot be shortened/);
    await refused('/v1/rerank', { model: 'tiny-bert', query: 'q', documents: ['a', { text: long }] }, 400, 'context_length_exceeded', 'documents[1]');
    await refused('/v1/rerank', { model: 'tiny-reranker', query: 'q', documents: ['a', long] }, 400, 'context_length_exceeded', 'documents[1]');
    await refused('/v1/score', { model: 'tiny-bert', text_1: ['a', long], text_2: ['a', 'b'] }, 400, 'context_length_exceeded', 'text_1[1]');
  });

  test('models that can do something else', localOnly('that one model makes texts and vectors'), async () => {
    await refused('/v1/embeddings', { model: 'demo-small', input: 'a' }, 400, 'invalid_value', 'model', /not an embedding model/);
    await refused('/v1/embeddings', { model: 'tiny-reranker', input: 'a' }, 400, 'invalid_value', 'model', /not an embedding model/);
    await refused('/v1/rerank', { model: 'demo-small', query: 'a', documents: ['b'] }, 400, 'invalid_value', 'model', /neither/);
    await refused('/v1/embeddings', { model: 'none', input: 'a' }, 404, 'model_not_found', 'model');
    await refused('/v1/chat/completions', { model: 'tiny-bert', messages: user('x') }, 400, 'invalid_value', 'model', /not a generator/);
    await refused('/v1/completions', { model: 'tiny-bert', prompt: 'x' }, 400, 'invalid_value', 'model', /not a generator/);
    // Each default is one that can.
    assert.equal((await vectors('default', 'a'))[0].length, WIDTH);
    assert.equal((await ask('/v1/chat/completions', { model: 'default', messages: user('x'), max_tokens: 2 })).status, 200);
    // A decoder that pools still answers.
    assert.equal((await ask('/v1/completions', { model: 'mean', prompt: 'x', max_tokens: 2 })).status, 200);
  });

  test('rerank and score by the cosine of vectors', async () => {
    const documents = ['the hen', { text: 'the fox ran' }, 'the fox'], query = 'the fox';
    const [q, ...d] = await vectors('tiny-bert', [query, ...documents.map((x) => x.text ?? x)]);
    const want = d.map((v) => cosine(q, v));
    const r = await taken('/v1/rerank', { model: 'tiny-bert', query, documents, return_documents: true });
    assert.deepEqual(r.results.map((x) => x.index), [0, 1, 2].sort((a, b) => want[b] - want[a]));
    for (const x of r.results) {
      near(x.relevance_score, want[x.index], 1e-6);
      assert.equal(x.document.text, documents[x.index].text ?? documents[x.index]);
    }
    assert.equal(r.results[0].index, 2);
    const best = await taken('/v1/rerank', { model: 'tiny-bert', query, documents, top_n: 1 });
    assert.deepEqual(best.results, [{ index: 2, relevance_score: r.results[0].relevance_score }]);
    const s = await taken('/v1/score', { model: 'tiny-bert', text_1: query, text_2: documents.map((x) => x.text ?? x) });
    s.data.forEach((x, i) => near(x.score, want[i], 1e-6));
    const pairs = await taken('/v1/score', { model: 'tiny-bert', text_1: ['the hen', 'the fox'], text_2: ['the hen', 'the hen'] });
    near(pairs.data[0].score, 1, 1e-6);
    near(pairs.data[1].score, want[0], 1e-6);
  });

  test('rerank and score by a cross-encoder', async () => {
    const documents = ['the hen', 'the fox ran', 'ran the fox'];
    const r = await taken('/v1/rerank', { model: 'tiny-reranker', query: 'the fox', documents });
    const scores = r.results.map((x) => x.relevance_score);
    assert.ok(scores.every((x) => x > 0 && x < 1) && new Set(scores).size === 3);
    assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
    const s = await taken('/v1/score', { model: 'tiny-reranker', text_1: 'the fox', text_2: documents });
    for (const x of r.results) assert.equal(s.data[x.index].score, x.relevance_score);
    // The order of a pair counts.
    const [swapped] = (await taken('/v1/score', { model: 'tiny-reranker', text_1: 'the hen', text_2: 'the fox' })).data;
    assert.notEqual(swapped.score, s.data[0].score);
  });

  test('keys, limits and counters', async () => {
    const body = { model: 'tiny-bert', input: 'a' };
    assert.equal((await ask('/v1/embeddings', body, 'sk-none')).status, 401);
    const before = await taken('/v1/embeddings', { model: 'tiny-bert', input: ['a', 'b'] });
    const metrics = await server.metrics();
    const count = Number(/^sluice_embedding_texts_total (\d+)$/m.exec(metrics)[1]);
    const r = await ask('/v1/embeddings', { model: 'tiny-bert', input: ['a', 'b', 'c'] });
    assert.equal(r.status, 200);
    assert.equal(Number(/^sluice_embedding_texts_total (\d+)$/m.exec(await server.metrics())[1]), count + 3);
    assert.equal(r.json.usage.prompt_tokens * 2, before.usage.prompt_tokens * 3);
  });

  test('many requests at once, some of whose clients leave', async () => {
    const texts = Array.from({ length: 100 }, (_, i) => `text ${i} `.repeat(10));
    const all = await vectors('tiny-bert', texts);
    const leaving = Array.from({ length: 4 }, () => {
      const gone = new AbortController();
      const sent = fetch(`${server.http}/v1/embeddings`, { method: 'POST', signal: gone.signal, body: JSON.stringify({ model: 'mean', input: texts }),
        headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } }).catch(() => null);
      setImmediate(() => gone.abort());
      return sent;
    });
    const [again, mean] = await Promise.all([vectors('tiny-bert', texts), vectors('mean', texts.slice(0, 3))]);
    assert.deepEqual(again, all);
    assert.equal(mean.length, 3);
    await Promise.all(leaving);
  });
});

describe('limits of a key', () => {
  let server;
  before(async () => {
    execFileSync(SLUICE, ['model', 'random', '--shape', 'tiny-bert', '--type', 'f32', join(tmpdir(), `sluice-limits-${process.pid}.gguf`)]);
    const path = join(tmpdir(), `sluice-limits-${process.pid}.gguf`);
    server = await startServer({ edit: (text) => text.replace(/( *models: # \(dev\).*\n)/, (line) => `${line}    - name: bert\n      path: ${path}\n`)
      .replace(/(\n +- name: paid\n(?: +.*\n)*? +tokens_per_minute: )\S+/, (_, head) => `${head}30`) });
  });
  after(async () => {
    rmSync(join(tmpdir(), `sluice-limits-${process.pid}.gguf`), { force: true });
    if (server) assert.equal(await server.stop(), 0, server.log());
  });

  test('tokens are charged before they are computed', localOnly('how many tokens a prompt has before it is computed'), async () => {
    const ask = (input) => request(server.http, '/v1/embeddings', { method: 'POST', body: JSON.stringify({ model: 'bert', input }),
      headers: { 'content-type': 'application/json', authorization: `Bearer ${server.keys.paid}` } });
    assert.equal((await ask(Array(5).fill('a'))).status, 200); // 15 tokens
    const more = await ask(Array(8).fill('a')); // 24
    assert.equal(more.status, 429, more.body);
    assert.ok(Number(more.headers['retry-after']) > 0);
    assert.equal((await ask(Array(4).fill('a'))).status, 200); // nothing was charged for what was refused
  });
});
