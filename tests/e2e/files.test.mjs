// SPDX-License-Identifier: Apache-2.0
// Files of text as the openai and Anthropic libraries and plain requests see them: sent once, named in ten questions and computed
// once by the demonstration model; listed, read, bounded and deleted; of one tenant and user only; over HTTP/1.1 and HTTP/2, over both
// stores and a second gateway. Their time: tests/unit/gateway/files.
import Anthropic from '@anthropic-ai/sdk';
import assert from 'node:assert/strict';
import { File } from 'node:buffer';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http2 from 'node:http2';
import { after, before, describe, test } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { metric, until, user } from './client.mjs';
import { hasRedis, request, startServer } from './harness.mjs';
import { startSecondGateway } from './second.mjs';

globalThis.File ??= File; // Node 18 has it there only, and the library asks for it

const skip = hasRedis() ? false : 'redis-server is not installed';
const PAGE = 16; // tokens of a page of keys and values

/** A client whose requests are counted in bytes of their bodies. */
function clientOf(server, key = server.keys.paid) {
  const sent = [];
  const openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: key, maxRetries: 0, fetch: async (url, init) => {
    if (typeof init.body === 'string') sent.push(Buffer.byteLength(init.body));
    return fetch(url, init);
  } });
  const call = async (method, path, body, headers = { 'content-type': 'application/json' }) => {
    const r = await request(server.http, path, { method, body: body === undefined || typeof body === 'string' ? body : JSON.stringify(body),
      headers: { authorization: `Bearer ${key}`, ...headers } });
    return { status: r.status, headers: r.headers, body: r.body, json: r.body?.startsWith('{') ? JSON.parse(r.body) : null };
  };
  const upload = async (text, name = 'notes.txt', more = {}) => openai.files.create({ file: await toFile(Buffer.from(text), name), purpose: 'user_data', ...more });
  return { openai, call, upload, sent };
}

const part = (id) => ({ type: 'file', file: { file_id: id } });
const ask = (id, question) => ({ model: 'default', messages: [{ role: 'user', content: [part(id), { type: 'text', text: question }] }] });
const FORM = { 'content-type': 'multipart/form-data; boundary=b' };
const form = (file, { name = 'a.txt', type = 'text/plain', purpose = 'user_data' } = {}) =>
  `--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n${purpose}\r\n--b\r\nContent-Disposition: form-data; name="file"; ` +
  `filename="${name}"\r\nContent-Type: ${type}\r\n\r\n${file}\r\n--b--\r\n`;

