// The page's Markdown beside markdown-it: CommonMark's examples and texts as models write them. Where the two differ on
// purpose, the example stands in a list with the reason, and the test also fails when it no longer differs.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import spec from 'commonmark-spec';
import MarkdownIt from 'markdown-it';
import { load } from './page_modules.mjs';

const { parse } = await load('markdown.js');

// What the page leaves out so that a text can be shown while it comes: raw HTML, references, underlined headings, code by
// indentation. A line's end is a break, as in chats.
const other = new MarkdownIt({ html: false, linkify: true, breaks: true }).disable(['code', 'lheading', 'reference']);
other.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
const LEFT_OUT = new Set(['HTML blocks', 'Raw HTML', 'Link reference definitions', 'Setext headings', 'Indented code blocks', 'Images', 'Precedence', 'Tabs']);

const DIFFERENT = new Map(Object.entries({
  'a formula instead of escapes': [12, 14, 495],
  'tabs are spaces': [13],
  'rare entities': [25],
  'four spaces are no code': [48, 49, 134, 231, 238, 289, 312, 313],
  'items take what is indented by two': [257, 276, 280, 297],
  'addresses without http, https or mailto stay text': [484, 485, 486, 487, 501, 504, 510, 596, 598, 599, 601],
  'odd addresses in angle brackets': [493, 494],
  'a space of another kind before a title': [507],
  'where a bare address with open brackets ends': [497],
  'no link within a link, images included': [517, 520],
}).flatMap(([why, numbers]) => numbers.map((n) => [n, why])));

const escaped = (s) => s.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

function inlineHtml(nodes) {
  const one = {
    text: (n) => escaped(n.v), br: () => '<br>', code: (n) => `<code>${escaped(n.v)}</code>`, del: (n) => `<s>${inlineHtml(n.c)}</s>`, math: (n) => `[formula]${escaped(n.raw)}`,
    link: (n) => `<a>${inlineHtml(n.c)}</a>`, note: (n) => `[^${n.v}]`, em: (n) => `<em>${inlineHtml(n.c)}</em>`, strong: (n) => `<strong>${inlineHtml(n.c)}</strong>`,
  };
  return nodes.map((n) => one[n.t](n)).join('');
}

function html(blocks) {
  const item = (i) => `<li>${i.check === null ? '' : i.check ? '[x] ' : '[ ] '}${html(i.b)}</li>`;
  const row = (n, cells) => `<tr>${n.head.map((_, i) => `<c>${inlineHtml(cells[i] ?? [])}</c>`).join('')}</tr>`;
  const one = {
    p: (n) => inlineHtml(n.c), h: (n) => `<h${n.n}>${inlineHtml(n.c)}</h${n.n}>`, hr: () => '<hr>', code: (n) => `<pre>${escaped(n.v)}</pre>`, quote: (n) => `<blockquote>${html(n.b)}</blockquote>`,
    list: (n) => `<${n.ordered ? `ol${n.start === 1 ? '' : ` start="${n.start}"`}` : 'ul'}>${n.items.map(item).join('')}</${n.ordered ? 'ol' : 'ul'}>`,
    table: (n) => `<table>${[n.head, ...n.rows].map((cells) => row(n, cells)).join('')}</table>`,
  };
  return blocks.map((n) => one[n.t](n)).join('');
}

/** No line ends between elements, of either. */
const joined = (text) => text.replace(/\n+(?=<)/g, '').replace(/>\n+/g, '>').trim();

/** markdown-it's HTML in the same form: paragraphs without their marks, links without addresses. */
const otherHtml = (source) => joined(other.render(source).replace(/<pre><code[^>]*>([^]*?)\n?<\/code><\/pre>/g, '<pre>$1</pre>').replace(/<a [^>]*>/g, '<a>').replace(/<img [^>]*alt="([^"]*)"[^>]*>/g, '<a>$1</a>')
  .replace(/<br>\n?/g, '<br>').replace(/<\/?t(?:head|body)>/g, '').replace(/<t[hd][^>]*>/g, '<c>').replace(/<\/t[hd]>/g, '</c>')).replace(/<\/?p>/g, '').trim();
const ownHtml = (source) => joined(html(parse(source)));

