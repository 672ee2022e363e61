// Search over the titles and texts of all conversations. The texts are read when the first search begins, a few conversations at
// a time, and afterwards only those that have changed; a search itself reads nothing. Of a history beyond a bound the least
// recently used conversations are not remembered, and read anew for each search.

const AT_ONCE = 25; // conversations read before the page gets its turn
const SNIPPET_CHARS = 90;
const REMEMBERED_CHARS = 16_000_000;

const folded = (text) => text.normalize('NFC').toLowerCase();
const wordsOf = (query) => folded(query).split(/\s+/).filter(Boolean);

export class Search {
  #store;
  #index = new Map(); // id → {updated, size, title, text, folded, starts: [[offset, message id]]}
  #beyond = new Map(); // id → what #hit() returned for the query that was prepared, of those that are not remembered
  #remembered;

  constructor(store, remembered = REMEMBERED_CHARS) {
    this.#store = store;
    this.#remembered = remembered;
  }

  async #read({ id, title, updated, size }) {
    const starts = [];
    let text = '';
    for (const m of (await this.#store.read(id))?.messages ?? []) {
      starts.push([text.length, m.id]);
      text += `${[m.text, ...(m.files ?? []).flatMap((f) => [f.name, f.text])].join('\n')}\n`;
    }
    text = text.normalize('NFC');
    return { updated, size, title, text, folded: folded(`${title}\n${text}`), starts };
  }

  /**
   * Reads what has changed of the conversations, entries of the store's list, for find() with this query. isStale(): nobody waits
   * for it any more. Resolves to how many were read.
   */
  async prepare(list, query = '', turn = () => new Promise((resolve) => { setTimeout(resolve, 0); }), isStale = () => false) {
    const there = new Set(list.map((c) => c.id));
    for (const id of this.#index.keys()) if (!there.has(id)) this.#index.delete(id);
    this.#beyond.clear();
    const words = wordsOf(query);
    let n = 0;
    let chars = 0;
    for (const c of list) {
      let known = this.#index.get(c.id);
      if (!known || known.updated !== c.updated || known.size !== c.size || known.title !== c.title) {
        if (n++ > 0 && n % AT_ONCE === 0) await turn();
        if (isStale()) return n;
        known = await this.#read(c);
        if (isStale()) return n;
      }
      chars += known.text.length;
      if (chars <= this.#remembered) this.#index.set(c.id, known);
      else {
        this.#index.delete(c.id);
        this.#beyond.set(c.id, this.#hit(known, words));
      }
    }
    return n;
  }

  /** [{id, title, updated, snippet, message}] of those that have all the words, in the order of the list. */
  find(list, query) {
    const words = wordsOf(query);
    if (words.length === 0) return [];
    const found = [];
    for (const c of list) {
      const known = this.#index.get(c.id);
      const hit = known ? this.#hit(known, words) : this.#beyond.get(c.id) ?? null;
      if (hit !== null) found.push({ ...c, ...hit });
    }
    return found;
  }

  /** Where the words are: {snippet, message}, {} where all are in the title; null where one is nowhere. */
  #hit(known, words) {
    if (words.length === 0 || !words.every((w) => known.folded.includes(w))) return null;
    const skip = folded(known.title).length + 1;
    const at = Math.min(...words.map((w) => known.folded.indexOf(w, skip)).filter((i) => i >= 0));
    return Number.isFinite(at) ? this.#around(known, at - skip) : {};
  }

  #around({ text, folded: whole, title, starts }, at) {
    const source = text.length === whole.length - folded(title).length - 1 ? text : whole.slice(folded(title).length + 1); // some letters fold into two
    const from = Math.max(0, at - 30);
    const piece = source.slice(from, from + SNIPPET_CHARS).replace(/\s+/g, ' ').trim();
    return { snippet: `${from > 0 ? '…' : ''}${piece}${from + SNIPPET_CHARS < source.length ? '…' : ''}`, message: starts.findLast(([start]) => start <= at)?.[1] };
  }
}
