// Small helpers to build the page from nodes. No module of the page parses a string as HTML.

const SVG = 'http://www.w3.org/2000/svg';

function svgNode(tag, attributes) {
  const el = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) el.setAttribute(name, value);
  return el;
}

/**
 * Creates an element. `props`: class, text, data-* and aria-* attributes as written, on<Event> listeners,
 * booleans as attributes that are there or not. `children`: nodes, strings, or falsy values to skip.
 */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') el.className = value;
    else if (name === 'text') el.textContent = value;
    else if (name.startsWith('on')) el.addEventListener(name.slice(2).toLowerCase(), value);
    else el.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) el.append(child);
  }
  return el;
}

/**
 * Calls actions[event.key] on a key press, unless an input method is composing. A true result consumes the event.
 */
export function onKeys(el, actions) {
  el.addEventListener('keydown', (event) => {
    if (event.isComposing || event.keyCode === 229 || !Object.hasOwn(actions, event.key)) return;
    if (!actions[event.key](event)) return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** Makes a textarea as high as its text, within what the style sheet allows. */
export function fit(area) {
  area.style.height = 'auto';
  area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
}

/** A picture from the sprite in index.html; decorative, so hidden from screen readers. */
export function icon(name, cls = 'icon') {
  const svg = svgNode('svg', { class: cls, 'aria-hidden': 'true' });
  svg.append(svgNode('use', { href: `#i-${name}` }));
  return svg;
}

/** The Sluice mark as live nodes, so that its gate can be lifted while an answer flows. */
export function mark(cls = 'mark') {
  const svg = svgNode('svg', { class: cls, viewBox: '0 0 32 32', 'aria-hidden': 'true' });
  const part = (tag, attrs) => svg.append(svgNode(tag, attrs));
  part('rect', { class: 'mark-bed', width: '32', height: '32', rx: '9' });
  part('path', { class: 'mark-frame', d: 'M9 7v14M23 7v14M7 7h18' });
  part('rect', { class: 'mark-gate', x: '12', y: '12', width: '8', height: '8', rx: '1' });
  part('path', { class: 'mark-wave', d: 'M-7 22.5c2.5-2.2 4.2-2.2 6.6 0s4.2 2.2 6.6 0 4.2-2.2 6.6 0 4.2 2.2 6.6 0 4.2-2.2 6.6 0 4.2 2.2 6.6 0 4.2-2.2 6.6 0' });
  part('path', { class: 'mark-wave two', d: 'M-7 27c2.5-1.8 4.2-1.8 6.6 0s4.2 1.8 6.6 0 4.2-1.8 6.6 0 4.2 1.8 6.6 0 4.2-1.8 6.6 0 4.2 1.8 6.6 0 4.2-1.8 6.6 0' });
  return svg;
}

/** Text to the clipboard, also where the asynchronous interface is missing (plain http on another host). */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h('textarea', { class: 'offscreen', 'aria-hidden': 'true' });
    area.value = text;
    const focused = document.activeElement;
    document.body.append(area);
    area.select();
    let ok = false;
    try { ok = document.execCommand('copy'); } catch { ok = false; }
    area.remove();
    focused?.focus?.({ preventScroll: true });
    return ok;
  }
}
