// The access keys this browser knows, each under a name: from the address's fragment or typed by the user.

const NAME = /^[A-Za-z0-9_-]{1,32}$/;
const KEY = /^[\x21-\x7e]{4,512}$/;

export const isName = (text) => NAME.test(text);
export const isKey = (text) => KEY.test(text);

/** `#free=sk-…&paid=sk-…` → [{name, key}]; anything that is not a name with a key is left out. */
export function keysOfFragment(hash) {
  const found = [];
  for (const part of hash.replace(/^#/, '').split('&').slice(0, 16)) {
    const eq = part.indexOf('=');
    if (eq < 1) continue;
    let key;
    try { key = decodeURIComponent(part.slice(eq + 1)); } catch { continue; }
    const name = part.slice(0, eq);
    if (NAME.test(name) && KEY.test(key)) found.push({ name, key });
  }
  return found;
}

export class Keys {
  #store;
  #list = [];
  #selected = null;

  constructor(store) {
    this.#store = store;
    this.reload();
  }

  reload() {
    let raw = null;
    try { raw = JSON.parse(this.#store.pref('keys')); } catch { raw = null; }
    this.#list = (Array.isArray(raw) ? raw : [])
      .filter((k) => k && NAME.test(k.name) && KEY.test(k.key))
      .map(({ name, key }) => ({ name, key }));
    this.#selected = this.#store.pref('key');
  }

  /** The list as other tabs may have changed it; the choice stays this tab's. */
  #refresh() {
    const selected = this.#selected;
    this.reload();
    this.#selected = selected;
  }

  #save() {
    this.#store.setPref('keys', JSON.stringify(this.#list));
    this.#store.setPref('key', this.#selected);
  }

  /** Takes keys over; one that has a known name replaces the old one. */
  add(found, select = null) {
    this.#refresh();
    for (const { name, key } of found) {
      const old = this.#list.find((k) => k.name === name);
      if (old) old.key = key;
      else this.#list.push({ name, key });
    }
    if (select) this.#selected = select;
    this.#save();
  }

  /** '': none of them, for servers that let one in without. */
  select(name) {
    this.#refresh();
    this.#selected = name;
    this.#save();
  }

  /** Takes a key out under every name it has; one that has replaced it stays. */
  drop(key) {
    this.#refresh();
    this.#list = this.#list.filter((k) => k.key !== key);
    this.#save();
  }

  /** Takes out one name of a key. */
  dropName(name) {
    this.#refresh();
    this.#list = this.#list.filter((k) => k.name !== name);
    this.#save();
  }

  /** False where the new name is taken. */
  rename(name, wanted) {
    this.#refresh();
    const key = this.#list.find((k) => k.name === name);
    if (!key || this.#list.some((k) => k.name === wanted)) return false;
    key.name = wanted;
    if (this.#selected === name) this.#selected = wanted;
    this.#save();
    return true;
  }

  /** The last four characters of a key, by which its owner knows it. */
  endOf(name) { return this.#list.find((k) => k.name === name)?.key.slice(-4) ?? ''; }

  names() { return this.#list.map((k) => k.name); }

  /** {name, key} of that name, else the one in use. */
  named(name) { return this.#list.find((k) => k.name === name) ?? this.current(); }

  /** {name, key} in use, or null where none is known or wanted. */
  current() { return this.#selected === '' ? null : this.#list.find((k) => k.name === this.#selected) ?? this.#list[0] ?? null; }
}
