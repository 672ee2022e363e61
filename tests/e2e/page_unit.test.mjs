// The page's modules without a browser: Markdown safety and cost, one answer's life, the history.

import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { jumble, random, SCRIPTS } from './page_corpus.mjs';
import { copy, load, www } from './page_modules.mjs';
import { countSteps } from './page_steps.mjs';

const { parse, inline, safeUrl, settled } = await load('markdown.js');
const { calculate, CALCULATOR, resultOf } = await load('calculator.js');
const { Run, ThinkingSplitter } = await load('run.js');
const { adoptItems, itemsOf } = await load('remote.js');
const { joined, pathOf, picksTo, turnsOf } = await load('branches.js');
const { Loading } = await load('health.js');
const { formatJson } = await load('json.js');
const { cleanOptions, requestOf } = await load('options.js');
const { Search } = await load('search.js');
const { exportPieces, importInto, readExport } = await load('transfer.js');
const { Store, chatOfKey, memoryStorage, mergeMessages, newId, newTurn } = await load('store.js');
const { keysOfFragment, Keys } = await load('keys.js');
const { LANGUAGES, words, pickLanguage, t } = await load('i18n.js');
await load('admin_words.js');
const { pathOf: curveOf } = await load('admin_charts.js');
const { tokens } = await load('code.js');
const { leftOf } = await load('usage.js');

/** With THOROUGH all, else some. */
const someOf = (some, all) => (process.env.THOROUGH ? all : some);

// ---- helpers --------------------------------------------------------------------------------------------------------

const plain = (nodes) => nodes.map((n) => (n.t === 'br' ? '\n' : n.c ? plain(n.c) : n.v)).join('');
const shape = (nodes) => nodes.map((n) => (n.t === 'text' ? n.v : n.t === 'br' ? '<br>' : `<${n.t}>${n.c ? shape(n.c) : n.v}</${n.t}>`)).join('');
const first = (source) => parse(source)[0];

function walk(nodes, visit, depth = 0) {
  for (const n of nodes) {
    visit(n, depth);
    for (const part of [n.c, n.b, n.head?.flat(), n.rows?.flat(2), n.items?.flatMap((i) => i.b)]) if (part) walk(part, visit, depth + 1);
  }
}

const BLOCKS = new Set(['p', 'h', 'code', 'quote', 'list', 'table', 'hr']);
const INLINE = new Set(['text', 'code', 'em', 'strong', 'del', 'link', 'br', 'math', 'note']);

function assertSafe(source) {
  let deepest = 0;
  walk(parse(source), (n, depth) => {
    assert.ok(BLOCKS.has(n.t) || INLINE.has(n.t), `unknown node ${n.t}`);
    deepest = Math.max(deepest, depth);
    if (n.t !== 'link') return;
    const url = new URL(n.href);
    assert.ok(['http:', 'https:', 'mailto:'].includes(url.protocol), `${n.href} from ${source.slice(0, 80)}`);
    walk(n.c, (inner) => assert.notEqual(inner.t, 'link', 'a link within a link'));
  });
  assert.ok(deepest < 60, `depth ${deepest}`);
}

const stepsOf = countSteps(pathToFileURL(copy).href);

/** Asserts that work takes steps in proportion to its input, counted rather than timed: at most five times as many for four times as much. */
function assertLinear(name, make, work, most = 30_000) {
  const n = someOf(most / 3, most);
  const steps = (input) => stepsOf(() => work(input));
  const small = steps(make(n)), large = steps(make(4 * n));
  assert.ok(small > 0 && large <= 5 * small, `${name}: four times the text takes ${(large / small).toFixed(1)} times as many steps`);
}

// ---- Markdown -------------------------------------------------------------------------------------------------------

test('inline marks', () => {
  const cases = [
    ['a **b** *c* `d` ~~e~~', 'a <strong>b</strong> <em>c</em> <code>d</code> <del>e</del>'],
    ['***x***', '<em><strong>x</strong></em>'],
    ['**a *b* c**', '<strong>a <em>b</em> c</strong>'],
    ['snake_case_word and __init__', 'snake_case_word and <strong>init</strong>'],
    ['2 * 3 * 4', '2 * 3 * 4'],
    ['*open', '*open'],
    ['a\\*b\\* \\`c\\`', 'a*b* `c`'],
    ['`` a ` b ``', '<code>a ` b</code>'],
    ['`unclosed **b**', '`unclosed <strong>b</strong>'],
    ['**`a*b`**', '<strong><code>a*b</code></strong>'],
    ['one\ntwo<br>three', 'one<br>two<br>three'],
    ['&lt;b&gt; &amp; &#65; &nope;', '<b> & A &nope;'],
    ['**"강조"**은 **밑줄(x)**이', '<strong>"강조"</strong>은 <strong>밑줄(x)</strong>이'],
    ['[a](https://e.org/b_(c)) d', '<link>a</link> d'],
    ['[a **b**](<https://e.org> "title")', '<link>a <strong>b</strong></link>'],
    ['![cat](https://e.org/c.png)', '<link>cat</link>'],
    ['see https://e.org/x_y. (https://e.org)', 'see <link>https://e.org/x_y</link>. (<link>https://e.org</link>)'],
    ['<https://e.org/a>', '<link>https://e.org/a</link>'],
    ['[x](javascript:alert(1))', '[x](javascript:alert(1))'],
    ['[not a link] (x)', '[not a link] (x)'],
    ['[a [b](https://e.org) c](https://f.org)', '[a <link>b</link> c](<link>https://f.org</link>)'],
    ['[https://good.org](https://other.org)', '<link>https://good.org</link>'],
  ];
  for (const [source, wanted] of cases) assert.equal(shape(inline(source)), wanted, source);
});

test('blocks', () => {
  assert.deepEqual(parse('# A\n\nb\nc\n\n---\n').map((b) => b.t), ['h', 'p', 'hr']);
  assert.deepEqual(first('```js\na\n\nb\n```\n'), { t: 'code', lang: 'js', v: 'a\n\nb', closed: true, at: 0 });
  assert.deepEqual(first('~~~\n```\n~~~'), { t: 'code', lang: '', v: '```', closed: true, at: 0 });
  assert.equal(first('```py\nx = 1\n').closed, false);
  assert.equal(first('```py\nx = 1\n').v, 'x = 1');
  assert.equal(first('## Title ##').n, 2);
  assert.equal(plain(first('## Title ##').c), 'Title');
  assert.equal(first('#hashtag').t, 'p');
  assert.deepEqual(parse('text\n---\nmore').map((b) => b.t), ['p', 'hr', 'p']);

  const list = first('1. a\n   - b\n     - c\n2. d\n\n   more\n3. e');
  assert.equal(list.items.length, 3);
  assert.equal(list.items[0].b[1].items[0].b[1].items.length, 1);
  assert.deepEqual(list.items[1].b.map((b) => b.t), ['p', 'p']);
  assert.equal(first('1. a\n  - b\n2. c').items.length, 2, 'two spaces under a number nest');
  assert.equal(first('3) x').start, 3);
  assert.equal(first('- [x] a\n- [ ] b').items[0].check, true);
  assert.deepEqual(first('- a\n  ```\n  b\n  ```\n- c').items.map((i) => i.b.length), [2, 1]);

  const table = first('| a | b |\n|:--|--:|\n| 1 | x\\|y |\n| 2 |\nnot a row');
  assert.deepEqual(table.align, ['left', 'right']);
  assert.deepEqual(table.rows.map((r) => r.map(plain)), [['1', 'x|y'], ['2']]);
  assert.equal(first('a | b\nc | d').t, 'p');

  const quote = first('> a\n> > b\n> - c');
  assert.deepEqual(quote.b.map((b) => b.t), ['p', 'quote', 'list']);
  assert.deepEqual(parse('').length + parse('\n \n').length, 0);
});

