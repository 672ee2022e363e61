// JSON as models write it: a scanner that follows a growing text, and a formatter that keeps every token as it stands.
//
// Both take each character a fixed number of times. Numbers stay as written, so that none loses digits.

const MAX_NESTING = 200;
const MAX_INDENTED = 24; // levels that get lines of their own, so that indentation stays in proportion to the text

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const WORDS = ['true', 'false', 'null'];
const HEX = /[0-9a-fA-F]/;

/** Whether a text that comes in pieces may still become one JSON object or array; `complete` once it is one. */
export class JsonScan {
  #stack = []; // '{' or '['
  #wants = 'start'; // start, value, first (value or end), key, firstKey, colon, next, end
  #token = ''; // an open number or word
  #inString = false;
  #isKey = false;
  #escape = 0; // 0 none, 1 after a backslash, 2 to 5 hexadecimal digits to come plus one
  failed = false;
  used = 0;

  get complete() { return !this.failed && this.#wants === 'end'; }
  get started() { return this.#wants !== 'start'; }

  /** Takes what the whole text has beyond the characters taken before; true while it may be JSON. */
  take(text) {
    for (; this.used < text.length && !this.failed; this.used++) this.#step(text[this.used]);
    return !this.failed;
  }

  #step(c) {
    if (this.#inString) { this.#stringStep(c); return; }
    if (this.#token !== '') {
      if (/[\w.+-]/.test(c)) {
        this.#token += c;
        if (this.#token.length > 400) this.failed = true;
        return;
      }
      if (!NUMBER.test(this.#token) && !WORDS.includes(this.#token)) { this.failed = true; return; }
      this.#token = '';
      this.#valueEnds();
    }
    if (c === ' ' || c === '\n' || c === '\t' || c === '\r') return;
    const wants = this.#wants;
    if (c === '{' || c === '[') {
      if (wants !== 'start' && wants !== 'value' && wants !== 'first') this.failed = true;
      else if (this.#stack.push(c) > MAX_NESTING) this.failed = true;
      else this.#wants = c === '{' ? 'firstKey' : 'first';
    } else if (c === '}' || c === ']') {
      const open = c === '}' ? '{' : '[';
      const may = wants === 'next' || wants === (c === '}' ? 'firstKey' : 'first');
      if (!may || this.#stack.pop() !== open) this.failed = true;
      else this.#valueEnds();
    } else if (c === ',') {
      if (wants !== 'next') this.failed = true;
      else this.#wants = this.#stack[this.#stack.length - 1] === '{' ? 'key' : 'value';
    } else if (c === ':') {
      if (wants !== 'colon') this.failed = true;
      else this.#wants = 'value';
    } else if (c === '"') {
      this.#isKey = wants === 'key' || wants === 'firstKey';
      if (!this.#isKey && wants !== 'value' && wants !== 'first') this.failed = true;
      this.#inString = true;
    } else if ((wants === 'value' || wants === 'first') && /[-\dtfn]/.test(c)) {
      this.#token = c;
    } else {
      this.failed = true;
    }
  }

  #stringStep(c) {
    if (this.#escape === 1) {
      if (c === 'u') this.#escape = 5;
      else if ('"\\/bfnrt'.includes(c)) this.#escape = 0;
      else this.failed = true;
    } else if (this.#escape > 1) {
      if (!HEX.test(c)) this.failed = true;
      this.#escape = this.#escape === 2 ? 0 : this.#escape - 1;
    } else if (c === '\\') {
      this.#escape = 1;
    } else if (c < ' ') {
      this.failed = true;
    } else if (c === '"') {
      this.#inString = false;
      if (this.#isKey) this.#wants = 'colon';
      else this.#valueEnds();
    }
  }

  #valueEnds() { this.#wants = this.#stack.length === 0 ? 'end' : 'next'; }
}

/** Whether the text is one JSON object or array and nothing else. */
export function isJson(text) {
  const scan = new JsonScan();
  return scan.take(text) && scan.complete;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[^\s"{}[\],:]+|[{}[\],:]/y;
const BLANKS = /\s*/y;

/** The same JSON over lines, two spaces a level; null when the text is not one object or array. */
export function formatJson(text) {
  if (!isJson(text)) return null;
  const out = [];
  let depth = 0;
  let at = 0;
  const line = () => { out.push(depth <= MAX_INDENTED ? `\n${'  '.repeat(depth)}` : ' '); };
  const next = () => {
    BLANKS.lastIndex = at;
    BLANKS.exec(text);
    TOKEN.lastIndex = BLANKS.lastIndex;
    return TOKEN.exec(text)?.[0];
  };
  for (let token = next(); token !== undefined; token = next()) {
    at = TOKEN.lastIndex;
    if (token === '{' || token === '[') {
      const close = next();
      if (close === '}' || close === ']') {
        at = TOKEN.lastIndex;
        out.push(token + close);
      } else {
        out.push(token);
        depth++;
        line();
      }
    } else if (token === '}' || token === ']') {
      depth--;
      line();
      out.push(token);
    } else if (token === ',') {
      out.push(token);
      line();
    } else {
      out.push(token === ':' ? ': ' : token);
    }
  }
  return out.join('');
}
