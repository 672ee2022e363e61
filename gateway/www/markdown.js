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

import { inline, runEnd } from './inline.js';
import { opensDisplay } from './math_find.js';

export { inline, safeUrl } from './inline.js';

const MAX_DEPTH = 10; // of containers
const MAX_COLUMNS = 40;

/** Parses a whole text. */
export function parse(source) {
  const lines = [];
  const starts = [];
  const text = source.includes('\r') ? source.replace(/\r\n?/g, '\n') : source;
  for (let at = 0; at <= text.length;) {
    let end = text.indexOf('\n', at);
    if (end < 0) end = text.length;
    lines.push(text.slice(at, end).replaceAll('\t', '    '));
    starts.push(at);
    at = end + 1;
  }
  return blocks(lines, 0, starts);
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

function blocks(lines, depth, starts) {
  const out = [];
  let i = 0;
  const emit = (at, block) => {
    if (starts) block.at = starts[at];
    out.push(block);
  };
  while (i < lines.length) {
    const line = lines[i];
    if (isBlank(line)) { i++; continue; }
    const at = i;
    const fence = fenceAt(line);
    if (fence) {
      const body = [];
      let closed = false;
      for (i++; i < lines.length; i++) {
        if (closesFence(lines[i], fence)) { closed = true; i++; break; }
        body.push(lines[i].slice(Math.min(fence.indent, indentOf(lines[i]))));
      }
      if (!closed && body[body.length - 1] === '') body.pop(); // the end of the text, not an empty line
      const info = fence.info.slice(0, 200);
      const space = info.search(/[\s{,]/);
      const lang = (space < 0 ? info : info.slice(0, space)).slice(0, 24);
      emit(at, { t: 'code', lang, v: body.join('\n'), closed });
      continue;
    }
    const heading = headingAt(line);
    if (heading || isRule(line)) {
      emit(at, heading ? { t: 'h', n: heading.n, c: inline(heading.text) } : { t: 'hr' });
      i++;
      continue;
    }
    if (depth < MAX_DEPTH && quoteAt(line)) {
      const inner = [];
      const end = new LastLine();
      for (; i < lines.length && (quoteAt(lines[i]) || (end.isText && continuesText(lines, i))); i++) {
        const from = indentOf(lines[i]) + 1;
        inner.push(quoteAt(lines[i]) ? lines[i].slice(lines[i][from] === ' ' ? from + 1 : from) : lines[i]);
        end.take(inner[inner.length - 1]);
      }
      emit(at, { t: 'quote', b: blocks(inner, depth + 1) });
      continue;
    }
    const item = depth < MAX_DEPTH ? itemAt(line) : null;
    if (item) {
      const [list, next] = listAt(lines, i, item, depth);
      emit(at, list);
      i = next;
      continue;
    }
    const table = tableAt(lines, i);
    if (table) {
      const rows = [];
      for (i += 2; i < lines.length && !isBlank(lines[i]) && lines[i].includes('|'); i++) {
        rows.push(splitRow(lines[i]).slice(0, table.head.length).map(inline));
      }
      emit(at, { t: 'table', align: table.align, head: table.head.map(inline), rows });
      continue;
    }
    const closer = opensDisplay(line, indentOf(line));
    if (closer) {
      i = displayEnd(lines, i, closer);
      emit(at, { t: 'p', c: inline(lines.slice(at, i).map((l) => l.slice(indentOf(l))).join('\n').trimEnd()) });
      continue;
    }
    const text = [line.slice(indentOf(line))];
    for (i++; i < lines.length && !isBlank(lines[i]) && !startsBlock(lines, i); i++) {
      text.push(lines[i].slice(indentOf(lines[i])));
    }
    emit(at, { t: 'p', c: inline(text.join('\n').trimEnd()) });
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

/** Reads a list from line i on: returns [block, index of the first line after it]. */
function listAt(lines, i, first, depth) {
  const items = [];
  let item = first;
  while (item) {
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
          && inside.start === first.start + items.length + 1) break;
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
  return [{ t: 'list', ordered: first.ordered, start: first.start, items }, i];
}

const startsItem = (line) => itemAt(line) !== null;
