// What the browser keeps for the page: localStorage for all tabs, sessionStorage for this one over a reload.

import { memoryStorage, newId } from './store.js';

/** A storage for store.js; one that forgets (`forgets`) where the browser refuses. */
export function browserStorage() {
  try {
    const storage = window.localStorage;
    storage.setItem('sluice.probe', '1');
    storage.removeItem('sluice.probe');
    return {
      watched: true, getItem: (k) => storage.getItem(k), setItem: (k, v) => storage.setItem(k, v), removeItem: (k) => storage.removeItem(k), keys: () => Object.keys(storage),
    };
  } catch {
    return { ...memoryStorage(), forgets: true };
  }
}

/** What this tab keeps over a reload; nothing where the browser refuses. */
export const tab = {
  get(name) { try { return JSON.parse(sessionStorage.getItem(`sluice.v1.${name}`)); } catch { return null; } },
  set(name, value) { try { sessionStorage.setItem(`sluice.v1.${name}`, JSON.stringify(value)); } catch { /* lost on reload */ } },
};

/** The name of a conversation at the server. It includes the tab: a newer question ends an older answer of its own tab only. */
export function nameOf(which) {
  if (!tab.get('tab')) tab.set('tab', newId());
  const name = tab.get('tab');
  return name ? `${which.id}-${name}` : which.id;
}
