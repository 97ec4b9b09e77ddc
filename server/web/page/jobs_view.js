// SPDX-License-Identifier: Apache-2.0
// All jobs as a table: what runs, how far, how fast, where, and why not.
import {loadOlder, world} from '/api.js';
import {h} from '/dom.js';
import * as f from '/format.js';

const FILTERS = [
  ['all', 'All', () => true],
  ['active', 'Active', (job) => !f.isTerminal(job.state) && !f.isWaiting(job.state)],
  ['waiting', 'Waiting', (job) => f.isWaiting(job.state)],
  ['failed', 'Failed', (job) => f.state(job.state).tone === 'bad'],
  ['done', 'Finished', (job) => f.isTerminal(job.state)],
];

let filter = 'all', search = '';

export function badge(value) {
  const {label, tone} = f.state(value);
  return h('span', {class: `badge ${tone}`}, label);
}

export function progressBar(job) {
  const share = f.share(job.progress);
  const {tone} = f.state(job.state);
  const now = Math.round(100 * (share || 0));
  return h('span', {class: `bar ${tone}`, role: 'progressbar', 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': now, 'aria-label': 'progress'},
      h('span', {style: {width: `${100 * (share || 0)}%`}}));
}

export function problem(error, what) {
  return h('div', {class: 'empty', role: 'alert'}, h('p', {class: 'title'}, `${what} could not be read`),
      h('p', null, error.message, error.reason ? ` (${error.reason})` : ''), h('button', {'data-action': 'retry', type: 'button'}, 'Try again'));
}

const why = (job) => {
  if (job.failure && job.failure.message) return job.failure.message;
  if (f.isWaiting(job.state)) return job.state_message || f.reason(job.state_reason);
  if (job.progress && job.progress.phase && !f.isTerminal(job.state)) return job.progress.phase;
  return '';
};

function row(job) {
  const progress = job.progress || {};
  const isRunning = f.state(job.state).tone === 'active';
  const cell = (label, className, ...content) => h('td', {'data-label': label, class: [className, content[0] === '\u2013' && 'none'].filter(Boolean).join(' ') || null}, ...content);
  return h('tr', {'data-key': job.name, 'data-href': `#/${job.name}`},
      cell('State', 'state', badge(job.state)),
      cell('Job', 'name', h('a', {href: `#/${job.name}`, class: 'row-link'}, job.spec ? job.spec.name : f.idOf(job.name)), h('small', null, f.idOf(job.name))),
      cell('Progress', 'progress', progressBar(job), h('small', null, f.num(progress.total_steps) ? `${f.count(progress.step)} / ${f.count(progress.total_steps)}` : 'not started')),
      cell('Speed', 'figure', isRunning ? f.stepsPerSecond(progress) : '\u2013'),
      cell('Loss', 'figure', f.num(progress.step) ? f.number(progress.loss) : '\u2013'),
      cell('Left', 'figure', isRunning && f.num(progress.eta_seconds) ? f.duration(f.num(progress.eta_seconds)) : '\u2013'),
      cell('Device', 'device', f.deviceOf(job) || '\u2013'),
      cell('Note', 'why', why(job)),
      cell('Changed', 'figure', h('time', {datetime: job.update_time, title: f.clock(job.update_time)}, f.ago(job.update_time))));
}

function matches(job) {
  const wanted = search.trim().toLowerCase();
  if (!wanted) return true;
  const labels = Object.entries((job.spec && job.spec.labels) || {}).map(([key, value]) => `${key}=${value}`);
  return [f.idOf(job.name), job.spec && job.spec.name, f.deviceOf(job), job.state_reason, ...labels].some((text) => String(text || '').toLowerCase().includes(wanted));
}

export const jobsView = {
  title: () => 'Jobs',
  input(target) {
    if (target.id === 'search') search = target.value;
  },
  action(name, target) {
    if (name === 'filter') filter = target.dataset.filter;
    if (name === 'older') loadOlder();
  },
  render() {
    const all = [...world.jobs.values()];
    if (world.error && all.length === 0) return problem(world.error, 'The jobs');
    if (!world.loaded) return h('p', {class: 'empty'}, 'Loading');
    if (all.length === 0) {
      return h('div', {class: 'empty'}, h('p', {class: 'title'}, 'No jobs yet'),
          h('p', null, 'Submit one, and it shows up here by itself:'), h('pre', null, 'blockswap submit job.yaml'));
    }
    const accepts = FILTERS.find(([name]) => name === filter)[2];
    const shown = all.filter((job) => accepts(job) && matches(job));
    return [
      h('div', {class: 'tools'},
          h('div', {class: 'chips', role: 'group', 'aria-label': 'Filter'}, FILTERS.map(([name, label, test]) => h('button', {
            type: 'button', 'data-action': 'filter', 'data-filter': name, 'aria-pressed': String(filter === name),
          }, label, h('small', null, all.filter(test).length)))),
          h('input', {id: 'search', type: 'search', value: search, placeholder: 'Search name, label, device', 'aria-label': 'Search jobs', autocomplete: 'off', spellcheck: 'false'})),
      shown.length === 0 ? h('div', {class: 'empty'}, h('p', {class: 'title'}, 'No job fits'), h('p', null, 'Another filter or search may show some.')) :
        h('table', {class: 'cards', 'data-key': 'jobs'},
            h('thead', null, h('tr', null, ['State', 'Job', 'Progress', 'Speed', 'Loss', 'Left', 'Device', 'Note', 'Changed'].map((name) =>
              h('th', {scope: 'col', class: ['Speed', 'Loss', 'Left', 'Changed'].includes(name) ? 'figure' : null}, name)))),
            h('tbody', null, shown.map(row))),
      world.nextPage ? h('p', {class: 'more'}, h('button', {type: 'button', 'data-action': 'older'}, 'Show older jobs')) : null,
    ];
  },
};
