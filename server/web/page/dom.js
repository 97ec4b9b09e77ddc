// SPDX-License-Identifier: Apache-2.0
// Builds trees of elements, and moves a shown tree to a new one without losing focus or scroll.

const SVG = 'http://www.w3.org/2000/svg';

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    // The policy of the page forbids style attributes; properties are allowed.
    if (name === 'style') Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function h(tag, properties, ...children) {
  return build(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute('data-key') : null);

function isAlike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);
}

function morphAttributes(from, to) {
  for (const {name} of [...from.attributes]) {
    // A <details> is opened by its reader.
    if (name !== 'style' && name !== 'open' && !to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const {name, value} of [...to.attributes]) {
    if (name !== 'style' && from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  if (from.style.cssText !== to.style.cssText) from.style.cssText = to.style.cssText;
}

// Makes the children of `parent` like `wanted`. Elements with a data-key keep their identity.
export function show(parent, ...wanted) {
  const next = wanted.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false)
      .map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
  const keyed = new Map();
  for (const child of parent.childNodes) {
    if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  }
  let at = parent.firstChild;
  for (const child of next) {
    const key = keyOf(child);
    let old = key === null ? at : keyed.get(key);
    if (old && isAlike(old, child)) {
      if (old === at) at = at.nextSibling;
      else parent.insertBefore(old, at);
      if (old.nodeType === Node.TEXT_NODE) {
        if (old.data !== child.data) old.data = child.data;
      } else if (old.nodeType === Node.ELEMENT_NODE) {
        morphAttributes(old, child);
        show(old, ...child.childNodes);
      }
    } else {
      parent.insertBefore(child, at);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}
