// SPDX-License-Identifier: Apache-2.0
// Conversations as the openai library and plain requests see them: made, changed, listed, exported, answered in, bounded
// and deleted to the last key; kept over a kill of everything; and computed again after a restart of the engine.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { metric, until } from './client.mjs';
import { hasRedis, localOnly, request, ROOT, startServer } from './harness.mjs';

const skip = hasRedis() ? false : 'redis-server is not installed';
const text = (i) => i.content[0].text;
const said = (items) => items.map((i) => [i.role, text(i)]);
const COUNTED = Array.from({ length: 120 }, (_, i) => `w${i}`).join(' ');

function clientOf(server, key = server.keys.paid) {
  const openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: key, maxRetries: 0 });
  const call = async (method, path, body) => {
    const r = await request(server.http, path, { method, body: body === undefined ? undefined : JSON.stringify(body),
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' } });
    return { status: r.status, headers: r.headers, json: r.body && JSON.parse(r.body) };
  };
  const all = async (id, query = {}) => {
    const items = [];
    for await (const item of openai.conversations.items.list(id, { order: 'asc', ...query })) items.push(item);
    return items;
  };
  return { openai, call, all };
}

for (const store of skip ? ['memory'] : ['memory', 'redis']) {
  describe(`conversations in ${store}`, () => {
    let server, openai, call, all, stranger;
    before(async () => {
      server = await startServer({ echo: true, sets: ['gateway.threads=2', 'engine.echo.ttft=5ms', 'engine.echo.rate=200',
        'gateway.conversations.per_tenant=40', 'gateway.conversations.bytes=64KiB', 'gateway.conversations.tenant_bytes=300KiB',
        'gateway.tiers.paid.concurrency=50', ...(store === 'memory' ? ['cache.store=memory'] : [])] });
      ({ openai, call, all } = clientOf(server));
      stranger = clientOf(server, server.keys.free);
      if (store === 'redis') assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100000));
    });
    after(async () => {
      const how = await server?.stop();
      assert.equal(how, 0, server?.log());
      assert.ok(!server.log().includes('canary'), 'something of a prompt stands in the log');
    });

    test('one is made, changed, told and deleted; a stranger has none of it', async () => {
      const made = await openai.conversations.create({ metadata: { topic: 'canary' }, items: [{ role: 'user', content: 'hello canary' }] });
      assert.match(made.id, /^conv_[0-9a-f]{32}$/);
      assert.deepEqual(Object.keys(made).sort(), ['created_at', 'id', 'metadata', 'object']);
      assert.equal(made.object, 'conversation');
      assert.ok(Math.abs(made.created_at - Date.now() / 1000) < 60);
      assert.deepEqual(await openai.conversations.retrieve(made.id), made);
      const changed = await openai.conversations.update(made.id, { metadata: { topic: 'other' } });
      assert.deepEqual(changed, { ...made, metadata: { topic: 'other' } });
      assert.deepEqual((await openai.conversations.update(made.id, { metadata: null })).metadata, {});
      await assert.rejects(stranger.openai.conversations.retrieve(made.id), (e) => e.status === 404 && e.code === 'conversation_not_found');
      await assert.rejects(stranger.openai.conversations.items.list(made.id), OpenAI.NotFoundError);
      await assert.rejects(stranger.openai.conversations.delete(made.id), OpenAI.NotFoundError);
      assert.deepEqual(await openai.conversations.delete(made.id), { id: made.id, object: 'conversation.deleted', deleted: true });
      await assert.rejects(openai.conversations.retrieve(made.id), OpenAI.NotFoundError);
      await assert.rejects(openai.conversations.delete(made.id), OpenAI.NotFoundError);
      const empty = await openai.conversations.create();
      assert.deepEqual([empty.metadata, await all(empty.id)], [{}, []]);
      await openai.conversations.delete(empty.id);
    });

    test('items are added, listed in pages, told and deleted', async () => {
      const { id } = await openai.conversations.create({ items: [{ type: 'message', role: 'developer', content: 'be kind' }] });
      const added = await openai.conversations.items.create(id, { items: [
        { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'one' }] }, { role: 'assistant', content: 'two' }] });
      assert.deepEqual([added.object, added.has_more, added.first_id, added.last_id],
        ['list', false, added.data[0].id, added.data[1].id]);
      assert.deepEqual(added.data.map((i) => [i.type, i.status, i.role, i.content[0].type]),
        [['message', 'completed', 'user', 'input_text'], ['message', 'completed', 'assistant', 'output_text']]);
      for (let i = 0; i < 3; i++) await openai.conversations.items.create(id, { items: [{ role: 'user', content: `n${i}` }] });
      const items = await all(id, { limit: 2 });
      assert.deepEqual(said(items), [['developer', 'be kind'], ['user', 'one'], ['assistant', 'two'], ['user', 'n0'], ['user', 'n1'], ['user', 'n2']]);
      assert.equal(new Set(items.map((i) => i.id)).size, 6);
      assert.deepEqual((await all(id, { order: 'desc', limit: 4 })).map(text), items.map(text).reverse());
      const page = (await call('GET', `/v1/conversations/${id}/items?limit=2&after=${items[4].id}`)).json;
      assert.deepEqual([page.data.map(text), page.has_more], [['n0', 'two'], true]);
      assert.deepEqual(await openai.conversations.items.retrieve(items[1].id, { conversation_id: id }), items[1]);
      const left = await openai.conversations.items.delete(items[1].id, { conversation_id: id });
      assert.deepEqual([left.id, left.object], [id, 'conversation']);
      await assert.rejects(openai.conversations.items.retrieve(items[1].id, { conversation_id: id }),
        (e) => e.status === 404 && e.code === 'item_not_found');
      assert.deepEqual((await all(id)).map(text), ['be kind', 'two', 'n0', 'n1', 'n2']);
      const out = (await call('GET', `/v1/conversations/${id}/export`)).json;
      assert.deepEqual([out.object, out.conversation.id, out.items.map(text)], ['conversation.export', id, ['be kind', 'two', 'n0', 'n1', 'n2']]);
      await openai.conversations.delete(id);
    });

    test('twenty adders at once: nothing is lost', async () => {
      const { id } = await openai.conversations.create();
      const add = async (i) => {
        for (;;) {
          const r = await call('POST', `/v1/conversations/${id}/items`, { items: [{ role: 'user', content: `n${i}` }] });
          if (r.status === 200) return;
          assert.equal(r.status, 409, JSON.stringify(r.json));
        }
      };
      await Promise.all(Array.from({ length: 20 }, (_, i) => add(i)));
      assert.deepEqual((await all(id)).map(text).sort(), Array.from({ length: 20 }, (_, i) => `n${i}`).sort());
      await openai.conversations.delete(id);
    });

    test('responses go on in it, whole and streamed; what was said first stays', async () => {
      const { id } = await openai.conversations.create({ items: [{ role: 'system', content: 'you are canary' }] });
      const first = await openai.responses.create({ model: 'default', input: 'first words', conversation: id });
      assert.deepEqual([first.output_text, first.conversation], ['first words', { id }]);
      let second;
      for await (const e of await openai.responses.create({ model: 'default', input: 'second words', conversation: { id }, stream: true }))
        if (e.type === 'response.completed') second = e.response;
      assert.deepEqual(second.conversation, { id });
      assert.ok(second.usage.input_tokens > first.usage.input_tokens, 'the history is in the prompt');
      // Its end was told after it was added.
      const items = await all(id);
      assert.deepEqual(said(items), [['system', 'you are canary'], ['user', 'first words'], ['assistant', 'first words'],
        ['user', 'second words'], ['assistant', 'second words']]);
      assert.equal(items[4].id, second.output[0].id);
      const third = await openai.responses.create({ model: 'default', input: 'third', conversation: id, store: false });
      assert.equal(third.output_text, 'third');
      assert.equal((await all(id)).length, 7);
      const list = (await call('GET', '/v1/conversations')).json;
      const mine = list.data.find((c) => c.id === id);
      assert.deepEqual(Object.keys(mine).sort(), ['bytes', 'created_at', 'expires_at', 'id', 'object']);
      assert.ok(mine.bytes > 500 && mine.expires_at > Date.now() / 1000);
      assert.deepEqual((await stranger.call('GET', '/v1/conversations')).json.data, []);
      assert.deepEqual((await openai.responses.retrieve(second.id)).conversation, { id });
      await openai.conversations.delete(id);
      await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
      await assert.rejects(openai.responses.retrieve(second.id), OpenAI.NotFoundError);
    });

    test('two at once: the second is told so, and after the first it may', async () => {
      const { id } = await openai.conversations.create();
      const running = await openai.responses.create({ model: 'default', input: `repeat ${COUNTED}`, conversation: id, background: true });
      for (const [method, path, body] of [['POST', '/v1/responses', { model: 'default', input: 'x', conversation: id }],
        ['POST', `/v1/conversations/${id}/items`, { items: [{ role: 'user', content: 'x' }] }], ['POST', `/v1/conversations/${id}`, { metadata: {} }]]) {
        const r = await call(method, path, body);
        assert.deepEqual([r.status, r.json.error?.code, r.headers['retry-after']], [409, 'conversation_locked', '1'], path);
      }
      assert.equal((await call('GET', `/v1/conversations/${id}`)).status, 200, 'reading goes on');
      assert.equal((await call('POST', `/v1/responses/${running.id}/cancel`)).json.status, 'cancelled');
      const items = await all(id);
      assert.deepEqual(items.map((i) => [i.role, i.status]), [['user', 'completed'], ['assistant', 'incomplete']]);
      assert.equal((await openai.responses.create({ model: 'default', input: 'x', conversation: id })).output_text, 'x');
      await openai.conversations.delete(id);
    });

    test('one who leaves, or whose request is refused, holds nothing', async () => {
      const { id } = await openai.conversations.create();
      const gone = new AbortController();
      const stream = await openai.responses.create({ model: 'default', input: `repeat ${COUNTED}`, conversation: id, stream: true, store: false },
        { signal: gone.signal });
      for await (const e of stream) if (e.type.endsWith('.delta')) break;
      gone.abort();
      const again = await until(async () => {
        const r = await call('POST', '/v1/responses', { model: 'default', input: 'again', conversation: id });
        assert.ok([200, 409].includes(r.status), JSON.stringify(r.json));
        return r.status === 200 && r;
      }, 100000);
      assert.ok(again);
      assert.deepEqual(said(await all(id)), [['user', 'again'], ['assistant', 'again']]);
      await assert.rejects(openai.responses.create({ model: 'nope', input: 'x', conversation: id }), OpenAI.NotFoundError);
      assert.equal((await openai.responses.create({ model: 'default', input: 'y', conversation: id })).output_text, 'y');
      await openai.conversations.delete(id);
    });

    test('one that is deleted while an answer is made in it stays deleted', async () => {
      const { id } = await openai.conversations.create();
      const running = await openai.responses.create({ model: 'default', input: `repeat ${COUNTED}`, conversation: id, background: true });
      await openai.conversations.delete(id);
      assert.ok(await until(async () => (await call('GET', `/v1/responses/${running.id}`)).status === 404, 100000));
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 100000), 'its work has stopped');
      assert.equal((await call('GET', `/v1/conversations/${id}`)).status, 404);
      assert.equal((await call('GET', `/v1/responses/${running.id}`)).status, 404);
    });

    test('bounds are told by name', async () => {
      const big = (n) => [{ role: 'user', content: 'x'.repeat(n) }];
      let r = await call('POST', '/v1/conversations', { items: big(70000) });
      assert.deepEqual([r.status, r.json.error.code, r.json.error.param], [400, 'conversation_too_large', 'items']);
      const kept = [];
      for (;;) {
        r = await call('POST', '/v1/conversations', { items: big(60000) });
        if (r.status !== 200) break;
        kept.push(r.json.id);
        assert.ok(kept.length < 6);
      }
      assert.deepEqual([r.status, r.json.error.code], [400, 'too_many_conversations']);
      assert.match(r.json.error.message, /gateway\.conversations\.tenant_bytes/);
      r = await call('POST', `/v1/conversations/${kept[0]}/items`, { items: big(9000) });
      assert.deepEqual([r.status, r.json.error.code], [400, 'conversation_too_large']);
      r = await call('POST', '/v1/responses', { model: 'default', conversation: kept[0], input: 'x'.repeat(9000) });
      assert.deepEqual([r.status, r.json.error.code, r.json.error.param], [400, 'conversation_too_large', 'conversation']);
      for (const id of kept) await openai.conversations.delete(id);
      const many = [];
      for (;;) {
        r = await call('POST', '/v1/conversations', {});
        if (r.status !== 200) break;
        many.push(r.json.id);
        assert.ok(many.length <= 40);
      }
      assert.equal(many.length, 40);
      assert.match(r.json.error.message, /gateway\.conversations\.per_tenant/);
      const listed = [];
      for await (const c of openai.conversations._client.getAPIList('/conversations', (await import('openai/pagination')).ConversationCursorPage,
        { query: { limit: 7 } })) listed.push(c.id);
      assert.deepEqual(listed.sort(), many.sort());
      for (const id of many) await openai.conversations.delete(id);
      assert.deepEqual((await call('GET', '/v1/conversations')).json.data, []);
    });

    test('bad requests are refused by name', async () => {
      const { id } = await openai.conversations.create();
      const { id: response } = await openai.responses.create({ model: 'default', input: 'x' });
      for (const [method, path, body, status, param] of [
        ['POST', '/v1/conversations', { items: 7 }, 400, 'items'],
        ['POST', '/v1/conversations', { items: Array(21).fill({ role: 'user', content: 'x' }) }, 400, 'items'],
        ['POST', '/v1/conversations', { items: [{ role: 'user', content: [{ type: 'input_image', image_url: 'x' }] }] }, 400, 'items[0].content[0].type'],
        ['POST', '/v1/conversations', { metadata: 'x' }, 400, 'metadata'],
        ['POST', '/v1/conversations', { metadata: { a: 1 } }, 400, null],
        ['POST', `/v1/conversations/${id}`, {}, 400, 'metadata'],
        ['POST', `/v1/conversations/${id}/items`, {}, 400, 'items'],
        ['POST', `/v1/conversations/${id}/items`, { items: [] }, 400, 'items'],
        ['GET', `/v1/conversations/${id}/items?limit=0`, undefined, 400, 'limit'],
        ['GET', `/v1/conversations/${id}/items?order=up`, undefined, 400, 'order'],
        ['GET', `/v1/conversations/${id}/items?after=nobody`, undefined, 400, 'after'],
        ['GET', `/v1/conversations/${id}/items/nobody`, undefined, 404, 'item_id'],
        ['DELETE', `/v1/conversations/${id}/items/nobody`, undefined, 404, 'item_id'],
        ['GET', '/v1/conversations/conv_none', undefined, 404, 'conversation_id'],
        ['GET', `/v1/conversations/${'x'.repeat(500)}`, undefined, 404, 'conversation_id'],
        ['POST', '/v1/conversations/conv_none/items', { items: [{ role: 'user', content: 'x' }] }, 404, 'conversation_id'],
        ['POST', '/v1/responses', { model: 'default', input: 'x', conversation: 'conv_none' }, 404, 'conversation'],
        ['POST', '/v1/responses', { model: 'default', input: 'x', conversation: 'y'.repeat(400) }, 404, 'conversation'],
        ['POST', '/v1/responses', { model: 'default', input: 'x', conversation: {} }, 400, 'conversation.id'],
        ['POST', '/v1/responses', { model: 'default', input: 'x', conversation: 7 }, 400, 'conversation'],
        ['POST', '/v1/responses', { model: 'default', input: 'x', conversation: id, previous_response_id: response }, 400, 'conversation'],
      ]) {
        const r = await call(method, path, body);
        assert.equal(r.status, status, `${path} ${JSON.stringify(body)?.slice(0, 80)} ${JSON.stringify(r.json)}`);
        if (param !== null) assert.equal(r.json.error.param, param, path);
      }
      assert.equal((await call('PUT', `/v1/conversations/${id}`)).status, 405);
      await openai.conversations.delete(id);
    });
  });
}

