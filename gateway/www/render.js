// The Markdown tree as page nodes, and the incremental renderer of a growing answer.
//
// Only the elements named here are ever made, only with the attributes set here, and every text goes in as text.

import { parse, settled } from './markdown.js';
import { canColour, tokens } from './code.js';
import { copyText, h, icon } from './dom.js';
import { formatJson, isJson, JsonScan } from './json.js';
import { isReady, loadLibrary, mathTree } from './math.js';
import { t } from './i18n.js';

const COLOUR_LIVE_CHARS = 6_000;
const COLOUR_CHARS = 60_000;
const FORMAT_CHARS = 400_000;

const sources = new WeakMap(); // of code elements: the text as it was written, which the copy button takes

// ---- formulas -------------------------------------------------------------------------------------------------------

const MATHML = 'http://www.w3.org/1998/Math/MathML';
const LONG_FORMULA = 60; // elements of one within a line; a longer one scrolls by itself
const MAX_UNDRAWN = 2000;

/** The elements of a tree that math.js made of its fixed list. */
function mathNode({ tag, attrs, cls, text, c }) {
  if (tag === null) return document.createTextNode(text);
  const el = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attrs)) el.setAttribute(name, value);
  if (cls) el.setAttribute('class', cls);
  el.append(...c.map(mathNode));
  return el;
}

const sizeOf = (tree) => (tree.c ?? []).reduce((n, child) => n + sizeOf(child), 1);

function fillFormula(el, { v, raw, display }) {
  const tree = mathTree(v, display);
  if (!tree) { el.className = 'math-source'; el.textContent = raw; return; }
  el.className = display ? 'math math-display' : sizeOf(tree) > LONG_FORMULA ? 'math math-long' : 'math';
  if (display) { // it scrolls, so it takes the focus
    el.tabIndex = 0;
    el.setAttribute('role', 'group');
  }
  el.replaceChildren(mathNode(tree));
}

// Formulas that wait for the library, shown as their source.
let undrawn = new Map();

function drawWaiting() {
  const waiting = undrawn;
  undrawn = new Map();
  for (const [el, formula] of waiting) fillFormula(el, formula);
}

function formulaNode(formula) {
  const el = h('span', { class: 'math-source' });
  if (isReady()) {
    fillFormula(el, formula);
    return el;
  }
  el.textContent = formula.raw;
  if (undrawn.size >= MAX_UNDRAWN) for (const old of undrawn.keys()) if (!old.isConnected) undrawn.delete(old);
  undrawn.set(el, formula);
  loadLibrary().then((ok) => { if (ok) drawWaiting(); });
  return el;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

function inlineNodes(tree) {
  return tree.map((n) => {
    switch (n.t) {
      case 'text': return document.createTextNode(n.v);
      case 'br': return document.createElement('br');
      case 'code': return h('code', { text: n.v });
      case 'math': return formulaNode(n);
      case 'note': return h('sup', { text: n.v });
      case 'em': return h('em', {}, inlineNodes(n.c));
      case 'strong': return h('strong', {}, inlineNodes(n.c));
      case 'del': return h('del', {}, inlineNodes(n.c));
      case 'link':
        return h('a', { href: n.href, title: n.href, target: '_blank', rel: 'noopener noreferrer nofollow' }, inlineNodes(n.c));
      default: return null;
    }
  });
}

function colourInto(code, source, lang) {
  code.replaceChildren(...tokens(source, lang).map(({ k, v }) => (
    k === '' ? document.createTextNode(v) : h('span', { class: `tok-${k}`, text: v }))));
}

const isJsonBlock = (block) => /^json$/i.test(block.lang);

/** What a code block shows: complete JSON over lines, anything else as it stands. */
function shownText(block) {
  const formatted = block.closed && isJsonBlock(block) && block.v.length <= FORMAT_CHARS ? formatJson(block.v) : null;
  return formatted ?? block.v;
}

function fillCode(code, block, live) {
  sources.set(code, block.v);
  const limit = live ? COLOUR_LIVE_CHARS : COLOUR_CHARS;
  const shown = shownText(block);
  if (canColour(block.lang) && shown.length <= limit) colourInto(code, shown, block.lang);
  else code.textContent = shown;
}

function codeBlock(block, live) {
  const code = h('code');
  fillCode(code, block, live);
  const label = h('span', { text: t('copy') });
  const button = h('button', {
    type: 'button', class: 'code-copy', 'data-testid': 'copy-code', 'aria-label': t('copyCode'),
    onClick: async () => {
      label.textContent = (await copyText(sources.get(code))) ? t('copied') : t('copyFailed');
      setTimeout(() => { label.textContent = t('copy'); }, 1600);
    },
  }, icon('copy'), label);
  return h('figure', { class: 'code' },
    h('figcaption', {}, h('span', { class: 'code-lang', text: block.lang || t('code') }), button),
    h('pre', { tabindex: '0', role: 'group', 'aria-label': block.lang ? `${t('code')}: ${block.lang}` : t('code') }, code));
}

function itemNodes(item) {
  const [first, ...rest] = item.b;
  const head = first?.t === 'p' ? inlineNodes(first.c) : first ? [blockNode(first)] : [];
  const check = item.check === null ? null
    : h('span', { class: 'check', role: 'img', 'aria-label': t(item.check ? 'checked' : 'unchecked'), text: item.check ? '☑' : '☐' });
  return h('li', { class: item.check === null ? null : 'task' }, check, head, rest.map((b) => blockNode(b)));
}

/** One block as a node. `live`: it may still grow. */
export function blockNode(block, live = false) {
  switch (block.t) {
    case 'p': return h('p', {}, inlineNodes(block.c));
    // The page's own headings are levels 1 and 2, so an answer's begin at 3.
    case 'h': return h(`h${Math.min(6, block.n + 2)}`, { class: `md-h${block.n}` }, inlineNodes(block.c));
    case 'hr': return h('hr');
    case 'code': return codeBlock(block, live);
    case 'quote': return h('blockquote', {}, block.b.map((b) => blockNode(b)));
    case 'list':
      return h(block.ordered ? 'ol' : 'ul', { start: block.ordered && block.start !== 1 ? block.start : null }, block.items.map(itemNodes));
    case 'table': {
      const cls = (i) => (block.align[i] ? `align-${block.align[i]}` : null);
      return h('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': t('table') },
        h('table', {},
          h('thead', {}, h('tr', {}, block.head.map((c, i) => h('th', { scope: 'col', class: cls(i) }, inlineNodes(c))))),
          h('tbody', {}, block.rows.map((row) => h('tr', {}, row.map((c, i) => h('td', { class: cls(i) }, inlineNodes(c))))))));
    }
    default: return document.createTextNode('');
  }
}

