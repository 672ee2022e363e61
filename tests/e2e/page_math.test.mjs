// Formulas and JSON in answers: where they are found, what becomes of hostile ones, that a growing text costs no more
// than a whole one, and that the vendored library is the released file.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { launch } from './chromium.mjs';
import { jumble, random } from './page_corpus.mjs';
import { startMock } from './page_mock.mjs';
import { load, www } from './page_modules.mjs';

const { inline, parse, settled } = await load('markdown.js');
const { MathFinder } = await load('math_find.js');
const { treeWith } = await load('math.js');
const { formatJson, isJson, JsonScan } = await load('json.js');
const temml = (await load('vendor/temml.js')).default;

let browser;
let mock;
before(async () => {
  browser = await launch();
  mock = await startMock({ trustedTypes: true });
});
after(async () => {
  await browser?.close();
  await mock?.close();
});

const shape = (nodes) => nodes.map((n) => (n.t === 'text' ? n.v : n.t === 'br' ? '<br>' : n.t === 'math' ? `<${n.display ? 'M' : 'm'}>${n.v}</>`
  : `<${n.t}>${n.c ? shape(n.c) : n.v}</>`)).join('');
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

// ---- the vendored library -------------------------------------------------------------------------------------------

test('vendored files are the released ones, with their licence beside them', async () => {
  const vendor = new URL('vendor/', www);
  const manifest = JSON.parse(await readFile(new URL('manifest.json', vendor), 'utf8'));
  const known = ['manifest.json'];
  for (const [name, entry] of Object.entries(manifest)) {
    known.push(name, entry.license_file);
    const bytes = await readFile(new URL(name, vendor));
    assert.equal(sha256(bytes.subarray(0, entry.release_bytes)), entry.release_sha256, name);
    assert.equal(bytes.subarray(entry.release_bytes).toString(), entry.appended, name);
    assert.equal(sha256(await readFile(new URL(entry.license_file, vendor))), entry.license_sha256, name);
    assert.equal(entry.source, `npm:${entry.package}@${entry.version}`);
    assert.ok(!/\beval\(|new Function|innerHTML|document\.write|XMLHttpRequest|import\(/.test(bytes.toString()), name);
    assert.ok(bytes.length < 200_000, `${name}: ${bytes.length} bytes`);
  }
  assert.deepEqual((await readdir(vendor)).sort(), known.sort(), 'a file that the manifest does not name');
  assert.equal(temml.version, manifest['temml.js'].version);
});

// ---- where formulas are ---------------------------------------------------------------------------------------------

test('formulas among text', () => {
  const cases = [
    ['a $x$ b', 'a <m>x</> b'],
    ['$x_i$ and $y_i$', '<m>x_i</> and <m>y_i</>'],
    ['값 $x$는 $y$.', '값 <m>x</>는 <m>y</>.'],
    ['*$a*b$*', '<em><m>a*b</></>'],
    ['$a\nb$', '<m>a\nb</>'],
    ['$$x$$', '<M>x</>'],
    ['so $$ x = 1 $$ holds', 'so <M>x = 1</> holds'],
    ['\\(x\\) and \\[ y \\]', '<m>x</> and <M>y</>'],
    ['\\[E=mc^2\\]', '<M>E=mc^2</>'],
    ['$\\$5 + x$', '<m>\\$5 + x</>'],
    ['$5 and $6', '$5 and $6'],
    ['$5-$6, $7/$8', '$5-$6, $7/$8'],
    ['$ x $', '$ x $'],
    ['$x $', '$x $'],
    ['US$5 and 6$', 'US$5 and 6$'],
    ['$5 million or 3$', '$5 million or 3$'],
    ['$PATH:$HOME', '$PATH:$HOME'],
    ['\\$x\\$', '$x$'],
    ['\\\\(x\\\\)', '\\(x\\)'],
    ['`$x$` $y$', '<code>$x$</> <m>y</>'],
    ['$a `b$ c`', '$a <code>b$ c</>'],
    ['$x', '$x'],
    ['$$x', '$$x'],
    ['$$ $$ $', '$$ $$ $'],
    ['\\[1\\] and \\[note\\](x)', '[1] and [note](x)'],
    ['\\[x', '[x'],
    ['[$x$](https://e.org)', '<link><m>x</></>'],
    [`$${'x'.repeat(5000)}$`, `$${'x'.repeat(5000)}$`],
  ];
  for (const [source, wanted] of cases) assert.equal(shape(inline(source)), wanted, source);
});

test('displayed formulas hold lines that look like other blocks, up to an empty line', () => {
  const blocks = (s) => parse(s).map((b) => (b.t === 'p' ? shape(b.c) : b.t));
  assert.deepEqual(blocks('text\n$$\n- a\n+ b\n$$\nmore'), ['text', '<M>- a\n+ b</>', 'more']);
  assert.deepEqual(blocks('\\[\na\n= b\n\\]\n\nmore'), ['<M>a\n= b</>', 'more']);
  assert.deepEqual(blocks('$$\nopen\n\n- list'), ['$$<br>open', 'list']);
  assert.deepEqual(blocks('$$\nopen\n```\ncode $$\n```'), ['$$<br>open', 'code']);
  assert.deepEqual(blocks('$$\nx $$ where\n- y'), ['<M>x</> where', 'list']);
  assert.deepEqual(blocks('```\n$$\nx\n$$\n```'), ['code']);
  assert.equal(shape(parse('- a\n  $$\n  x\n  $$\n- b')[0].items[0].b[1].c), '<M>x</>');
  assert.equal(shape(parse('| a |\n|---|\n| $x$ |')[0].rows[0][0]), '<m>x</>');
});

const MATHS = ['$', '$$', '\n$$\n', '\\(', '\\)', '\\[', '\\]', '\n\\[\n', '$x$', ' $', '$ ', '\\', '5', 'x', '`', '\n', '\n\n', '\n- a', '\n```\n', '\n# ', '|', ' ', '*', '[', '](https://e.org)'];
const mathJumble = (rnd, n) => Array.from({ length: n }, () => (rnd(4) === 0 ? jumble(rnd, 1) : MATHS[rnd(MATHS.length)])).join('');

test('settled blocks never change while a text with formulas grows', () => {
  const rnd = random(5);
  for (let i = 0; i < 80; i++) {
    const text = mathJumble(rnd, 30).replaceAll('\r\n', '\n');
    const whole = parse(text);
    for (let cut = 0; cut <= text.length; cut++) {
      const part = text.slice(0, cut);
      const tree = parse(part);
      const n = settled(part, tree);
      assert.deepEqual(tree.slice(0, n), whole.slice(0, n), JSON.stringify(part));
    }
    for (const block of whole) {
      const again = parse(text.slice(block.at))[0];
      assert.deepEqual({ ...again, at: block.at }, block, JSON.stringify(text));
    }
  }
});

/** How many characters the finder reads of a text, counted by a string that counts. */
function readsOf(text) {
  let reads = 0;
  const counting = new Proxy({}, {
    get(_, name) {
      if (typeof name === 'string' && /^\d+$/.test(name)) { reads++; return text[name]; }
      if (name === 'slice') return (from, to) => { const s = text.slice(from, to); reads += s.length; return s; };
      return text[name];
    },
  });
  const finder = new MathFinder(counting);
  for (let i = 0; i < text.length; i++) {
    if (text[i] !== '$' && text[i] !== '\\') continue;
    const found = finder.at(i);
    if (found) i = found.end - 1;
    else if (text[i] === '\\') i++;
  }
  return reads;
}

test('finding formulas reads each character a fixed number of times', () => {
  for (const p of ['$', '$$', '$x', '$x ', '$5 ab', 'x$ ', '\\(', '\\[', '\\[a', '\\)', '\\', '$x$', '$`', '$`x$', '$a$1', '$$x', '\\[x\\]', '$ $$', '\\(a\\]']) {
    const reads = readsOf(p.repeat(100_000 / p.length));
    assert.ok(reads <= 12 * 100_000, `${JSON.stringify(p)}: ${reads} reads of 100,000 characters`);
  }
});

test('a text with formulas that grows piece by piece is parsed in proportion to its length', () => {
  const part = '## Step $n$\n\nLet $x_1 + y$ be **bold**, so \\(z\\):\n\n$$\n\\frac{a}{b}\n- c\n$$\n\n- one $a$\n- two\n\n```js\nf(1);\n```\n\n| a | $b$ |\n|---|---|\n| 1 | $2$ |\n\n';
  const parsed = (text) => {
    let from = 0, characters = 0;
    for (let cut = 0; cut < text.length; cut += 5) {
      const source = text.slice(from, cut);
      const tree = parse(source);
      characters += source.length;
      const done = settled(source, tree);
      if (done > 0) from += tree[done].at;
    }
    return characters;
  };
  const small = parsed(part.repeat(Math.ceil(25_000 / part.length))), large = parsed(part.repeat(Math.ceil(100_000 / part.length)));
  assert.ok(large <= 4.5 * small, `${large} characters parsed of 100,000, ${small} of 25,000`);
  assert.ok(large <= 40 * 100_000, `${large} characters parsed of 100,000`);
});

// ---- what becomes of them -------------------------------------------------------------------------------------------

const ELEMENTS = new Set(('math mrow mi mn mo mtext mspace ms mfrac msqrt mroot msup msub msubsup munder mover munderover mtable mtr mtd '
  + 'mstyle mpadded mphantom mmultiscripts mprescripts none').split(' '));

function assertTree(node, source) {
  if (node.tag === null) { assert.equal(typeof node.text, 'string'); return; }
  assert.ok(ELEMENTS.has(node.tag), `<${node.tag}> from ${source}`);
  assert.match(node.cls, /^(?:m-[a-z0-9-]+ ?)*$/, source);
  for (const [name, value] of Object.entries(node.attrs)) {
    assert.match(name, /^[a-z]+$/);
    assert.doesNotMatch(name, /^(?:on|style$|href$|src$|class$|id$)/, source);
    assert.match(value, /^[-+#.\w]{1,24}$/, source);
  }
  node.c.forEach((c) => assertTree(c, source));
}

const textOf = (n) => n.text ?? n.c.map(textOf).join('');
const tagsOf = (n) => (n.tag === null ? [] : [n.tag, ...n.c.flatMap(tagsOf)]);

test('TeX as models write it becomes MathML of known elements', () => {
  const good = ['\\frac{a}{b}', '\\sqrt[3]{x}', '\\sum_{i=1}^n i^2', '\\int_0^\\infty e^{-x^2}\\,dx', '\\begin{pmatrix}a&b\\\\c&d\\end{pmatrix}',
    '\\begin{cases}1&x>0\\\\0&\\text{otherwise}\\end{cases}', '\\begin{aligned}a&=b\\\\&=c\\end{aligned}', '\\begin{align*}a&=b\\end{align*}', '\\mathbb{R}^n', '\\mathcal L',
    '\\boldsymbol\\alpha', '\\operatorname{softmax}(x)', '\\overline{x}', '\\underbrace{a+b}_{c}', '\\left(\\frac12\\right)', '\\color{red}{x}', '\\boxed{x=1}', '\\cancel{x}',
    '\\text{만약 } x', '\\vec v \\hat y', '\\xrightarrow{f}', '\\binom n k', '\\lim_{x\\to0}', 'x \\tag{1}', '\\begin{array}{c|cc}1&2&3\\\\\\hline 4&5&6\\end{array}', "f'(x)",
    '\\underset{x}{\\arg\\max}', '\\phantom{x}', '\\prescript{a}{b}{c}', '\\displaystyle\\frac12', 'a \\neq b \\le c', '\\mathrm{d}x', '\\lfloor x\\rfloor', '\\ket{\\psi}'];
  for (const source of good) {
    for (const display of source.includes('\\tag') ? [true] : [false, true]) {
      const tree = treeWith(temml, source, display);
      assert.ok(tree, source);
      assert.equal(tree.tag, 'math');
      assert.equal(tree.attrs.display, display || source.includes('align*') ? 'block' : undefined);
      assertTree(tree, source);
    }
  }
  assert.deepEqual(tagsOf(treeWith(temml, '\\frac{a}{b}', false)), ['math', 'mfrac', 'mi', 'mi']);
  assert.equal(textOf(treeWith(temml, '\\text{a < b}', false)).replace(/\u00a0/g, ' '), 'a < b');
});

test('hostile formulas are refused or harmless, and show their source', () => {
  const refused = ['\\href{javascript:alert(1)}{x}', '\\url{https://e.org}', '\\includegraphics{https://e.org/a.png}', '\\class{a}{b}', '\\id{a}{b}', '\\data{a=b}{x}', '\\style{color:red}{x}',
    '\\def\\a{\\a}\\a', '\\def\\a#1{\\a{#1#1}}\\a{x}', '\\gdef\\a{b}\\a', '\\newcommand{\\a}{b}\\a', '\\let\\a\\frac', '\\edef\\a{b}', '\\global\\def\\a{b}', '\\futurelet\\a b c', '\\csname def\\endcsname\\a{b}', '\\\\\\def\\a{b}', '\\providecommand{\\a}{b}\\a', '\\@firstoftwo{\\def}{x}\\a{b}',
    '\\frac{', '}', '\\unknowncommand', '\\htmlClass{a}{b}'];
  for (const source of refused) assert.equal(treeWith(temml, source, true), null, source);
  const braces = [`${'{'.repeat(2000)}x${'}'.repeat(2000)}`, '{'.repeat(10_000), '\\sqrt{'.repeat(300) + 'x' + '}'.repeat(300), '\\frac'.repeat(800), '\\left('.repeat(500),
    'x^{'.repeat(300) + '}'.repeat(300), '\\begin{matrix}'.repeat(200), '\\text{'.repeat(500), '\\overset{a}'.repeat(300)];
  for (const source of braces) {
    const tree = treeWith(temml, source, true);
    if (tree) assertTree(tree, source.slice(0, 40));
  }
  for (const source of [`${'\\kern-1em '.repeat(50)}x`, '\\text{<script>window.hacked=1</script>}', '<img src=x onerror=window.hacked=1>', '\\text{\u202eabc\u2066}', '\\color{red;position:fixed}x', '\\hspace{9999em}x',
    '\\rule{9999em}{9999em}', '\\mathllap{x}', '\\raisebox{-500em}{x}', '\\textcolor{#ff0000}{y}', '\\ref{a}', '\\label{x}y', '\\colorbox{url(x)}{y}', '\\verb|<b>|', '\\char"202E x']) {
    const tree = treeWith(temml, source, true);
    if (!tree) continue;
    assertTree(tree, source);
    assert.doesNotMatch(textOf(tree), /[\u202a-\u202e\u2066-\u2069]/);
    for (const n of (function* all(x) { yield x; for (const c of x.c ?? []) yield* all(c); })(tree)) {
      for (const [k, v] of Object.entries(n.attrs ?? {})) if (/width|height|depth|space|offset/.test(k)) assert.ok(parseFloat(v) >= -40 && parseFloat(v) <= 300, `${k}=${v} from ${source}`);
    }
  }
  assert.equal(treeWith(temml, `${'{'.repeat(13)}x${'}'.repeat(13)}`, true), null);
  assert.ok(treeWith(temml, `${'{'.repeat(12)}x${'}'.repeat(12)}`, true));
  // These build their argument twice, so that nesting doubles.
  for (const name of ['\\llap', '\\mathllap', '\\cancelto{a}', '\\equilibriumRight', '\\equilibriumLeft']) assert.equal(treeWith(temml, `${`${name}{`.repeat(10)}x${'}'.repeat(10)}`, true), null);
  // A refused definition leaves nothing behind for the next formula.
  assert.ok(treeWith(temml, '\\frac12', false) && treeWith(temml, '\\a', false) === null);
});

test('random formulas stay within the known elements', () => {
  const rnd = random(3);
  const bits = ['{', '}', '\\frac', '^', '_', 'x', '1', '\\left(', '\\right)', '&', '\\\\', '\\begin{matrix}', '\\end{matrix}', '\\text{', '\\color{red}', '\\hat', '\\sqrt', '[', ']', "'", '\\,', '\\!', '가',
    '\\sum', '\\limits', '\\mathbf{', '\\tag{1}', '#1', '~', '%', '\\href{a}', '\\not', '<', '>', '\\hline', '\\boxed{', '\\kern1em', '\\operatorname{'];
  let drawn = 0;
  for (let i = 0; i < 1500; i++) {
    const source = Array.from({ length: 1 + rnd(12) }, () => bits[rnd(bits.length)]).join('');
    const tree = treeWith(temml, source, rnd(2) === 0);
    if (!tree) continue;
    drawn++;
    assertTree(tree, source);
  }
  assert.ok(drawn > 100, `${drawn} of 1500 drawn`);
});

// ---- JSON -----------------------------------------------------------------------------------------------------------

test('JSON is told from other text exactly as JSON.parse does', () => {
  const valid = ['{}', '[]', ' [1, 2.5e-3, -0, true, false, null] ', '{"a":{"b":[{}]},"c":"\\u00e9\\n\\""}', '[[],{}]', '{"a":1,"a":2}', '[12345678901234567890.5]', '{"한글":"값"}'];
  const invalid = ['', 'x', '1', '"a"', 'true', '{', '[1,]', '{"a":1,}', '{a:1}', "['a']", '[01]', '[1.]', '[.5]', '[+1]', '[tru]', '[1 2]', '{"a" 1}', '["\\x"]', '["a\nb"]', '["\\u12g4"]', '{}{}', '[1] see', '[x](y)',
    '{]', '[}', '[1e]', '[-]', '{"a":}', '[,1]', '{,}', '[nulll]', '{"a"}', '['.repeat(300) + ']'.repeat(300)];
  for (const s of valid) assert.ok(isJson(s), s);
  for (const s of invalid) assert.ok(!isJson(s), s);
  const rnd = random(17);
  const bits = ['{', '}', '[', ']', ',', ':', '"a"', '"', '1', '-', 'e5', '.5', 'true', 'nul', ' ', '\\', '0', '{"k":', '[1,'];
  for (let i = 0; i < 4000; i++) {
    const s = (rnd(2) ? '[' : '{"k":') + Array.from({ length: rnd(8) }, () => bits[rnd(bits.length)]).join('');
    let value;
    try { value = JSON.parse(s); } catch { value = undefined; }
    assert.equal(isJson(s), value !== undefined && value !== null && typeof value === 'object', s);
    const scan = new JsonScan();
    for (let k = 1; k <= s.length; k++) scan.take(s.slice(0, k));
    assert.equal(scan.complete, isJson(s), `in pieces: ${s}`);
  }
});

test('JSON is laid out over lines with every token as it stood', () => {
  assert.equal(formatJson('{"a":1.50,"b":[1,{"c":null}],"d":{},"e":[ ]}'),
    '{\n  "a": 1.50,\n  "b": [\n    1,\n    {\n      "c": null\n    }\n  ],\n  "d": {},\n  "e": []\n}');
  assert.equal(formatJson('{"n":12345678901234567890}'), '{\n  "n": 12345678901234567890\n}');
  assert.equal(formatJson('not json'), null);
  const big = JSON.stringify(Array.from({ length: 2500 }, (_, i) => ({ id: i, name: `n "${i}"`, tags: ['a', 'b'] })));
  assert.ok(big.length > 100_000);
  assert.deepEqual(JSON.parse(formatJson(big)), JSON.parse(big));
  assert.ok(formatJson(big).length < 4 * big.length);
  const deep = '['.repeat(190) + '1' + ']'.repeat(190);
  assert.ok(formatJson(`[${Array(500).fill(deep).join()}]`).length < 12 * 500 * deep.length, 'indentation is bounded');
  const scan = new JsonScan();
  for (let k = 0; k <= big.length; k += 5) scan.take(big.slice(0, k));
  assert.ok(scan.used <= big.length && !scan.failed);
});

// ---- in the page ----------------------------------------------------------------------------------------------------

test('formulas and JSON in the page: drawn, within the policy, the same in any pieces', async () => {
  const context = await browser.newContext({ locale: 'en-US' });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: new URL(mock.page).origin });
  const page = await context.newPage();
  const errors = [];
  const requests = [];
  page.on('pageerror', (e) => errors.push(e.message));
  page.on('console', (m) => { if (m.type() === 'error') errors.push(m.text()); });
  page.on('request', (r) => requests.push(r.url()));
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
  });
  await page.goto(mock.page);
  const ask = async (text, answer) => {
    mock.next({ text: answer });
    await page.fill('[data-testid="composer"]', text);
    await page.press('[data-testid="composer"]', 'Enter');
    const last = page.locator('[data-testid="message-assistant"]').last();
    await last.locator('[data-testid="regenerate"]').waitFor();
    return last.locator('[data-testid="answer-text"]');
  };
  const plain = await ask('no maths', 'It costs $5 and $6.');
  assert.equal(await plain.textContent(), 'It costs $5 and $6.');
  assert.ok(!requests.some((url) => url.includes('/vendor/')), 'the library is loaded for a text without formulas');

  const maths = await ask('maths', 'Here $x^2$ and\n\n$$\n\\frac{a}{b}\n$$\n\nbad $\\href{javascript:hacked}{x}$ end, `$code$`.');
  await maths.locator('math[display="block"] mfrac').waitFor();
  assert.equal(await maths.locator('math').count(), 2);
  assert.equal(await maths.locator('.math-source').textContent(), '$\\href{javascript:hacked}{x}$');
  assert.deepEqual(await maths.evaluate((el) => [...el.querySelectorAll('math, math *')].filter((n) => n.namespaceURI !== 'http://www.w3.org/1998/Math/MathML' || n.hasAttribute('style')).length), 0);
  const box = await maths.locator('mfrac').boundingBox();
  assert.ok(box.height > 20, 'the fraction has two lines');
  assert.equal(requests.filter((url) => url.endsWith('/www/vendor/temml.js')).length, 1);

  const table = await ask('aligned', '$$\n\\begin{aligned}long long&=b\\\\x&=c\\end{aligned}\n$$');
  const [upper, lower] = await table.locator('mtr').evaluateAll((rows) => rows.map((r) => { const range = document.createRange(); range.selectNodeContents(r.firstChild); return range.getBoundingClientRect().right; }));
  assert.ok(Math.abs(upper - lower) < 3, `the left sides end at ${upper} and ${lower}`);

  const json = '{"name":"Ada","n":12345678901234567890,"tags":["x","*y*"]}';
  const value = await ask('JSON', json);
  assert.equal(await value.locator('pre code').textContent(), '{\n  "name": "Ada",\n  "n": 12345678901234567890,\n  "tags": [\n    "x",\n    "*y*"\n  ]\n}');
  await value.locator('[data-testid="copy-code"]').click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), json);
  assert.ok(await value.locator('.tok-string').count() > 3);

  const rnd = random(31);
  const texts = Array.from({ length: 40 }, () => mathJumble(rnd, 40)).concat(json, '{"a": 1} and then **text**', '[1] is a *note*', '```json\n{"a":[1]}\n```\nafter', '```json\n{"a":[1]\n```', '[[1],',
    '$$\nx\n$$\n\n```json\n[]\n```', `[${'"word", '.repeat(1500)}1]`);
  const different = await page.evaluate(async (all) => {
    const { StreamRenderer, renderInto } = await import(`${location.origin}/www/render.js`);
    const bad = [];
    for (const text of all) {
      const whole = document.createElement('div');
      renderInto(whole, text);
      for (const step of text.length > 3000 ? [50] : [1, 9]) {
        const grown = document.createElement('div');
        const renderer = new StreamRenderer(grown);
        for (let i = 0; i < text.length; i += step) renderer.update(text.slice(0, i + step));
        renderer.update(text, true);
        if (grown.outerHTML !== whole.outerHTML) bad.push([step, text.slice(0, 300), grown.outerHTML.slice(0, 400), whole.outerHTML.slice(0, 400)]);
      }
    }
    return bad;
  }, texts);
  assert.deepEqual(different.slice(0, 2), []);
  assert.deepEqual(await page.evaluate(() => window.violations), []);
  assert.deepEqual(errors, []);
  assert.ok(requests.every((url) => new URL(url).origin === new URL(mock.page).origin));
  await context.close();
});
