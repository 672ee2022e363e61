// SPDX-License-Identifier: Apache-2.0
// The model "auto": both models of the echo engine behind one answer. Words in the message drive the models apart
// (unsure@N, differ@N, fail-*@N, hang-*@N, slow-*@MS: engine/echo/echo.c), so what each of them would have said is known, and
// the answer is checked against both, to the token.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { chat, metric, until, user } from './client.mjs';
import { localOnly, OVER_UPSTREAM, SLUICE, request, startServer } from './harness.mjs';

const RULES = `  rules:
    - {name: easy, contains: [zz-easy], weight: -100}
    - {name: hard, contains: [zz-hard], weight: 100}
    - {name: small, contains: [zz-small], model: small}
    - {name: named, contains: [zz-large], model: demo-large}
`;
// paid: watched unless a word says otherwise; free: always a race; the tiers that are added have a mode, or a load.
const TIERS = `  tiers:
    - {name: paid, easy: 0.001, race: 0.999, hard: 0.999, sure: 0.55, low: 0.45, drop: 0.35, share: 1, disagree: tell}
    - {name: free, easy: 0, race: 0, hard: 1, sure: 0.55, low: 0.45, drop: 0.35, share: 1}
`;
const edit = (yaml) => yaml.replace('  rules: []\n', RULES).replace('  tiers: []\n', TIERS).replace('pace_tps: 30', 'pace_tps: 0')
  .replace('when_late: refuse', 'when_late: queue');

/** Does the large model check the small one's tokens? An upstream's can't: of an answer that was held it begins from the start. */
const VERIFIES = !OVER_UPSTREAM;

const N = 40;
const WORDS = Array.from({ length: N }, (_, i) => `w${i}`);
const message = (drive) => [drive, ...WORDS].join(' ').trim();
const tokens = (text) => text.match(/\S+\s*/g) ?? [];
/** The number behind word@ in a message; Infinity: it does not stand there. */
const driven = (text, word) => Number(new RegExp(`(?:^| )${word}@(\\d+)`).exec(text)?.[1] ?? Infinity);
/** What the model of the role says to a message. */
const says = (text, large) => tokens(text).map((t, i) => (large && i >= driven(text, 'differ') ? `~${t}` : t));
/** The answer that its parts make of the two models' logs. */
function expected(text, parts, most = Infinity) {
  const small = parts.find((p) => p.model === 'demo-small')?.tokens ?? 0;
  const large = parts.find((p) => p.model === 'demo-large')?.tokens ?? 0;
  assert.ok(small + large <= most);
  return [...says(text, false).slice(0, small), ...says(text, true).slice(small, small + large)].join('');
}

