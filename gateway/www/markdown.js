// Markdown as language models write it, parsed into a small tree. HTML is never passed through: tags are text.
//
// The tree holds plain data; render.js turns it into nodes from a fixed list of elements. Blocks:
//   {t:'p', c} {t:'h', n, c} {t:'code', lang, v, closed} {t:'quote', b} {t:'list', ordered, start, items:[{b, check}]}
//   {t:'table', align, head, rows} {t:'hr'}          every top-level block also has `at`, its offset in the source
// Inline: {t:'text', v} {t:'code', v} {t:'em'|'strong'|'del', c} {t:'link', href, c} {t:'br'} {t:'math', v, raw, display} {t:'note', v}
//
// Cost: linear in the text for any input. Containers nest to a bound; brackets, emphasis and code spans are matched
// with stacks and tables, and no scan ever crosses the same text more than a fixed number of times.
//
// Streaming: settled() returns how many leading blocks no further text can change, so that a renderer may keep them
// and parse again from the next. For that the grammar leaves out what reaches further back or ahead than one line: link
// references, setext headings (`---` is always a rule), indented code.

import { inline, Reach, runEnd } from './inline.js';
import { opensDisplay } from './math_find.js';

export { inline, safeUrl } from './inline.js';

const MAX_DEPTH = 10; // of containers
const MAX_COLUMNS = 40;
const LONG_LINE = 400;
const LETTER = /\p{L}/u;

/** The lines of a text without carriage returns, tabs as spaces, and where each begins. */
function linesOf(text) {
  const lines = [];
  const starts = [];
  for (let at = 0; at <= text.length;) {
    let end = text.indexOf('\n', at);
    if (end < 0) end = text.length;
    lines.push(text.slice(at, end).replaceAll('\t', '    '));
    starts.push(at);
    at = end + 1;
  }
  return { lines, starts };
}

/** Parses a whole text. */
export function parse(source) {
  const { lines, starts } = linesOf(source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source);
  return blocks(lines, 0, { starts });
}

/**
 * How many leading blocks of parse(source) stay as they are whatever is appended. Where a block begins depends on its
 * first line and the next, so it is certain once both are complete; everything before it is then settled.
 */
export function settled(source, tree) {
  for (let k = tree.length - 1; k > 0; k--) {
    const line = source.indexOf('\n', tree[k].at);
    if (line >= 0 && source.includes('\n', line + 1)) return k;
  }
  return 0;
}

/**
 * Parses the beginning of a text that grows, without carriage returns: {tree, done, at, resume, kept, more}. The first `done`
 * blocks never change. Nor does what the next one has before the offset `at`, its `kept`: the number of items or rows, the
 * text of code, {c, rest} of a paragraph, both as nodes; null for nothing. The rest of the text, from `at` on, is parsed with
 * `resume`: the first block then has only what follows `kept`, but the `v` of code is whole and `more` is what it has there.
 *
 * A long line of a paragraph is cut between words (not without `midLine`). It may still become the head of a table: null then,
 * and the block has to be parsed from its beginning.
 */
export function parseOpen(source, resume = null, midLine = true) {
  const { lines, starts } = linesOf(source);
  if (resume?.midLine && lines[0].includes('|')) return null;
  const notes = new Map();
  const tree = blocks(lines, 0, { starts, resume, notes });
  let done = settled(source, tree);
  const isComplete = (line) => line < lines.length - 1;
  if (tree[done]?.closed && isComplete(notes.get(tree[done]).end - 1)) done++;
  const open = tree[done];
  const at = open?.at ?? (done === 0 ? 0 : starts[notes.get(tree[done - 1]).end]);
  const note = notes.get(open);
  const inLine = note?.src !== undefined && midLine ? midLineCut(note, { lines, starts, source, resume }) : null;
  const cut = inLine ?? (note ? cutOf(open, note, isComplete) : null);
  if (cut === null) return { tree, done, at, resume: done === 0 ? resume : null, kept: null, more: note?.more };
  return { tree, done, at: cut.at ?? starts[cut.line], resume: cut.resume, kept: cut.kept, more: note.more };
}

