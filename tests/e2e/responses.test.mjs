// SPDX-License-Identifier: Apache-2.0
// The Responses API as the openai library and plain requests see it: created whole, streamed and in the background,
// continued, retrieved, resumed, cancelled, deleted. The engine is the echo engine, so every answer is known.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { metric, until } from './client.mjs';
import { request, startServer } from './harness.mjs';
import { random } from './page_corpus.mjs';

const PROMPTS = `  prompts:
    - name: pmpt_greet
      version: "2"
      text: "Greet {{ name }} in {{language}}."
`;
const COUNTED = Array.from({ length: 200 }, (_, i) => (i % 10 === 9 ? `물${i}` : `w${i}`)).join(' ');

/** The events of a stream's bytes: {event, data}. */
function eventsOf(text) {
  return text.split('\n\n').filter((e) => e !== '').map((e) => {
    const [name, data, ...rest] = e.split('\n').filter((l) => !l.startsWith(':'));
    assert.deepEqual(rest, []);
    assert.ok(name.startsWith('event: ') && data.startsWith('data: '), e);
    return { event: name.slice(7), data: JSON.parse(data.slice(6)) };
  });
}

for (const threads of [1, 4]) {
  describe(`responses with ${threads} gateway thread(s)`, () => {
    let server, openai, other;
    const headers = () => ({ authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' });
    const call = async (method, path, body) => {
      const r = await request(server.http, path, { method, headers: headers(), body: body && JSON.stringify(body) });
      return { status: r.status, headers: r.headers, json: r.body && JSON.parse(r.body) };
    };
    const create = (body) => call('POST', '/v1/responses', { model: 'default', ...body });
    const ended = (id) => until(async () => {
      const r = await openai.responses.retrieve(id);
      return r.status !== 'in_progress' && r;
    }, 100000);

    before(async () => {
      server = await startServer({ echo: true, edit: (yaml) => yaml.replace('  prompts: []\n', PROMPTS),
        sets: [`gateway.threads=${threads}`, 'engine.echo.ttft=5ms', 'engine.echo.rate=400'] });
      openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
      other = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.free, maxRetries: 0 });
    });
    after(async () => {
      const how = await server?.stop();
      assert.equal(how, 0, server?.log());
      assert.ok(!server.log().includes('canary'), 'a prompt stands in the log');
    });

    test('one is created, retrieved and deleted; a stranger has none of it', async () => {
      const made = await openai.responses.create({ model: 'default', input: 'one two canary', metadata: { a: 'b' }, temperature: 0.5 });
      assert.match(made.id, /^resp_[0-9a-f]{32}$/);
      assert.equal(made.object, 'response');
      assert.equal(made.status, 'completed');
      assert.equal(made.output_text, 'one two canary');
      assert.deepEqual(made.output.map((o) => [o.type, o.role, o.status]), [['message', 'assistant', 'completed']]);
      assert.equal(made.usage.total_tokens, made.usage.input_tokens + made.usage.output_tokens);
      assert.equal(made.usage.input_tokens_details.cached_tokens, 0);
      assert.deepEqual([made.metadata, made.temperature, made.store, made.error, made.incomplete_details],
        [{ a: 'b' }, 0.5, true, null, null]);
      assert.ok(made.model.startsWith('demo-'));
      const got = await openai.responses.retrieve(made.id);
      assert.deepEqual({ ...got, output_text: '' }, { ...made, output_text: '' });
      await assert.rejects(other.responses.retrieve(made.id), OpenAI.NotFoundError);
      assert.equal((await call('DELETE', `/v1/responses/${made.id}`)).json.deleted, true);
      await assert.rejects(openai.responses.retrieve(made.id), (e) => e instanceof OpenAI.NotFoundError && e.code === 'response_not_found');
      assert.equal((await call('DELETE', `/v1/responses/${made.id}`)).status, 404);
    });

    test('one that is not to be stored is not', async () => {
      const made = await openai.responses.create({ model: 'default', input: 'a', store: false });
      assert.equal(made.store, false);
      await assert.rejects(openai.responses.retrieve(made.id), OpenAI.NotFoundError);
    });

    test('the library streams: typed events in order, numbered without a gap', async () => {
      const events = [];
      for await (const e of await openai.responses.create({ model: 'default', input: 'uno dos tres. cuatro', stream: true })) events.push(e);
      assert.deepEqual(events.map((e) => e.sequence_number), events.map((_, i) => i));
      const types = events.map((e) => e.type.replace('response.', ''));
      const deltas = types.filter((t) => t === 'output_text.delta').length;
      assert.ok(deltas >= 1);
      assert.deepEqual(types, ['created', 'in_progress', 'output_item.added', 'content_part.added',
        ...Array(deltas).fill('output_text.delta'), 'output_text.done', 'content_part.done', 'output_item.done', 'completed']);
      const text = events.filter((e) => e.type.endsWith('.delta')).map((e) => e.delta).join('');
      assert.equal(text, 'uno dos tres. cuatro');
      const last = events.at(-1).response;
      assert.equal(events.find((e) => e.type.endsWith('text.done')).text, text);
      assert.equal(last.output[0].content[0].text, text);
      assert.equal(last.output[0].id, events[2].item.id);
      assert.ok(events.slice(4, 4 + deltas).every((e) => e.item_id === last.output[0].id && Array.isArray(e.logprobs)));
      assert.deepEqual(events[0].response.output, []);
      assert.equal(events[0].response.status, 'in_progress');
      const got = await openai.responses.retrieve(last.id);
      assert.deepEqual({ ...got, output_text: '' }, { ...last, output_text: '' });
    });

    test("the library's stream helper comes to the same end", async () => {
      const stream = openai.responses.stream({ model: 'default', input: 'alpha beta' });
      let text = '';
      stream.on('response.output_text.delta', (e) => { text += e.delta; });
      const final = await stream.finalResponse();
      assert.equal(text, 'alpha beta');
      assert.equal(final.output[0].content[0].text, text);
      assert.equal(final.status, 'completed');
    });

    test('max_output_tokens ends it as incomplete', async () => {
      const r = await openai.responses.create({ model: 'default', input: 'a b c d e', max_output_tokens: 2 });
      assert.equal(r.status, 'incomplete');
      assert.deepEqual(r.incomplete_details, { reason: 'max_output_tokens' });
      assert.equal(r.output[0].status, 'incomplete');
      const types = [];
      for await (const e of await openai.responses.create({ model: 'default', input: 'a b c d e', max_output_tokens: 2, stream: true })) types.push(e.type);
      assert.equal(types.at(-1), 'response.incomplete');
    });

    test('one goes on from another, and what it was made from can be listed', async () => {
      const first = await openai.responses.create({ model: 'default', input: 'first words', instructions: 'be kind' });
      const second = await openai.responses.create({ model: 'default', previous_response_id: first.id,
        input: [{ role: 'user', content: [{ type: 'input_text', text: 'second words' }] }] });
      assert.equal(second.output_text, 'second words');
      assert.equal(second.previous_response_id, first.id);
      const third = await openai.responses.create({ model: 'default', input: 'third', previous_response_id: second.id });
      // Instructions do not go on; what was said and answered does.
      const tokens = (r) => r.usage.input_tokens;
      assert.ok(tokens(second) > tokens(third) - tokens(second) && tokens(third) > tokens(second), 'the history is in the prompt');
      const all = [];
      for await (const item of openai.responses.inputItems.list(third.id, { order: 'asc', limit: 2 })) all.push(item);
      assert.deepEqual(all.map((i) => [i.role, i.content[0].text]), [['user', 'first words'], ['assistant', 'first words'],
        ['user', 'second words'], ['assistant', 'second words'], ['user', 'third']]);
      assert.equal(new Set(all.map((i) => i.id)).size, 5);
      const page = (await call('GET', `/v1/responses/${third.id}/input_items?limit=2`)).json;
      assert.deepEqual([page.object, page.has_more, page.data.map((i) => i.id)], ['list', true, [all[4].id, all[3].id]]);
      const rest = (await call('GET', `/v1/responses/${third.id}/input_items?after=${page.last_id}`)).json;
      assert.deepEqual([rest.has_more, rest.data.map((i) => i.id)], [false, [all[2].id, all[1].id, all[0].id]]);
      for (const bad of ['limit=0', 'limit=101', 'limit=x', 'order=up', 'after=nobody'])
        assert.equal((await call('GET', `/v1/responses/${third.id}/input_items?${bad}`)).status, 400, bad);
      // A stranger can't go on from it.
      await assert.rejects(other.responses.create({ model: 'default', input: 'x', previous_response_id: first.id }),
        (e) => e.status === 400 && e.code === 'previous_response_not_found' && e.param === 'previous_response_id');
    });

    test('stored prompts', async () => {
      const r = await create({ prompt: { id: 'pmpt_greet', version: '2', variables: { name: 'Ada', language: { type: 'input_text', text: 'French' } } }, input: 'now' });
      assert.equal(r.status, 200, JSON.stringify(r.json));
      const items = (await call('GET', `/v1/responses/${r.json.id}/input_items?order=asc`)).json.data;
      assert.deepEqual(items.map((i) => [i.role, i.content[0].text]), [['developer', 'Greet Ada in French.'], ['user', 'now']]);
      for (const [prompt, status, param] of [
        [{ id: 'pmpt_none' }, 404, 'prompt.id'], [{ id: 'pmpt_greet', version: '3' }, 404, 'prompt.version'],
        [{ id: 'pmpt_greet', variables: { name: 'x' } }, 400, 'prompt.variables.language'],
        [{ id: 'pmpt_greet', variables: { name: 'x', language: 'y', more: 'z' } }, 400, 'prompt.variables.more']]) {
        const bad = await create({ prompt, input: 'now' });
        assert.deepEqual([bad.status, bad.json.error.param], [status, param]);
      }
    });

    test('in the background: it goes on without a reader, and can be asked for', async () => {
      const made = await openai.responses.create({ model: 'default', input: COUNTED, background: true });
      assert.equal(made.status, 'in_progress');
      assert.equal(made.background, true);
      assert.deepEqual(made.output, []);
      const early = await call('POST', '/v1/responses', { model: 'default', input: 'x', previous_response_id: made.id });
      assert.deepEqual([early.status, early.json.error.code], [400, 'previous_response_not_ready']);
      const items = (await call('GET', `/v1/responses/${made.id}/input_items`)).json.data;
      assert.equal(items[0].content[0].text, COUNTED);
      const done = await ended(made.id);
      assert.equal(done.status, 'completed');
      assert.equal(done.output_text ?? done.output[0].content[0].text, COUNTED);
      // Its events are there as well.
      const text = (await request(server.http, `/v1/responses/${made.id}?stream=true`, { headers: headers() })).body;
      const events = eventsOf(text);
      assert.equal(events.filter((e) => e.event.endsWith('.delta')).map((e) => e.data.delta).join(''), COUNTED);
      assert.deepEqual((await call('POST', `/v1/responses/${made.id}/cancel`)).json.status, 'completed');
    });

    test('in the background and streamed at once', async () => {
      const types = [];
      for await (const e of await openai.responses.create({ model: 'default', input: 'a b c', background: true, stream: true })) types.push(e.type);
      assert.equal(types.at(-1), 'response.completed');
    });

    test('one in the background is cancelled, and its work stops', async () => {
      const made = await openai.responses.create({ model: 'default', input: `repeat ${COUNTED}`, background: true });
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 1, 20000));
      const cancelled = (await call('POST', `/v1/responses/${made.id}/cancel`)).json;
      assert.equal(cancelled.status, 'cancelled');
      assert.equal(cancelled.id, made.id);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 20000));
      assert.equal((await openai.responses.retrieve(made.id)).status, 'cancelled');
      assert.equal((await call('POST', `/v1/responses/${made.id}/cancel`)).json.status, 'cancelled', 'again');
      const events = eventsOf((await request(server.http, `/v1/responses/${made.id}?stream=true`, { headers: headers() })).body);
      assert.equal(events.at(-1).event, 'response.incomplete');
      assert.equal(events.at(-1).data.response.status, 'cancelled');
      const front = await openai.responses.create({ model: 'default', input: 'a' });
      const refused = await call('POST', `/v1/responses/${front.id}/cancel`);
      assert.deepEqual([refused.status, refused.json.error.code], [400, 'not_cancellable']);
      assert.equal((await call('POST', '/v1/responses/resp_none/cancel')).status, 404);
    });

    test('one that runs is deleted: it stops and is gone', async () => {
      const made = await openai.responses.create({ model: 'default', input: `repeat ${COUNTED}`, background: true });
      assert.equal((await call('DELETE', `/v1/responses/${made.id}`)).json.deleted, true);
      assert.equal((await call('GET', `/v1/responses/${made.id}`)).status, 404);
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') === 0, 20000));
    });

    test('a stream that is cut fifty times is byte for byte the whole one', async () => {
      const rnd = random(4);
      // Reads so many bytes of a stream, then cuts the line; null: all of it.
      const read = (method, path, body, most) => new Promise((done, failed) => {
        const req = http.request(new URL(path, server.http), { method, headers: headers(), agent: false }, (res) => {
          let n = 0;
          const parts = [];
          res.on('data', (d) => {
            parts.push(d);
            n += d.length;
            if (most !== null && n >= most) { req.destroy(); done(Buffer.concat(parts).subarray(0, most)); }
          });
          res.on('end', () => done(Buffer.concat(parts)));
          res.on('error', () => {});
        });
        req.on('error', failed);
        req.end(body && JSON.stringify(body));
      });
      let whole = await read('POST', '/v1/responses', { model: 'default', input: COUNTED, stream: true }, 5000);
      const id = /"id":"(resp_\w+)"/.exec(whole)[1];
      let cuts = 1;
      for (;;) {
        const at = whole.lastIndexOf('\n\n') + 2;
        whole = whole.subarray(0, at); // what an event was cut in is not had
        const events = eventsOf(whole.toString());
        const last = events.at(-1);
        if (last.event === 'response.completed') break;
        const more = await read('GET', `/v1/responses/${id}?stream=true&starting_after=${last.data.sequence_number}`, null,
          cuts < 50 ? 200 + rnd(600) : null);
        whole = Buffer.concat([whole, more]);
        cuts++;
      }
      assert.ok(cuts >= 50, `${cuts} cuts`);
      const uncut = await read('GET', `/v1/responses/${id}?stream=true`, null, null);
      assert.equal(whole.toString(), uncut.toString());
      const events = eventsOf(whole.toString());
      assert.deepEqual(events.map((e) => e.data.sequence_number), events.map((_, i) => i));
      assert.equal(events.at(-1).data.response.output[0].content[0].text, COUNTED);
    });

    test('bad requests are refused by name', async () => {
      for (const [body, status, param] of [[{}, 400, 'input'], [{ input: 7 }, 400, 'input'], [{ input: 'x', model: 'nope' }, 404, 'model'],
        [{ input: 'x', background: true, store: false }, 400, 'background'], [{ input: 'x', previous_response_id: 'resp_none' }, 400, 'previous_response_id'],
        [{ input: 'x', tools: [{ type: 'web_search' }] }, 400, 'tools[0].type'], [{ input: 'x', conversation: 'c' }, 404, 'conversation']]) {
        const r = await create(body);
        assert.deepEqual([r.status, r.json.error?.param], [status, param], JSON.stringify(body));
      }
      for (const [query, status] of [['stream=maybe', 400], ['stream=true&starting_after=x', 400], ['starting_after=1', 400], ['', 404], ['stream=true', 404]])
        assert.equal((await call('GET', `/v1/responses/resp_none?${query}`)).status, status, query);
      const made = await openai.responses.create({ model: 'default', input: 'a' });
      assert.equal((await call('GET', `/v1/responses/${made.id}?stream=true`)).status, 410, 'it was not streamed');
      assert.equal((await call('PUT', `/v1/responses/${made.id}`)).status, 405);
    });
  });
}