test('nothing a model writes becomes markup or a dangerous link', () => {
  for (const s of SCRIPTS) assertSafe(s);
  for (const bad of ['javascript:x', ' javascript:x', 'java\tscript:x', 'data:text/html,x', '//e.org', '/x', '#x', 'ftp://e.org',
    'file:///etc/passwd', 'https:/e.org\u202e', 'https://', 'http://[', 'https:javascript:x', 'about:blank', `https://e.org/${'a'.repeat(3000)}`]) {
    assert.equal(safeUrl(bad), null, bad);
  }
  assert.equal(safeUrl('HTTPS://E.org/a?b#c'), 'https://e.org/a?b#c');
  assert.equal(safeUrl('mailto:a@e.org'), 'mailto:a@e.org');
});

test('random mixtures of marks stay safe', () => {
  const rnd = random(7);
  for (let i = 0; i < someOf(1000, 3000); i++) assertSafe(jumble(rnd, 1 + rnd(40)));
});

test('settled blocks never change while the text grows', () => {
  const rnd = random(21);
  for (let i = 0; i < someOf(50, 150); i++) {
    const text = jumble(rnd, 40).replaceAll('\r\n', '\n');
    const whole = parse(text);
    for (let cut = 0; cut <= text.length; cut++) {
      const part = text.slice(0, cut);
      const tree = parse(part);
      const n = settled(part, tree);
      assert.deepEqual(tree.slice(0, n), whole.slice(0, n), JSON.stringify(part));
      if (n > 0) assert.equal(tree[n].at, whole[n].at, JSON.stringify(part));
    }
    whole.forEach((block, k) => {
      const again = parse(text.slice(block.at)).map((b) => ({ ...b, at: b.at + block.at }));
      assert.deepEqual(again, whole.slice(k), JSON.stringify(text));
    });
  }
});

test('hostile texts cost no more than their length', () => {
  const repeat = (s) => (n) => s.repeat(Math.ceil(n / s.length));
  const patterns = ['*', '_', '~', '`', '[', ']', '![', '(', '<', '>', '&', '\\', '|', '#', '-', '- ', '> ', '1. ', '**a', 'a**', '**a**', '*a_', '*a **b ', '_a*b',
    '[](', '](', '[a](', '[a](b', '[a](<b', '[a](b "', "[a](b '", '[[]]', '`a', '``a`', '`` ` ', 'https://', 'http://a)', 'https://a.b/((((', '<https://', '<http', '&#', '&a', '~~a',
    '\n', '\n\n', ' \n', '- a\n', '  - a\n', '> a\n', '>\n', '```\n', '~~~a\n', '|a\n', '|a|b\n|-|-\n', '|-', ':-|', '# a\n', '---\n', '1. a\n', '- [ ] ', 'a\n- b\n\n', '\t', 'a ', '*가', '**가"'];
  for (const p of patterns) assertLinear(JSON.stringify(p), repeat(p), parse);
  const nested = (n) => { let s = ''; for (let i = 0; s.length < n; i++) s += `${' '.repeat(2 * (i % 200))}- a\n`; return s; };
  assertLinear('nested lists', nested, parse);
  assertLinear('opening then closing', (n) => '*'.repeat(n / 2) + 'a' + '*'.repeat(n / 2), parse);
  assertLinear('brackets then closers', (n) => '['.repeat(n / 2) + '](https://e.org)'.repeat(n / 32), parse);
  assertLinear('runs of growing length', (n) => { let s = ''; for (let i = 1; s.length < n; i++) s += `${'`'.repeat(i)} `; return s; }, parse);
});

test('code colours keep the text and cost no more than its length', () => {
  for (const lang of ['c', 'python', 'sql', 'html', 'nolang']) {
    for (const source of ['int main(void) { return "x\\"" + 0x1F; } // end', '# a\n"""doc""" x = \'y\'', 'SELECT a -- b', '<!-- a --><p class="x">', '/* open', '"open', '', '\u0000가']) {
      assert.equal(tokens(source, lang).map((k) => k.v).join(''), source);
    }
    for (const p of ['/*', '/* ', '"', "'", '`', '"""', '<!--', 'a', '0', '0x', '#', '\\', '"\\', '<a', ' ']) {
      assertLinear(`${lang} ${p}`, (n) => p.repeat(n / p.length), (s) => tokens(s, lang), 15_000);
    }
  }
  // How far the lexer's pattern looks before it fails is not among the steps; so what is never closed matches to its end, at once.
  const open = [['c', '/*', 'comment'], ['c', '`', 'string'], ['sql', '/*', 'comment'], ['python', '"""', 'string'], ['python', "'''", 'string'], ['html', '<!--', 'comment']];
  const inLine = [['c', '//', 'comment'], ['c', '"', 'string'], ['c', "'", 'string'], ['python', '#', 'comment'], ['sql', '--', 'comment'], ['sql', "'", 'string']];
  for (const [lang, mark, k] of [...open, ...inLine]) {
    const v = mark + ` /* <!-- -- # a0\\\\${open.some((o) => o[1] === mark) ? '\n' : ''}`.repeat(100);
    assert.deepEqual(tokens(v, lang), [{ k, v }], `${lang} ${mark}`);
  }
});

// ---- one answer -----------------------------------------------------------------------------------------------------

const chunk = (delta, finish = null) => `data: ${JSON.stringify({ model: 'm', choices: [{ index: 0, delta, finish_reason: finish }], usage: null })}\n\n`;
const USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}\n\n';
const DONE = 'data: [DONE]\n\n';

/** A fetch that answers with these byte pieces. */
function fakeFetch(pieces, { status = 200, headers = {}, fail } = {}) {
  const calls = [];
  const fn = async (url, options) => {
    calls.push({ url, options });
    if (fail) throw new TypeError('refused');
    const body = new ReadableStream({
      async start(controller) {
        for (const p of pieces) {
          if (p === 'break') { controller.error(new TypeError('network')); return; }
          if (p === 'hang') return;
          controller.enqueue(typeof p === 'string' ? new TextEncoder().encode(p) : p);
          await null;
        }
        controller.close();
      },
    });
    return new Response(body, { status, headers: { 'content-type': 'text/event-stream', ...headers } });
  };
  fn.calls = calls;
  return fn;
}

function makeRun(fetchFn, extra = {}) {
  const states = [];
  const run = new Run({ key: 'k', model: async () => 'm', messages: [], fetchFn, onChange: (r, what) => { if (what === 'state') states.push(r.state); }, ...extra });
  return { run, states };
}

test('an answer from request to end, with its figures', async () => {
  let clock = 0;
  const { run, states } = makeRun(fakeFetch([chunk({ content: 'a' }), chunk({ content: 'b' }), chunk({ content: 'c' }, 'length'), USAGE, DONE]), { now: () => (clock += 100) });
  await run.start();
  assert.deepEqual(states, ['streaming', 'done']);
  assert.deepEqual([run.text, run.end], ['abc', 'length']);
  assert.deepEqual(run.stats(), { ttftMs: 100, tps: 10, promptTokens: 5, completionTokens: 3, exact: true });
});

test('a starting engine is asked again, a bounded number of times', async () => {
  const waits = [];
  const clock = { now: () => 0, pause: async (ms) => { waits.push(ms); }, random: () => 1 };
  let n = 0;
  const ok = fakeFetch([chunk({ content: 'up' }, 'stop'), DONE]);
  const flaky = (...a) => (n++ < 2 ? fakeFetch(['{}'], { status: 503, headers: { 'retry-after': '2' } })(...a) : ok(...a));
  const { run, states } = makeRun(flaky, { clock });
  await run.start();
  assert.deepEqual([run.text, run.end, waits], ['up', 'stop', [2500, 3000]]);
  assert.deepEqual(states, ['waiting', 'waiting', 'connecting', 'streaming', 'done']);

  waits.length = 0;
  const never = makeRun(fakeFetch(['{}'], { status: 503 }), { clock }).run;
  await never.start();
  assert.deepEqual([never.end, never.error.status], ['error', 503]);
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000]);
});

