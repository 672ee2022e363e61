// The conversation on screen: one view per message, the live answer, and the scrolling that follows it.
//
// A live answer is drawn at most once per animation frame, and when drawing itself is slow (a huge list or table that
// is still open) the next drawing waits a multiple of what the last one cost, so typing and scrolling stay smooth.
// Screen readers do not announce every token: articles are marked busy, and app.js announces the finished answer once.

import { AssistantView, UserView } from './views.js';

const NEAR_BOTTOM_PX = 64;
const END_PX = 2;
const REST_FACTOR = 4;
const MAX_REST_MS = 1000;

export class Thread {
  #root;
  #scroll;
  #latest;
  #actions;
  #views = [];
  #live = null; // {run, view}
  #frame = 0;
  #restUntil = 0;
  #pinned = true;
  #lastTop = 0;

  /**
   * actions: onEdit(message, text), onEditAsked(answer), onVersion(message, id, step), onContinue(), onRegenerate(), onEnterKey(), hasKey(),
   * loading() (percent or null).
   */
  constructor({ root, scroll, latest, actions }) {
    this.#root = root;
    this.#scroll = scroll;
    this.#latest = latest;
    this.#actions = actions;
    scroll.addEventListener('scroll', () => this.#onScroll(), { passive: true });
    scroll.addEventListener('wheel', (event) => { if (event.deltaY < 0 && scroll.scrollTop > 0) this.#pinned = false; }, { passive: true });
    latest.addEventListener('click', () => this.toBottom());
    new ResizeObserver(() => this.#follow()).observe(scroll);
  }

  #atBottom() { return this.#left() < NEAR_BOTTOM_PX; }

  /** How far it is to the end, in pixels. */
  #left() { return this.#scroll.scrollHeight - this.#scroll.scrollTop - this.#scroll.clientHeight; }

  /** A small step up counts too: scrolling is many of them where it is smooth. At the very end it is a text that got shorter. */
  #onScroll() {
    const top = this.#scroll.scrollTop;
    if (this.#left() > END_PX && top < this.#lastTop) this.#pinned = false;
    else if (this.#atBottom()) this.#pinned = true;
    this.#lastTop = top;
    this.#latest.hidden = this.#pinned || this.#atBottom();
  }

  #follow() {
    if (this.#pinned) this.#scroll.scrollTop = this.#scroll.scrollHeight;
    this.#latest.hidden = this.#pinned || this.#atBottom();
  }

  toBottom() {
    this.#pinned = true;
    this.#follow();
  }

  /** Shows a conversation, entries of branches.js' joined(); `live` is {run, message} of its answer under way, or null. */
  show(entries, live) {
    this.#stopDrawing();
    for (const view of this.#views) view.dispose();
    this.#views = [];
    this.#root.replaceChildren();
    this.sync(entries, live);
    this.toBottom();
  }

  /** Updates the views to the entries. Unchanged views stay, with an edit in progress. */
  sync(entries, live) {
    const old = new Map(this.#views.map((view) => [view.message.id, view]));
    const isShown = entries.some(({ message }) => message === live?.message);
    if (this.#live && (!isShown || this.#live.run !== live.run)) this.#stopDrawing();
    this.#views = entries.map((entry, i) => {
      const { id } = entry.message;
      const view = this.#viewOf(entry, i === entries.length - 1, live, old.get(id));
      if (view === old.get(id)) old.delete(id);
      return view;
    });
    for (const view of old.values()) {
      view.dispose();
      view.el.remove();
    }
    let at = this.#root.firstChild;
    for (const { el } of this.#views) {
      if (el === at) at = at.nextSibling;
      else this.#root.insertBefore(el, at);
    }
    this.#follow();
  }

  /** The view of a message: the old one if it is still right. */
  #viewOf(entry, last, live, old) {
    const { message } = entry;
    if (message.role === 'user') {
      if (!old) return new UserView(entry, this.#actions);
      old.update(entry);
      return old;
    }
    if (live?.message === message) {
      if (old && this.#live?.view === old) return old;
      const view = new AssistantView(entry, this.#actions);
      this.#live = { run: live.run, view };
      view.begin(live.run);
      view.draw(live.run);
      return view;
    }
    if (old && this.#live?.view !== old) {
      old.take(entry);
      if (old.shown === old.state(last)) return old;
    }
    const view = new AssistantView(entry, this.#actions);
    view.finish(last, this.#actions.hasKey());
    return view;
  }

  #stopDrawing() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#live = null;
    this.#restUntil = 0;
  }

  /** A run has changed; ignored unless its conversation is shown. */
  update(run, what) {
    if (this.#live?.run !== run) return;
    if (what === 'state') this.#live.view.phase(run);
    else if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#draw());
    if (what === 'state') this.#follow();
  }

  #draw() {
    this.#frame = 0;
    if (!this.#live) return;
    const { run, view } = this.#live;
    const from = performance.now();
    if (from < this.#restUntil) {
      this.#frame = requestAnimationFrame(() => this.#draw());
      return;
    }
    view.draw(run);
    this.#follow();
    const cost = performance.now() - from;
    this.#restUntil = cost > 8 ? from + Math.min(MAX_REST_MS, cost * REST_FACTOR) : 0;
  }

  /** The run shown has ended and its message holds the result. Returns whether it was on screen. */
  finished(run) {
    if (this.#live?.run !== run) return false;
    const { view } = this.#live;
    this.#stopDrawing();
    view.finish(this.#views.at(-1) === view, this.#actions.hasKey());
    this.#follow();
    return true;
  }

  /** Opens the last user message for editing. */
  editLast() {
    return this.#editBefore(this.#views.length);
  }

  /** Opens the last user message among the first n views for editing. Returns whether there is one. */
  #editBefore(n) {
    const view = this.#views.slice(0, n).findLast((v) => v instanceof UserView);
    view?.edit();
    return view !== undefined;
  }

  /** Opens the question of an answer for editing. */
  editAsked(message) {
    this.#editBefore(Math.max(0, this.#views.findIndex((view) => view.message.id === message.id)));
  }

  /** Focuses a button of the versions of a message; the other one at an end. step: -1 or 1. */
  focusVersion(id, step) {
    const el = this.#views.find((view) => view.message.id === id || view.entry.versions.includes(id))?.el;
    const [before, next] = el?.querySelectorAll('.versions button') ?? [];
    const [wanted, other] = step < 0 ? [before, next] : [next, before];
    (wanted?.disabled ? other : wanted)?.focus();
  }

  /** Brings a message into view. */
  reveal(id) {
    this.#pinned = false;
    this.#views.find((view) => view.message.id === id || view.entry.before?.some((m) => m.id === id))?.el.scrollIntoView({ block: 'start' });
  }

  /** The visible text of an answer. */
  textOf(message) { return this.#views.find((view) => view.message.id === message.id)?.answer?.innerText ?? ''; }
}