test('examples of CommonMark come out as markdown-it has them, but for those that differ on purpose', () => {
  let compared = 0;
  for (const { number, section, markdown } of spec.tests) {
    if (LEFT_OUT.has(section) || /^\[[^\]]*\]:/m.test(markdown)) continue;
    const source = markdown.replace(/→/g, '\t').replace(/\]\((<?)\/?(?=[a-z])(?!http|mailto|made|foo:)/g, ']($1https://e.org/');
    compared++;
    const same = ownHtml(source) === otherHtml(source);
    if (!DIFFERENT.has(number)) assert.equal(ownHtml(source), otherHtml(source), `example ${number} (${section}): ${JSON.stringify(source)}`);
    else assert.ok(!same, `example ${number} no longer differs: ${DIFFERENT.get(number)}`);
  }
  assert.equal(compared, 443);
});

test('texts as models write them come out as markdown-it has them', () => {
  const texts = [
    '| a | b |\n|---|---|\n| `x\\|y` | 2 |\n', '| a | b |\n|:-:|--:|\n| | x |\n\n- [ ] t\n- [x] u', 'text\n| a | b |\n|---|---|\n| 1 | 2 |',
    '| **a** | [l](https://e.org/a) |\n|---|---|\n| ~~x~~ | `c` |', '| a |\n| - |\n| b |\n> q', 'Header | X\n:--- | ---\n`a|b` | c',
    '1. **One**: a\n   - x\n   - y\n2. **Two**\n\n   para\n\n   ```js\n   code\n   ```\n3. z', '- a\n\n  b\n\n- c\n', '- a\n    - b\n        - c\n- d', '* a\n  * b\n    * c\n\ntext',
    '1. a\n\n```\ncode\n```\n\n2. b', '### H\ntext\n### H2\n- l\n---\nx', '**Note:** *x* and ***y***.\n\n> **Tip** a\n> - b\n> - c\n>\n> d', 'Use `a` and ``b`c``.\n\n```python\ndef f():\n    return 1\n```\n\nDone.',
    'a https://e.org/x?a=1&b=2. and (https://e.org/y) b', '**bold**text and __x__y', '- item\n```sh\nls\n```\n- item2', '1. a\n- b\n1. c', '# Title #\n## **b** `c`\n####### no',
    'line one  \nline two\\\nline three', '- [x] done\n  - [ ] sub\n    more', '> a\nlazy\n\n> b', '> ```\n> code\n> ```\n> x', '> ```\n> code\nno code', '> # h\ntext', '- a\n- b\n\n\n- c', '2. a\n3. b\n7. c',
    '* * *\n- - -\nx\n***', 'a\n1. b\n2. c\na\n2. b', '- a\n  > q\n- b', '```\n```\n\n````md\n```js\nx\n```\n````', '**한국어**는 *좋다*.', 'f(x) = a*b*c and x_1_2', '<div>hi</div> & <b>x</b>',
    '&copy; &lt;tag&gt; &rarr; &alpha;', '~~~\nx\n~~~\n~~a~~ ~b~', '[a](https://e.org "t") ![i](https://e.org/i.png) <https://e.org>', '- **A**\n\n  text\n  - b\n\n    c\n', '1) a\n2) b\n\n1. c',
    '   - a\n   - b\n     - c', '* one\ncontinued\n* two', '- a\n\n\n\n  b', '**a\nb**', '*a\n\nb*', '1. a\n   1. b\n   2. c\n2. d', '1. a\n    - b\n\n    - c\n2. d', 'mail <a@e.org>',
  ];
  for (const source of texts) assert.equal(ownHtml(source), otherHtml(source), JSON.stringify(source));
  // Models indent by two under a number; CommonMark would end the list there.
  assert.equal(ownHtml('1. a\n  1. b\n  2. c\n2. d'), '<ol><li>a<ol><li>b</li><li>c</li></ol></li><li>d</li></ol>');
  assert.equal(ownHtml('1. a\n  2. b\n  3. c'), '<ol><li>a</li><li>b</li><li>c</li></ol>');
  // A line without a bar ends a table.
  assert.equal(ownHtml('| a |\n|---|\n| 1 |\ntext'), '<table><tr><c>a</c></tr><tr><c>1</c></tr></table>text');
  assert.equal(ownHtml('see[^1], not [^abc]\n\n[^1]: the note'), 'see[^1], not [^abc][^1] the note');
});