const redisOf = (server) => (...args) => {
  const r = spawnSync('redis-cli', ['-s', join(server.state, 'run', 'redis.sock'), ...args], { encoding: 'utf8' });
  return r.status === 0 ? r.stdout.trim().split('\n').filter((l) => l !== '') : null;
};

describe('conversations in a Redis that dies', { skip }, () => {
  let server, state;
  before(async () => {
    server = await startServer({ echo: true, sets: ['gateway.threads=2', 'engine.echo.ttft=0ms', 'engine.echo.rate=0'] });
    state = server.state;
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100000));
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('deleting one removes every key it had', async () => {
    const { openai, call } = clientOf(server), redis = redisOf(server);
    // A request before, so that what a tenant has in any case is there.
    await openai.responses.create({ model: 'default', input: 'x', store: false });
    const lasting = (k) => !/:(limit|shared):/.test(k);
    const keys = () => redis('KEYS', '*').filter(lasting).sort();
    const before = keys();
    const { id } = await openai.conversations.create({ items: [{ role: 'system', content: 'be kind' }] });
    const made = [];
    for (let i = 0; i < 3; i++) made.push((await openai.responses.create({ model: 'default', input: `turn ${i}`, conversation: id })).id);
    for await (const e of await openai.responses.create({ model: 'default', input: 'streamed', conversation: id, stream: true }))
      if (e.type === 'response.completed') made.push(e.response.id);
    const done = await openai.responses.create({ model: 'default', input: 'behind', conversation: id, background: true });
    assert.ok(await until(async () => (await openai.responses.retrieve(done.id)).status === 'completed', 100000));
    made.push(done.id);
    // The conversation, the directory, five responses, their index, an entry of the registry and its index.
    assert.ok(await until(() => keys().filter((k) => k.includes('sluice-prefixes')).length >= 2, 50000), keys().join('\n'));
    assert.ok(keys().length >= before.length + 9, keys().join('\n'));
    await openai.conversations.delete(id);
    assert.deepEqual(keys(), before);
    for (const r of made) assert.equal((await call('GET', `/v1/responses/${r}`)).status, 404);
    for (const r of made) assert.equal((await call('GET', `/v1/responses/${r}?stream=true`)).status, 404, 'its events, too');
    assert.equal((await call('GET', `/v1/conversations/${id}/export`)).status, 404);
  });

  test('a chain of responses has one entry in the registry, and deleted responses none', async () => {
    const { openai } = clientOf(server), redis = redisOf(server);
    const entries = () => redis('KEYS', '*sluice-prefixes*:session:*').filter((k) => !k.endsWith(':index')).length;
    const first = await openai.responses.create({ model: 'default', input: 'a' });
    assert.ok(await until(() => entries() === 1, 50000));
    const second = await openai.responses.create({ model: 'default', input: 'b', previous_response_id: first.id });
    const third = await openai.responses.create({ model: 'default', input: 'c', previous_response_id: second.id });
    assert.ok(await until(() => entries() === 1, 50000), `${entries()} entries`);
    for (const r of [first, second, third]) await openai.responses.delete(r.id);
    assert.equal(entries(), 0);
  });

  test('everything is killed, and the conversation is there again', async () => {
    let { openai, all } = clientOf(server);
    const { id } = await openai.conversations.create({ metadata: { a: 'b' }, items: [{ role: 'system', content: 'stay' }] });
    const r = await openai.responses.create({ model: 'default', input: 'before', conversation: id });
    const items = await all(id);
    // What Redis has written to its file outlives it; it may put that off while an older part goes to the disk.
    assert.ok(await until(() => redisOf(server)('INFO', 'persistence').some((l) => l.trim() === 'aof_buffer_length:0'), 100000));
    const pids = await server.pids();
    process.kill(server.pid, 'SIGKILL');
    for (const pid of Object.values(pids)) try { process.kill(pid, 'SIGKILL'); } catch { /* it went with the first */ }
    const alive = (pid) => { try { process.kill(pid, 0); return true; } catch { return false; } };
    assert.ok(await until(() => !Object.values(pids).some(alive), 100000));
    server = await startServer({ echo: true, state, sets: ['gateway.threads=2', 'engine.echo.ttft=0ms', 'engine.echo.rate=0'] });
    ({ openai, all } = clientOf(server));
    const back = await until(async () => openai.conversations.retrieve(id).catch(() => null), 100000);
    assert.deepEqual(back.metadata, { a: 'b' });
    assert.deepEqual(await all(id), items);
    assert.equal((await openai.responses.retrieve(r.id)).status, 'completed');
    const next = await openai.responses.create({ model: 'default', input: 'after', conversation: id });
    assert.ok(next.usage.input_tokens > r.usage.input_tokens);
    assert.deepEqual((await all(id)).map(text), ['stay', 'before', 'before', 'after', 'after']);
  });
});

