// SPDX-License-Identifier: Apache-2.0
// One job: overview, log, history, spec.
import {changed, get, world} from '/api.js';
import {h} from '/dom.js';
import * as f from '/format.js';
import {curvePanel, headline, memoryPanel, planPanel, samplesPanel, SERIES, swapPanel} from '/job_panels.js';
import {badge, problem, progressBar} from '/jobs_view.js';

const TABS = [['', 'Overview', 'o'], ['log', 'Log', 'l'], ['history', 'History', 'h'], ['spec', 'Spec', 's']];
const MAX_LOG_CHARS = 1 << 20;  // older lines are dropped
const MAX_LINES_SHOWN = 5000;

const empty = (name) => ({
  name, job: null, error: null, points: null, live: null, samples: null, log: null, history: null,
  search: '', onlyHits: false, follow: true, copied: false,
});
let view = empty('');
const choice = {series: 'loss', smooth: 0.6, isLog: false};  // over all jobs

const content = () => document.getElementById('view').clientWidth;

// What is asked for belongs to the job that was shown then.
async function into(path, take) {
  const asked = view;
  try {
    const answer = await get(`${asked.name}${path}`);
    if (asked === view) take(answer);
  } catch (error) {
    if (asked === view && (path === '' || error.status === 404)) asked.error = error;
  }
  if (asked === view) changed();
}

const loadJob = () => into('', (job) => {
  view.job = job;
  view.error = null;
});
const loadLive = () => into('/live', ({live}) => (view.live = live));
const loadSamples = () => into('/samples', ({samples}) => (view.samples = samples));
const loadPoints = () => into(`/metrics?max_points=1000&series=${SERIES.map(([name]) => name).join(',')}`, ({series}) => {
  view.points = new Map(series.map(({name, points}) => [name, points.map((point) => ({step: f.num(point.step), value: Number(point.value)}))]));
});

async function loadHistory() {
  const shown = {attempts: [], checkpoints: [], events: []};
  const asked = view;
  await Promise.all(Object.keys(shown).map((kind) => into(`/${kind}?page_size=1000`, (answer) => (shown[kind] = answer[kind]))));
  if (asked === view) view.history = shown;
  changed();
}

let isReadingLog = false;
async function loadLog() {
  if (isReadingLog) return;
  isReadingLog = true;
  const before = view.log;
  await into(before ? `/logs?attempt=${before.attempt}&offset=${before.next}` : '/logs?tail_lines=1000', (log) => {
    const text = ((before ? before.text : '') + log.text).slice(-MAX_LOG_CHARS);
    view.log = {attempt: log.attempt, next: log.next_offset, text};
  });
  isReadingLog = false;
  // The next attempt has a log of its own.
  if (view.job && view.log && view.job.attempt > view.log.attempt) view.log = {attempt: view.job.attempt, next: 0, text: `${view.log.text}\n`};
  if (view.follow) {
    requestAnimationFrame(() => {
      const lines = document.getElementById('log-lines');
      if (lines) lines.scrollTop = lines.scrollHeight;
    });
  }
}

const jobOf = () => {
  const listed = world.jobs.get(view.name);
  // The stream is quicker than the last request.
  return view.job && listed && listed.progress ? {...view.job, state: listed.state, progress: listed.progress} : view.job || listed;
};

