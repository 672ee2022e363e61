// The Markdown tree as page nodes, and the incremental renderer of a growing answer.
//
// Only the elements named here are ever made, only with the attributes set here, and every text goes in as text.

import { parse, parseOpen } from './markdown.js';
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

const cellClass = (block, i) => (block.align[i] ? `align-${block.align[i]}` : null);
const rowNode = (block, row) => h('tr', {}, row.map((c, i) => h('td', { class: cellClass(block, i) }, inlineNodes(c))));

/** What a block holds that may grow: the nodes of a paragraph, the items of a list, the rows of a table. */
function partsOf(block) {
  if (block.t === 'p') return inlineNodes(block.c);
  return block.t === 'list' ? block.items.map(itemNodes) : block.rows.map((row) => rowNode(block, row));
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
      return h(block.ordered ? 'ol' : 'ul', { start: block.ordered && block.start !== 1 ? block.start : null }, partsOf(block));
    case 'table':
      return h('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': t('table') },
        h('table', {},
          h('thead', {}, h('tr', {}, block.head.map((c, i) => h('th', { scope: 'col', class: cellClass(block, i) }, inlineNodes(c))))),
          h('tbody', {}, partsOf(block))));
    default: return document.createTextNode('');
  }
}

/** An answer that is one JSON value, as the block that shows it. */
const jsonAnswer = (text, closed) => ({ t: 'code', lang: 'json', v: text.trim(), closed, at: 0 });

/** A block of which only the rest is drawn again. */
class OpenBlock {
  #holder; // of what grows
  #last = null; // what stays there
  #v = ''; // the code that stays
  #text = null; // and its node, once it is not coloured as it grows

  constructor(block, node) {
    this.node = node;
    this.#holder = block.t === 'table' ? node.querySelector('tbody') : block.t === 'code' ? node.querySelector('code') : node;
  }

  /** Arguments as markdown.js' parseOpen() has them. */
  draw(block, kept, more) {
    if (block.t === 'code') {
      this.#drawCode(block, kept ?? '', more);
      return;
    }
    const parts = kept?.c ? inlineNodes(kept.c) : partsOf(block);
    while (this.#holder.lastChild !== this.#last) this.#holder.lastChild.remove();
    this.#holder.append(...parts);
    if (kept === null) return;
    this.#last = kept.c ? parts[parts.length - 1] : parts[kept - 1];
    if (kept.c) this.#holder.append(...inlineNodes(kept.rest));
  }

  #drawCode(block, kept, more) {
    const code = this.#holder;
    this.#v += kept;
    if (canColour(block.lang) && block.v.length <= COLOUR_LIVE_CHARS) {
      fillCode(code, block, true);
      return;
    }
    if (this.#text === null) {
      this.#text = document.createTextNode(this.#v);
      code.replaceChildren(this.#text, '');
    } else {
      this.#text.appendData(kept);
    }
    code.lastChild.data = more.slice(kept.length);
    sources.set(code, block.v);
  }
}

const SMALL_CHARS = 4000;
const CREDIT = 32;
const HOLDERS = new Set('ul ol li blockquote p div table tbody tr td figure pre'.split(' '));

/** The element at the end of a block that text is added to. */
function endOf(node) {
  let el = node;
  for (let last = el.lastElementChild; last && (HOLDERS.has(last.localName) || el.localName === 'pre'); last = el.lastElementChild) el = last;
  return el;
}

/**
 * Renders a text that grows at its end; update() takes the whole text so far. What can't change any more is left alone: settled
 * blocks, and of the block that is open its lines of code, items, rows and lines of text.
 *
 * The work is linear in the text whatever it is: each new character earns CREDIT steps, and a rest above SMALL_CHARS is drawn
 * anew only when its length is earned. Until then what comes is added at its end as it stands.
 *
 * A text that may become one JSON value is shown as a code block until its first character that cannot belong to one.
 */
export class StreamRenderer {
  #root;
  #taken = 0; // characters of the text
  #isCr = false; // the last one was a carriage return
  #source = ''; // what is not rendered for good
  #resume = null; // as parseOpen() has it
  #nodes = []; // of the blocks in #source
  #open = null; // the first of these, where it goes on
  #held = ''; // what #source had before of a paragraph that goes on
  #midLine = true; // as parseOpen() has it
  #credit = 0;
  #tail = null; // the node of what came since #source was parsed
  #isBlank = false; // the line so far is empty
  #gap = -1; // the number of lines since an empty one in that; -1 for none
  #json = new JsonScan();
  #value = null; // {block, open} while the text is shown as JSON

