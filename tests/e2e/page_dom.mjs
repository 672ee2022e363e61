// SPDX-License-Identifier: Apache-2.0
// As much of a document as render.js needs, for tests without a browser. Every operation is a loop or a step of its own, so that
// counting the steps of the code counts those of the document too.

class Node {
  parent = null;
  nodes = [];

  get firstChild() { return this.nodes[0] ?? null; }
  get lastChild() { return this.nodes[this.nodes.length - 1] ?? null; }
  get firstElementChild() { return this.nodes.find((n) => n instanceof Element) ?? null; }
  get lastElementChild() { return this.nodes.findLast((n) => n instanceof Element) ?? null; }
  get textContent() { return this.nodes.map((n) => n.textContent).join(''); }
  set textContent(text) { this.replaceChildren(...(text === '' ? [] : [text])); }

  append(...given) {
    for (const n of given) {
      const node = n instanceof Node ? n : new Text(String(n));
      node.remove();
      node.parent = this;
      this.nodes.push(node);
    }
  }

  replaceChildren(...given) {
    for (const n of this.nodes) n.parent = null;
    this.nodes = [];
    this.append(...given);
  }

  remove() {
    const siblings = this.parent?.nodes;
    if (!siblings) return;
    if (siblings[siblings.length - 1] === this) siblings.pop();
    else siblings.splice(siblings.indexOf(this), 1);
    this.parent = null;
  }

  replaceWith(node) {
    const { parent } = this;
    const at = parent.nodes.lastIndexOf(this);
    node.remove();
    parent.nodes[at] = node;
    node.parent = parent;
    this.parent = null;
  }

  querySelector(name) {
    for (const n of this.nodes) {
      const found = n instanceof Element && (n.localName === name ? n : n.querySelector(name));
      if (found) return found;
    }
    return null;
  }
}

/** Its data in pieces, so that adding to a long text costs what is added. */
class Text extends Node {
  #pieces;

  constructor(data) {
    super();
    this.#pieces = [data];
  }

  get data() {
    this.#pieces = [this.#pieces.join('')];
    return this.#pieces[0];
  }

  set data(text) { this.#pieces = [text]; }

  get textContent() { return this.data; }
  appendData(text) { this.#pieces.push(text); }
}

class Element extends Node {
  className = '';
  attributes = new Map();

  constructor(name) {
    super();
    this.localName = name;
  }

  set tabIndex(n) { this.setAttribute('tabindex', n); }
  get isConnected() { return true; }
  setAttribute(name, value) { this.attributes.set(name, String(value)); }
  addEventListener() {}
}

const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');

/** A node as HTML, with neighbouring texts as one. */
export function htmlOf(node) {
  if (node instanceof Text) return escaped(node.data);
  const attributes = [['class', node.className], ...node.attributes].filter(([, v]) => v !== '').map(([k, v]) => ` ${k}="${escaped(v)}"`);
  return `<${node.localName}${attributes.join('')}>${node.nodes.map(htmlOf).join('')}</${node.localName}>`;
}

export const createElement = (name) => new Element(name);

/** Makes `document` what the page's modules expect. */
export function installDocument() {
  globalThis.document = { compatMode: 'CSS1Compat', createElement, createElementNS: (_, name) => new Element(name), createTextNode: (text) => new Text(text) };
}
