// Search over the titles and texts of all conversations. The texts are read when the first search begins, a few conversations at
// a time, and afterwards only those that have changed; a search itself reads nothing.

const AT_ONCE = 25; // conversations read before the page gets its turn
const SNIPPET_CHARS = 90;

const folded = (text) => text.normalize('NFC').toLowerCase();

export class Search {
  #store;
  #index = new Map(); // id → {updated, size, title, text, folded, starts: [[offset, message id]]}

  constructor(store) { this.#store = store; }

  #read({ id, title, updated, size }) {
    const starts = [];
    let text = '';
    for (const m of this.#store.get(id)?.messages ?? []) {
      starts.push([text.length, m.id]);
      text += `${[m.text, ...(m.files ?? []).flatMap((f) => [f.name, f.text])].join('\n')}\n`;
    }
    text = text.normalize('NFC');
    this.#index.set(id, { updated, size, title, text, folded: folded(`${title}\n${text}`), starts });
  }

  /** Reads what has changed of the conversations, entries of the store's list. */
  async prepare(list, turn = () => new Promise((resolve) => { setTimeout(resolve, 0); })) {
    const there = new Set(list.map((c) => c.id));
    for (const id of this.#index.keys()) if (!there.has(id)) this.#index.delete(id);
    let n = 0;
    for (const c of list) {
      const known = this.#index.get(c.id);
      if (known && known.updated === c.updated && known.size === c.size && known.title === c.title) continue;
      if (n++ > 0 && n % AT_ONCE === 0) await turn();
      this.#read(c);
    }
    return n;
  }

  /** [{id, title, updated, snippet, message}] of those that have all the words, in the order of the list. */
  find(list, query) {
    const words = folded(query).split(/\s+/).filter(Boolean);
    if (words.length === 0) return [];
    const found = [];
    for (const c of list) {
      const known = this.#index.get(c.id);
      if (!known || !words.every((w) => known.folded.includes(w))) continue;
      const skip = folded(known.title).length + 1;
      const at = Math.min(...words.map((w) => known.folded.indexOf(w, skip)).filter((i) => i >= 0));
      found.push({ ...c, ...(Number.isFinite(at) && this.#around(known, at - skip)) });
    }
    return found;
  }

  #around({ text, folded: whole, title, starts }, at) {
    const source = text.length === whole.length - folded(title).length - 1 ? text : whole.slice(folded(title).length + 1); // some letters fold into two
    const from = Math.max(0, at - 30);
    const piece = source.slice(from, from + SNIPPET_CHARS).replace(/\s+/g, ' ').trim();
    return { snippet: `${from > 0 ? '…' : ''}${piece}${from + SNIPPET_CHARS < source.length ? '…' : ''}`, message: starts.findLast(([start]) => start <= at)?.[1] };
  }
}