  constructor(root) { this.#root = root; }

  update(text, final = false) {
    if (text.length < this.#taken) this.#restart(); // cut to what is kept of a message
    const piece = this.#take(text);
    if (this.#json.take(text) && this.#json.started && (!final || this.#json.complete)) {
      this.#drawJson(piece, text, final);
    } else if (final || this.#isWorth(piece)) {
      this.#draw(final);
    } else {
      this.#addTail(piece);
    }
  }

  #restart() {
    this.#root.replaceChildren();
    this.#taken = 0;
    this.#isCr = false;
    this.#source = '';
    this.#nodes = [];
    this.#resume = this.#tail = this.#value = null;
    this.#json = new JsonScan();
  }

  /** What the text has more than before, its line ends as '\n'. */
  #take(text) {
    let piece = text.slice(this.#taken);
    this.#taken = text.length;
    if (piece === '') return piece;
    if (this.#isCr && piece[0] === '\n') piece = piece.slice(1);
    this.#isCr = text[text.length - 1] === '\r';
    if (piece.includes('\r')) piece = piece.replace(/\r\n?/g, '\n');
    this.#source += piece;
    this.#credit += CREDIT * piece.length;
    return piece;
  }

  #drawJson(piece, text, final) {
    if (final) {
      this.#root.replaceChildren(blockNode(jsonAnswer(text, true)));
      return;
    }
    const more = this.#value ? piece : this.#source.trimStart();
    const block = { t: 'code', lang: 'json', v: (this.#value?.block.v ?? '') + more, closed: false };
    if (this.#value === null) {
      const node = blockNode(block, true);
      this.#root.append(node);
      this.#value = { open: new OpenBlock(block, node) };
    }
    this.#value.block = block;
    this.#value.open.draw(block, more, more);
  }

  /** Whether the rest is to be drawn now: sooner where a block may have ended. */
  #isWorth(piece) {
    for (const c of piece) {
      if (c !== '\n') this.#isBlank = false;
      else if (this.#isBlank) this.#gap = 0;
      else {
        this.#isBlank = true;
        if (this.#gap >= 0) this.#gap++;
      }
    }
    const n = this.#source.length;
    return n <= SMALL_CHARS || this.#credit >= (this.#gap >= 2 ? n : 2 * n);
  }

  #addTail(piece) {
    if (this.#tail === null) {
      this.#tail = document.createTextNode('');
      (this.#nodes.length > 0 ? endOf(this.#nodes[this.#nodes.length - 1]) : this.#root).append(this.#tail);
    }
    this.#tail.appendData(piece);
  }

  #parse() {
    const found = parseOpen(this.#source, this.#resume, this.#midLine);
    if (found !== null) return found;
    this.#source = this.#held + this.#source;
    this.#resume = null;
    this.#midLine = false; // for good, so that this happens once
    return parseOpen(this.#source, null, false);
  }

  #draw(final) {
    this.#value?.open.node.remove();
    this.#value = null;
    this.#tail?.remove();
    this.#tail = null;
    this.#gap = -1;
    this.#credit = Math.max(0, this.#credit - this.#source.length);
    const { tree, at, resume, kept, more, done: settled } = this.#parse();
    const done = final ? tree.length : settled;
    const old = this.#nodes;
    const nodes = tree.map((block, i) => {
      if (i === 0 && this.#resume && (done === 0 || block.t !== 'code')) {
        this.#open.draw(block, done === 0 ? kept : null, more);
        return old[0];
      }
      const node = blockNode(block, i >= done);
      if (old[i]) old[i].replaceWith(node);
      else this.#root.append(node);
      return node;
    });
    for (const node of old.slice(tree.length)) node.remove();
    if (final) return;
    if (resume && !(this.#resume && done === 0)) {
      this.#open = new OpenBlock(tree[done], nodes[done]);
      this.#open.draw(tree[done], kept, more);
    }
    if (resume?.t === 'p') this.#held = (done === 0 && this.#resume ? this.#held : '') + this.#source.slice(tree[done].at, at);
    this.#resume = resume;
    this.#source = this.#source.slice(at);
    this.#nodes = nodes.slice(done);
  }
}

/** A finished text at once. */
export function renderInto(root, text) {
  const tree = isJson(text) ? [jsonAnswer(text, true)] : parse(text);
  root.replaceChildren(...tree.map((b) => blockNode(b)));
}