test('only a starting engine is asked again; other faults are told at once, and by their kind', async () => {
  const kindOf = async (fetchFn) => {
    const { run } = makeRun(fetchFn);
    await run.start();
    return [run.end, run.error?.kind, run.error?.status, run.error?.message];
  };
  const once = fakeFetch(['{"error":{"message":"slow down"}}'], { status: 429, headers: { 'retry-after': '7' } });
  assert.deepEqual(await kindOf(once), ['error', 'http', 429, 'slow down']);
  assert.equal(once.calls.length, 1);
  assert.equal((await kindOf(fakeFetch([], { fail: true })))[1], 'network');
  assert.deepEqual(await kindOf(fakeFetch(['data: {"error":{"message":"lost it"}}\n\n'])), ['error', 'stream', 0, 'lost it']);
  assert.equal((await kindOf(fakeFetch([chunk({ content: 'half' })])))[0], 'lost');
});

test('calls of tools are shown as they come: the name, then its arguments', async () => {
  const call = (index, f) => chunk({ tool_calls: [{ index, function: f }] });
  const shown = [];
  const { run } = makeRun(fakeFetch([chunk({ content: 'I look.' }), call(0, { name: 'weather', arguments: '' }), call(0, { arguments: '{"city":' }),
    call(0, { arguments: '"Paris"}' }), call(1, { name: 'time', arguments: '{}' }), chunk({}, 'tool_calls'), DONE]), { onChange: (r) => shown.push(r.calls) });
  await run.start();
  assert.deepEqual([run.text, run.calls, run.end], ['I look.', 'weather {"city":"Paris"}\ntime {}', 'tool_calls']);
  assert.ok(shown.includes('weather {"city":'), shown);
});

test('what the calculator computes, and what it refuses', () => {
  for (const [text, value] of [['12 * 34', 408], ['1+2*3', 7], ['(1 + 2) * 3', 9], ['7 - 2 - 1', 4], ['2 ^ 3', 8], ['-2 * -3', 6], ['0.1 + 0.2', 0.3],
    ['81 ÷ 9 × 2', 18], ['8 / 4 / 2', 1], ['-(4 - 6)', 2]]) assert.equal(calculate(text), value, text);
  for (const text of ['', '1 +', '2 2', '(1', '1)', 'alert(1)', '1 / 0', 'toString', '1 constructor 2', '('.repeat(400), '1'.repeat(501), 5, undefined]) assert.throws(() => calculate(text), Error, text);
  assert.equal(resultOf('calculate', '{"expression":"6 * 7"}'), '42');
  for (const [name, args] of [['calculate', '{'], ['calculate', 'null'], ['other', '{"expression":"1"}']]) assert.ok(JSON.parse(resultOf(name, args)).error, args);
});

test('the result of a call goes back to the model, whose answer follows; a limited number of times', async () => {
  const calling = [chunk({ content: 'Hm.' }), chunk({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'calculate', arguments: '{"expression":"6 * 7"}' } }] }, 'tool_calls'), USAGE, DONE];
  const replies = [fakeFetch(calling), fakeFetch([chunk({ content: 'It is 42.' }, 'stop'), USAGE, DONE])];
  const bodies = [];
  const asked = { messages: [{ role: 'user', content: '6 * 7?' }], tools: [CALCULATOR] };
  const send = (next) => (url, o) => { bodies.push(JSON.parse(o.body)); return next()(url, o); };
  const { run } = makeRun(send(() => replies.shift()), asked);
  await run.start();
  assert.deepEqual([run.text, run.calls, run.end], ['Hm.It is 42.', 'calculate {"expression":"6 * 7"} → 42', 'stop']);
  assert.equal(run.stats().completionTokens, 6);
  assert.deepEqual(bodies.map((b) => b.tools), [[CALCULATOR], [CALCULATOR]]);
  assert.deepEqual(bodies[1].messages, [...asked.messages,
    { role: 'assistant', content: 'Hm.', tool_calls: [{ id: 'c1', type: 'function', function: { name: 'calculate', arguments: '{"expression":"6 * 7"}' } }] },
    { role: 'tool', tool_call_id: 'c1', content: '42' }]);

  const endless = makeRun(fakeFetch(calling), asked).run;
  await endless.start();
  assert.deepEqual([endless.end, endless.calls.split('\n').length], ['tool_calls', 8]);
  const kept = { text: 'Hm.It', calls: 'calculate {} → 1', model: 'm', stream: { id: 's', sentAt: 0, firstAt: 1, before: [3, 0, 16] } };
  const again = makeRun(fakeFetch([`id: 0\n${chunk({ content: 'It is 1.' }, 'stop')}`, `id: 1\n${DONE}`]), { kept }).run;
  await again.start();
  assert.deepEqual([again.text, again.calls, again.end], ['Hm.It is 1.', 'calculate {} → 1', 'stop']);
});

test('an answer that was under way is read again from its beginning; nothing is shown twice or taken back', async () => {
  const fetchFn = fakeFetch([': ping\nretry: 5\n', 'id: 0\n', chunk({ content: '<think>why' }), 'id: 1\n', chunk({ content: '</think>ab' }), 'id: 2\n', chunk({ content: 'cd' }, 'stop'), `id: 3\n${DONE}`]);
  const shown = [];
  const kept = { text: 'abc', reasoning: 'why', model: 'm', stream: { id: 'a/b', sentAt: 1, firstAt: 5 } };
  const { run } = makeRun(fetchFn, { kept, now: () => 9, onChange: (r) => shown.push(`${r.reasoning}|${r.text}`) });
  assert.equal(run.text, 'abc');
  await run.start();
  assert.deepEqual([run.text, run.reasoning, run.end, run.stats().ttftMs], ['abcd', 'why', 'stop', 4]);
  assert.deepEqual([...new Set(shown)], ['why|abc', 'why|abcd']);
  const [{ url, options }] = fetchFn.calls;
  assert.deepEqual([url, options.method, options.headers['Last-Event-ID']], ['v1/streams/a%2Fb', 'GET', undefined]);

  const gone = makeRun(fakeFetch(['{}'], { status: 404 }), { kept }).run;
  await gone.start();
  assert.deepEqual([gone.text, gone.end], ['abc', 'gone']);
});

test('stop ends it while waiting and while streaming', async () => {
  const waiting = makeRun(fakeFetch(['{}'], { status: 503, headers: { 'retry-after': '30' } })).run;
  const ended = waiting.start();
  setTimeout(() => waiting.stop(), 20);
  await ended;
  assert.deepEqual([waiting.end, waiting.state], ['stopped', 'done']);

  const abortable = async (url, options) => {
    const response = await fakeFetch([chunk({ content: 'a' }), 'hang'])(url, options);
    const { body } = response;
    const reader = body.getReader();
    const linked = new ReadableStream({
      async pull(c) { const { value } = await reader.read(); c.enqueue(value); },
      start(c) { options.signal.addEventListener('abort', () => c.error(options.signal.reason)); },
    });
    return new Response(linked, { headers: { 'content-type': 'text/event-stream' } });
  };
  const { run } = makeRun(abortable, { onChange: (r) => { if (r.text) r.stop(); } });
  await run.start();
  assert.deepEqual([run.text, run.end], ['a', 'stopped']);
  assert.equal(run.stats().exact, false);
});