describe('the prefix registry and the demo pair', { skip }, () => {
  let server;
  before(async () => {
    server = await startServer({ sets: ['gateway.threads=2', 'engine.share_prefixes=false'] });
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100000));
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('after a kill of the engine the next turns find their prefixes computed', { timeout: 600_000, ...localOnly('what its engine has computed outlives a kill here') }, async () => {
    const { openai } = clientOf(server);
    const cached = (r) => r.usage.input_tokens_details.cached_tokens;
    const say = { model: 'demo-small', temperature: 0, max_output_tokens: 24 };
    const { id } = await openai.conversations.create({ items: [{ role: 'system', content: 'You answer questions about rivers and towns, kindly and in one sentence.' }] });
    const first = await openai.responses.create({ ...say, conversation: id, input: 'What is the capital of France? Please tell me in one sentence.' });
    const chain = await openai.responses.create({ ...say, instructions: 'You are a poet who knows all of the trees of the forest and their names.',
      input: 'Tell me of the oak, of the birch and of the beech, and then of the pine.' });
    assert.ok(first.usage.input_tokens > 32 && chain.usage.input_tokens > 32, 'pages enough to be found again');
    // Both have been entered: what is told of the engine now is all there is.
    const entries = () => redisOf(server)('KEYS', '*sluice-prefixes*:session:*').filter((k) => !k.endsWith(':index')).length;
    assert.ok(await until(() => entries() === 2, 50000));
    const { engine } = await server.pids();
    process.kill(engine, 'SIGKILL');
    const now = await until(async () => { const m = await server.metrics(); return metric(m, 'sluice_prefixes_warmed_total') === 2 && m; }, 200_000, 100);
    assert.ok(now, server.log());
    assert.notEqual((await server.pids()).engine, engine);
    assert.ok(metric(now, 'sluice_prefix_tokens_warmed_total') >= first.usage.input_tokens + chain.usage.input_tokens - 32);
    assert.equal(metric(now, 'sluice_engine_decode_tokens_total'), 0, 'no token was made');
    const second = await openai.responses.create({ ...say, conversation: id, input: 'And of Spain?' });
    // All of the turn before, up to the last page's edge: its answer, too.
    assert.ok(cached(second) >= first.usage.input_tokens - 16, `${cached(second)} of ${first.usage.input_tokens}`);
    const on = await openai.responses.create({ ...say, previous_response_id: chain.id, input: 'Go on.',
      instructions: 'You are a poet who knows all of the trees of the forest and their names.' });
    assert.ok(cached(on) >= chain.usage.input_tokens - 16, `${cached(on)} of ${chain.usage.input_tokens}`);
  });

  test('a stranger finds nothing of a conversation\'s prefix', async () => {
    const mine = clientOf(server).openai, theirs = clientOf(server, server.keys.free).openai;
    const ask = (openai) => openai.responses.create({ model: 'demo-small', temperature: 0, max_output_tokens: 2, store: false,
      input: 'The old bridge over the river was built of grey stone, by people whose names nobody remembers any more.' });
    await ask(mine);
    assert.ok((await ask(mine)).usage.input_tokens_details.cached_tokens > 0);
    assert.equal((await ask(theirs)).usage.input_tokens_details.cached_tokens, 0);
  });
});

