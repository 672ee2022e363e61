// SPDX-License-Identifier: Apache-2.0
// An answer that is drawn while it comes: in any pieces it ends as the whole drawn at once, and the steps that it takes, counted
// and not timed, are in proportion to its length, whatever one block it is.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { countSteps } from './page_steps.mjs';
import { jumble, random } from './page_corpus.mjs';
import { createElement, htmlOf, installDocument } from './page_dom.mjs';
import { copy, load } from './page_modules.mjs';

installDocument();
const { StreamRenderer, renderInto } = await load('render.js');
await (await load('math.js')).loadLibrary(); // formulas are drawn at once

function whole(text) {
  const root = createElement('div');
  renderInto(root, text);
  return htmlOf(root);
}

/** Draws a text in pieces that end at `cuts`. */
function grown(text, cuts) {
  const root = createElement('div');
  const renderer = new StreamRenderer(root);
  for (const cut of cuts) renderer.update(text.slice(0, cut));
  renderer.update(text, true);
  return htmlOf(root);
}

function cutsOf(text, next) {
  const cuts = [];
  for (let at = next(); at < text.length; at += next()) cuts.push(at);
  return cuts;
}

// ---- the same in any pieces -----------------------------------------------------------------------------------------

const LINES = ['- a **b**', '- [x] done', '  - c `d`', '    more', '1. one', '2. two', '  3. three', '> q', '> - r', '>', '', '', 'text *one*', 'two **three', 'four** five', '`code', 'span` six', '[link', 'text](https://e.org)',
  '[x](https://e.org "a', 'title") y', 'a $5 and', '$x$ or $y', '+ z$ w', '\\(a', 'b\\)', '\\[', '\\]', '$$', 'x^2', '```', '```js', '~~~', 'let x = 1; // y', '    indented', '\tTab', '# Head', '---', '| a | b |', '|---|:-:|', '| 1 | **2** |', '| `3`',
  'a | b', '-|-', '***', '* * *', '* star', '+ plus', '_under', 'score_', 'https://e.org/x', '<https://e.org>', 'end  ', 'back\\', '[^1]: note', '7) seven', '8) eight', '   three spaces', '&amp; &copy;', '가 **나**다', '{"a": 1}', '```json'];
const WORDS = ['word', 'wide', 'a', 'longer', '**bold', 'face**', '*em*', '`code`', '`open', '$x$', '$5', '[l](https://e.org)', '[l](https://e.org "a', 'b")', '[open', 'x]', '(y)', '|', 'https://e.org', '<br />', '&amp;', 'a\\', '\\(z\\)', '\\(', '~~del', 'x~~', '_u_',
  '가나', '**가**나', '***', '', '\t', '![i](https://e.org/i.png)', '<https://e.org>', '[^1]', '$$', '2 *', '3**', '\\['];
const KINDS = [LINES, LINES.slice(0, 12), LINES.slice(12, 26), LINES.slice(36, 45), LINES.slice(28, 36)];

/** A paragraph with a line that is cut while it grows, now and then the head of a table. */
function lineOf(rnd) {
  const marks = [...WORDS.slice(0, 4), ...Array.from({ length: 5 }, () => WORDS[rnd(WORDS.length)])];
  const line = Array.from({ length: 60 + rnd(150) }, () => marks[rnd(marks.length)]).join(' ');
  const head = rnd(3) === 0 ? `${LINES[rnd(LINES.length)]}\n` : '';
  return `${head}${line}${rnd(3) === 0 ? ' | b\n|---|---|\n| 1 | 2 |' : `\n${LINES[rnd(LINES.length)]}\n${LINES[rnd(LINES.length)]}`}`;
}

function documentOf(rnd) {
  if (rnd(4) === 0) return jumble(rnd, 10 + rnd(120));
  if (rnd(4) === 0) return lineOf(rnd);
  const lines = rnd(2) === 0 ? LINES : KINDS[rnd(KINDS.length)];
  const end = rnd(6) === 0 ? '\r\n' : '\n';
  const some = Array.from({ length: 2 + rnd(30) }, () => lines[rnd(lines.length)]);
  return (rnd(3) === 0 ? [lines[rnd(lines.length)], ...some.flatMap((l) => [l, 'plain words'])] : some).join(end);
}

const SEEDS = process.env.THOROUGH === undefined ? 24 : 250; // `make soak`

test('random documents in random pieces end as the whole drawn at once', () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const rnd = random(seed * 7919);
    const text = documentOf(rnd);
    const wanted = whole(text);
    for (const most of [1, 4, 30]) {
      const cuts = cutsOf(text, () => 1 + rnd(most));
      assert.equal(grown(text, cuts), wanted, `seed ${seed}, pieces to ${most}: ${JSON.stringify(text)}`);
    }
  }
});

test('long documents, whose rest is drawn only now and then, end as the whole drawn at once', () => {
  for (let seed = 1; seed <= SEEDS / 6; seed++) {
    const rnd = random(seed * 104729);
    const prefix = ['> ', '- ', '1. a\n   ', '', '```js\n', '$$\n'][rnd(6)];
    const long = Array.from({ length: 400 }, () => LINES[rnd(LINES.length)].padEnd(rnd(60), 'x')).filter((l) => l !== '' || rnd(9) === 0);
    const text = prefix + long.map((l) => (prefix === '> ' ? `> ${l}` : prefix === '- ' ? `  ${l}` : l)).join('\n');
    assert.equal(grown(text, cutsOf(text, () => 1 + rnd(40))), whole(text), `seed ${seed}: ${JSON.stringify(text.slice(0, 200))}`);
  }
});

