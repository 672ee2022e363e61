// SPDX-License-Identifier: Apache-2.0
// Cleansing of users' messages: decorated questions become the tokens of the plain ones, a pasted web page becomes a
// fraction of its tokens with its facts in it, and a running server does so as the tier says, for users' messages only.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { ROOT, SLUICE, request, startServer } from './harness.mjs';

const MODELS = ['etc/models/demo-small.gguf', 'etc/models/demo-large.gguf'];
const questions = readFileSync(join(ROOT, 'etc/models/evaluation.jsonl'), 'utf8').trim().split('\n').map((l) => JSON.parse(l).question);
const page = readFileSync(join(ROOT, 'tests/e2e/cleanse_page.html'), 'utf8');

/** Each text's ids, as a string. */
function tokens(file, texts, level) {
  const child = spawnSync(SLUICE, ['model', 'tokenize', file, '--lines', '--cleanse', level],
    { input: texts.map((t) => JSON.stringify(t)).join('\n'), encoding: 'utf8', maxBuffer: 1 << 28 });
  assert.equal(child.status, 0, child.stderr);
  return child.stdout.trim().split('\n');
}

const words = (q, change) => q.split(' ').map(change).join(' ');
const middle = (q, open, close) => words(q, (w, i, all) => (i === all.length >> 1 && /^\p{L}{2,}$/u.test(w) ? open + w + close : w));
/** What pasting from documents, pages, chats and editors does to a question. */
const decorations = {
  bold: (q) => `**${q}**`,
  'a bold word': (q) => middle(q, '**', '**'),
  'an italic word': (q) => middle(q, '*', '*'),
  heading: (q) => `## ${q}`,
  paragraph: (q) => `<p>${q}</p>`,
  page: (q) => `<!DOCTYPE html>\n<html><head><style>p { margin: 0 }</style></head>\n<body class="x">\n  <div id="q"><p>${q}</p></div>\n</body></html>\n`,
  mail: (q) => `<div dir="ltr"><span style="font-family:Arial">${q}</span><br></div>`,
  'a formatted word': (q) => `<p>${middle(q, '<b class="k">', '</b>')}</p>`,
  'no-break spaces': (q) => q.replaceAll(' ', '\u00a0'),
  'no-break spaces of HTML': (q) => `<div>${q.replaceAll(' ', '&nbsp;')}</div>`,
  'typographic quotes': (q) => q.replace(/(\p{L})'(\p{L})/gu, '$1’$2').replace(/"([^"]*)"/g, '“$1”'),
  'zero-width': (q) => `\ufeff${words(q, (w) => `${w}\u200b`)}`,
  'soft hyphens': (q) => words(q, (w) => (w.length > 6 ? `${w.slice(0, 3)}\u00ad${w.slice(3)}` : w)),
  spaces: (q) => `${q.replaceAll(' ', '  ')}  `,
  lines: (q) => `\n\n  ${q} \r\n\r\n`,
  marks: (q) => q.replace(/\?$/, '????'),
  'decomposed characters': (q) => q.normalize('NFD'),
  colours: (q) => `\u001b[1;32m${q}\u001b[0m`,
};

describe('decorated questions', () => {
  for (const file of MODELS) {
    test(`are the tokens of the plain ones: ${file}`, () => {
      const plain = tokens(file, questions, 'off');
      const off = Object.entries(decorations).map(([name, decorate]) => {
        const got = tokens(file, questions.map(decorate), 'full');
        assert.equal(got.length, plain.length);
        return [name, questions.filter((q, i) => got[i] !== plain[i])];
      });
      const wrong = off.reduce((n, [, list]) => n + list.length, 0), all = questions.length * off.length;
      console.log(`${file}: ${all - wrong} of ${all} (${(100 * (all - wrong) / all).toFixed(2)} %)`);
      assert.ok(questions.length > 200);
      assert.ok(wrong <= 0.02 * all, JSON.stringify(off.map(([name, list]) => [name, list.length, list[0]]).filter(([, n]) => n)));
    });
    test(`the plain ones stay: ${file}`, () => {
      assert.deepEqual(tokens(file, questions, 'full'), tokens(file, questions, 'off'));
      assert.deepEqual(tokens(file, questions, 'light'), tokens(file, questions, 'off'));
    });
  }
});

describe('a pasted page', () => {
  const facts = ['Margaret Hale', '1736', 'eleven boats', '1,176 prisms', 'Agnes Rowe', '41,000 visitors', 'Black Skerry | 1859 | 41 | 35',
    'Height | 19 m (62 ft)', "masons' huts", '14 September 1781', 'nine hundred pairs'];
  test('is at least 30 % fewer tokens, and what it says is still there', () => {
    assert.ok(Buffer.byteLength(page) > 20_000);
    for (const file of MODELS) {
      const asked = `What is the oldest tower?\n\n${page}`;
      const [raw] = tokens(file, [asked], 'off'), [clean] = tokens(file, [asked], 'full');
      const n = [raw, clean].map((ids) => JSON.parse(ids).length);
      const { stdout } = spawnSync(SLUICE, ['model', 'tokenize', file, '--decode'], { input: clean, encoding: 'utf8' });
      console.log(`${file}: ${n[0]} tokens become ${n[1]}, ${(100 * (1 - n[1] / n[0])).toFixed(1)} % fewer`);
      assert.ok(n[1] <= 0.7 * n[0], String(n));
      assert.ok(stdout.startsWith('What is the oldest tower?\n\nEnnis Head Light'), stdout.slice(0, 200));
      for (const fact of facts) assert.ok(stdout.includes(fact), `${fact}: ${stdout}`);
      assert.doesNotMatch(stdout, /<[a-z/]|no text|RLCONF|padding|&[a-z]+;/);
    }
  });
});

describe('a server', () => {
  const text = '<p>One <b>two</b>   three\u200b</p>';
  let server, free, paid;
  /** free as it is (light), paid: full. */
  const full = (yaml) => {
    const at = yaml.lastIndexOf('cleanse: light');
    return `${yaml.slice(0, at)}cleanse: full${yaml.slice(at + 'cleanse: light'.length)}`;
  };
  const ask = (client, messages) => client.chat.completions.create({ model: 'default', messages }).withResponse();
  const said = ({ data }) => data.choices[0].message.content.trim();
  before(async () => {
    server = await startServer({ echo: true, edit: full, sets: ['engine.echo.rate=0', 'engine.echo.ttft=1ms', 'gateway.metrics_public=true'] });
    free = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.free, maxRetries: 0 });
    paid = new OpenAI({ baseURL: `${server.http}/v1`, apiKey: server.keys.paid, maxRetries: 0 });
  });
  after(async () => assert.equal(await server?.stop(), 0, server?.log()));
  const metric = async (name) => Number((await request(server.http, '/metrics')).body.match(new RegExp(`^${name} (\\d+)$`, 'm'))[1]);

  test('cleanses by tier, and says by how much', async () => {
    const before = [await metric('sluice_cleansed_requests_total'), await metric('sluice_cleansed_bytes_total')];
    const all = await ask(paid, [{ role: 'user', content: text }]);
    assert.equal(said(all), 'One two three');
    const saved = Buffer.byteLength(text) - 'One two three'.length;
    assert.equal(all.response.headers.get('x-sluice-cleansed-bytes'), String(saved));
    const some = await ask(free, [{ role: 'user', content: text }]);
    assert.equal(said(some), '<p>One <b>two</b> three</p>');
    assert.equal(some.response.headers.get('x-sluice-cleansed-bytes'), '5');
    assert.equal(await metric('sluice_cleansed_requests_total'), before[0] + 2);
    assert.equal(await metric('sluice_cleansed_bytes_total'), before[1] + saved + 5);
  });

  test('says nothing where nothing was changed', async () => {
    const r = await ask(paid, [{ role: 'user', content: 'One two' }]);
    assert.equal(said(r), 'One two');
    assert.equal(r.response.headers.get('x-sluice-cleansed-bytes'), null);
  });

  test('joins the parts of a message, then cleanses', async () => {
    const r = await ask(paid, [{ role: 'user', content: [{ type: 'text', text: '<p>One ' }, { type: 'text', text: '**two**</p>' }] }]);
    assert.equal(said(r), 'One two');
  });

  test('leaves what others say, and completions, alone', async () => {
    const r = await ask(paid, [{ role: 'system', content: text }, { role: 'user', content: 'One' }, { role: 'assistant', content: text },
      { role: 'user', content: 'Two' }]);
    assert.equal(r.response.headers.get('x-sluice-cleansed-bytes'), null);
    const c = await paid.completions.create({ model: 'default', prompt: text, max_tokens: 50 }).withResponse();
    assert.equal(c.response.headers.get('x-sluice-cleansed-bytes'), null);
    assert.equal(c.data.choices[0].text.trim().replace(/\s+/g, ' '), text.replace(/\s+/g, ' '));
  });

  test('cleanses what responses are made from, and stores what was sent', async () => {
    const { data, response } = await paid.responses.create({ model: 'default', input: text, store: true }).withResponse();
    assert.equal(data.output_text.trim(), 'One two three');
    assert.ok(Number(response.headers.get('x-sluice-cleansed-bytes')) > 10);
    const items = await paid.responses.inputItems.list(data.id);
    assert.equal(items.data[0].content[0].text, text);
  });

  test('streams as well', async () => {
    const { data, response } = await paid.chat.completions.create({ model: 'default', stream: true, messages: [{ role: 'user', content: text }] })
      .withResponse();
    let out = '';
    for await (const event of data) out += event.choices[0]?.delta?.content ?? '';
    assert.equal(out.trim(), 'One two three');
    assert.ok(response.headers.get('x-sluice-cleansed-bytes'));
  });
});