test('thoughts written into an answer are told apart, wherever it is cut', () => {
  const split = (pieces) => {
    const got = ['', ''];
    const splitter = new ThinkingSplitter((s) => { got[0] += s; }, (s) => { got[1] += s; });
    for (const p of pieces) splitter.push(p);
    splitter.end();
    return got;
  };
  const cases = [
    ['\n<think>\nhm </thin k>\n</think>\n\nYes <think> no', ['Yes <think> no', '\nhm </thin k>\n']],
    ['<think></think>a', ['a', '']],
    ['<think>cut o</thi', ['', 'cut o</thi']],
    [' <thin', [' <thin', '']],
    ['  plain <think>x</think>', ['  plain <think>x</think>', '']],
    ['', ['', '']],
  ];
  for (const [text, wanted] of cases) {
    assert.deepEqual(split([...text]), wanted);
    for (let i = 0; i <= text.length; i++) assert.deepEqual(split([text.slice(0, i), text.slice(i)]), wanted, text);
  }
});

// ---- history --------------------------------------------------------------------------------------------------------

const makeChat = (updated, text = 'hello') => ({
  v: 1, id: newId(), title: text.slice(0, 20), created: updated, updated,
  messages: [{ id: 'aq', at: updated, role: 'user', text }, { id: 'ar', at: updated, role: 'assistant', text: 'hi', model: 'm', end: 'stop', stats: { ttftMs: 1, tps: 2, exact: true, promptTokens: 3, completionTokens: 4 } }],
});

test('what is saved comes back', () => {
  const storage = memoryStorage();
  const a = makeChat(1);
  const b = makeChat(2);
  const store = new Store(storage);
  assert.ok(store.save(a) && store.save(b));
  const again = new Store(storage);
  assert.deepEqual(again.list().map((c) => c.id), [b.id, a.id]);
  assert.deepEqual(again.get(a.id), a);
  again.rename(a.id, 'new name');
  assert.equal(again.get(a.id).title, 'new name');
  again.remove(b.id);
  assert.deepEqual([again.list().length, again.get(b.id)], [1, null]);
  again.clear();
  assert.equal(again.list().length, 0);
});

test('the history is bounded in number and size, the oldest go first', () => {
  const store = new Store(memoryStorage(), { chats: 3, totalChars: 5000 });
  const chats = [1, 2, 3, 4, 5].map((i) => makeChat(i));
  for (const c of chats) store.save(c);
  assert.deepEqual(store.list().map((c) => c.updated), [5, 4, 3]);
  const big = makeChat(6, 'x'.repeat(4700));
  assert.ok(store.save(big));
  assert.deepEqual([store.list().map((c) => c.updated), store.evicted], [[6], 5], 'how many went is known, to be said');
  const huge = makeChat(7, 'x'.repeat(9000));
  assert.equal(store.save(huge), false, 'too large to keep');
  assert.deepEqual(store.get(huge.id), huge, 'but there until the page is closed');
});

test('a full or forbidden storage loses nothing of the chat at hand', () => {
  const inner = memoryStorage();
  const sizes = new Map();
  const quota = {
    ...inner,
    setItem(k, v) {
      const total = [...sizes].reduce((n, [key, size]) => n + (key === k ? 0 : size), v.length);
      if (total > 2500) throw new DOMException('full', 'QuotaExceededError');
      sizes.set(k, v.length);
      inner.setItem(k, v);
    },
    removeItem(k) { sizes.delete(k); inner.removeItem(k); },
  };
  const store = new Store(quota);
  for (let i = 1; i < 30; i++) {
    const c = makeChat(i);
    assert.ok(store.save(c), 'the oldest made room');
    assert.deepEqual(store.get(c.id), c);
  }
  assert.equal(store.list()[0].updated, 29);

  const refuse = () => { throw new DOMException('no', 'SecurityError'); };
  const forbidden = new Store({ getItem: refuse, setItem: refuse, removeItem: refuse });
  const c = makeChat(1);
  assert.equal(forbidden.save(c), false);
  assert.deepEqual(forbidden.get(c.id), c);
  assert.equal(forbidden.list().length, 1);
});

test('foreign or damaged records are not trusted', () => {
  const storage = memoryStorage();
  const store = new Store(storage);
  storage.setItem('sluice.v1.chat.../x', '{"v":2,"updated":1}');
  storage.setItem('sluice.v1.chat.abcd13', '{"v":3}');
  storage.setItem('sluice.v1.chat.abcd12', '{"v":2,"updated":"soon"}');
  storage.setItem('sluice.v1.chat.abcd12.title', '{"title":7}');
  storage.setItem('sluice.v1.chat.abcd12.m.../x', '{"role":"user","text":"x"}');
  storage.setItem('sluice.v1.chat.abcd12.m.a', '{"role":"user","text":7}');
  storage.setItem('sluice.v1.chat.abcd12.m.b', '[]');
  assert.deepEqual(store.list().map((c) => [c.id, c.title, c.updated]), [['abcd12', '', 0]]);
  assert.deepEqual(store.get('abcd12').messages, []);
  for (const raw of ['', 'nonsense', 'null', '7', '{"v":3,"messages":[]}', '{"v":1}']) {
    storage.setItem('sluice.v1.chat.abcd12', raw);
    assert.equal(store.get('abcd12'), null, raw);
  }
  storage.setItem('sluice.v1.chat.abcd12', JSON.stringify({ v: 1, messages: [{ role: 'system', text: 'x' }, { role: 'user', text: 5 }, null,
    { role: 'assistant', text: 'a', end: null, error: { kind: 'evil' }, stats: { ttftMs: 'fast' } }] }));
  const chat = store.get('abcd12');
  assert.equal(chat.messages.length, 1);
  assert.equal(chat.messages[0].end, 'lost', 'an answer cut off by closing the page');
  assert.equal(chat.messages[0].stats.ttftMs, null);

  const under = (stream, end = null) => {
    storage.setItem('sluice.v1.chat.abcd12', JSON.stringify({ v: 1, messages: [{ role: 'assistant', text: 'a', end, stream }] }));
    const { end: e, stream: s } = store.get('abcd12').messages[0];
    return [e, s];
  };
  const stream = { id: 'abc', key: 'free', sentAt: 1, firstAt: 2 };
  assert.deepEqual(under(stream), [null, stream]);
  assert.deepEqual(under({ id: 'abc', sentAt: 'x' }), [null, { id: 'abc', key: '', sentAt: 0, firstAt: 0 }]);
  assert.deepEqual(under(stream, 'stop'), ['stop', undefined]);
  for (const bad of [undefined, 7, { id: 'a b' }, { id: '' }, { id: 'x'.repeat(201) }]) assert.deepEqual(under(bad), ['lost', undefined]);
});

// ---- two tabs -------------------------------------------------------------------------------------------------------

const turnOf = (chat, text, end = 'stop') => {
  const turn = newTurn(chat.messages);
  const asked = { id: turn.question, at: turn.at, role: 'user', text };
  const reply = { id: turn.answer, at: turn.at, role: 'assistant', text: end === null ? '' : `to ${text}`, model: 'm', end };
  chat.messages.push(asked, reply);
  return [asked, reply];
};
const textsOf = (chat) => chat.messages.map((m) => m.text);

test('two tabs with one chat: no turn of either is lost, in whatever order they save', () => {
  const storage = memoryStorage();
  const first = makeChat(1);
  new Store(storage).save(first);
  const [a, b] = [new Store(storage), new Store(storage)];
  const [inA, inB] = [a.get(first.id), b.get(first.id)];
  const fromA = turnOf(inA, 'one');
  const fromB = turnOf(inB, 'two');
  a.save(inA, fromA);
  b.save(inB, fromB);
  assert.deepEqual(textsOf(new Store(storage).get(first.id)).sort(), ['hello', 'hi', 'one', 'to one', 'to two', 'two']);
  fromA[1].text = 'to one, at length';
  fromA[1].end = 'length'; // an end once told stays
  a.save(inA);
  assert.equal(b.get(first.id).messages.find((m) => m.id === fromA[1].id).end, 'stop');
  for (const [known, store] of [[inA, a], [inB, b]]) {
    const merged = mergeMessages(known.messages, store.get(first.id).messages, store.outOf(first.id)).messages;
    assert.deepEqual(merged.map((m) => m.id), new Store(storage).get(first.id).messages.map((m) => m.id));
    for (let i = 2; i < 6; i += 2) assert.equal(merged[i + 1].text, `to ${merged[i].text}`, 'an answer stands behind its question');
  }
});

