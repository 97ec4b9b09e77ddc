// SPDX-License-Identifier: Apache-2.0
// What the server says: requests, the watch stream, and how old the last word is.
import {idOf} from '/format.js';

const TIMEOUT_MS = 10000;
const STALE_MS = 12000;      // two heartbeats were missed
const HIDDEN_MS = 60000;     // a page nobody looks at gives its stream back
const DRAW_MS = 200;         // many jobs at work are not drawn more often than people can read
const RELOAD_MS = 150;       // several events of one job are one request
const BROWSER_RETRY_MS = 2000;  // as the stream asks for
const RETRY_MS = [1000, 2000, 4000, 8000, 15000];
const PAGE_SIZE = 200;

export class ApiError extends Error {
  constructor(status, reason, message) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

export async function get(path) {
  let response;
  try {
    response = await fetch(`/api/v1/${path}`, {signal: AbortSignal.timeout(TIMEOUT_MS), cache: 'no-store'});
  } catch (error) {
    throw new ApiError(0, 'UNREACHABLE', error.name === 'TimeoutError' ? 'the server does not answer' : 'the server cannot be reached');
  }
  const text = await response.text();
  let json = null;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new ApiError(response.status, 'NOT_JSON', text.trim() || `the server answered ${response.status}`);
  }
  if (!response.ok) {
    const {reason = '', message = ''} = json.error || {};
    throw new ApiError(response.status, reason, message || `the server answered ${response.status}`);
  }
  return json;
}

export const world = {
  jobs: new Map(),       // by name
  nextPage: '',          // of older jobs
  loaded: false,
  error: null,           // why the list could not be read
  link: 'connecting',    // live, stale, lost
  lastWord: Date.now(),  // when the server was last heard
  retryAt: 0,
};

const listeners = new Set();
const jobListeners = new Set();
export const onChange = (listener) => listeners.add(listener);
// Called with (job name, event) for every event, with ('', null) after a break.
export const onJobEvent = (listener) => jobListeners.add(listener);

let pending = 0, drawn = 0;
export function changed() {
  if (pending) return;
  pending = setTimeout(() => requestAnimationFrame(() => {
    pending = 0;
    drawn = performance.now();
    for (const listener of listeners) listener();
  }), Math.max(0, drawn + DRAW_MS - performance.now()));
}

function heard() {
  world.lastWord = Date.now();
  if (world.link !== 'live') {
    world.link = 'live';
    changed();
  }
}

export async function loadJobs() {
  try {
    const list = await get(`jobs?page_size=${PAGE_SIZE}&view=JOB_VIEW_BASIC`);
    world.jobs = new Map(list.jobs.map((job) => [job.name, job]));
    world.nextPage = list.next_page_token;
    world.loaded = true;
    world.error = null;
  } catch (error) {
    world.error = error;
  }
  changed();
}

export async function loadOlder() {
  try {
    const list = await get(`jobs?page_size=${PAGE_SIZE}&view=JOB_VIEW_BASIC&page_token=${encodeURIComponent(world.nextPage)}`);
    for (const job of list.jobs) world.jobs.set(job.name, job);
    world.nextPage = list.next_page_token;
  } catch (error) {
    world.error = error;
  }
  changed();
}

const reloads = new Map();
function reload(name) {
  if (reloads.has(name)) return;
  reloads.set(name, setTimeout(async () => {
    reloads.delete(name);
    try {
      const job = await get(`jobs/${idOf(name)}`);
      const isNew = !world.jobs.has(name);
      world.jobs.set(name, job);
      // The list is newest first.
      if (isNew) world.jobs = new Map([[name, job], ...world.jobs]);
    } catch (error) {
      if (error.status === 404) world.jobs.delete(name);
    }
    changed();
  }, RELOAD_MS));
}

function take(event) {
  if (event.type === 'TYPE_PROGRESS') {
    const job = world.jobs.get(event.job);
    if (job) Object.assign(job, {progress: event.progress, state: event.state});
    else reload(event.job);
    changed();
  } else if (event.type === 'TYPE_DELETED') {
    world.jobs.delete(event.job);
    changed();
  } else if (event.job) {
    reload(event.job);
  }
  for (const listener of jobListeners) listener(event.job, event);
}

let source = null;
let attempt = 0;
let retryTimer = 0;

function lose() {
  if (source) source.close();
  source = null;
  world.link = 'lost';
  const wait = RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)];
  attempt += 1;
  world.retryAt = Date.now() + wait;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, wait);
  changed();
}

export function connect() {
  clearTimeout(retryTimer);
  if (source) source.close();
  const stream = new EventSource('/api/v1/watch');
  source = stream;
  stream.addEventListener('open', () => {
    attempt = 0;
    heard();
    loadJobs();
    for (const listener of jobListeners) listener('', null);
  });
  stream.addEventListener('heartbeat', heard);
  stream.addEventListener('job', (message) => {
    heard();
    take(JSON.parse(message.data));
  });
  stream.addEventListener('error', () => {
    if (source !== stream) return;
    if (stream.readyState === EventSource.CLOSED) {
      lose();  // refused: the token is too old, or the server starts or stops
    } else {
      // The browser comes back by itself and names the last event it saw.
      world.link = 'lost';
      world.retryAt = Date.now() + BROWSER_RETRY_MS;
      changed();
    }
  });
}

export function start() {
  connect();
  setInterval(() => {
    if (world.link === 'live' && Date.now() - world.lastWord > STALE_MS) world.link = 'stale';
    changed();
  }, 1000);
  let hiddenTimer = 0;
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hiddenTimer);
    if (document.hidden) {
      hiddenTimer = setTimeout(() => {
        clearTimeout(retryTimer);
        if (source) source.close();
        source = null;
      }, HIDDEN_MS);
    } else if (!source) {
      connect();
    }
  });
}
