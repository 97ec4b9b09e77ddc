// SPDX-License-Identifier: Apache-2.0
// What waits, in its order, and why.
import {changed, get} from '/api.js';
import {h} from '/dom.js';
import * as f from '/format.js';
import {badge, problem} from '/jobs_view.js';

let jobs = null, queue = null, error = null;

async function load() {
  try {
    const lists = await Promise.all(['QUEUED', 'RECOVERING'].map((state) => get(`jobs?page_size=1000&view=JOB_VIEW_BASIC&filter=state%3D${state}`)));
    jobs = lists.flatMap((list) => list.jobs).sort((a, b) => f.num(a.queue_position) - f.num(b.queue_position));
    error = null;
  } catch (problemOfList) {
    error = problemOfList;
  }
  try {
    queue = await get('queue');
  } catch (missing) {
    queue = null;  // only what is known is shown
  }
  changed();
}

function row(job) {
  const spec = job.spec || {};
  const cell = (label, className, ...content) => h('td', {'data-label': label, class: [className, content[0] === '\u2013' && 'none'].filter(Boolean).join(' ') || null}, ...content);
  return h('tr', {'data-key': job.name, 'data-href': `#/${job.name}`},
      cell('Position', 'figure', f.num(job.queue_position) ? String(job.queue_position) : '\u2013'),
      cell('Job', 'name', h('a', {href: `#/${job.name}`, class: 'row-link'}, spec.name || f.idOf(job.name)), h('small', null, f.idOf(job.name))),
      cell('State', 'state', badge(job.state)),
      cell('Waits because', 'why', h('span', null, f.reason(job.state_reason)), job.state_message ? h('small', null, job.state_message) : null),
      cell('Needs', 'figure', f.num(job.plan && job.plan.device_bytes) ? `${f.bytes(job.plan.device_bytes)}` : '\u2013'),
      cell('Priority', 'figure', String(f.num(spec.priority))),
      cell('Since', 'figure', f.ago(job.create_time)));
}

export const queueView = {
  title: () => 'Queue',
  enter: load,
  tick: load,
  event: load,
  render() {
    if (error && !jobs) return problem(error, 'The queue');
    if (!jobs) return h('p', {class: 'empty'}, 'Loading');
    return [
      queue && queue.paused ? h('p', {class: 'notice warning'}, h('strong', null, 'The queue is paused. '), queue.pause_reason || 'No job starts until it is resumed: blockswap queue resume') : null,
      jobs.length === 0 ? h('div', {class: 'empty'}, h('p', {class: 'title'}, 'Nothing waits'), h('p', null, 'A job that cannot start at once is listed here with its reason.')) :
        h('table', {class: 'cards', 'data-key': 'queue'},
            h('thead', null, h('tr', null, ['#', 'Job', 'State', 'Waits because', 'VRAM', 'Priority', 'Since'].map((name) =>
              h('th', {scope: 'col', class: ['#', 'VRAM', 'Priority', 'Since'].includes(name) ? 'figure' : null}, name)))),
            h('tbody', null, jobs.map(row))),
    ];
  },
};