test('a growing answer is kept by the tab that reads it; an older state never comes back', () => {
  const storage = memoryStorage();
  const chat = makeChat(1);
  const a = new Store(storage);
  const [, reply] = turnOf(chat, 'more', null);
  a.save(chat);
  const b = new Store(storage);
  const inB = b.get(chat.id);
  assert.equal(inB.messages.at(-1).end, null, 'under way in the other tab, not lost');
  reply.text = 'a part';
  a.save(chat, [reply]);
  b.save(inB); // all it has, the older state of the answer among it
  assert.equal(a.get(chat.id).messages.at(-1).text, 'a part');
  Object.assign(reply, { text: 'all of it', end: 'stop' });
  a.save(chat, [reply]);
  Object.assign(inB.messages.at(-1), { text: 'a part of', end: 'lost' });
  b.save(inB);
  assert.deepEqual([a.get(chat.id).messages.at(-1).text, a.get(chat.id).messages.at(-1).end], ['all of it', 'stop']);
  inB.messages.at(-1).end = 'stopped'; // to other readers it is an end like any
  b.save(inB);
  Object.assign(reply, { end: 'stop' });
  a.save(chat, [reply]);
  assert.equal(a.get(chat.id).messages.at(-1).end, 'stopped');
  // A tab may read its storage a moment late, and write over that; the other one then stores it again.
  const key = storage.keys().find((k) => k.endsWith(reply.id));
  storage.setItem(key, JSON.stringify(reply));
  const { messages, again } = mergeMessages(inB.messages, b.get(chat.id).messages, b.outOf(chat.id));
  assert.deepEqual([messages.at(-1).end, again.map((m) => m.end)], ['stopped', ['stopped']]);
  b.save(inB, again);
  assert.deepEqual(mergeMessages(inB.messages, b.get(chat.id).messages, b.outOf(chat.id)).again, []);
  assert.equal(a.get(chat.id).messages.at(-1).end, 'stopped');
});

test('what one tab took out stays out; deleting a chat takes what it had, not what comes later', () => {
  const storage = memoryStorage();
  const chat = makeChat(1);
  const [a, b] = [new Store(storage), new Store(storage)];
  a.save(chat);
  const inB = b.get(chat.id);
  const edited = turnOf(chat, 'wrong');
  a.save(chat, edited);
  Object.assign(inB, b.get(chat.id));
  a.takeOut(chat.id, chat.messages.splice(2));
  b.save(inB);
  assert.deepEqual(textsOf(a.get(chat.id)), ['hello', 'hi']);
  assert.deepEqual(mergeMessages(inB.messages, b.get(chat.id).messages, b.outOf(chat.id)).messages.map((m) => m.text), ['hello', 'hi']);

  a.remove(chat.id);
  b.save(inB); // knows nothing of it yet
  assert.deepEqual([a.get(chat.id), a.list().length, new Store(storage).list().length], [null, 0, 0]);
  inB.messages = [];
  const later = turnOf(inB, 'again');
  for (const m of later) m.at = Date.now() + 1000;
  inB.updated = Date.now() + 1000;
  b.save(inB, later);
  assert.deepEqual(textsOf(a.get(chat.id)), ['again', 'to again']);
  assert.equal(a.list().length, 1);
});

test('a name given in one tab is not undone by what another one saves', () => {
  const storage = memoryStorage();
  const chat = makeChat(1, 'first words');
  const [a, b] = [new Store(storage), new Store(storage)];
  a.save(chat);
  const inB = b.get(chat.id);
  a.rename(chat.id, 'a name');
  b.save(inB, turnOf(inB, 'more'));
  assert.deepEqual([a.get(chat.id).title, a.list()[0].title, a.isNamed(chat.id)], ['a name', 'a name', true]);
});

test('random work of two tabs: every turn that neither took out is there, and both come to the same', () => {
  const rnd = random(11);
  for (let round = 0; round < someOf(20, 60); round++) {
    const storage = memoryStorage();
    const base = makeChat(1);
    new Store(storage).save(base);
    const tabs = [0, 1].map(() => ({ store: new Store(storage), chat: null, own: null }));
    for (const tab of tabs) tab.chat = tab.store.get(base.id);
    const adopt = ({ store, chat, own }) => { chat.messages = mergeMessages(chat.messages, store.get(base.id)?.messages ?? [], store.outOf(base.id), own).messages; };
    const wanted = new Map(base.messages.map((m) => [m.id, m.text]));
    for (let step = 0; step < 40; step++) {
      const tab = tabs[rnd(2)];
      const what = rnd(8);
      if (what < 3 && tab.own === null) {
        const [asked, reply] = turnOf(tab.chat, `${step}`, null);
        tab.own = reply;
        wanted.set(asked.id, asked.text).set(reply.id, '');
        tab.store.save(tab.chat, [asked, reply]);
      } else if (what < 6 && tab.own !== null) {
        tab.own.text += ` ${step}`;
        if (what === 5) tab.own.end = 'stop';
        wanted.set(tab.own.id, tab.own.text);
        tab.store.save(tab.chat, [tab.own]);
        if (tab.own.end !== null) tab.own = null;
      } else if (what === 6) {
        adopt(tab);
      } else if (tab.own === null && rnd(4) === 0) {
        const out = tab.chat.messages.splice(tab.chat.messages.length - 2);
        if (out.some((m) => tabs.some((other) => other.own?.id === m.id))) { tab.chat.messages.push(...out); continue; }
        tab.store.takeOut(base.id, out);
        for (const m of out) wanted.delete(m.id);
      }
    }
    for (const tab of tabs) {
      adopt(tab);
      assert.deepEqual(new Map(tab.chat.messages.map((m) => [m.id, m.text])), wanted, `round ${round}`);
    }
    assert.deepEqual(tabs[0].chat.messages.map((m) => m.id), tabs[1].chat.messages.map((m) => m.id));
  }
});

// ---- versions -------------------------------------------------------------------------------------------------------

const shownIn = (chat) => pathOf(chat.messages, chat.picks).map((e) => e.message.id);

test('versions: what is shown follows the picks, else the latest; nothing is taken out; old records are one line', () => {
  const m = (id, at, parent, more = {}) => ({ id, at, parent, role: id[0] === 'q' ? 'user' : 'assistant', text: id, end: 'stop', ...more });
  const all = [m('q1', 1, ''), m('a1', 1, 'q1'), m('a1b', 2, 'q1', { alt: true }), m('q2', 3, 'a1b'), m('a2', 3, 'q2'), m('q1b', 4, '', { alt: true }), m('a1c', 4, 'q1b')];
  const ids = (picks) => pathOf(all, picks).map((e) => e.message.id);
  assert.deepEqual(ids({}), ['q1b', 'a1c']);
  assert.deepEqual(ids({ root: 'q1' }), ['q1', 'a1b', 'q2', 'a2']);
  assert.deepEqual(ids({ root: 'q1', q1: 'a1' }), ['q1', 'a1']);
  assert.deepEqual(ids({ root: 'gone' }), ['q1b', 'a1c']);
  assert.deepEqual(pathOf(all, { root: 'q1' })[1].versions, ['a1', 'a1b']);
  for (const { id } of all) assert.ok(ids(Object.fromEntries(picksTo(all, id).map(([p, v]) => [p || 'root', v]))).includes(id), id);
  const old = all.map(({ parent: _, alt: __, ...rest }) => rest);
  assert.deepEqual(pathOf(old).map((e) => e.message.id), old.map((o) => o.id));
  const circle = [m('x', 1, 'y'), m('y', 2, 'x'), m('z', 3, 'z')];
  assert.deepEqual(pathOf(circle).map((e) => e.message.id), ['x', 'y', 'z'], 'a foreign record hides nothing');

  const cut = [m('q1', 1, ''), m('a1', 1, 'q1', { text: 'half' }), m('c1', 2, 'a1', { joins: true, text: ' whole' }), m('q2', 3, 'c1', { files: [{ name: 'f', text: 'x' }] })];
  assert.deepEqual(joined(pathOf(cut)).map((e) => [e.message.id, e.before.map((b) => b.id)]), [['q1', []], ['c1', ['a1']], ['q2', []]]);
  assert.deepEqual(turnsOf(pathOf(cut), 'sys'), [{ role: 'system', content: 'sys' }, { role: 'user', content: 'q1' }, { role: 'assistant', content: 'half whole' },
    { role: 'user', content: [{ type: 'text', text: 'File: f\n\nx' }, { type: 'text', text: 'q2' }] }]);
});

