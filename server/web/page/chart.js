// SPDX-License-Identifier: Apache-2.0
// A line over steps with its smoothed self, an axis that people can read, and a cursor.
import {h, svg} from '/dom.js';
import {count, number} from '/format.js';

const LEFT = 56, RIGHT = 12, TOP = 8, BOTTOM = 24;
const cursors = new Map();   // chart id -> share of the width
const layouts = new Map();   // chart id -> what the pointer needs

// An average that forgets: weight 0 is the line itself. Early values are not pulled towards zero.
export function smooth(points, weight) {
  let sum = 0, norm = 0;
  return points.map((point) => {
    if (!Number.isFinite(point.value)) return {...point};
    sum = sum * weight + point.value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return {step: point.step, value: sum / norm};
  });
}

export function ticks(low, high, wanted) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const result = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) result.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return result;
}

function range(points, isLog) {
  let low = Infinity, high = -Infinity;
  for (const {value} of points) {
    if (!Number.isFinite(value) || (isLog && value <= 0)) continue;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) return null;
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return [isLog ? low / 2 : low - room, isLog ? high * 2 : high + room];
  }
  const room = (high - low) * 0.05;
  return isLog ? [low, high] : [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

function path(points, x, y) {
  let text = '', isDown = false;
  for (const {step, value} of points) {
    const at = y(value);
    if (!Number.isFinite(at)) {
      isDown = false;  // a gap is shown as a gap
      continue;
    }
    text += `${isDown ? 'L' : 'M'}${x(step).toFixed(1)} ${at.toFixed(1)}`;
    isDown = true;
  }
  return text;
}

// points: [{step, value}]. `width` in CSS pixels.
export function chart({id, title, points, width, height = 220, weight = 0, isLog = false}) {
  const bounds = range(points, isLog);
  if (!bounds) return h('p', {class: 'empty'}, `No ${title} yet`);
  const first = points[0].step, last = Math.max(points[points.length - 1].step, first + 1);
  const right = width - RIGHT, bottom = height - BOTTOM;
  const scale = isLog ? Math.log10 : (value) => value;
  const [low, high] = bounds.map(scale);
  const x = (step) => LEFT + ((step - first) / (last - first)) * (right - LEFT);
  const y = (value) => (isLog && value <= 0 ? NaN : bottom - ((scale(value) - low) / (high - low)) * (bottom - TOP));
  const marks = isLog ? ticks(low, high, 4).map((power) => 10 ** power) : ticks(bounds[0], bounds[1], 4);
  const steps = ticks(first, last, Math.max(3, Math.floor(width / 130))).filter(Number.isInteger);
  const smoothed = smooth(points, weight);
  layouts.set(id, {points, smoothed, first, last, right});
  const end = smoothed[smoothed.length - 1];

  const overlay = [];
  if (cursors.has(id)) {
    const wanted = first + cursors.get(id) * (last - first);
    let near = 0;
    points.forEach((point, i) => {
      if (Math.abs(point.step - wanted) < Math.abs(points[near].step - wanted)) near = i;
    });
    const at = x(points[near].step), isRight = at > (LEFT + right) / 2;
    const label = `step ${count(points[near].step)}: ${number(points[near].value)}` + (weight > 0 ? ` (smoothed ${number(smoothed[near].value)})` : '');
    overlay.push(svg('line', {class: 'cursor', x1: at, x2: at, y1: TOP, y2: bottom}));
    if (Number.isFinite(y(points[near].value))) overlay.push(svg('circle', {class: 'dot', cx: at, cy: y(points[near].value), r: 3}));
    overlay.push(svg('text', {class: 'value', x: isRight ? at - 8 : at + 8, y: TOP + 12, 'text-anchor': isRight ? 'end' : 'start'}, label));
  }
  return svg('svg', {
    'data-key': id, 'data-chart': id, class: 'chart', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img',
    'aria-label': `${title} from step ${count(first)} to ${count(points[points.length - 1].step)}, now ${number(end.value)}`,
  },
  marks.map((mark) => [
    svg('line', {class: 'grid', x1: LEFT, x2: right, y1: y(mark), y2: y(mark)}),
    svg('text', {class: 'tick', x: LEFT - 8, y: y(mark) + 4, 'text-anchor': 'end'}, number(mark)),
  ]),
  steps.map((step) => svg('text', {class: 'tick', x: x(step), y: height - 6, 'text-anchor': step === last ? 'end' : 'middle'}, count(step))),
  svg('line', {class: 'axis', x1: LEFT, x2: right, y1: bottom, y2: bottom}),
  svg('path', {class: weight > 0 ? 'line raw' : 'line', d: path(points, x, y)}),
  weight > 0 ? svg('path', {class: 'line', d: path(smoothed, x, y)}) : null,
  overlay);
}

// Follows the pointer over charts; `redraw` shows the cursor.
export function followPointer(root, redraw) {
  root.addEventListener('pointermove', (event) => {
    const shown = event.target.closest && event.target.closest('[data-chart]');
    if (!shown) {
      if (cursors.size > 0) {
        cursors.clear();
        redraw();
      }
      return;
    }
    const layout = layouts.get(shown.dataset.chart);
    const box = shown.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * shown.viewBox.baseVal.width;
    cursors.set(shown.dataset.chart, Math.min(1, Math.max(0, (at - LEFT) / (layout.right - LEFT))));
    redraw();
  });
  root.addEventListener('pointerleave', () => {
    cursors.clear();
    redraw();
  });
}