function logTab() {
  if (!view.log) return h('p', {class: 'empty'}, 'Loading');
  const lines = view.log.text.split('\n');
  if (lines[lines.length - 1] === '') lines.pop();
  const wanted = view.search.toLowerCase();
  const hits = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
  const shown = (view.onlyHits ? hits : lines).slice(-MAX_LINES_SHOWN);
  const marked = (line) => {
    const parts = [];
    let from = 0;
    for (let at = wanted ? line.toLowerCase().indexOf(wanted) : -1; at >= 0; at = line.toLowerCase().indexOf(wanted, from)) {
      parts.push(line.slice(from, at), h('mark', null, line.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    return [parts, line.slice(from), '\n'];
  };
  return [
    h('div', {class: 'tools'},
        h('input', {id: 'log-search', type: 'search', value: view.search, placeholder: 'Search the log', 'aria-label': 'Search the log', autocomplete: 'off', spellcheck: 'false'}),
        h('label', null, h('input', {id: 'only-hits', type: 'checkbox', checked: view.onlyHits}), 'only lines that fit'),
        h('label', null, h('input', {id: 'follow', type: 'checkbox', checked: view.follow}), 'follow'),
        h('span', {class: 'quiet'}, wanted ? `${f.count(hits.length)} of ${f.count(lines.length)} lines` : `attempt ${view.log.attempt}, ${f.count(lines.length)} lines`)),
    shown.length === 0 ? h('p', {class: 'empty'}, lines.length ? 'No line fits' : 'Nothing was printed yet') :
      h('pre', {id: 'log-lines', class: 'log', tabindex: 0, 'aria-label': 'Log'}, wanted ? shown.map(marked) : shown.join('\n')),
  ];
}

function historyTab() {
  if (!view.history) return h('p', {class: 'empty'}, 'Loading');
  const {attempts, checkpoints, events} = view.history;
  const cell = (label, className, ...inner) => h('td', {'data-label': label, class: className}, ...inner);
  const table = (title, columns, rows, none) => h('section', {class: 'panel wide', 'data-key': title}, h('h2', null, title), rows.length === 0 ? h('p', {class: 'empty'}, none) :
    h('table', {class: 'cards'}, h('thead', null, h('tr', null, columns.map((name) => h('th', {scope: 'col'}, name)))), h('tbody', null, rows)));
  const failure = (attempt) => (attempt.failure && attempt.failure.reason ? `${f.words(attempt.failure.category, 'FAILURE_CATEGORY_')}: ${attempt.failure.message || f.words(attempt.failure.reason)}` : attempt.end_time ? 'ended well' : 'runs');
  return h('div', {class: 'grid'},
      table('Attempts', ['#', 'Device', 'Started', 'Took', 'Steps', 'Outcome'], attempts.map((attempt) => h('tr', {'data-key': attempt.name},
          cell('Attempt', null, String(attempt.number)), cell('Device', null, f.deviceOf(attempt)), cell('Started', null, f.clock(attempt.start_time)),
          cell('Took', null, attempt.end_time ? f.duration((f.millis(attempt.end_time) - f.millis(attempt.start_time)) / 1000) : '\u2013'),
          cell('Steps', null, `${f.count(attempt.start_step)} to ${f.count(attempt.end_step)}`), cell('Outcome', 'why', failure(attempt)))), 'It has not started yet'),
      table('Checkpoints', ['Step', 'Size', 'Written', 'Directory'], [...checkpoints].reverse().map((checkpoint) => h('tr', {'data-key': checkpoint.name},
          cell('Step', null, f.count(checkpoint.step)), cell('Size', null, f.bytes(checkpoint.bytes)), cell('Written', null, f.clock(checkpoint.create_time)),
          cell('Directory', 'why', h('code', null, checkpoint.directory)))), 'None was written yet'),
      table('Events', ['#', 'Time', 'What', 'State', 'Message'], [...events].reverse().map((event) => h('tr', {'data-key': event.sequence},
          cell('#', null, event.sequence), cell('Time', null, f.clock(event.time)), cell('What', null, f.words(event.type, 'TYPE_')),
          cell('State', null, badge(event.state)), cell('Message', 'why', [event.reason && f.words(event.reason) !== f.words(event.type, 'TYPE_') && f.words(event.reason), event.message].filter(Boolean).join(': ')))), 'No event is kept'));
}

// What was left out of the job file stays out.
function pruned(value) {
  if (Array.isArray(value)) return value.length ? value.map(pruned) : undefined;
  if (value && typeof value === 'object') {
    const kept = Object.entries(value).map(([key, inner]) => [key, pruned(inner)]).filter(([, inner]) => inner !== undefined);
    return kept.length ? Object.fromEntries(kept) : undefined;
  }
  return value === '' || value === null ? undefined : value;
}

const specText = (job) => JSON.stringify(pruned(job.spec) || {}, null, 2);
const commandText = (job) => `blockswap submit - <<'JOB'\n${specText(job)}\nJOB\n`;

function specTab(job) {
  return h('section', {class: 'panel wide'},
      h('div', {class: 'panel-head'}, h('h2', null, 'Spec'), h('button', {type: 'button', 'data-action': 'copy'}, view.copied ? 'Copied' : 'Copy as command'),
          job.retry_of ? h('a', {href: `#/${job.retry_of}`}, `retry of ${f.idOf(job.retry_of)}`) : null),
      h('pre', {class: 'spec'}, specText(job)),
      job.output_directory ? h('p', {class: 'quiet'}, 'Output: ', h('code', null, job.output_directory)) : null);
}

function overview(job) {
  const wide = Math.max(280, content() - 34), half = wide > 900 ? wide / 2 - 30 : wide;
  return h('div', {class: 'grid'}, curvePanel({...choice, points: view.points, width: wide}), memoryPanel(job, view.live),
      h('div', {class: 'column', 'data-key': 'right'}, swapPanel(job, view.live), planPanel(job, view.live, half)), samplesPanel(job, view.samples));
}

let tab = '';
function loadTab() {
  if (tab === 'log') loadLog();
  if (tab === 'history') loadHistory();
  if (tab === '') {
    loadLive();
    loadPoints();
    loadSamples();
  }
}

export const jobView = {
  tabs: TABS,
  title: () => f.idOf(view.name),
  enter(name, part) {
    if (view.name !== name) view = empty(name);
    tab = part;
    loadJob();
    loadTab();
  },
  tick(count) {
    const job = jobOf();
    if (!job || f.isTerminal(job.state)) return;
    if (tab === '') {
      loadLive();
      if (count % 2 === 0) loadPoints();
    }
    if (tab === 'log') loadLog();
  },
  event(name, event) {
    if (name !== '' && name !== view.name) return;
    if (event && event.type === 'TYPE_PROGRESS') return;
    loadJob();
    loadTab();
  },
  input(target) {
    if (target.id === 'series') choice.series = target.value;
    if (target.id === 'smooth') choice.smooth = Number(target.value);
    if (target.id === 'log') choice.isLog = target.checked;
    if (target.id === 'log-search') view.search = target.value;
    if (target.id === 'only-hits') view.onlyHits = target.checked;
    if (target.id === 'follow') view.follow = target.checked;
  },
  async action(name) {
    if (name !== 'copy') return;
    try {
      await navigator.clipboard.writeText(commandText(jobOf()));
      view.copied = true;
    } catch (denied) {
      getSelection().selectAllChildren(document.querySelector('pre.spec'));
    }
    changed();
    setTimeout(() => {
      view.copied = false;
      changed();
    }, 2000);
  },
  render() {
    const job = jobOf();
    if (view.error && (view.error.status === 404 || !job)) {
      return view.error.status === 404 ? h('div', {class: 'empty'}, h('p', {class: 'title'}, 'There is no such job'), h('p', null, f.idOf(view.name)), h('a', {href: '#/jobs'}, 'All jobs')) : problem(view.error, 'The job');
    }
    if (!job) return h('p', {class: 'empty'}, 'Loading');
    const failure = job.failure && job.failure.reason ? job.failure : null;
    return [
      h('div', {class: 'job-head'}, h('a', {class: 'back', href: '#/jobs', 'aria-label': 'All jobs'}, '\u2190'), h('h1', null, job.spec ? job.spec.name : f.idOf(job.name)), badge(job.state),
          h('code', {class: 'quiet'}, f.idOf(job.name)), h('span', {class: 'quiet why'}, failure ? '' : job.state_message || (f.isTerminal(job.state) ? '' : f.reason(job.state_reason)))),
      failure ? h('p', {class: `notice ${f.isTerminal(job.state) ? 'bad' : 'warning'}`}, h('strong', null, `${f.words(failure.category, 'FAILURE_CATEGORY_')}: `), failure.message || f.words(failure.reason), h('code', null, failure.reason)) : null,
      (job.warnings || []).slice(-3).map((warning) => h('p', {class: 'notice warning'}, warning)),
      progressBar(job), headline(job),
      h('nav', {class: 'tabs', 'aria-label': 'Parts of the job'}, TABS.map(([part, label]) => h('a', {href: `#/${job.name}${part ? `/${part}` : ''}`, 'aria-current': part === tab ? 'page' : null}, label))),
      h('div', {'data-key': `tab-${tab}`}, tab === 'log' ? logTab() : tab === 'history' ? historyTab() : tab === 'spec' ? specTab(job) : overview(job)),
    ];
  },
};