test('random interleavings of two tabs with edits and other answers: no turn is lost, each can be shown, both show the same', () => {
  const rnd = random(23);
  for (let round = 0; round < someOf(70, 200); round++) {
    const storage = memoryStorage();
    const base = { v: 1, id: newId(), title: 'x', created: 1, updated: 1, messages: [] };
    const first = turnOf(base, 'first');
    first[0].parent = '';
    first[1].parent = first[0].id;
    new Store(storage).save(base);
    const tabs = [0, 1].map(() => ({ store: new Store(storage), chat: null, own: null }));
    for (const tab of tabs) tab.chat = tab.store.get(base.id);
    const wanted = new Map(first.map((m) => [m.id, m.text]));
    const adopt = ({ store, chat, own }) => {
      const stored = store.get(base.id);
      chat.messages = mergeMessages(chat.messages, stored.messages, store.outOf(base.id), own).messages;
      chat.picks = stored.picks;
    };
    const pick = ({ store, chat }, parent, id) => {
      chat.picks = { ...chat.picks, [parent || 'root']: id };
      store.pick(base.id, parent, id);
    };
    for (let step = 0; step < 25; step++) {
      const tab = tabs[rnd(2)];
      const { chat, store } = tab;
      const path = pathOf(chat.messages, chat.picks);
      const what = rnd(9);
      if (what < 4 && tab.own === null) { // a question, an edit of one, or another answer
        const at = path.filter((e) => e.message.role === 'user');
        const old = what < 2 ? null : at[rnd(at.length)];
        const again = what === 3 && old !== null;
        const before = old === null ? { parent: path.at(-1).message.id } : again ? { parent: old.message.id, alt: true } : { parent: old.parent, alt: true };
        const turn = newTurn(chat.messages, 1000 + step);
        const asked = { id: turn.question, at: turn.at, ...before, role: 'user', text: `q${step}` };
        const reply = { id: turn.answer, at: turn.at, ...(again ? before : { parent: asked.id }), role: 'assistant', text: '', model: 'm', end: null };
        const made = again ? [reply] : [asked, reply];
        chat.messages.push(...made);
        store.save(chat, made);
        if (before.alt) pick(tab, before.parent, made[0].id);
        for (const m of made) wanted.set(m.id, m.text);
        tab.own = reply;
      } else if (what < 6 && tab.own !== null) {
        tab.own.text += ` ${step}`;
        if (what === 5) tab.own.end = 'stop';
        wanted.set(tab.own.id, tab.own.text);
        store.save(chat, [tab.own]);
        if (tab.own.end !== null) tab.own = null;
      } else if (what === 6) {
        const fork = path.find((e) => e.versions.length > 1);
        if (fork) pick(tab, fork.parent, fork.versions[rnd(fork.versions.length)]);
      } else {
        adopt(tab);
      }
    }
    for (const tab of tabs) {
      adopt(tab);
      assert.deepEqual(new Map(tab.chat.messages.map((m) => [m.id, m.text])), wanted, `round ${round}`);
    }
    assert.deepEqual(shownIn(tabs[0].chat), shownIn(tabs[1].chat), `round ${round}`);
    for (const id of wanted.keys()) {
      const picks = Object.fromEntries(picksTo(tabs[0].chat.messages, id).map(([p, v]) => [p || 'root', v]));
      assert.ok(pathOf(tabs[0].chat.messages, picks).some((e) => e.message.id === id), `round ${round}: ${id} can be shown`);
    }
    const again = new Store(storage);
    assert.deepEqual(shownIn(again.get(base.id)), shownIn(tabs[0].chat));
  }
});

test('options: only what may be is kept, and only what is set is sent', () => {
  const all = { system: 's', model: 'm', temperature: 0, top_p: 1, max_tokens: 5, seed: -3, stop: ['a', ''], schema: '{}', server: 'conv_1', evil: 1 };
  assert.deepEqual(cleanOptions(all), { system: 's', model: 'm', temperature: 0, top_p: 1, max_tokens: 5, seed: -3, stop: ['a'], schema: '{}', server: 'conv_1' });
  assert.deepEqual(requestOf(cleanOptions(all)), { temperature: 0, top_p: 1, max_tokens: 5, seed: -3, stop: ['a'], response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: {} } } });
  for (const bad of [null, 7, [], { temperature: 3 }, { temperature: '1' }, { top_p: 0 }, { max_tokens: 1.5 }, { seed: 1e300 }, { stop: 'x' }, { schema: '[]' }, { system: ' ' }, { server: '../x' }]) assert.deepEqual(cleanOptions(bad), {}, JSON.stringify(bad));
  const store = new Store(memoryStorage());
  const chat = { ...makeChat(1), options: { seed: 4 }, picks: undefined };
  store.save(chat);
  assert.deepEqual(store.get(chat.id).options, { seed: 4 });
  store.setOptions({ ...chat, options: {} });
  assert.equal(store.get(chat.id).options, undefined);
});

async function exportText(store, ids) {
  let text = '';
  for await (const piece of exportPieces(store, ids)) text += piece;
  return text;
}

test('a file of chats comes back to the byte; damaged and foreign ones take nothing along', async () => {
  const store = new Store(memoryStorage());
  for (let i = 1; i < 6; i++) {
    const chat = { ...makeChat(i, `chat ${i}`), options: { seed: i, system: 'x' } };
    chat.messages[0].files = [{ name: 'f', text: 'y' }];
    const [asked, reply] = turnOf(chat, 'more', i === 3 ? null : 'length');
    if (i === 3) reply.stream = { id: 'abc', key: '', sentAt: 1, firstAt: 2 };
    store.save(chat);
    store.pick(chat.id, asked.id, reply.id);
    if (i === 4) store.rename(chat.id, 'a name');
  }
  const text = await exportText(store);
  assert.equal(text, `${JSON.stringify(JSON.parse(text), null, 1)}\n`, 'the pieces are one JSON text');
  assert.equal(await exportText(new Store(memoryStorage())), `${JSON.stringify({ format: 'sluice-chats', version: 1, chats: [] }, null, 1)}\n`);
  const { chats, wrong } = readExport(text);
  const empty = new Store(memoryStorage());
  assert.equal((await importInto(empty, chats)).length, 5);
  assert.deepEqual([wrong, await exportText(empty) === text, empty.list().map((c) => c.updated)], [0, true, store.list().map((c) => c.updated)]);
  assert.ok(!text.includes('stream'), 'an answer under way stays with its browser');
  await importInto(empty, chats);
  assert.equal(await exportText(empty), text, 'twice is once');
  for (const bad of ['', 'null', '[]', '{"format":"sluice-chats","version":2,"chats":[]}', '{"format":"sluice-chats","version":1}']) assert.equal(readExport(bad), null);
  const ok = { id: 'ab12', messages: [{ id: 'q', role: 'user', text: 'x', at: 'soon', evil: 1, parent: '../y' }, { id: '../z', role: 'user', text: 'x' }, { id: 'r', role: 'system', text: 'x' }], title: 7, updated: -1, picks: { root: '../q' }, options: { temperature: 'hot' } };
  const read = readExport(JSON.stringify({ format: 'sluice-chats', version: 1, chats: [ok, null, { id: '../ab', messages: [] }, { id: 'ab13', messages: [] }, { id: 'ab14', messages: {} }] }));
  assert.deepEqual(read, { chats: [{ id: 'ab12', title: '', titled: 0, created: 0, updated: 0, messages: [{ id: 'q', at: 0, role: 'user', text: 'x' }] }], wrong: 4 });
  const small = new Store(memoryStorage(), { chats: 2 });
  assert.deepEqual((await importInto(small, chats)).map((id) => small.get(id).title.slice(0, 4)).length, 2, 'what has no room is left out, and takes nobody’s');
});