describe('a text is sent once and computed once', { timeout: 300_000 }, () => {
  let server, openai, upload, sent;
  before(async () => {
    server = await startServer({ sets: ['gateway.coalesce.window=0'] });
    ({ openai, upload, sent } = clientOf(server));
  });
  after(async () => { if (server) assert.equal(await server.stop(), 0, server.log()); });

  test('ten questions about one file', async () => {
    const text = Array.from({ length: 60 }, (_, i) => `Line ${i}: the river has ${i * 7} stones and ${i} fish.`).join('\n');
    const { id } = await upload(text, 'river.txt');
    const about = (question) => ({ ...ask(id, question), model: 'demo-large', max_tokens: 1, seed: 1, temperature: 0 });
    // What the file is in tokens, up to the question: the prompts of two questions are alike that far.
    const tokens = async (question) => {
      const r = await request(server.http, '/tokenize', { method: 'POST', body: JSON.stringify({ model: 'demo-large', messages: about(question).messages }),
        headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' } });
      assert.equal(r.status, 200, r.body);
      return JSON.parse(r.body).tokens;
    };
    const [one, two] = [await tokens('why?'), await tokens('who?')];
    const shared = one.findIndex((t, i) => t !== two[i]), pages = Math.floor(shared / PAGE) * PAGE;
    assert.ok(pages >= 20 * PAGE, `${shared} tokens`);
    const engine = async () => metric(await server.metrics(), 'sluice_engine_prefill_tokens_total');
    const first = await engine();
    sent.length = 0;
    let computed = 0;
    for (let i = 0; i < 10; i++) {
      const { usage } = await openai.chat.completions.create(about(`What is said in line ${i}?`));
      const cached = usage.prompt_tokens_details.cached_tokens;
      assert.ok(i === 0 ? cached < PAGE * 2 : cached >= pages, `question ${i}: ${cached} of ${usage.prompt_tokens}, pages ${pages}`);
      computed += usage.prompt_tokens - cached;
    }
    // The engine's own count, which comes with its statistics.
    assert.ok(await until(async () => (await engine()) - first >= computed - 10, 100_000), `${await engine()} ${first} ${computed}`);
    const all = await engine() - first;
    assert.ok(all < shared + 10 * 40, `${all} tokens computed for ten questions about ${shared}`);
    // No question has the text: together they are shorter than it is.
    assert.equal(sent.length, 10);
    const bytes = sent.reduce((a, b) => a + b);
    assert.ok(bytes < text.length, `${bytes} bytes of questions about ${text.length}`);
  });

  test('the same beginning through the responses API and messages of Anthropic', async () => {
    const { id } = await upload(Array.from({ length: 40 }, (_, i) => `Stone ${i} is ${i * 3} cm wide.`).join('\n'), 'stones.txt');
    const common = { model: 'demo-large', temperature: 0 };
    const cached = [];
    for (const question of ['Which is the widest?', 'How many are there?']) {
      const r = await openai.responses.create({ ...common, max_output_tokens: 1, input: [{ role: 'user', content: [{ type: 'input_text', text: question }, { type: 'input_file', file_id: id }] }] });
      cached.push(r.usage.input_tokens_details.cached_tokens);
    }
    const anthropic = new Anthropic({ baseURL: server.http, apiKey: server.keys.paid, maxRetries: 0 });
    const m = await anthropic.messages.create({ ...common, max_tokens: 1, messages: [{ role: 'user', content: [
      { type: 'document', source: { type: 'file', file_id: id } }, { type: 'text', text: 'Which is the narrowest?' }] }] });
    cached.push(m.usage.cache_read_input_tokens);
    assert.ok(cached[0] < 2 * PAGE && cached[1] > 20 * PAGE && cached[2] > 20 * PAGE, cached.join());
  });
});

for (const store of skip ? ['memory'] : ['memory', 'redis']) {
  describe(`files in ${store}`, { timeout: 300_000 }, () => {
    let server, mine, stranger;
    before(async () => {
      server = await startServer({ echo: true, sets: ['gateway.threads=2', 'engine.echo.ttft=0ms', 'engine.echo.rate=0', 'gateway.files.per_tenant=12',
        'gateway.files.bytes=64KiB', 'gateway.files.tenant_bytes=200KiB', ...(store === 'memory' ? ['cache.store=memory'] : [])] });
      mine = clientOf(server);
      stranger = clientOf(server, server.keys.free);
      if (store === 'redis') assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100_000));
    });
    after(async () => {
      const how = await server?.stop();
      assert.equal(how, 0, server?.log());
      assert.ok(!server.log().includes('canary'), 'something of a file stands in the log');
    });

    test('one is sent, read, listed, named and deleted; a stranger has none of it', async () => {
      const text = 'the canary\r\nsings --b\r\n\u00e4\u{1f426}';
      const made = await mine.upload(text, 'a canary.txt', { expires_after: { anchor: 'created_at', seconds: 7200 } });
      assert.match(made.id, /^file-[0-9a-f]{32}$/);
      assert.deepEqual({ ...made, id: 0, created_at: 0, expires_at: made.expires_at - made.created_at }, { id: 0, object: 'file', bytes: Buffer.byteLength(text),
        created_at: 0, expires_at: 7200, filename: 'a canary.txt', purpose: 'user_data', status: 'processed' });
      assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 60);
      assert.deepEqual(await mine.openai.files.retrieve(made.id), made);
      const content = await mine.openai.files.content(made.id);
      assert.equal(await content.text(), text);
      assert.deepEqual(['content-type', 'x-content-type-options', 'content-disposition'].map((n) => content.headers.get(n)),
        ['text/plain; charset=utf-8', 'nosniff', 'attachment']);
      // The echo engine answers with the last user message.
      const said = await mine.openai.chat.completions.create(ask(made.id, 'and who?'));
      assert.equal(said.choices[0].message.content.replace(/\s+/g, ' '), `<file name="a canary.txt"> ${text.replace(/\s+/g, ' ')} </file> and who?`);
      for (const act of [(c) => c.openai.files.retrieve(made.id), (c) => c.openai.files.content(made.id), (c) => c.openai.files.delete(made.id)])
        await assert.rejects(act(stranger), (e) => e.status === 404 && e.code === 'file_not_found' && e.param === 'file_id');
      await assert.rejects(stranger.openai.chat.completions.create(ask(made.id, 'x')),
        (e) => e.status === 404 && e.code === 'file_not_found' && e.param === 'messages[0].content[0].file.file_id');
      assert.deepEqual((await stranger.openai.files.list()).data, []);
      assert.deepEqual(await mine.openai.files.delete(made.id), { id: made.id, object: 'file', deleted: true });
      await assert.rejects(mine.openai.files.retrieve(made.id), OpenAI.NotFoundError);
      await assert.rejects(mine.openai.files.delete(made.id), OpenAI.NotFoundError);
      await assert.rejects(mine.openai.chat.completions.create(ask(made.id, 'x')), (e) => e.param === 'messages[0].content[0].file.file_id');
    });

    test('they are listed in pages', async () => {
      const ids = [];
      for (let i = 0; i < 5; i++) ids.push((await mine.upload(`${i}`, `${i}.txt`, i % 2 ? { purpose: 'assistants' } : {})).id);
      const listed = [];
      for await (const f of mine.openai.files.list({ limit: 2, order: 'asc' })) listed.push(f.id);
      assert.deepEqual([...listed].sort(), [...ids].sort());
      assert.deepEqual((await mine.openai.files.list()).data.map((f) => f.id), [...listed].reverse());
      assert.deepEqual((await mine.openai.files.list({ purpose: 'assistants' })).data.map((f) => f.filename).sort(), ['1.txt', '3.txt']);
      const page = await mine.openai.files.list({ limit: 2, order: 'asc', after: listed[1] });
      assert.deepEqual([page.data.map((f) => f.id), page.has_more], [listed.slice(2, 4), true]);
      for (const [query, param] of [['limit=0', 'limit'], ['limit=101', 'limit'], ['order=up', 'order'], ['after=file-0', 'after']]) {
        const r = await mine.call('GET', `/v1/files?${query}`);
        assert.deepEqual([r.status, r.json.error.param], [400, param], query);
      }
      for (const id of ids) await mine.openai.files.delete(id);
    });

    test('bounds and bad forms are refused by name', async () => {
      const cases = [
        [form('x'.repeat(65537)), FORM, 413, 'request_too_large', 'file'],
        ['x'.repeat(2 << 20), FORM, 413, 'request_too_large', null],
        [form('x'), { 'content-type': 'application/json' }, 415, 'unsupported_media_type', null],
        [form('x'), {}, 415, 'unsupported_media_type', null],
        [form('x'), { 'content-type': 'multipart/form-data' }, 400, 'malformed_request', null],
        [form('x').slice(0, -10), FORM, 400, 'malformed_request', null],
        ['', FORM, 400, 'malformed_request', null],
        [form('x').replace('--b--', form('y')), FORM, 400, 'invalid_value', 'purpose'],
        [form('x', { name: '' }), FORM, 400, 'invalid_value', 'file'],
        [form('x', { name: 'a\u0007b' }), FORM, 400, 'invalid_value', 'file'],
        [form('x', { name: 'n'.repeat(2000) }), FORM, 400, 'malformed_request', null],
        [form('\u0000'), FORM, 400, 'invalid_value', 'file'],
        [form(''), FORM, 400, 'invalid_value', 'file'],
        [form('x', { type: 'image/png' }), FORM, 400, 'unsupported_value', 'file'],
        [form('%PDF-1.7'), FORM, 400, 'unsupported_value', 'file'],
        [form('x', { purpose: 'fine-tune' }), FORM, 400, 'unsupported_value', 'purpose'],
      ];
      for (const [body, headers, status, code, param] of cases) {
        const r = await mine.call('POST', '/v1/files', body, headers);
        assert.deepEqual([r.status, r.json?.error.code, r.json?.error.param], [status, code, param], `${JSON.stringify(headers)} ${body.slice(0, 300)}: ${r.body}`);
      }
      // Names are labels, not paths.
      const hostile = await mine.call('POST', '/v1/files', form('x', { name: '../../etc/<b>\\"x' }), FORM);
      const { id, filename } = hostile.json;
      assert.equal(filename, '../../etc/<b>"x', hostile.body);
      const said = (await mine.openai.chat.completions.create(ask(id, 'q'))).choices[0].message.content;
      assert.match(said, /^<file name="..\/..\/etc\/_b__x">\s/);
      await mine.openai.files.delete(id);
      const kept = [];
      for (let i = 0; i < 3; i++) kept.push((await mine.upload('x'.repeat(65536))).id);
      await assert.rejects(mine.upload('x'.repeat(65536)), (e) => e.status === 400 && e.code === 'too_many_files' && /tenant_bytes/.test(e.message));
      await stranger.upload('another tenant has room').then((f) => stranger.openai.files.delete(f.id));
      while (kept.length < 12) kept.push((await mine.upload('x')).id);
      await assert.rejects(mine.upload('x'), (e) => e.status === 400 && e.code === 'too_many_files' && /per_tenant/.test(e.message));
      for (const id of kept) await mine.openai.files.delete(id);
    });

    test('a response keeps the name, not the text', async () => {
      const { id } = await mine.upload('chapter one', 'book.txt');
      const input = [{ role: 'user', content: [{ type: 'input_file', file_id: id }, { type: 'input_text', text: 'first?' }] }];
      const first = await mine.openai.responses.create({ model: 'default', input });
      assert.match(first.output_text, /^<file name="book.txt">\s+chapter one\s+<\/file>\s+first\?$/);
      const items = (await mine.openai.responses.inputItems.list(first.id)).data;
      assert.deepEqual(items[0].content, [{ type: 'input_file', file_id: id }, { type: 'input_text', text: 'first?' }]);
      const next = await mine.openai.responses.create({ model: 'default', previous_response_id: first.id, input: 'second?' });
      assert.equal(next.output_text, 'second?');
      const conversation = await mine.openai.conversations.create({ items: input });
      assert.equal((await mine.openai.responses.create({ model: 'default', conversation: conversation.id, input: 'third?' })).output_text, 'third?');
      await mine.openai.files.delete(id);
      for (const [how, param] of [[{ previous_response_id: first.id }, 'previous_response_id'], [{ conversation: conversation.id }, 'conversation'], [{ input }, 'input[0].content[0].file_id']])
        await assert.rejects(mine.openai.responses.create({ model: 'default', input: 'x', ...how }), (e) => e.status === 404 && e.code === 'file_not_found' && e.param === param, param);
      await mine.openai.conversations.delete(conversation.id);
    });

    test('a user of a browser token has their own', async () => {
      const tokens = {};
      for (const subject of ['ann', 'bob']) {
        const r = await mine.call('POST', '/v1/browser_tokens', { subject });
        assert.equal(r.status, 200, r.body);
        tokens[subject] = clientOf(server, r.json.token);
      }
      const { id } = await tokens.ann.upload('of ann');
      assert.match(id, /^file-[0-9a-f]{48}$/);
      assert.match((await tokens.ann.openai.chat.completions.create(ask(id, 'q'))).choices[0].message.content, /of ann/);
      await assert.rejects(tokens.bob.openai.files.retrieve(id), OpenAI.NotFoundError);
      await assert.rejects(tokens.bob.openai.chat.completions.create(ask(id, 'q')), OpenAI.NotFoundError);
      await assert.rejects(tokens.ann.openai.files.list(), (e) => e.status === 403);
      assert.equal((await mine.openai.files.retrieve(id)).id, id, "its key's owner may");
      await tokens.ann.openai.files.delete(id);
    });

    test('over HTTP/2', async () => {
      const session = http2.connect(server.https, { ca: readFileSync(server.caFile) });
      const send = (headers, body) => new Promise((done, failed) => {
        const s = session.request({ authorization: `Bearer ${server.keys.paid}`, ...headers });
        let status, text = '';
        s.on('response', (h) => { status = h[':status']; }).setEncoding('utf8').on('data', (d) => { text += d; }).on('end', () => done({ status, text })).on('error', failed);
        s.end(body);
      });
      const made = await send({ ':method': 'POST', ':path': '/v1/files', ...FORM }, form('over two'));
      assert.equal(made.status, 200, made.text);
      const { id } = JSON.parse(made.text);
      assert.deepEqual(await send({ ':path': `/v1/files/${id}/content` }), { status: 200, text: 'over two' });
      const cut = await send({ ':method': 'POST', ':path': '/v1/files', ...FORM }, form('x').slice(0, 40));
      assert.deepEqual([cut.status, JSON.parse(cut.text).error.code], [400, 'malformed_request']);
      const gone = await send({ ':method': 'DELETE', ':path': `/v1/files/${id}` });
      assert.deepEqual(JSON.parse(gone.text), { id, object: 'file', deleted: true });
      session.close();
    });

    test('in-line texts, and what is no text', async () => {
      const data = `data:text/markdown;base64,${Buffer.from('# in line').toString('base64')}`;
      const said = await mine.openai.chat.completions.create({ model: 'default', messages: [{ role: 'user', content: [
        { type: 'text', text: 'q' }, { type: 'file', file: { filename: 'x.md', file_data: data } }] }] });
      assert.match(said.choices[0].message.content, /^<file name="x.md">\s+# in line\s+<\/file>\s+q$/);
      for (const [file, code, member] of [[{ file_data: 'data:application/pdf;base64,JVBERg==' }, 'unsupported_value', 'file_data'], [{ file_id: 'file-0' }, 'file_not_found', 'file_id']])
        await assert.rejects(mine.openai.chat.completions.create({ model: 'default', messages: [{ role: 'user', content: [{ type: 'file', file }] }] }),
          (e) => e.code === code && e.param === `messages[0].content[0].file.${member}`);
    });

    test('an idempotent repetition, and equal questions at once', async () => {
      const { id } = await mine.upload('once more');
      const headers = { 'content-type': 'application/json', 'idempotency-key': `files-${store}` };
      const one = await mine.call('POST', '/v1/chat/completions', ask(id, 'q'), headers), two = await mine.call('POST', '/v1/chat/completions', ask(id, 'q'), headers);
      assert.deepEqual([one.status, two.body], [200, one.body]);
      const other = await mine.upload('once less');
      const [a, b] = await Promise.all([id, other.id].map((f) => mine.openai.chat.completions.create({ ...ask(f, 'q'), temperature: 0, seed: 1 })));
      assert.match(a.choices[0].message.content, /once more/);
      assert.match(b.choices[0].message.content, /once less/);
      for (const f of [id, other.id]) await mine.openai.files.delete(f);
    });
  });
}

