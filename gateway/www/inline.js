// The text inside a block of Markdown: emphasis, code, links, formulas (the nodes are listed in markdown.js).
//
// Cost: brackets, emphasis, code spans and formulas are matched with stacks and tables, so that no scan crosses the same
// text more than a fixed number of times.

import { MathFinder } from './math_find.js';

const MAX_HEIGHT = 12; // of nesting
const MAX_URL = 2000;
const MAX_TARGET = 2 * MAX_URL + 500; // of a link: address, title, and what stands around them

/** The end of the run of src[i] that begins at i. */
export function runEnd(src, i) {
  let end = i;
  while (end < src.length && src[end] === src[i]) end++;
  return end;
}

const SPECIAL = new Set('\\`*_~[]!<&\nhH$');
const PUNCTUATION = /[\p{P}\p{S}]/u;
const SPACE = /\s/u;
const CJK = /[\p{Script=Hangul}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;
const ASCII_PUNCTUATION = /[!-/:-@[-`{-~]/;
// The names that texts use; the whole list of HTML is larger than this file.
const NAMED = (
  'iexcl ¡ cent ¢ pound £ yen ¥ sect § copy © laquo « raquo » reg ® deg ° plusmn ± sup1 ¹ sup2 ² sup3 ³ micro µ para ¶ middot · frac14 ¼ frac12 ½ frac34 ¾ iquest ¿ times × divide ÷'
  + ' szlig ß agrave à aacute á acirc â atilde ã auml ä aring å aelig æ ccedil ç egrave è eacute é ecirc ê euml ë iacute í icirc î iuml ï ntilde ñ ograve ò oacute ó ocirc ô otilde õ ouml ö oslash ø uacute ú ucirc û uuml ü'
  + ' Auml Ä Aring Å AElig Æ Ccedil Ç Eacute É Ouml Ö Oslash Ø Uuml Ü oelig œ scaron š'
  + ' alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Phi Φ Psi Ψ Omega Ω'
  + ' ndash – mdash — lsquo ‘ rsquo ’ sbquo ‚ ldquo “ rdquo ” bdquo „ dagger † bull • hellip … permil ‰ prime ′ Prime ″ lsaquo ‹ rsaquo › euro € trade ™ larr ← uarr ↑ rarr → darr ↓ harr ↔ lArr ⇐ rArr ⇒ hArr ⇔'
  + ' forall ∀ part ∂ exist ∃ empty ∅ nabla ∇ isin ∈ notin ∉ prod ∏ sum ∑ minus − radic √ prop ∝ infin ∞ and ∧ or ∨ cap ∩ cup ∪ int ∫ there4 ∴ sim ∼ asymp ≈ ne ≠ equiv ≡ le ≤ ge ≥ sub ⊂ sup ⊃ sube ⊆ supe ⊇ check ✓ cross ✗ star ☆'
).split(' ');
const ENTITIES = new Map([['amp', '&'], ['lt', '<'], ['gt', '>'], ['quot', '"'], ['apos', "'"], ['nbsp', '\u00a0']]);
for (let i = 0; i < NAMED.length; i += 2) ENTITIES.set(NAMED[i], NAMED[i + 1]);
const PROTOCOLS = new Set(['http:', 'https:', 'mailto:']);

/** The address if it is safe as a link's target: http, https or mailto, with its scheme. Otherwise null. */
export function safeUrl(text) {
  const trimmed = text.trim();
  if (trimmed.length === 0 || trimmed.length > MAX_URL) return null;
  if (/[\u0000-\u0020\u007f-\u00a0\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/.test(trimmed)) return null;
  if (!/^(https?:\/\/|mailto:)/i.test(trimmed)) return null;
  let url;
  try { url = new URL(trimmed); } catch { return null; }
  return PROTOCOLS.has(url.protocol) ? url.href : null;
}

/** Where each run of n backticks begins, so that a code span finds its end without searching. */
function backtickRuns(src) {
  const runs = new Map();
  for (let i = src.indexOf('`'); i >= 0;) {
    const end = runEnd(src, i);
    const n = end - i;
    if (!runs.has(n)) runs.set(n, { at: [], next: 0 });
    runs.get(n).at.push(i);
    i = src.indexOf('`', end);
  }
  return runs;
}

/** An address without the backslashes before its punctuation. */
const unescaped = (href) => (href.includes('\\') ? href.replace(/\\([!-/:-@[-`{-~])/g, '$1') : href);

/** `(address "title")` from the parenthesis on: {href, end} or null. Stops at brackets, so scans never overlap. */
function destinationAt(src, open) {
  let i = open + 1;
  while (src[i] === ' ' || src[i] === '\n') i++;
  let href;
  if (src[i] === '<') {
    const from = ++i;
    while (i < src.length && src[i] !== '>' && src[i] !== '<' && src[i] !== '\n' && i - from <= MAX_URL) i++;
    if (src[i] !== '>') return null;
    href = src.slice(from, i).replaceAll(' ', '%20');
    i++;
  } else {
    const from = i;
    let parens = 0;
    for (; i < src.length && i - from <= MAX_URL; i++) {
      const c = src[i];
      if (c === ' ' || c === '\n' || c === '[' || c === ']' || c === '<') break;
      if (c === '\\' && ASCII_PUNCTUATION.test(src[i + 1] ?? ' ')) i++;
      else if (c === '(') parens++;
      else if (c === ')' && parens-- === 0) break;
    }
    href = src.slice(from, i);
  }
  const spaceFrom = i;
  while (SPACE.test(src[i] ?? 'x')) i++;
  const quote = i > spaceFrom ? { '"': '"', "'": "'", '(': ')' }[src[i]] : undefined;
  if (quote) {
    const from = ++i;
    while (i < src.length && src[i] !== quote && src[i] !== '[' && src[i] !== ']' && i - from <= MAX_URL) i += src[i] === '\\' ? 2 : 1;
    if (src[i] !== quote) return null;
    i++;
    while (src[i] === ' ' || src[i] === '\n') i++;
  }
  return src[i] === ')' ? { href: unescaped(href), end: i + 1 } : null;
}

/** Where the `>` of `<https://…>` is, or -1. Stops at the next `<`, so scans never overlap. */
function angleEnd(src, i) {
  if (!/^<(?:https?:|mailto:)/i.test(src.slice(i, i + 8))) return -1;
  let end = i + 1;
  while (end < src.length && end - i <= MAX_URL && !' \n<>'.includes(src[end])) end++;
  return src[end] === '>' ? end : -1;
}

/** The address of `<name@example.org>` at i, or null. */
function mailAt(src, i) {
  const c = src[i + 1] ?? '';
  if (!/[A-Za-z0-9]/.test(c)) return null;
  return /^<([\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,4})>/.exec(src.slice(i, i + 200))?.[1] ?? null;
}

/** The end of a bare address that begins at i. */
function bareUrlEnd(src, i) {
  let end = i;
  let opens = 0;
  let closes = 0;
  while (end < src.length && end - i <= MAX_URL) {
    const c = src[end];
    if (c <= ' ' || c === '<' || c === '>' || c === '`' || c === '"' || c === '*' || c === '[' || c === ']' || c === '|') break;
    if (c > '\u007e' && (PUNCTUATION.test(c) || CJK.test(c) || SPACE.test(c))) break;
    if (c === '(') opens++;
    if (c === ')') closes++;
    end++;
  }
  for (; end > i; end--) {
    const c = src[end - 1];
    if (c === ')' && closes > opens) closes--;
    else if (!'.,:;!?\'_~'.includes(c)) break;
  }
  return end;
}

function entityAt(src, i) {
  const near = src.slice(i + 1, i + 11);
  const semicolon = near.indexOf(';');
  if (semicolon < 0) return null;
  const name = near.slice(0, semicolon);
  const end = i + 1 + semicolon;
  if (ENTITIES.has(name)) return { v: ENTITIES.get(name), end: end + 1 };
  const m = /^#(?:(\d{1,7})|[xX]([0-9a-fA-F]{1,6}))$/.exec(name);
  if (!m) return null;
  const code = m[1] ? Number(m[1]) : parseInt(m[2], 16);
  const isCharacter = code !== 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return { v: isCharacter ? String.fromCodePoint(code) : '\ufffd', end: end + 1 };
}

/** `[^1]`, and `[^1]:` at the beginning of a line: a footnote's mark. Words are left, as in [^abc] of a pattern. */
function noteAt(src, i) {
  const m = /^\[\^(\d{1,3})\]/.exec(src.slice(i, i + 6));
  if (!m) return null;
  const end = i + m[0].length;
  const isDefinition = src[end] === ':' && (i === 0 || src[i - 1] === '\n');
  return { v: m[1], end: isDefinition ? end + 1 : end };
}

function delimiter(src, i, end) {
  const ch = src[i];
  const before = i === 0 ? ' ' : src[i - 1];
  const after = end === src.length ? ' ' : src[end];
  const spaceBefore = SPACE.test(before);
  const spaceAfter = SPACE.test(after);
  const punctBefore = PUNCTUATION.test(before);
  const punctAfter = PUNCTUATION.test(after);
  // Particles follow a word without a space in Korean, and Chinese and Japanese have no spaces: a letter of these
  // scripts beside the run is as good as one, else **"word"**은 would keep its asterisks.
  let open = !spaceAfter && (!punctAfter || spaceBefore || punctBefore || CJK.test(before));
  let close = !spaceBefore && (!punctBefore || spaceAfter || punctAfter || CJK.test(after));
  if (ch === '_' && open && close) {
    open = punctBefore;
    close = punctAfter;
  }
  return { t: 'delim', ch, n: end - i, size: end - i, at: i, open, close };
}

/**
 * Which places of a text later text cannot reach across. `open`: the first mark that may still find its end; `ranges`: [from, to)
 * of what belongs together.
 */
export class Reach {
  open = Infinity;
  ranges = [];
  #length;

  constructor(length) { this.#length = length; }

  from(at) { this.open = Math.min(this.open, at); }

  /** A mark at the end may still become another one. */
  over(from, to) {
    if (to === this.#length) this.from(from);
    else this.ranges.push([from, to]);
  }

  /** The last of `places` (rising) before which nothing changes any more; -1 for none. */
  lastOf(places) {
    let k = places.length - 1;
    while (k >= 0 && places[k] > this.open) k--;
    for (const [from, to] of this.ranges.sort((a, b) => b[0] - a[0])) { // they nest or lie apart
      if (k >= 0 && places[k] < to) while (k >= 0 && places[k] > from) k--;
    }
    return k;
  }
}

/** Parses the text inside a block. reach: a Reach to fill, for a text that grows. */
export function inline(src, reach = null) {
  const out = [];
  const brackets = []; // places of '[' in out
  const bracketsAt = []; // and in src
  let runs = null;
  const formulas = new MathFinder(src);
  let lastLink = -1; // its place in out
  let from = 0;
  let i = 0;
  const flush = (to) => { if (to > from) out.push({ t: 'text', v: src.slice(from, to) }); };
  const put = (node, end) => {
    flush(i);
    if (node) out.push(node);
    i = from = end;
  };
  while (i < src.length) {
    const c = src[i];
    if (!SPECIAL.has(c)) { i++; continue; }
    const formula = c === '$' || c === '\\' ? formulas.at(i) : null;
    if (formula) {
      const { end, ...node } = formula;
      reach?.over(i, end);
      put({ t: 'math', ...node }, end);
    } else if (c === '$') {
      i += src[i + 1] === '$' ? 2 : 1;
    } else if (c === '\\') {
      const next = src[i + 1];
      if (next === '\n') put({ t: 'br' }, i + 2);
      else if (next !== undefined && ASCII_PUNCTUATION.test(next)) put({ t: 'text', v: next }, i + 2);
      else i++;
    } else if (c === '`') {
      runs ??= backtickRuns(src);
      const end = runEnd(src, i);
      const run = runs.get(end - i);
      // A backslash may have eaten the first backtick of a run, so a run of this length need not exist.
      if (run) while (run.next < run.at.length && run.at[run.next] < end) run.next++;
      if (!run || run.next >= run.at.length) {
        reach?.from(i);
        i = end;
        continue;
      }
      const close = run.at[run.next];
      reach?.over(i, close + (end - i));
      let v = src.slice(end, close).replaceAll('\n', ' ');
      if (v.length > 2 && v[0] === ' ' && v[v.length - 1] === ' ' && v.trim() !== '') v = v.slice(1, -1);
      put({ t: 'code', v }, close + (end - i));
    } else if (c === '*' || c === '_' || c === '~') {
      const end = runEnd(src, i);
      if (c === '~' && end - i !== 2) { i = end; continue; }
      put(delimiter(src, i, end), end);
    } else if (c === '[' && src[i + 1] === '^' && noteAt(src, i)) {
      const note = noteAt(src, i);
      put({ t: 'note', v: note.v }, note.end);
    } else if (c === '[' || (c === '!' && src[i + 1] === '[')) {
      const end = c === '!' ? i + 2 : i + 1;
      bracketsAt.push(i);
      put({ t: 'text', v: src.slice(i, end) }, end);
      brackets.push(out.length - 1);
    } else if (c === ']') {
      const at = brackets.pop();
      const open = bracketsAt.pop();
      const target = at !== undefined && src[i + 1] === '(' ? destinationAt(src, i + 1) : null;
      const href = target ? safeUrl(target.href) : null;
      const isNested = at <= lastLink && out[at].v === '!['; // a link within an image's words stays the link
      if (reach && at !== undefined && target === null && '('.includes(src[i + 1] ?? '') && src.length - i < MAX_TARGET) reach.from(open);
      if (href === null || isNested) { i++; continue; }
      reach?.over(open, target.end);
      flush(i);
      let children = resolve(out.splice(at + 1)).map(withoutLinks).flat();
      const image = out.pop().v === '![';
      if (children.length === 0) children = [{ t: 'text', v: image ? href : target.href }];
      out.push({ t: 'link', href, c: children, h: heightOf(children) + 1 });
      lastLink = out.length - 1;
      if (!image) brackets.length = bracketsAt.length = 0; // no link may hold another; an image's address within one is left out
      i = from = target.end;
    } else if (c === '<') {
      const br = /^<br ?\/?>/i.exec(src.slice(i, i + 6));
      const end = angleEnd(src, i);
      const inner = end > 0 ? src.slice(i + 1, end) : '';
      const mail = end < 0 ? mailAt(src, i) : null;
      const href = end > 0 ? safeUrl(inner) : null;
      if (href) put({ t: 'link', href, c: [{ t: 'text', v: inner }], h: 1 }, end + 1);
      else if (mail) put({ t: 'link', href: `mailto:${mail}`, c: [{ t: 'text', v: mail }], h: 1 }, i + mail.length + 2);
      else if (br) put({ t: 'br' }, i + br[0].length);
      else i++;
    } else if (c === '&') {
      const entity = entityAt(src, i);
      if (entity) put({ t: 'text', v: entity.v }, entity.end);
      else i++;
    } else if (c === '\n') {
      let end = i;
      while (end > from && src[end - 1] === ' ') end--;
      flush(end);
      out.push({ t: 'br' });
      i = from = i + 1;
    } else {
      const isUrl = /^https?:\/\/[^\s]/i.test(src.slice(i, i + 9)) && (i === 0 || !/[A-Za-z0-9]/.test(src[i - 1]));
      const end = isUrl ? bareUrlEnd(src, i) : i;
      const href = end >= i + 8 ? safeUrl(src.slice(i, end)) : null;
      if (href) put({ t: 'link', href, c: [{ t: 'text', v: src.slice(i, end) }], h: 1 }, end);
      else i = Math.max(i + 1, end);
    }
  }
  flush(src.length);
  if (reach && bracketsAt.length > 0) reach.from(bracketsAt[0]);
  reach?.from(formulas.open);
  return resolve(out, reach);
}

const heightOf = (nodes) => nodes.reduce((height, n) => Math.max(height, n.h ?? 0), 0);

function withoutLinks(node) {
  if (node.t === 'link') return node.c.flatMap(withoutLinks);
  if (node.c) node.c = node.c.flatMap(withoutLinks);
  return [node];
}

const kindOf = (d) => '*_~'.indexOf(d.ch) * 6 + (d.open ? 3 : 0) + (d.size % 3);

/** Pairs the emphasis runs in a list of nodes and joins neighbouring texts; takes the list. */
function resolve(nodes, reach = null) {
  const out = [];
  const stack = []; // places in out of runs that may open
  const bottom = new Array(18).fill(0); // per kind of closer: below this height of the stack nothing fits
  for (const node of nodes) {
    if (node.t !== 'delim') {
      out.push(node);
      continue;
    }
    while (node.close && node.n > 0) {
      let s = stack.length - 1;
      for (; s >= bottom[kindOf(node)]; s--) {
        const o = out[stack[s]];
        if (o.ch !== node.ch) continue;
        const mixed = (o.close || node.open) && (o.size + node.size) % 3 === 0 && (o.size % 3 || node.size % 3);
        if (node.ch === '~' || !mixed) break;
      }
      if (s < bottom[kindOf(node)]) {
        bottom[kindOf(node)] = stack.length;
        break;
      }
      const opener = out[stack[s]];
      const children = join(out.splice(stack[s] + 1));
      const height = heightOf(children) + 1;
      if (height > MAX_HEIGHT) {
        for (const child of children) out.push(child);
        stack.length = 0;
        bottom.fill(0);
        break;
      }
      const used = node.ch === '~' || (opener.n >= 2 && node.n >= 2) ? 2 : 1;
      opener.n -= used;
      node.n -= used;
      reach?.over(opener.at, node.at + node.size);
      stack.length = opener.n > 0 ? s + 1 : s;
      for (let k = 0; k < bottom.length; k++) if (bottom[k] > stack.length) bottom[k] = stack.length;
      if (opener.n === 0) out.pop();
      out.push({ t: node.ch === '~' ? 'del' : used === 2 ? 'strong' : 'em', c: children, h: height });
    }
    if (node.n > 0) {
      if (node.open) stack.push(out.length);
      out.push(node);
    }
  }
  for (const at of stack) reach?.from(out[at].at);
  return join(out);
}

function join(nodes) {
  const out = [];
  let text = null;
  for (const node of nodes) {
    const v = node.t === 'delim' ? node.ch.repeat(node.n) : node.t === 'text' ? node.v : null;
    if (v === null) {
      text = null;
      out.push(node);
    } else if (v !== '') {
      if (text) text.v += v;
      else out.push(text = { t: 'text', v });
    }
  }
  return out;
}