test('a text that turns out shorter is drawn anew', () => {
  for (const [long, short] of [['a **b** c\n\n- d\n- e\n- f\n', 'a **b** c'], ['[1, 2]', '[1'], [`> ${'x y '.repeat(2000)}`, '> x y']]) {
    const root = createElement('div');
    const renderer = new StreamRenderer(root);
    for (let at = 1; at <= long.length; at++) renderer.update(long.slice(0, at));
    renderer.update(short, true);
    assert.equal(htmlOf(root), whole(short));
  }
});

// ---- linear work ----------------------------------------------------------------------------------------------------

const PIECE = 16; // characters
const SIZES = process.env.THOROUGH === undefined ? [3_125, 25_000] : [12_500, 100_000];
const count = countSteps(pathToFileURL(copy).href);
const lines = (make) => (n) => { let s = ''; for (let i = 0; s.length < n; i++) s += make(i); return s.slice(0, n); };
const after1 = (head, make) => (n) => head + lines(make)(n);

const BLOCKS = {
  'a code block': after1('```js\n', (i) => `const x${i} = "${i}"; // a line\n`),
  'a code block of no known language': after1('```\n', (i) => `line ${i} of it\n`),
  'a code block of one line': after1('```\n', () => 'abcdefghij'),
  'a closed code block and text': (n) => `\`\`\`c\n${lines((i) => `int x${i};\n`)(n * 0.7)}\n\`\`\`\n\n${lines((i) => `text ${i} `)(n * 0.3)}`,
  'a list': lines((i) => `- item **${i}** of the list with \`code\`\n`),
  'a numbered list of two levels': lines((i) => (i % 4 === 0 ? `${i / 4 + 1}. item ${i}\n` : `   - sub-item *${i}* and text\n`)),
  'a list of one item with a list': after1('1. one\n', (i) => `   - sub-item *${i}* and text\n`),
  'a list of one item with code': after1('- one\n  ```c\n', (i) => `  int x${i};\n`),
  'a list of one item of one line': after1('- ', (i) => `word${i} *em* `),
  'a table': after1('| a | b |\n|---|---|\n', (i) => `| row ${i} | **${i}** |\n`),
  'a table of one row': after1('| a | b |\n|---|---|\n| ', (i) => `word${i} *em* `),
  'a paragraph of lines': lines((i) => `A line of text with **bold ${i}**, \`code\` and *more*.\n`),
  'a paragraph of one line': lines((i) => `A sentence with **bold ${i}**, \`code\` and *more*. `),
  'a paragraph whose mark never closes': after1('**', (i) => `a line of text ${i}\n`),
  'a paragraph of opening marks': lines(() => '*a [b `'),
  'a quote': lines((i) => `> A line with **bold ${i}** and text.\n`),
  'a quote of many blocks': lines((i) => (i % 3 === 2 ? '>\n' : `> - A line ${i}\n`)),
  'a quote of one line': after1('> ', (i) => `word${i} *em* `),
  'a formula': after1('$$\n', (i) => `x_${i} + y^{${i}}\n`),
  'formulas in a paragraph': lines((i) => `Let $x_${i % 9}$ be \\(y\\).\n`),
  'a JSON value': after1('[', (i) => `{"id": ${i}, "name": "n"},\n`),
  'a heading': after1('# ', (i) => `word${i} `),
  'empty lines': lines(() => '\n'),
  'nested quotes': after1('> > > > ', (i) => `word${i}\n> > > > `),
};

// Of what costs a parser most when it is repeated, alone and where a block goes on.
const HOSTILE = ['*a **b ', '_a*b', '[a](', '](', '`a ', '<a ', '$a ', 'https://a.b/((((', '> - 1. ', '```\n', '|a|b\n|-|-\n', '{"a":'];
for (const p of HOSTILE) BLOCKS[JSON.stringify(p)] = lines(() => p);
for (const [name, head] of [['a long line', 'w '.repeat(220)], ['an item', '- '], ['code', '```js\n']]) BLOCKS[`open marks in ${name}`] = after1(head, (i) => HOSTILE[i % 8]);
BLOCKS['brackets, then closers'] = (n) => '['.repeat(n / 2) + '](https://e.org)'.repeat(n / 32);
BLOCKS['runs of growing length'] = lines((i) => `${'`'.repeat(i + 1)} `);
BLOCKS['lists in lists'] = lines((i) => `${' '.repeat(2 * (i % 200))}- a\n`);

/** The steps that an answer takes which comes in small pieces. */
function stepsOf(text) {
  const renderer = new StreamRenderer(createElement('div'));
  const cuts = cutsOf(text, () => PIECE).map((cut) => text.slice(0, cut)); // not the renderer's work
  return count(() => {
    for (const part of cuts) renderer.update(part);
    renderer.update(text, true);
  });
}

for (const [name, make] of Object.entries(BLOCKS)) {
  test(`linear work: ${name}`, () => {
    const [one, eight] = SIZES.map((n) => stepsOf(make(n)));
    assert.ok(eight <= 2.3 ** 3 * one, `steps of ${SIZES.join(' and ')} characters: ${one}, ${eight}`);
    const text = make(process.env.THOROUGH === undefined ? 2500 : 5000);
    assert.equal(grown(text, cutsOf(text, () => PIECE)), whole(text));
  });
}