test('without its store files are refused, and other requests go on', { skip, timeout: 300_000 }, async () => {
  const server = await startServer({ echo: true, sets: ['engine.echo.ttft=0ms', 'engine.echo.rate=0', 'cache.address=unix:/nowhere/redis.sock', 'cache.timeout=500ms'] });
  const { call } = clientOf(server);
  for (const [method, path, body, headers] of [['POST', '/v1/files', form('x'), FORM], ['GET', '/v1/files'], ['GET', '/v1/files/file-0'], ['GET', '/v1/files/file-0/content'],
    ['DELETE', '/v1/files/file-0'], ['POST', '/v1/chat/completions', ask('file-0', 'q')]]) {
    const r = await call(method, path, body, headers);
    assert.deepEqual([r.status, r.json.error.code], [503, 'store_unavailable'], `${method} ${path}: ${r.body}`);
  }
  assert.equal((await call('POST', '/v1/chat/completions', { model: 'default', messages: user('hi') })).status, 200);
  assert.equal(await server.stop(), 0, server.log());
});

test('another gateway serves a file', { skip, timeout: 300_000 }, async (t) => {
  const key = 'sk-shared-key-of-two-gateways';
  const sets = ['gateway.threads=2', 'engine.echo.ttft=0ms', 'engine.echo.rate=0', 'gateway.files.keep=2m', `gateway.keys.shared.sha256=${createHash('sha256').update(key).digest('hex')}`,
    'gateway.keys.shared.tier=paid'];
  const server = await startServer({ echo: true, sets });
  assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100_000));
  t.after(() => server.stop());
  const second = await startSecondGateway(server, sets);
  t.after(() => second.stop());
  const here = clientOf(server, key), there = clientOf(second, key);
  const made = await here.upload('shared');
  assert.equal(made.expires_at - made.created_at, 120);
  assert.equal(await (await there.openai.files.content(made.id)).text(), 'shared');
  assert.match((await there.openai.chat.completions.create(ask(made.id, 'q'))).choices[0].message.content, /shared/);
  await there.openai.files.delete(made.id);
  await assert.rejects(here.openai.files.retrieve(made.id), OpenAI.NotFoundError);
  second.stop();
  assert.equal(await server.stop(), 0, server.log());
});