describe('the cascade, echo engine', () => {
  let server, folder, n = 0;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sluice-casc-'));
    server = await startServer({ echo: true, edit, sets: ['gateway.threads=2', 'engine.echo.ttft=2ms', 'engine.echo.rate=2000',
      `cascade.log=${join(folder, 'out.jsonl')}`, 'cascade.least_escalations=1000000', 'cascade.hold.time=20s', 'cascade.takeover=5s',
      'supervisor.backoff_min=20ms'] });
  });
  after(async () => {
    const status = await server?.stop();
    rmSync(folder, { recursive: true, force: true });
    assert.equal(status, 0, server?.log());
  });

  const post = async (path, body, { key = 'paid', headers = {} } = {}) => {
    const r = await request(server.http, path, { method: 'POST', body: JSON.stringify({ model: 'auto', ...body }),
      headers: { authorization: `Bearer ${server.keys[key]}`, 'content-type': 'application/json', ...headers } });
    return { ...r, json: r.body ? JSON.parse(r.body) : null };
  };
  /** Asked whole and as a stream: the same text and parts both times. Nothing of it is a twin of another. */
  const ask = async (drive, { key = 'paid', body = {}, same = true } = {}) => {
    const text = message(`${drive} x${n++}`);
    const whole = await post('/v1/chat/completions', { messages: user(text), ...body }, { key });
    assert.equal(whole.status, 200, `${drive}: ${whole.body}`);
    const { cascade } = whole.json.sluice;
    assert.equal(whole.json.model, 'auto');
    assert.equal(whole.json.choices[0].message.content, expected(text, cascade.parts, body.max_tokens), drive);
    const told = cascade.parts.reduce((sum, p) => sum + p.tokens, 0);
    const { usage } = whole.json;
    assert.equal(usage.prompt_tokens, tokens(text).length);
    assert.equal(usage.completion_tokens, told + (whole.json.choices[0].finish_reason === 'stop' ? 1 : 0), drive);
    if (same) {
      const other = message(`${drive} y${n++}`);
      const stream = await chat(server.http, server.keys[key], { model: 'auto', messages: user(other), ...body });
      assert.deepEqual([stream.status, stream.errors, stream.done], [200, [], true], `${drive}: ${stream.body}`);
      const about = stream.events.find((e) => e.choices?.[0]?.finish_reason).sluice.cascade;
      assert.equal(stream.text, expected(other, about.parts, body.max_tokens), drive);
      assert.deepEqual([about.plan, about.why, about.escalated], [cascade.plan, cascade.why, cascade.escalated]);
    }
    return { ...cascade, finish: whole.json.choices[0].finish_reason, text };
  };
  const model = (c) => c.parts.map((p) => p.model);
  /** No run, subscriber, sequence is left. */
  const atRest = async () => {
    const rest = await until(async () => {
      const text = await server.metrics();
      const left = text.split('\n').filter((l) => l.startsWith('sluice_generations{') && !l.endsWith(' 0'));
      return left.length === 0 && metric(text, 'sluice_engine_running') === 0 && metric(text, 'sluice_engine_waiting') === 0 &&
        metric(text, 'sluice_engine_up') === 1;
    }, 200000);
    assert.ok(rest, await server.metrics());
  };

  test('it is listed, and found by its name', async () => {
    const headers = { authorization: `Bearer ${server.keys.paid}` };
    const list = JSON.parse((await request(server.http, '/v1/models', { headers })).body);
    assert.deepEqual(list.data.map((m) => m.id), ['demo-small', 'demo-large', 'auto']);
    const one = JSON.parse((await request(server.http, '/v1/models/auto', { headers })).body);
    assert.deepEqual([one.role, one.state], ['cascade', 'ready']);
  });

  test('every plan', async () => {
    for (const [drive, key, plan, why, models] of [
      ['zz-easy', 'paid', 'small', 'easy', ['demo-small']],
      ['zz-hard differ@4', 'paid', 'large', 'hard', ['demo-large']],
      ['zz-small', 'paid', 'small', 'forced', ['demo-small']],
      ['zz-large differ@2', 'paid', 'large', 'forced', ['demo-large']],
      ['', 'paid', 'check', 'middle', ['demo-small']],
      ['unsure@0', 'paid', 'check', 'middle', VERIFIES ? ['demo-small', 'demo-large'] : ['demo-large']],
      ['unsure@0 differ@0', 'paid', 'check', 'middle', ['demo-large']],
      ['slow-large@5000', 'free', 'race', 'likely_hard', ['demo-small']],
      ['slow-small@5000 differ@0', 'free', 'race', 'likely_hard', ['demo-large']],
      ['unsure@0 slow-large@100', 'free', 'race', 'likely_hard', ['demo-large']],
    ]) {
      const c = await ask(drive, { key });
      assert.deepEqual([c.plan, c.why, model(c)], [plan, why, models], drive);
      assert.equal(c.escalated, c.plan !== 'large' && models.includes('demo-large'), drive);
    }
    const text = await server.metrics();
    assert.ok(metric(text.replace(/[\s\S]*?(?=sluice_cascade_requests_total\{plan="race",why="likely_hard)/, ''), 'sluice_cascade_requests_total') >= 6);
    assert.match(server.log(), /, cascade check\/middle, escalated: held, small \d+ of \d+, large \d+ of \d+, from/);
  });

  test('a switch at any place, agreed or not: the text is the two logs joined', async () => {
    for (let unsure = 0; unsure < 30; unsure += 3) {
      for (const differ of [0, 1, unsure, unsure + 2, 100]) {
        const c = await ask(`unsure@${unsure} differ@${differ}`, { same: (unsure + differ) % 2 === 0 });
        assert.ok(c.escalated, `${unsure} ${differ}`);
        const kept = c.parts.find((p) => p.model === 'demo-small')?.tokens ?? 0;
        assert.ok(kept <= unsure + 8, `${kept} tokens of one that is unsure from ${unsure} on`);
        /* What was shown stays; that it is not the large model's is told. */
        assert.equal(c.disagreed_at, VERIFIES && differ < kept ? differ : undefined, `${unsure} ${differ} ${kept}`);
      }
    }
  });

  test('the length is the answer\'s, wherever the switch is', async () => {
    for (const most of [1, 2, 3, 4, 7, 8, 12]) {
      for (const drive of ['', 'unsure@2', 'unsure@2 differ@3', 'unsure@6 differ@1', 'zz-hard']) {
        const c = await ask(drive, { body: { max_tokens: most } });
        assert.deepEqual([c.parts.reduce((sum, p) => sum + p.tokens, 0), c.finish], [most, 'length'], `${drive} ${most}`);
      }
    }
  });

  test('log probabilities that were asked for are told for both parts, none where they were not', async () => {
    const text = message('unsure@5 differ@7');
    const r = await post('/v1/chat/completions', { messages: user(text), logprobs: true });
    const { content } = r.json.choices[0].logprobs;
    assert.equal(content.map((t) => t.token).join(''), r.json.choices[0].message.content);
    assert.equal(content.length, tokens(text).length);
    assert.ok(content.every((t) => t.logprob <= 0));
    const plain = await post('/v1/chat/completions', { messages: user(text) });
    assert.equal(plain.json.choices[0].logprobs, null);
  });

  test('completions', localOnly('the echo engine begins a plain text again where it should go on with it; the demo pair goes on'), async () => {
    const text = message('unsure@4 differ@6');
    const c = (await post('/v1/completions', { prompt: text, max_tokens: 100 })).json;
    assert.equal(c.choices[0].text, expected(text, c.sluice.cascade.parts));
    assert.ok(c.sluice.cascade.escalated);
  });

  test('responses, and twins', async () => {
    const text = message('unsure@4 differ@6');
    const r = (await post('/v1/responses', { input: text })).json;
    assert.equal(r.output[0].content[0].text, expected(text, r.sluice.cascade.parts));
    assert.deepEqual([r.model, r.sluice.cascade.escalated], ['auto', true]);
    const again = (await request(server.http, `/v1/responses/${r.id}`, { headers: { authorization: `Bearer ${server.keys.paid}` } })).body;
    assert.deepEqual(JSON.parse(again).sluice, r.sluice);
    const both = await Promise.all([0, 1].map(() => post('/v1/chat/completions', { messages: user(`${text} twins`), temperature: 0, user: 'ann' })));
    assert.equal(both[0].json.choices[0].message.content, both[1].json.choices[0].message.content);
  });

  test('several prompts and choices: each one\'s cascade', async () => {
    // A plain text that the large one should go on with the echo engine begins again.
    const prompts = ['zz-easy', 'unsure@0 differ@0', 'zz-hard differ@4', OVER_UPSTREAM ? '' : 'unsure@5 differ@7', ''].map((drive) => message(`${drive} p${n++}`));
    const told = (p, about) => assert.deepEqual([about.plan, about.parts.map((x) => x.model)],
      [['small', ['demo-small']], ['check', ['demo-large']], ['large', ['demo-large']], ['check', OVER_UPSTREAM ? ['demo-small'] : ['demo-small', 'demo-large']], ['check', ['demo-small']]][p], prompts[p]);
    const whole = (await post('/v1/completions', { prompt: prompts, max_tokens: 100 })).json;
    assert.deepEqual(whole.sluice.cascades[0], whole.sluice.cascade);
    assert.equal(whole.sluice.cascades.length, prompts.length);
    for (const [i, about] of whole.sluice.cascades.entries()) {
      told(i, about);
      assert.equal(whole.choices[i].text, expected(prompts[i], about.parts));
    }
    assert.equal(server.log().match(/cascade small\/easy, [^|]* \| check\/middle, escalated: held[^|]* \| large\/hard/g)?.length, 1);
    const again = prompts.map((p) => `${p} again`);
    const stream = await request(server.http, '/v1/completions', { method: 'POST', body: JSON.stringify({ model: 'auto', prompt: again, max_tokens: 100, stream: true }),
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' } });
    const events = stream.body.split('\n\n').filter((e) => e.startsWith('data: {')).map((e) => JSON.parse(e.slice(6)));
    for (const [i, p] of again.entries()) {
      const mine = events.filter((e) => e.choices[0]?.index === i), last = mine.find((e) => e.choices[0].finish_reason);
      told(i, last.sluice.cascade);
      assert.equal(last.sluice.cascades, undefined);
      assert.equal(mine.map((e) => e.choices[0].text).join(''), expected(p, last.sluice.cascade.parts));
    }
    const one = (await post('/v1/completions', { prompt: [prompts[0]], max_tokens: 5 })).json;
    assert.equal(one.sluice.cascades, undefined);
  });

  test('the openai package', async () => {
    const client = new OpenAI({ apiKey: server.keys.paid, baseURL: `${server.http}/v1` });
    const text = message('unsure@9 differ@11');
    const whole = await client.chat.completions.create({ model: 'auto', messages: user(text) });
    assert.equal(whole.choices[0].message.content, expected(text, whole.sluice.cascade.parts));
    let streamed = '', about;
    for await (const chunk of await client.chat.completions.create({ model: 'auto', messages: user(text), stream: true })) {
      streamed += chunk.choices[0]?.delta?.content ?? '';
      about = chunk.sluice?.cascade ?? about;
    }
    assert.equal(streamed, expected(text, about.parts));
    const response = await client.responses.create({ model: 'auto', input: text });
    assert.equal(response.output_text, whole.choices[0].message.content);
  });

  test('a model that fails: at any token, and nothing is left', async () => {
    for (let at = 0; at < 20; at += 1) {
      const small = await ask(`fail-small@${at}`, { same: false });
      assert.deepEqual([small.escalated, small.reason], [true, 'failure'], `small ${at}`);
      const hard = await ask('zz-hard fail-large@0', { same: false });
      assert.deepEqual(model(hard), ['demo-small']);
    }
    for (let unsure = 0; unsure < 16; unsure += 5) {
      /* Refused before it has taken over: the small one goes on. */
      const refused = await ask(`unsure@${unsure} fail-large@0`, { same: false });
      assert.deepEqual(model(refused), ['demo-small'], `${unsure}`);
      /* Failed later: the answer has failed, and what was shown was right. */
      const text = message(`unsure@${unsure} fail-large@3 x${n++}`);
      const r = await chat(server.http, server.keys.paid, { model: 'auto', messages: user(text) });
      assert.equal(r.errors.length, 1);
      assert.ok(says(text, false).join('').startsWith(r.text));
    }
    await atRest();
  });

  test('a large model that is silent is not waited for', async () => {
    const c = await ask('unsure@5 hang-large@0', { same: false });
    assert.deepEqual(model(c), ['demo-small']);
    await atRest();
  });

  test('a response in the background that is cancelled or deleted before, in and behind the switch', async () => {
    const call = async (method, path) => {
      const r = await request(server.http, path, { method, headers: { authorization: `Bearer ${server.keys.paid}` } });
      return { status: r.status, json: JSON.parse(r.body) };
    };
    const seen = new Set();
    const stopped = async (drive, ms) => {
      const text = message(`${drive} x${n++}`);
      const made = await post('/v1/responses', { input: text, background: true });
      assert.equal(made.json.status, 'in_progress', made.body);
      await new Promise((r) => setTimeout(r, ms));
      const path = `/v1/responses/${made.json.id}`, deleted = ms % 12 === 0;
      const r = await call(deleted ? 'DELETE' : 'POST', deleted ? path : `${path}/cancel`);
      assert.equal(r.status, 200, `${drive}, ${ms} ms: ${JSON.stringify(r.json)}`);
      const after = await call('GET', path);
      if (deleted) {
        assert.equal(after.status, 404, `${drive}, ${ms} ms`);
        return;
      }
      assert.deepEqual([r.json.status, after.json.status], ['cancelled', 'cancelled'], `${drive}, ${ms} ms`);
      const said = after.json.output.flatMap((o) => o.content ?? []).map((c) => c.text).join('');
      seen.add(said.includes('~') || tokens(said).length > 7);
      const shown = tokens(said).map((t, i) => (t.startsWith('~') ? says(text, true)[i] : says(text, false)[i]));
      assert.equal(said.trimEnd(), shown.join('').trimEnd(), `${drive}, ${ms} ms: nothing is missing or said twice`);
    };
    const drives = ['unsure@6 slow-large@40 hang-large@9', 'unsure@6 differ@0 hang-large@3', 'unsure@0 slow-large@40 hang-large@5'];
    for (const drive of drives) for (const ms of [0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 500]) await stopped(drive, ms);
    await stopped('unsure@6 slow-large@600000', 6); // not before the switch, however busy the machine is
    for (let ms = 1000; !seen.has(true) && ms < 60_000; ms *= 2) await stopped(drives[0], ms);
    assert.deepEqual([...seen].sort(), [false, true], 'some of them had switched');
    await atRest();
  });

  test('clients that leave at any point, engines that die: nothing is left', async () => {
    for (const drive of ['', 'unsure@0 hang-large@0', 'unsure@6 hang-large@0', 'unsure@6 hang-large@2', 'hang-small@2', 'hang-small@9']) {
      for (const key of ['paid', 'free']) {
        const text = message(`${drive} repeat x${n++}`);
        const held = /hang-small@2|unsure@0/.test(drive) || (key === 'free' && /hang-small/.test(drive));
        let left = false;
        const r = chat(server.http, server.keys[key], { model: 'auto', messages: user(text) }, { onEvent: (e, so) => {
          left ||= so.text.length > 0 || so.events.length > 0;
          return so.text.length > 12 || (held && so.events.length > 0) ? 'abort' : undefined;
        } });
        if (held) await until(async () => metric(await server.metrics(), 'sluice_engine_running') > 0 || left, 50000);
        await r;
      }
    }
    await atRest();
    for (const drive of ['hang-small@2', 'unsure@0 hang-large@0', 'unsure@6 hang-large@2', 'hang-small@9']) {
      const text = message(`${drive} x${n++}`);
      const running = chat(server.http, server.keys.paid, { model: 'auto', messages: user(text) });
      assert.ok(await until(async () => metric(await server.metrics(), 'sluice_engine_running') > 0, 100000), drive);
      process.kill((await server.pids()).engine, 'SIGKILL');
      const r = await running;
      assert.equal(r.errors.length + (r.status !== 200) > 0 || r.done, true, drive);
      assert.ok(says(text, false).join('').startsWith(r.text.replace(/~/g, '')), drive);
      await atRest();
    }
    /* Each thread has a link of its own. */
    assert.ok(await until(async () => (await post('/v1/chat/completions', { messages: user(`again ${n++}`) })).status === 200, 100000));
    await until(async () => (await post('/v1/chat/completions', { messages: user(`and again ${n++}`) })).status === 200, 100000);
    await ask('unsure@3 differ@4');
  });

  test('outcomes are logged without text, and read by the command', async () => {
    const path = join(folder, 'out.jsonl');
    const lines = readFileSync(path, 'utf8').trim().split('\n').map((l) => JSON.parse(l));
    assert.ok(lines.length > 50);
    const one = lines.find((l) => l.escalated === 'shown');
    assert.ok(one.trace.length > 0 && one.features.dense.length > 0 && one.small.shown <= one.small.made, JSON.stringify(one));
    assert.ok(one.large.given >= one.small.shown && one.offered >= one.accepted && one.large.prompt > 0);
    assert.ok(!/w17|unsure/.test(readFileSync(path, 'utf8')));
    const report = execFileSync(SLUICE, ['cascade', 'report', path, '--json'], { encoding: 'utf8' });
    assert.ok(JSON.parse(report), report);
  });
});

describe('the cascade by tier and under load', () => {
  let server;
  before(async () => {
    server = await startServer({ echo: true, sets: ['gateway.threads=1', 'engine.echo.ttft=2ms', 'engine.echo.rate=50', 'engine.echo.slots=1',
      'cascade.load.enter=1ms', 'cascade.load.leave=1ms', 'cascade.load.recover=1ms', 'cascade.log=', 'gateway.default_model=demo-small'],
    edit: (yaml) => edit(yaml).replace('{name: paid, easy: 0.001, race: 0.999, hard: 0.999,', '{name: paid, easy: 0, race: 0, hard: 0, target_ttft: 200ms,')
      .replace('{name: free, easy: 0,', '{name: free, mode: small, easy: 0,')
      .replace(/(- name: paid\n {6}priority: 0\n {6}default_model: )""/, '$1auto') });
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  const ask = (key, body, headers = {}) => request(server.http, '/v1/chat/completions', { method: 'POST', body: JSON.stringify(body),
    headers: { authorization: `Bearer ${server.keys[key]}`, 'content-type': 'application/json', ...headers } })
    .then((r) => ({ ...r, json: JSON.parse(r.body) }));

  test('a tier\'s mode and its default model', async () => {
    const small = (await ask('free', { model: 'auto', messages: user('one two') })).json;
    assert.deepEqual([small.sluice.cascade.plan, small.sluice.cascade.why], ['small', 'tier']);
    const named = (await ask('free', { model: 'default', messages: user('one three') })).json;
    assert.deepEqual([named.model, named.sluice], ['demo-small', undefined]);
    const auto = (await ask('paid', { model: 'default', messages: user('one four') })).json;
    assert.deepEqual([auto.model, auto.sluice.cascade.plan], ['auto', 'large']);
  });

  test('late on the large model: the small one answers, and who asked to know is told', localOnly('how long what waits there will take'), async () => {
    const left = [];
    for (let i = 0; i < 2; i++)
      chat(server.http, server.keys.paid, { model: 'demo-large', messages: user(`repeat this ${i}`), max_tokens: 2000 },
        { onEvent: () => (left.length > 0 ? 'abort' : undefined) });
    let i = 0;
    assert.ok(await until(async () => metric(await server.metrics(), 'sluice_predicted_wait_ms{priority="0"}') > 1000, 100000));
    const degraded = await until(async () => {
      /* One that came too early waits for the large one: not we. */
      const r = await Promise.race([new Promise((done) => { setTimeout(done, 500); }),
        ask('paid', { model: 'auto', messages: user(`say ${i++}`), max_tokens: 2 }, { 'x-sluice-notify': 'degraded' })]);
      return r?.json.sluice?.cascade?.why === 'load' && r;
    }, 200000);
    assert.ok(degraded, server.log());
    assert.deepEqual([degraded.json.sluice.cascade.plan, degraded.json.sluice.degraded, degraded.headers['x-sluice-degraded']], ['small', 'model', 'model']);
    const silent = await ask('paid', { model: 'auto', messages: user('who does not ask'), max_tokens: 2 });
    assert.deepEqual([silent.json.sluice.cascade.why, silent.json.sluice.degraded, silent.headers['x-sluice-degraded']], ['load', undefined, undefined]);
    left.push(true);
    assert.ok(await until(async () => (await ask('paid', { model: 'auto', messages: user(`again ${i++}`), max_tokens: 2 })).json.sluice?.cascade?.why === 'hard', 100000));
  });
});

describe('the demo pair', { skip: !existsSync('etc/models/demo-large.gguf') }, () => {
  let server;
  before(async () => { server = await startServer({ sets: ['gateway.threads=1', 'cascade.least_escalations=1000', 'cascade.hold.time=20s'] }); });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));

  test('of several choices each tells its own tokens', async () => {
    const body = { model: 'auto', prompt: ['The sea', 'A mountain'], n: 3, temperature: 1, seed: 5, max_tokens: 30 };
    const headers = { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' };
    const whole = JSON.parse((await request(server.http, '/v1/completions', { method: 'POST', headers, body: JSON.stringify(body) })).body);
    assert.deepEqual([whole.choices.length, whole.sluice.cascades.length], [6, 6]);
    const made = whole.sluice.cascades.map((c) => c.parts.reduce((sum, p) => sum + p.tokens, 0));
    const ends = whole.choices.filter((c) => c.finish_reason === 'stop').length;
    const all = made.reduce((a, b) => a + b), { completion_tokens: completion } = whole.usage; /* with or without end tokens */
    assert.ok(all <= completion && all >= completion - ends, `${all} of ${completion}, ${ends} ends`);
    whole.choices.forEach((c, i) => assert.ok(c.finish_reason === 'stop' ? made[i] < 30 : made[i] === 30, `${i}: ${made[i]}`));
    const stream = await request(server.http, '/v1/completions', { method: 'POST', headers, body: JSON.stringify({ ...body, stream: true }) });
    const last = stream.body.split('\n\n').filter((e) => e.startsWith('data: {')).map((e) => JSON.parse(e.slice(6))).filter((e) => e.choices[0]?.finish_reason);
    for (const e of last) assert.deepEqual(e.sluice.cascade, whole.sluice.cascades[e.choices[0].index]);
    assert.equal(last.length, 6);
  });

  test('what the large one writes after a switch is what it would have written from there', async () => {
    const questions = readFileSync('etc/models/evaluation.jsonl', 'utf8').trim().split('\n').map((l) => JSON.parse(l).question);
    const ask = async (model, text) => JSON.parse((await request(server.http, '/v1/chat/completions', { method: 'POST',
      headers: { authorization: `Bearer ${server.keys.paid}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: user(text), temperature: 0, max_tokens: 60 }) })).body);
    let switched = 0, alone = 0;
    for (const question of questions.filter((_, i) => i % 12 === 0)) {
      const [auto, small, large] = [await ask('auto', question), await ask('demo-small', question), await ask('demo-large', question)];
      const text = (r) => r.choices[0].message.content;
      const { parts, escalated } = auto.sluice.cascade;
      if (!escalated && parts[0].model === 'demo-small') { alone++; assert.equal(text(auto), text(small), question); }
      if (parts[0]?.model === 'demo-large') assert.equal(text(auto), text(large), question);
      if (escalated) switched++;
    }
    assert.ok(switched > 0 && alone > 0, `${switched} switched, ${alone} by the small one alone`);
  });
});
