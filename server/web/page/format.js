// SPDX-License-Identifier: Apache-2.0
// Figures as people read them. 64-bit numbers arrive as text.

const DASH = '\u2013';

export const num = (value) => (value === null || value === undefined || value === '' ? 0 : Number(value));

export function bytes(value) {
  let size = num(value);
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return `${size.toFixed(digits)} ${units[unit]}`;
}

// Links are sold in powers of ten.
export function rate(bytesPerSecond) {
  if (!(bytesPerSecond > 0)) return DASH;
  if (bytesPerSecond >= 1e9) return `${(bytesPerSecond / 1e9).toFixed(1)} GB/s`;
  if (bytesPerSecond >= 1e6) return `${(bytesPerSecond / 1e6).toFixed(1)} MB/s`;
  return `${(bytesPerSecond / 1e3).toFixed(1)} kB/s`;
}

export function number(value) {
  const size = num(value);
  if (!Number.isFinite(size)) return String(value);
  if (size === 0) return '0';
  const magnitude = Math.abs(size);
  if (magnitude >= 1e6 || magnitude < 1e-3) return size.toExponential(2);
  return String(Number(size.toPrecision(4)));
}

export const count = (value) => num(value).toLocaleString('en-US');
export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : DASH);

export function duration(seconds) {
  if (!Number.isFinite(seconds) || seconds < 0) return DASH;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// Of a step: tenths matter.
export function brief(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  return seconds < 1 ? duration(seconds) : seconds < 100 ? `${Number(seconds.toPrecision(3))} s` : duration(seconds);
}

// "1.500s" of the JSON mapping.
export const seconds = (text) => (text ? Number.parseFloat(text) : NaN);

export const millis = (text) => (text ? Date.parse(text) : NaN);

export function ago(text, now = Date.now()) {
  const then = millis(text);
  if (!Number.isFinite(then)) return DASH;
  const past = (now - then) / 1000;
  if (past < 1) return 'now';
  for (const [size, unit] of [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]) {
    if (past >= size) return `${Math.floor(past / size)} ${unit} ago`;
  }
  return DASH;
}

export function clock(text) {
  const then = millis(text);
  return Number.isFinite(then) ? new Date(then).toLocaleString() : DASH;
}

export const idOf = (name) => name.slice(name.indexOf('/') + 1);

export const deviceOf = (of) => String(of.device || '').replace('devices/', '');

const STATES = {
  QUEUED: ['Queued', 'waiting'], STARTING: ['Starting', 'active'], RUNNING: ['Running', 'active'],
  SUSPENDING: ['Suspending', 'waiting'], SUSPENDED: ['Suspended', 'waiting'],
  RECOVERING: ['Recovering', 'warning'], CANCELLING: ['Cancelling', 'warning'],
  SUCCEEDED: ['Succeeded', 'good'], FAILED: ['Failed', 'bad'], CANCELLED: ['Cancelled', 'off'],
};

export function state(value) {
  const [label, tone] = STATES[String(value).replace('JOB_STATE_', '')] || ['Unknown', 'off'];
  return {label, tone};
}

export const isTerminal = (value) => ['SUCCEEDED', 'FAILED', 'CANCELLED'].includes(String(value).replace('JOB_STATE_', ''));
export const isWaiting = (value) => ['QUEUED', 'RECOVERING'].includes(String(value).replace('JOB_STATE_', ''));

const REASONS = {
  WAITING_FOR_DEVICE: 'waits for a device', WAITING_FOR_VRAM: 'waits for device memory',
  WAITING_FOR_HOST_RAM: 'waits for host memory', WAITING_FOR_DISK: 'waits for disk space',
  HIGHER_PRIORITY_AHEAD: 'others with a higher priority come first', HELD: 'held: release it to let it run',
  QUEUE_PAUSED: 'the queue is paused', BACKOFF: 'waits before the next attempt',
  DEVICE_UNHEALTHY: 'its device is out of service',
};

export const reason = (text) => REASONS[text] || String(text || '').toLowerCase().replaceAll('_', ' ');
export const words = (text, prefix = '') => String(text || '').replace(prefix, '').toLowerCase().replaceAll('_', ' ');

// Share of the steps that are done; null before anything is known.
export function share(progress) {
  const total = num(progress && progress.total_steps);
  return total > 0 ? Math.min(1, Math.max(0, num(progress.step) / total)) : null;
}

export function stepsPerSecond(progress) {
  const each = num(progress && progress.seconds_per_step);
  if (!(each > 0)) return DASH;
  return each <= 1 ? `${number(1 / each)} /s` : `${number(each)} s each`;
}