/** A paragraph before and after a place in it. */
const halves = (src, at) => ({ c: inline(src.slice(0, at)), rest: inline(src.slice(at)) });

/**
 * Where the line that grows may be cut, when it is of this paragraph: a line that begins with a letter is, but for the head
 * of a table. null where it may not.
 */
function midLineCut({ src, places, end, reach }, { lines, starts, source, resume }) {
  const line = end - 1;
  const from = places[places.length - 1] ?? 0;
  const goesOn = line === 0 && resume?.midLine;
  if (line !== lines.length - 1 || src.length - from < LONG_LINE || source.length - starts[line] !== lines[line].length) return null; // tabs
  if (src.includes('|', from) || !(goesOn || LETTER.test(src[from]))) return null;
  const words = [];
  for (let i = src.indexOf(' ', from) + 1; i > 0 && i < src.length; i = src.indexOf(' ', i) + 1) if (LETTER.test(src[i])) words.push(i);
  const k = reach.lastOf(words);
  if (k < 0) return null;
  return { at: starts[line] + indentOf(lines[line]) + words[k] - from, resume: { t: 'p', midLine: true }, kept: halves(src, words[k]) };
}

/** Where a block may be cut: {line, resume, kept}, or null. */
function cutOf(block, note, isComplete) {
  const { resume } = note;
  if (block.t === 'list') {
    let n = note.items.length - 1;
    while (n > 0 && !isComplete(note.items[n] + 1)) n--;
    return n < 1 ? null : { line: note.items[n], kept: n, resume: { ...resume, n: resume.n + n } };
  }
  let line = note.end;
  while (line > note.from && !isComplete(line - 1)) line--;
  if (block.t === 'table') return line > note.from ? { line, kept: line - note.from, resume } : null;
  if (block.t === 'code') {
    if (block.closed || line === note.from) return null;
    const kept = (resume.lines > 0 ? '\n' : '') + note.lines.slice(0, line - note.from).join('\n');
    return { line, kept, resume: { ...resume, v: resume.v + kept, lines: resume.lines + line - note.from } };
  }
  // A line belongs to a paragraph for certain once the next one is complete.
  const k = note.reach.lastOf(note.places.slice(0, Math.max(0, line - 2 - note.from)));
  return k < 0 ? null : { line: note.from + k + 1, resume, kept: halves(note.src, note.places[k]) };
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

function indentOf(line) {
  return line[0] === ' ' ? runEnd(line, 0) : 0;
}

const isBlank = (line) => indentOf(line) === line.length;

/** {mark, n, indent, info} when the line opens a fence. */
function fenceAt(line) {
  const indent = indentOf(line);
  const mark = line[indent];
  if (mark !== '`' && mark !== '~') return null;
  const end = runEnd(line, indent);
  if (end - indent < 3) return null;
  const info = line.slice(end).trim();
  if (mark === '`' && info.includes('`')) return null;
  return { mark, n: end - indent, indent, info };
}

function closesFence(line, fence) {
  const indent = indentOf(line);
  if (line[indent] !== fence.mark || indent > fence.indent + 3) return false;
  const end = runEnd(line, indent);
  return end - indent >= fence.n && line.slice(end).trim() === '';
}

function headingAt(line) {
  const indent = indentOf(line);
  if (indent > 3) return null;
  let n = 0;
  while (line[indent + n] === '#') n++;
  const next = line[indent + n];
  if (n < 1 || n > 6 || (next !== undefined && next !== ' ')) return null;
  const text = line.slice(indent + n).trim();
  let end = text.length;
  while (end > 0 && text[end - 1] === '#') end--;
  const closed = end === 0 || text[end - 1] === ' ';
  return { n, text: closed ? text.slice(0, end).trim() : text };
}

function isRule(line) {
  let mark = '';
  let n = 0;
  for (const c of line) {
    if (c === ' ') continue;
    if (!'-*_'.includes(c) || (mark && c !== mark)) return false;
    mark = c;
    n++;
  }
  return n >= 3;
}

/** {ordered, delim, start, indent, content} for a line that begins a list item. */
function itemAt(line) {
  const indent = indentOf(line);
  let i = indent;
  let start = 1;
  let ordered = false;
  let delim = line[i];
  if (delim === '-' || delim === '*' || delim === '+') {
    i++;
  } else {
    while (i - indent < 9 && line[i] >= '0' && line[i] <= '9') i++;
    delim = line[i];
    if (i === indent || (delim !== '.' && delim !== ')')) return null;
    start = Number(line.slice(indent, i));
    ordered = true;
    i++;
  }
  if (i < line.length && line[i] !== ' ') return null;
  let content = i;
  while (line[content] === ' ') content++;
  if (content === line.length || content - i > 4) content = i + 1;
  return { ordered, delim, start, indent, content };
}

const quoteAt = (line) => line[indentOf(line)] === '>';

function splitRow(line) {
  const cells = [];
  let cell = '';
  const text = line.trim();
  let from = text[0] === '|' ? 1 : 0;
  for (let i = from; i < text.length; i++) {
    if (text[i] === '\\' && text[i + 1] === '|') {
      cell += text.slice(from, i) + '|';
      i++;
      from = i + 1;
    } else if (text[i] === '|') {
      cells.push((cell + text.slice(from, i)).trim());
      cell = '';
      from = i + 1;
      if (cells.length >= MAX_COLUMNS) return cells;
    }
  }
  const last = (cell + text.slice(from)).trim();
  if (last !== '' || text[text.length - 1] !== '|') cells.push(last);
  return cells;
}

/** The alignments when `line` is a table's delimiter row for `columns` columns. */
function delimiterRow(line, columns) {
  if (line === undefined || line.length > 4000 || !line.includes('-')) return null;
  const cells = splitRow(line);
  if (cells.length !== columns) return null;
  const align = [];
  for (const cell of cells) {
    if (!/^:?-+:?$/.test(cell)) return null;
    align.push(['', 'left', 'right', 'center'][cell.startsWith(':') + 2 * cell.endsWith(':')]);
  }
  return align;
}

function tableAt(lines, i) {
  const line = lines[i];
  const next = lines[i + 1];
  if (next === undefined || !line.includes('|')) return null;
  const c = next[indentOf(next)];
  if (c !== '|' && c !== '-' && c !== ':') return null;
  const head = splitRow(line);
  const align = delimiterRow(next, head.length);
  return align ? { head, align } : null;
}

function startsBlock(lines, i) {
  const line = lines[i];
  if (fenceAt(line) || headingAt(line) || isRule(line) || quoteAt(line) || opensDisplay(line, indentOf(line))) return true;
  const item = itemAt(line);
  if (item && (!item.ordered || item.start === 1) && item.content < line.length) return true;
  return tableAt(lines, i) !== null;
}

/** Follows the lines of a quote: whether the last one is text that a line without a mark may continue. */
class LastLine {
  #fence = null;
  isText = false;

  take(line) {
    let text = line;
    for (let k = 0; k < MAX_DEPTH; k++) { // the marks of quotes and items within
      const item = isRule(text) ? null : itemAt(text);
      if (quoteAt(text)) text = text.slice(indentOf(text) + 1);
      else if (item) text = text.slice(item.content);
      else break;
    }
    if (this.#fence) {
      if (closesFence(text, this.#fence)) this.#fence = null;
      this.isText = false;
      return;
    }
    this.#fence = fenceAt(text);
    this.isText = !this.#fence && !isBlank(text) && !headingAt(text) && !isRule(text) && !text.includes('|');
  }
}

const continuesText = (lines, i) => !isBlank(lines[i]) && !startsItem(lines[i]) && !startsBlock(lines, i);

/** Reads the lines of a code block from line i on: {lines, closed, end: the line after it}. */
function codeLines(lines, i, fence) {
  const body = [];
  for (; i < lines.length; i++) {
    if (closesFence(lines[i], fence)) return { lines: body, closed: true, end: i + 1 };
    body.push(lines[i].slice(Math.min(fence.indent, indentOf(lines[i]))));
  }
  if (body[body.length - 1] === '') body.pop(); // the end of the text, not an empty line
  return { lines: body, closed: false, end: i };
}

function languageOf(info) {
  const short = info.slice(0, 200);
  const space = short.search(/[\s{,]/);
  return (space < 0 ? short : short.slice(0, space)).slice(0, 24);
}

/** open: {t, fence, lang, v, lines}: the block so far. */
function codeAt(lines, from, open) {
  const found = codeLines(lines, from, open.fence);
  const more = found.lines.length === 0 ? '' : (open.lines > 0 ? '\n' : '') + found.lines.join('\n');
  return [{ t: 'code', lang: open.lang, v: open.v + more, closed: found.closed }, { ...found, from, more, resume: open }];
}

function rowsAt(lines, from, open) {
  const rows = [];
  let end = from;
  for (; end < lines.length && !isBlank(lines[end]) && lines[end].includes('|'); end++) {
    rows.push(splitRow(lines[end]).slice(0, open.head.length).map((cell) => inline(cell)));
  }
  return [{ t: 'table', align: open.align, head: open.head, rows }, { from, end, resume: open }];
}

/** A paragraph whose line `at` is known to be its own. notes: whether it is to be cut later. */
function textAt(lines, at, notes) {
  const text = [lines[at].slice(indentOf(lines[at]))];
  let end = at + 1;
  for (; end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end); end++) text.push(lines[end].slice(indentOf(lines[end])));
  const src = text.join('\n').trimEnd();
  if (!notes) return [{ t: 'p', c: inline(src) }, { end }];
  const places = []; // where the lines after the first begin
  for (let k = 0, n = 0; k + 1 < text.length; k++) places.push(n += text[k].length + 1);
  const reach = new Reach(src.length);
  return [{ t: 'p', c: inline(src, reach) }, { from: at, end, src, places, reach, resume: { t: 'p' } }];
}

/** The block that goes on in line 0. */
function resumedAt(lines, open, notes) {
  if (open.t === 'code') return codeAt(lines, 0, open);
  if (open.t === 'list') return listAt(lines, 0, open, 0);
  return open.t === 'table' ? rowsAt(lines, 0, open) : textAt(lines, 0, notes);
}

function quoteOf(lines, at, depth) {
  const inner = [];
  const last = new LastLine();
  let end = at;
  for (; end < lines.length && (quoteAt(lines[end]) || (last.isText && continuesText(lines, end))); end++) {
    const from = indentOf(lines[end]) + 1;
    inner.push(quoteAt(lines[end]) ? lines[end].slice(lines[end][from] === ' ' ? from + 1 : from) : lines[end]);
    last.take(inner[inner.length - 1]);
  }
  return [{ t: 'quote', b: blocks(inner, depth + 1) }, { end }];
}

/** [block, note] of what begins at line i; note.end: the line after it. notes: whether the block may be cut later. */
function blockAt(lines, i, depth, notes) {
  const line = lines[i];
  const fence = fenceAt(line);
  if (fence) return codeAt(lines, i + 1, { t: 'code', fence, lang: languageOf(fence.info), v: '', lines: 0 });
  const heading = headingAt(line);
  if (heading) return [{ t: 'h', n: heading.n, c: inline(heading.text) }, { end: i + 1 }];
  if (isRule(line)) return [{ t: 'hr' }, { end: i + 1 }];
  if (depth < MAX_DEPTH && quoteAt(line)) return quoteOf(lines, i, depth);
  const item = depth < MAX_DEPTH ? itemAt(line) : null;
  if (item) return listAt(lines, i, { t: 'list', first: item, n: 0 }, depth);
  const table = tableAt(lines, i);
  if (table) return rowsAt(lines, i + 2, { t: 'table', align: table.align, head: table.head.map((cell) => inline(cell)) });
  const closer = opensDisplay(line, indentOf(line));
  if (!closer) return textAt(lines, i, notes);
  const end = displayEnd(lines, i, closer);
  return [{ t: 'p', c: inline(lines.slice(i, end).map((l) => l.slice(indentOf(l))).join('\n').trimEnd()) }, { end }];
}

/** starts: where the lines begin, to be said of each block. resume: the block that goes on. notes: a Map of what was read of each. */
function blocks(lines, depth, { starts, resume, notes } = {}) {
  const out = [];
  for (let i = 0; i < lines.length;) {
    const goesOn = resume && i === 0;
    if (!goesOn && isBlank(lines[i])) { i++; continue; }
    const [block, note] = goesOn ? resumedAt(lines, resume, notes) : blockAt(lines, i, depth, notes);
    if (starts) block.at = starts[i];
    if (note.from !== undefined || note.items) notes?.set(block, note);
    out.push(block);
    if (goesOn && note.end === 0) resume = null; // a table that has no more rows
    i = note.end;
  }
  return out;
}

/**
 * The line after a displayed formula that opens at line i. Until it closes it goes on over lines that would begin other
 * blocks, but not over an empty line, a fence or a heading, so that an open one takes little with it.
 */
function displayEnd(lines, i, closer) {
  const first = lines[i].slice(indentOf(lines[i]) + 2);
  if (first.includes(closer)) return i + 1;
  for (i++; i < lines.length && !isBlank(lines[i]) && !fenceAt(lines[i]) && !headingAt(lines[i]); i++) {
    if (lines[i].includes(closer)) return i + 1;
  }
  return i;
}

/** Reads a list from line i on. open: {t, first: its first item, n: how many come before line i}. */
function listAt(lines, i, open, depth) {
  const { first } = open;
  const items = [];
  const at = [];
  let item = open.n === 0 ? first : itemAt(lines[i]);
  while (item) {
    at.push(i);
    // Models often indent by two under "1. ", so two columns beyond the marker are enough to belong to an item.
    const need = Math.min(item.content, item.indent + 2);
    const inner = [lines[i].slice(item.content)];
    let fence = fenceAt(inner[0]);
    let blank = false;
    let holdsItem = itemAt(inner[0]) !== null;
    for (i++; i < lines.length; i++) {
      const line = lines[i];
      if (isBlank(line)) {
        blank = true;
        inner.push('');
        continue;
      }
      const indent = indentOf(line);
      if (indent < need && (blank || fence || startsItem(line) || startsBlock(lines, i))) break;
      const inside = fence ? null : itemAt(line);
      // "  2." under "1." is the next item, unless it continues a list within.
      if (inside?.ordered && !holdsItem && indent < item.content && first.ordered && inside.delim === first.delim
          && inside.start === first.start + open.n + items.length + 1) break;
      holdsItem ||= inside !== null;
      const kept = line.slice(Math.min(indent, item.content));
      inner.push(kept);
      blank = false;
      if (fence) {
        if (closesFence(kept, fence)) fence = null;
      } else {
        fence = fenceAt(kept);
      }
    }
    let check = null;
    const box = inner[0].slice(0, 4).toLowerCase();
    if (!item.ordered && (box === '[ ] ' || box === '[x] ')) {
      check = box === '[x] ';
      inner[0] = inner[0].slice(4);
    }
    items.push({ b: blocks(inner, depth + 1), check });
    const next = i < lines.length && !isRule(lines[i]) ? itemAt(lines[i]) : null;
    item = next && next.ordered === first.ordered && next.delim === first.delim ? next : null;
  }
  return [{ t: 'list', ordered: first.ordered, start: first.start, items }, { items: at, end: i, resume: open }];
}

const startsItem = (line) => itemAt(line) !== null;