/** An answer that is one JSON value, as the block that shows it. */
const jsonAnswer = (text, closed) => ({ t: 'code', lang: 'json', v: text.trim(), closed, at: 0 });

/**
 * Renders a text that grows at its end. Settled blocks are left alone; only the last few are parsed and built again, and
 * a long code block only has its new characters appended. update() takes the whole text so far.
 *
 * A text that may become one JSON value is shown as a code block until its first character that cannot belong to one.
 */
export class StreamRenderer {
  #root;
  #from = 0; // everything before this offset is rendered for good
  #open = []; // {block, node} of what may still change
  #json = new JsonScan();

  constructor(root) { this.#root = root; }

  update(text, final = false) {
    if (this.#json.take(text) && this.#json.started && (!final || this.#json.complete)) {
      this.#draw([jsonAnswer(text, final)], final ? 1 : 0);
      return;
    }
    const source = (text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text).slice(this.#from);
    const tree = parse(source);
    const done = final ? tree.length : settled(source, tree);
    this.#draw(tree, done);
    if (final || done === 0) return;
    this.#from += tree[done].at;
    this.#open.splice(0, done);
    for (const { block } of this.#open) block.at -= tree[done].at;
  }

  #draw(tree, done) {
    const old = this.#open;
    this.#open = tree.map((block, i) => ({ block, node: this.#place(block, old[i], i >= done) }));
    for (const { node } of old.slice(tree.length)) node.remove();
  }

  #place(block, old, live) {
    const before = old?.block;
    if (live && block.t === 'code' && before?.t === 'code' && before.at === block.at && before.lang === block.lang
        && before.closed === block.closed && block.v.startsWith(before.v)) {
      const code = old.node.querySelector('code');
      if (block.v.length > COLOUR_LIVE_CHARS && code.firstChild && !code.firstElementChild) {
        code.firstChild.appendData(block.v.slice(before.v.length));
        sources.set(code, block.v);
      } else if (block.v.length > before.v.length) {
        fillCode(code, block, true);
      }
      return old.node;
    }
    const node = blockNode(block, live);
    if (old) old.node.replaceWith(node);
    else this.#root.append(node);
    return node;
  }
}

/** A finished text at once. */
export function renderInto(root, text) {
  const tree = isJson(text) ? [jsonAnswer(text, true)] : parse(text);
  root.replaceChildren(...tree.map((b) => blockNode(b)));
}
