// SPDX-License-Identifier: Apache-2.0
// Answers of a form: schemas, choices, regular expressions and grammars, asked for in the names of several servers, through
// the openai package and by hand, of the demonstration models.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { chat, metric, until, user } from './client.mjs';
import { localOnly, request, startServer } from './harness.mjs';

const CITY = { type: 'object', properties: { city: { type: 'string', maxLength: 12 }, people: { type: 'integer', minimum: 0, maximum: 99 },
  tags: { type: 'array', items: { enum: ['big', 'old', 'warm'] }, maxItems: 2 } }, required: ['city', 'people', 'tags'], additionalProperties: false };
const ask = { model: 'demo-large', messages: user('What is the capital of France?'), max_tokens: 200, seed: 7 };

function assertCity(text) {
  const o = JSON.parse(text);
  assert.deepEqual(Object.keys(o), ['city', 'people', 'tags'], text);
  assert.ok(typeof o.city === 'string' && [...o.city].length <= 12, text);
  assert.ok(Number.isInteger(o.people) && o.people >= 0 && o.people <= 99, text);
  assert.ok(Array.isArray(o.tags) && o.tags.length <= 2 && o.tags.every((t) => ['big', 'old', 'warm'].includes(t)), text);
}

describe('answers of a form', { timeout: 300_000 }, () => {
  let server, openai;
  before(async () => {
    server = await startServer({});
    openai = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  const post = async (path, body) => {
    const r = await request(server.http, path, { method: 'POST', headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify(body) });
    return { status: r.status, body: JSON.parse(String(r.body)) };
  };
  const schema = { type: 'json_schema', json_schema: { name: 'city', strict: true, schema: CITY } };

  test('a schema, whole and streamed, greedy and drawn: valid, and the same', async () => {
    for (const temperature of [0, 1, 1.7]) {
      const whole = await openai.chat.completions.create({ ...ask, temperature, response_format: schema });
      assert.equal(whole.choices[0].finish_reason, 'stop');
      assertCity(whole.choices[0].message.content);
      let text = '';
      for await (const chunk of await openai.chat.completions.create({ ...ask, temperature, response_format: schema, stream: true }))
        text += chunk.choices[0]?.delta?.content ?? '';
      assert.equal(text, whole.choices[0].message.content);
    }
  });

  test('several choices', async () => {
    const four = await openai.chat.completions.create({ ...ask, temperature: 1.5, n: 4, response_format: schema });
    for (const c of four.choices) assertCity(c.message.content);
    assert.ok(new Set(four.choices.map((c) => c.message.content)).size > 1);
  });

  test('beams', localOnly('beams come with whole answers, which are streamed from there'), async () => {
    const { status, body } = await post('/v1/chat/completions', { ...ask, temperature: 0, n: 2, use_beam_search: true, beam_width: 3, response_format: schema });
    assert.equal(status, 200, JSON.stringify(body));
    for (const c of body.choices) assertCity(c.message.content);
  });

  test('responses: text.format', async () => {
    const r = await openai.responses.create({ model: 'demo-large', input: 'What is the capital of France?', max_output_tokens: 200,
      text: { format: { type: 'json_schema', name: 'city', schema: CITY, strict: true } } });
    assert.equal(r.status, 'completed');
    assertCity(r.output_text);
  });

  test('any JSON object', async () => {
    const r = await openai.chat.completions.create({ ...ask, temperature: 1, response_format: { type: 'json_object' } });
    if (r.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(r.choices[0].message.content), 'object');
  });

  test('an answer that is cut short says so', async () => {
    const r = await openai.chat.completions.create({ ...ask, max_tokens: 6, response_format: schema });
    assert.equal(r.choices[0].finish_reason, 'length');
    const stopped = await openai.chat.completions.create({ ...ask, stop: ['people'], response_format: schema });
    assert.equal(stopped.choices[0].finish_reason, 'length');
    const response = await openai.responses.create({ model: 'demo-large', input: 'x', max_output_tokens: 6, text: { format: { type: 'json_schema', name: 'city', schema: CITY } } });
    assert.equal(response.status, 'incomplete');
  });

  test('the names of other servers', async () => {
    const names = [
      [{ guided_choice: ['Paris', 'London'] }, /^(Paris|London)$/], [{ structured_outputs: { choice: ['Paris', 'London'] } }, /^(Paris|London)$/],
      [{ guided_regex: '[a-z]{3}-[0-9]{2}' }, /^[a-z]{3}-[0-9]{2}$/], [{ regex: '[a-z]{3}-[0-9]{2}' }, /^[a-z]{3}-[0-9]{2}$/],
      [{ structured_outputs: { regex: '(yes|no)!' } }, /^(yes|no)!$/], [{ guided_json: { type: 'integer', minimum: 10, maximum: 99 } }, /^\s*[1-9][0-9](\.0+)?\s*$/],
      [{ grammar: 'root ::= "a" [b-d]+ "e"\n' }, /^a[b-d]+e$/],
    ];
    for (const [fields, like] of names) {
      const { status, body } = await post('/v1/chat/completions', { ...ask, max_tokens: 400, ...fields });
      assert.equal(status, 200, JSON.stringify([fields, body]));
      if (body.choices[0].finish_reason === 'stop') assert.match(body.choices[0].message.content, like);
      const completion = await post('/v1/completions', { model: 'demo-large', prompt: 'The capital of France is', max_tokens: 400, ...fields });
      assert.equal(completion.status, 200, JSON.stringify([fields, completion.body]));
      if (completion.body.choices[0].finish_reason === 'stop') assert.match(completion.body.choices[0].text, like);
    }
  });

  test('what can not be honoured is refused by name', async () => {
    const bad = [
      [{ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { type: 'nothing' } } } }, /type/],
      [{ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: { $ref: 'https://example.org/other.json' } } } }, /\$ref/],
      [{ response_format: { type: 'json_schema', json_schema: { name: 'x', schema: false } } }, /permits no value|no string/],
      [{ guided_regex: '(a' }, /./], [{ guided_regex: '(a)\\1' }, /./], [{ grammar: 'root ::= missing' }, /missing/],
    ];
    for (const [fields, like] of bad) {
      const { status, body } = await post('/v1/chat/completions', { ...ask, ...fields });
      assert.equal(status, 400, JSON.stringify([fields, body]));
      assert.match(body.error.param, new RegExp(`^${Object.keys(fields)[0]}`), JSON.stringify(body));
      assert.match(body.error.message, like);
    }
  });

  test('the cascade keeps the form', async () => {
    const { status, body } = await post('/v1/chat/completions', { ...ask, model: 'auto', response_format: schema });
    assert.equal(status, 200, JSON.stringify(body));
    assertCity(body.choices[0].message.content);
  });

  test('hostile constraints hold nobody up', async () => {
    const deep = (n) => (n === 0 ? { type: 'string' } : { type: 'array', items: deep(n - 1), minItems: 1, maxItems: 1000000 });
    const wide = { type: 'object', properties: Object.fromEntries(Array.from({ length: 5000 }, (_, i) => [`p${i}`, { type: 'integer' }])) };
    const hostile = [{ guided_regex: 'a{1000000}' }, { guided_regex: '(a|a|aa|b*)*(c|(d*)*)*' }, { guided_regex: '((a{1,999}){1,999}){1,999}' },
      { guided_json: deep(60) }, { guided_json: wide }, { guided_json: { allOf: Array.from({ length: 300 }, (_, i) => ({ pattern: `x.{${i}}y` })) } },
      { grammar: 'root ::= root root | "a" | root "b" | ""' }];
    const answers = hostile.map((fields) => post('/v1/chat/completions', { ...ask, max_tokens: 40, temperature: 1, ...fields }));
    const plain = await chat(server.http, server.keys.paid, { model: 'demo-large', messages: user('What is the capital of France?') });
    assert.equal(plain.status, 200);
    for (const [i, { status, body }] of (await Promise.all(answers)).entries())
      assert.ok(status === 200 || status === 400, JSON.stringify([hostile[i], status, body]).slice(0, 300));
    assert.equal((await post('/v1/chat/completions', ask)).status, 200);
  });

  test('hostile grammars are refused by the field and the rule, or their answers end', async () => {
    const refused = [
      ['root ::= a\na ::= nope', /2:7: nope is not defined/], ['start: a\na: nope', /2:4: nope is not defined/], ['root ::= root', /no string/],
      ['start: A\nA: B\nB: A', /refers to itself/], [`root ::= ${'('.repeat(100000)}"a"${')'.repeat(100000)}`, /nested too deep/],
      [`start: ${'['.repeat(100000)}"a"${']'.repeat(100000)}`, /nested too deep/],
      [`root ::= r0\n${Array.from({ length: 20000 }, (_, i) => `r${i} ::= r${i + 1}`).join('\n')}\nr20000 ::= "a"`, /nested too deep/],
    ];
    for (const [grammar, like] of refused) {
      const { status, body } = await post('/v1/chat/completions', { ...ask, grammar });
      assert.deepEqual([status, body.error.param], [400, 'grammar'], JSON.stringify(body));
      assert.match(body.error.message, like);
    }
    // Left recursion, loops of nothing, ambiguity, repetition and size: they may be taken, or become too complex on the way.
    const taken = ['root ::= root "x" | root root | "y" | ""', 'root ::= ((("a"?)*)*)* "b"', 'root ::= s s s s\ns ::= s s | "a" s | s "a" | ""',
      'root ::= (("a"{999}){999}){999}', `root ::= "${'ab'.repeat(200000)}"`, `root ::= [ab]* "a" ${'[ab]'.repeat(24)}`,
      'start: start start | "y" |', 'start: /([ab]*a[ab]{30})+/', 'start: "a" "b"\n%ignore /a*/\n%ignore /(a|b)*/'];
    const plain = { ...ask, seed: 3, temperature: 1 }, alone = await post('/v1/chat/completions', plain);
    const beside = [];
    await Promise.all(taken.map(async (grammar) => {
      const stream = chat(server.http, server.keys.paid, { ...ask, temperature: 1, min_tokens: 150, grammar });
      beside.push(await post('/v1/chat/completions', { ...plain }));
      const r = await stream;
      assert.equal(r.status, 200, `${grammar.slice(0, 80)}: ${r.body.slice(0, 300)}`);
      if (r.errors.length) assert.deepEqual([r.errors.length, r.errors[0].param, r.finish, r.done], [1, 'grammar', null, false], r.body.slice(-300));
      else assert.ok(['stop', 'length'].includes(r.finish) && r.done, `${grammar.slice(0, 80)}: ${r.finish}`);
    }));
    for (const { body } of beside) assert.equal(body.choices[0].message.content, alone.body.choices[0].message.content);
    assert.equal(beside.length, taken.length);
  });

  test('forced tokens take no steps', localOnly('its steps'), async () => {
    const names = ['sluice_engine_forced_tokens_total', 'sluice_engine_steps_total', 'sluice_engine_decode_tokens_total'];
    const read = async () => { const text = await server.metrics(); return names.map((name) => metric(text, name) || 0); };
    const before = await read();
    await openai.chat.completions.create({ ...ask, temperature: 0, response_format: schema });
    let gained;
    assert.ok(await until(async () => { gained = (await read()).map((v, i) => v - before[i]); return gained[0] > 2; }, 20000), `forced tokens are counted: ${gained}`);
  });
});
