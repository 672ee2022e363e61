// Where a text holds formulas: $…$, $$…$$, \(…\) and \[…\], by rules that leave prices and shell variables alone.
//
// Cost: one pass over the text collects every closing mark; each opener then looks at the next closer of its kind, with
// pointers that only move forward.

const MAX_FORMULA = 4096; // characters between the marks

const CLOSERS = ['$', '$$', '\\)', '\\]'];
const WORD = /[A-Za-z0-9]/;
const SPACE = /\s/;
// "$5 million and 3$": a number and then a word is an amount of money.
const MONEY = /^[\d.,]+[A-Za-z]{0,2}\s+\p{L}{2}/u;
// "\[1\]" and "\[note\]" are brackets kept from being a link.
const BRACKETED = /^\w[\w ,.-]*$/;

/** Lists the closing marks of each kind and the backticks, in one pass. */
function marksOf(src) {
  const marks = { '$': [], '$$': [], '\\)': [], '\\]': [], '`': [] };
  for (let i = 0; i < src.length; i++) {
    const c = src[i];
    if (c === '\\') {
      i++;
      if (src[i] === ')' || src[i] === ']') marks[`\\${src[i]}`].push(i - 1);
    } else if (c === '`') {
      marks['`'].push(i);
    } else if (c === '$') {
      if (src[i + 1] === '$') {
        marks.$$.push(i);
        i++;
      } else if (i > 0 && !SPACE.test(src[i - 1]) && !WORD.test(src[i + 1] ?? ' ')) {
        marks.$.push(i);
      }
    }
  }
  return marks;
}

/** The closing mark of the formula that may open at src[i], or null. */
function closerAt(src, i) {
  const next = src[i + 1];
  if (src[i] === '\\') return next === '(' ? '\\)' : next === '[' ? '\\]' : null;
  if (next === '$') return '$$';
  return next === undefined || SPACE.test(next) || (i > 0 && WORD.test(src[i - 1])) ? null : '$';
}

/** Finds the formulas of one text; at() must be called with rising offsets. */
export class MathFinder {
  #src;
  #marks = null;
  #next = new Map();
  open = Infinity; // the first opening mark whose closing mark may still come

  constructor(src) { this.#src = src; }

  #after(kind, i) {
    this.#marks ??= marksOf(this.#src);
    const places = this.#marks[kind];
    let k = this.#next.get(kind) ?? 0;
    while (k < places.length && places[k] < i) k++;
    this.#next.set(kind, k);
    return places[k] ?? Infinity;
  }

  /** {v, raw, display, end} of the formula whose opening mark is at i, or null. */
  at(i) {
    const closer = closerAt(this.#src, i);
    if (closer === null) return null;
    const from = i + closer.length;
    const to = this.#after(closer, from);
    if (to === Infinity && this.#src.length - from <= MAX_FORMULA) this.open = Math.min(this.open, i);
    if (to - from > MAX_FORMULA || to <= from || this.#after('`', from) < to) return null;
    const v = this.#src.slice(from, to);
    if (v.trim() === '' || (closer === '$' && MONEY.test(v.slice(0, 40)))) return null;
    if (closer === '\\]' && v.length <= 40 && BRACKETED.test(v)) return null;
    const end = to + closer.length;
    return { v: v.trim(), raw: this.#src.slice(i, end), display: closer === '$$' || closer === '\\]', end };
  }
}

/** The closing mark that a line waits for when it begins with a displayed formula: '$$', '\\]' or null. */
export function opensDisplay(line, indent) {
  const mark = line.slice(indent, indent + 2);
  const closer = mark === '$$' ? '$$' : mark === '\\[' ? '\\]' : null;
  if (closer === null) return null;
  const close = line.indexOf(closer, indent + 2);
  return close < 0 || line.slice(close + 2).trim() === '' ? closer : null;
}