const N_CHATS = someOf(200, 500);

test(`${N_CHATS} chats: a save costs what its chat has, a search reads what has changed`, async () => {
  const inner = memoryStorage();
  let reads = 0;
  let lists = 0;
  const storage = { ...inner, watched: true, getItem: (k) => { reads++; return inner.getItem(k); }, keys: () => { lists++; return inner.keys(); } };
  const filled = new Store(inner);
  const chats = Array.from({ length: N_CHATS }, (_, i) => makeChat(i + 1, `chat ${i} İstanbul`));
  const room = filled.room();
  for (const c of chats) {
    for (let n = 0; n < 5; n++) turnOf(c, `turn ${n}`);
    filled.take({ ...c, titled: 0 }, room);
  }
  const store = new Store(storage);
  assert.equal(store.list().length, N_CHATS);
  [reads, lists] = [0, 0];
  const [chat] = chats;
  store.save(chat, turnOf(chat, 'one more'));
  assert.ok(lists === 0 && reads < 3 * N_CHATS + 100, `${reads} reads, ${lists} lists of all records`);
  assert.equal(chatOfKey('x'), null);
  filled.rename(chats[3].id, 'elsewhere'); // another tab
  store.hears(`sluice.v1.chat.${chats[3].id}.title`);
  const search = new Search(store);
  assert.equal(await search.prepare(store.list(), '', () => {}), N_CHATS);
  [reads, lists] = [0, 0];
  assert.equal(search.find(store.list(), 'one MORE').length, 1);
  assert.match(search.find(store.list(), 'one more')[0].snippet, /one more/);
  assert.deepEqual(search.find(store.list(), 'elsewhere').map((c) => c.id), [chats[3].id]);
  assert.equal(search.find(store.list(), 'i̇stanbul').length, N_CHATS, 'letters that fold into two');
  assert.deepEqual([search.find(store.list(), 'nowhere'), search.find(store.list(), ' ')], [[], []]);
  reads = 0;
  store.save(chat, turnOf(chat, 'and another'));
  const saved = reads;
  reads = 0;
  assert.equal(await search.prepare(store.list(), '', () => {}), 1, 'only what has changed');
  assert.ok(reads < 3 * N_CHATS + 100 && saved < 3 * N_CHATS + 100, `${saved} and ${reads} reads`);
});

test('the server’s history: what it has more joins here, what differs is a version, what is known is not taken twice', () => {
  const chat = makeChat(1);
  const items = itemsOf(chat).map((item, i) => ({ ...item, id: `msg_${i}` }));
  assert.deepEqual(adoptItems(chat, items).added, []);
  const item = (role, text) => ({ type: 'message', role, id: newId(), content: [{ type: role === 'user' ? 'input_text' : 'output_text', text }] });
  assert.equal(adoptItems(chat, [...items, item('user', 'there'), { type: 'function_call' }, item('assistant', 'to there')]).added.length, 2);
  assert.deepEqual(pathOf(chat.messages).map((e) => e.message.text), ['hello', 'hi', 'there', 'to there']);
  const { added, parent, mine } = adoptItems(chat, [...items, item('user', 'other'), item('assistant', 'to other')]);
  assert.deepEqual([added.length, added[0].alt, parent, chat.messages.find((m) => m.id === mine).text], [2, true, 'ar', 'there']);
  assert.deepEqual(pathOf(chat.messages, { [parent]: mine }).map((e) => e.message.text), ['hello', 'hi', 'there', 'to there']);
  chat.picks = { [parent]: mine };
  assert.deepEqual(adoptItems(chat, [...items, item('user', 'other'), item('assistant', 'to other')]).added, []);
  for (const bad of [null, [null], [{ type: 'message', role: 'system', content: 'x' }], [{ type: 'message', role: 'user', content: 7 }]]) assert.deepEqual(adoptItems(chat, bad).added, []);
});

test('JSON is laid out without a change to its values', () => {
  assert.equal(formatJson(' {"a": [1, {}, []], "a": 1e400, "s": "x:[,]{\\""}'), '{\n  "a": [\n    1,\n    {},\n    []\n  ],\n  "a": 1e400,\n  "s": "x:[,]{\\""\n}');
  for (const no of ['', '7', '"x"', '{', '[1,]', 'text {}', '['.repeat(300) + ']'.repeat(300)]) assert.equal(formatJson(no), null, no.slice(0, 9));
});

test('percents of loading models, from either report', async () => {
  let report = { models: [{ id: 'a', percent: 80 }, { id: 'b', percent: 54.9 }, { id: 'c', percent: 100 }, {}] };
  const loading = new Loading(async () => ({ json: async () => report }));
  assert.equal(await loading.ask(), 54);
  assert.deepEqual(['a', 'b', 'c', 'd', undefined].map((id) => loading.of(id)), [80, 54, null, null, null]);
  loading.take({ models: [{ id: 'd', state: 'loading', percent: 7 }] });
  assert.deepEqual([loading.of('d'), loading.of('a')], [7, null]);
  for (report of [null, {}, { models: 7 }, { models: [{ percent: 'x' }, null, { percent: -1 }, { percent: NaN }] }, { models: [{ percent: 100 }] }]) assert.equal(await loading.ask(), null);
});

test("a hostile file changes nothing but the page's own records", async () => {
  const html = '<img src=x onerror=alert(1)>';
  const text = `{"format":"sluice-chats","version":1,"__proto__":{"polluted":1},"chats":[{"id":"abcdef","title":${JSON.stringify(html)},"created":1e308,"updated":1e308,
    "titled":1e308,"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"picks":{"__proto__":"a","constructor":"b","x y":"c","a":"__proto__"},
    "options":{"__proto__":{"polluted":1},"temperature":1e308,"max_tokens":1e300,"server":"conv_../x","schema":"{"},
    "messages":[{"id":"__proto__","role":"user","text":"x"},{"id":"a","at":1e308,"role":"user","text":${JSON.stringify(html)},"parent":"../x","files":[{"name":"../../etc/passwd","text":"x"}]},
    {"id":"b","at":-1,"role":"assistant","text":"y","end":"constructor","parent":"__proto__","stats":{"tps":1e999},"stream":{"id":"x y"}},{"id":"c","role":"system","text":"z"}]}]}`;
  const { chats: [chat], wrong } = readExport(text);
  assert.equal(wrong, 0);
  assert.equal({}.polluted, undefined);
  assert.deepEqual([chat.title, chat.created, chat.updated, chat.titled], [html, 0, 0, 0]);
  assert.deepEqual([chat.options, chat.picks], [undefined, { constructor: 'b' }]);
  assert.deepEqual(chat.messages.map((m) => [m.id, m.at, m.text, m.parent, m.end]), [['a', 0, html, undefined, undefined], ['b', 0, 'y', undefined, 'lost']]);
  assert.equal(chat.messages[1].stats.tps, null);
  const store = new Store(memoryStorage());
  assert.deepEqual(await importInto(store, [chat]), ['abcdef']);
  assert.deepEqual(pathOf(store.get('abcdef').messages, store.get('abcdef').picks).map((e) => e.message.id), ['a', 'b']);
  assert.ok(newTurn(store.get('abcdef').messages).at <= Date.now());
});