test('gateway.warm=0: nothing is entered, nothing computed again', { skip }, async () => {
  const server = await startServer({ echo: true, sets: ['gateway.threads=2', 'gateway.warm=0', 'engine.echo.ttft=0ms', 'engine.echo.rate=0'] });
  try {
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_cache_up') === 2, 100000));
    const { openai } = clientOf(server);
    await openai.responses.create({ model: 'default', input: 'a' });
    assert.ok(redisOf(server)('KEYS', '*').some((k) => k.includes(':session:')));
    assert.deepEqual(redisOf(server)('KEYS', '*sluice-prefixes*'), []);
  } finally {
    assert.equal(await server.stop(), 0, server.log());
  }
});

// What somebody asks, shows as a key and calls things must not be found anywhere but in the store and the answers.
for (const echo of [true, false]) {
  test(`a canary is in no log, no metric and no dump, ${echo ? 'echo engine' : 'demo pair'}`, { timeout: 600_000 }, async () => {
    const server = await startServer({ echo, sets: ['log.level=debug', 'gateway.threads=2', 'gateway.conversations.bytes=4KiB'] });
    const model = echo ? 'default' : 'demo-small';
    try {
      const { openai, call } = clientOf(server);
      const canary = 'zqcanary';
      const item = (t) => ({ role: 'user', content: t });
      const { id } = await openai.conversations.create({ metadata: { [canary]: canary }, items: [item(canary)] });
      const post = (path, body, headers = {}) => request(server.http, path, { method: 'POST', body: JSON.stringify(body),
        headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json', ...headers } });
      const works = { model, max_tokens: 4, messages: [item(canary)], user: canary };
      const sent = [
        await post('/v1/responses', { model, input: canary, instructions: canary, conversation: id, max_output_tokens: 4, stream: true }),
        await post('/v1/responses', { model, input: canary, previous_response_id: canary }),
        await post('/v1/responses', { model, input: canary, conversation: canary }),
        await post('/v1/responses', { model: canary, input: canary, conversation: id }),
        await post('/v1/responses', { model, input: canary.repeat(1000), conversation: id }),
        await post('/v1/chat/completions', works, { 'x-sluice-conversation': canary, 'idempotency-key': canary }),
        await post('/v1/chat/completions', { ...works, stop: canary, stream: true, logit_bias: { [canary]: 1 } }),
        await post('/v1/chat/completions', works, { authorization: `Bearer sk-sluice-paid-${canary}` }),
        await post('/v1/browser_tokens', { subject: 'somebody' }, { authorization: `Bearer sbt_${canary}` }),
        await post(`/v1/conversations/${canary}/items`, { items: [item(canary)] }),
        await post(`/v1/conversations/${id}/items`, `{"items": "${canary}`),
        await post(`/${canary}?${canary}=${canary}`, { [canary]: canary }, { [`x-${canary}`]: canary, cookie: canary }),
        await call('GET', `/v1/conversations/${id}/items?after=${canary}`),
        await call('GET', `/v1/conversations/${id}/items/${canary}`),
      ];
      assert.deepEqual(sent.map((r) => r.status), [200, 400, 404, 404, 400, 200, 400, 401, 401, 404, 400, 404, 400, 404]);
      const running = await openai.responses.create({ model, input: `repeat ${canary} ${canary}`, conversation: id, background: true });
      const metrics = await server.metrics();
      // A crash of each while it has all of that in its memory.
      const { engine, gateway } = await server.pids();
      const files = () => readdirSync(ROOT).filter((f) => /^core/.test(f));
      const before = files();
      for (const pid of [server.pid, engine, gateway]) {
        assert.match(readFileSync(`/proc/${pid}/limits`, 'utf8'), /Max core file size +0 +0 /);
        assert.match(readFileSync(`/proc/${pid}/coredump_filter`, 'utf8'), /^0+$/m);
      }
      process.kill(engine, 'SIGSEGV');
      process.kill(gateway, 'SIGSEGV');
      assert.ok(await until(async () => {
        const now = await server.pids();
        return now.engine && now.gateway && now.engine !== engine && now.gateway !== gateway && (await request(server.http, '/ready').catch(() => ({}))).status === 200;
      }, 200000));
      assert.deepEqual(files(), before, 'no core file');
      const again = await post('/v1/chat/completions', works);
      assert.equal(again.status, 200, again.body);
      const log = server.log();
      assert.match(log, /debug|info/);
      for (const [where, text] of [['the log', log], ['metrics', metrics], ['metrics', await server.metrics()],
        ['health', (await request(server.http, '/health')).body]])
        for (const word of [canary, id, running.id, server.keys.paid, server.keys.free, server.keys.admin])
          assert.ok(!text.includes(word), `${word.slice(0, 20)} in ${where}: ${text.split('\n').find((l) => l.includes(word))}`);
    } finally { await server.stop(); }
  });
}