test('a history of the layout before is taken over', () => {
  const storage = memoryStorage();
  const old = { v: 1, id: 'abcd12', title: 'old one', created: 5, updated: 7, messages: [{ role: 'user', text: 'q' }, { role: 'assistant', text: 'a', model: 'm', end: 'stop' }] };
  storage.setItem('sluice.v1.chat.abcd12', JSON.stringify(old));
  storage.setItem('sluice.v1.index', '{"v":1,"chats":[{"id":"abcd12","title":"old one","updated":7,"size":9}]}');
  const store = new Store(storage);
  assert.deepEqual(store.list().map((c) => [c.id, c.title, c.updated]), [['abcd12', 'old one', 7]]);
  const chat = store.get('abcd12');
  assert.deepEqual(textsOf(chat), ['q', 'a']);
  store.save(chat, turnOf(chat, 'new'));
  assert.deepEqual(textsOf(new Store(storage).get('abcd12')), ['q', 'a', 'new', 'to new']);
  assert.ok(!storage.keys().includes('sluice.v1.index') && !storage.getItem('sluice.v1.chat.abcd12').includes('messages'));
});

test('where there is no room for a turn, the turns before it stay', () => {
  const inner = memoryStorage();
  let room = 4000;
  const full = { ...inner, setItem(k, v) {
    if (inner.keys().reduce((n, key) => n + (key === k ? 0 : inner.getItem(key).length), v.length) > room) throw new DOMException('full', 'QuotaExceededError');
    inner.setItem(k, v);
  } };
  const store = new Store(full);
  const chat = makeChat(1);
  assert.ok(store.save(chat));
  const huge = turnOf(chat, 'x'.repeat(5000));
  assert.equal(store.save(chat, huge), false);
  assert.equal(store.get(chat.id).messages.length, 4, 'there until the page is closed');
  assert.deepEqual(textsOf(new Store(full).get(chat.id)), ['hello', 'hi']);
  room = 20_000;
  assert.ok(store.save(chat, []));
  assert.equal(new Store(full).get(chat.id).messages.length, 4);
});

test('the records of a conversation are known by their keys', () => {
  assert.equal(chatOfKey('sluice.v1.chat.ab12.m.0f3q'), 'ab12');
  assert.equal(chatOfKey('sluice.v1.chat.ab12'), 'ab12');
  for (const other of [null, 'sluice.v1.keys', 'sluice.v1.chat.', 'chat.ab12']) assert.equal(chatOfKey(other), null);
});

test('keys from the address and their choice', () => {
  assert.deepEqual(keysOfFragment('#free=sk-abc1&paid=sk-abc2'), [{ name: 'free', key: 'sk-abc1' }, { name: 'paid', key: 'sk-abc2' }]);
  assert.deepEqual(keysOfFragment('#=x&a&b=%&c=with space&<d>=sk-abc1&e=sk'), []);
  const store = new Store(memoryStorage());
  const keys = new Keys(store);
  assert.equal(keys.current(), null);
  keys.add(keysOfFragment('#free=sk-abc1&paid=sk-abc2'), 'free');
  keys.select('paid');
  assert.deepEqual(new Keys(store).current(), { name: 'paid', key: 'sk-abc2' });
  keys.add([{ name: 'paid', key: 'sk-new9' }]);
  assert.equal(new Keys(store).current().key, 'sk-new9');
  const other = new Keys(store);
  other.add([{ name: 'own', key: 'sk-own1' }]);
  keys.select('free'); // of a tab that has not heard of that
  assert.deepEqual(new Keys(store).names(), ['free', 'paid', 'own']);
  keys.drop('sk-abc1');
  assert.deepEqual([new Keys(store).names(), new Keys(store).current().name], [['paid', 'own'], 'paid']);
  keys.select('');
  assert.equal(new Keys(store).current(), null);
});

// ---- words and files ------------------------------------------------------------------------------------------------

test('both languages have the same words with the same placeholders', () => {
  const holes = (s) => (s.match(/\{\w+\}/g) ?? []).sort();
  for (const [k, texts] of Object.entries(words)) {
    assert.equal(texts.length, LANGUAGES.length, k);
    for (const text of texts) assert.deepEqual(holes(text), holes(texts[0]), k);
  }
  assert.equal(pickLanguage(null, ['fr', 'ko-KR', 'en']), 'ko');
  assert.equal(pickLanguage(null, ['de']), 'en');
  assert.equal(pickLanguage('en', ['ko']), 'en');
  assert.equal(t('e429wait', { n: '{n} $&' }), 'You may try again in {n} $&.');
});

test('the administrators’ charts have gaps where there was no value or no sample', () => {
  const scale = { from: 0, to: 300, top: 10, gap: 12 };
  assert.equal(curveOf([], [], scale), '');
  assert.equal(curveOf([0, 5], [null, null], scale), '');
  assert.equal(curveOf([0, 5, 10], [0, 10, 5], scale), 'M0.0 70.0h0.1L5.0 0.0L10.0 35.0');
  assert.equal(curveOf([0, 5, 10], [1, null, 20], scale), 'M0.0 63.0h0.1M10.0 0.0h0.1'); // above the top is at the top
  assert.equal(curveOf([0, 100], [0, 0], scale), 'M0.0 70.0h0.1M100.0 70.0h0.1');
});

test('every word of the administrators’ page is there', async () => {
  const used = new Set();
  for (const name of ['admin.js', 'admin_charts.js', 'admin.html'])
    for (const [, a, b, c] of (await readFile(new URL(name, www), 'utf8')).matchAll(/\bt\('(\w+)'|data-t(?:-\w+)?="(\w+)"|'([acs][A-Z]\w+)'/g)) used.add(a ?? b ?? c);
  for (const word of used) assert.ok(Object.hasOwn(words, word), word);
  for (const word of Object.keys(words).filter((w) => /^(admin|[acs][A-Z])/.test(w) && !(/^(ask|search|show|sure)/.test(w)))) assert.ok(used.has(word), `${word} is not used`);
});

test('the files are small, ask for nothing outside, and never parse a string as HTML or code', async () => {
  let total = 0;
  let packed = 0;
  let admin = 0; // of the administrators' page, which the other one does not load
  for (const name of await readdir(www)) {
    if (name.endsWith('.d.ts') || name === 'vendor') continue; // not loaded by the page; page_math.test.mjs checks libraries
    const text = await readFile(new URL(name, www), 'utf8');
    if (name.startsWith('admin')) {
      admin += Buffer.byteLength(text);
    } else {
      total += Buffer.byteLength(text);
      packed += gzipSync(text).length;
    }
    const outside = text.match(/\b(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}/gi) ?? [];
    assert.deepEqual(outside.filter((u) => u !== 'http://www.w3.org'), [], name);
    assert.doesNotMatch(text, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\(|new Function|srcdoc/, name);
    if (name.endsWith('.html')) assert.doesNotMatch(text, /\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)[^>]*>|<style/i, name);
    if (name.endsWith('.css')) assert.doesNotMatch(text, /@import|url\(/, name);
  }
  assert.ok(total < 340_000, `${total} bytes`);
  assert.ok(packed < 115_000, `${packed} bytes compressed`);
  assert.ok(admin < 45_000, `${admin} bytes for administrators`);
});

test('what is left: the scarcer limit of each kind, nothing where nothing is limited', () => {
  const of = (limit, remaining) => ({ limit, remaining, reset_ms: 0 });
  assert.deepEqual(leftOf({ remaining: { requests_per_minute: of(9, 3), tokens_per_minute: of(9, 8), tokens_per_day: of(9, 5) } }), { requests: 3, tokens: 5 });
  assert.deepEqual(leftOf({ remaining: { requests_per_minute: of(9, 0) } }), { requests: 0, tokens: null });
  for (const none of [{ remaining: {} }, { remaining: null }, {}, null]) assert.equal(leftOf(none), null);
});
