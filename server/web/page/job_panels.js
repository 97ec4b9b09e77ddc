// SPDX-License-Identifier: Apache-2.0
// The panels of a job's overview: curve, memory, swapping, plan, samples.
import {chart} from '/chart.js';
import {h, svg} from '/dom.js';
import * as f from '/format.js';

export const SERIES = [
  ['loss', 'Loss'], ['learning_rate', 'Learning rate'], ['grad_norm', 'Gradient norm'], ['seconds', 'Seconds a step'],
  ['stall_seconds', 'Stall a step'], ['device_bytes_peak', 'VRAM peak'],
];

const fact = (name, value, hint) => h('div', {class: 'fact', title: hint}, h('dt', null, name), h('dd', null, value));

export function headline(job) {
  const progress = job.progress || {}, share = f.share(progress);
  const isRunning = f.state(job.state).tone === 'active';
  const age = f.millis(progress.last_progress_time);
  return h('dl', {class: 'facts-row'},
      fact('Step', f.num(progress.total_steps) ? `${f.count(progress.step)} / ${f.count(progress.total_steps)}` : 'not started', share === null ? null : f.percent(share)),
      fact('Speed', f.stepsPerSecond(progress)),
      fact('Left', isRunning && f.num(progress.eta_seconds) ? f.duration(f.num(progress.eta_seconds)) : '\u2013'),
      fact('Loss', f.num(progress.step) ? f.number(progress.loss) : '\u2013'),
      fact('Stalled', f.num(progress.step) ? f.percent(f.num(progress.stall_ratio)) : '\u2013', 'share of the last steps that compute waited for blocks'),
      fact('VRAM', f.num(progress.device_bytes) ? f.bytes(progress.device_bytes) : '\u2013'),
      fact('Device', f.deviceOf(job) || '\u2013'),
      fact('Attempt', String(job.attempt || '\u2013')),
      fact('Last step', Number.isFinite(age) && f.num(progress.step) ? f.ago(progress.last_progress_time) : '\u2013'));
}

export function curvePanel(view) {
  const series = view.points && view.points.get(view.series);
  const [, title] = SERIES.find(([name]) => name === view.series);
  return h('section', {class: 'panel wide', 'data-key': 'curve'},
      h('div', {class: 'panel-head'}, h('h2', null, title),
          h('select', {id: 'series', 'aria-label': 'Curve'}, SERIES.map(([name, label]) => h('option', {value: name, selected: name === view.series}, label))),
          h('label', null, 'Smooth', h('input', {id: 'smooth', type: 'range', min: 0, max: 0.99, step: 0.01, value: view.smooth})),
          h('label', null, h('input', {id: 'log', type: 'checkbox', checked: view.isLog}), 'log')),
      !view.points ? h('p', {class: 'empty'}, 'Loading') :
        !series || series.length === 0 ? h('p', {class: 'empty'}, 'No step has been reported yet') :
        chart({id: 'curve-chart', title, points: series, width: view.width, weight: view.smooth, isLog: view.isLog}));
}

const TONES = 8;
// The plan of the server and the ledger of a worker call the same by two names.
const purpose = (tag) => ({resident: 'resident blocks', edge: 'edge weights'}[tag] || f.words(tag));

export function memoryPanel(job, live) {
  const memory = live && live.memory;
  const planned = memory && Object.keys(memory.device_planned_bytes).length ? memory.device_planned_bytes : (job.plan && job.plan.device_bytes_by_purpose) || {};
  const now = (memory && memory.device_allocated_bytes) || {}, peak = (memory && memory.device_peak_bytes) || {};
  const tags = [...new Set([...Object.keys(planned), ...Object.keys(now), ...Object.keys(peak)])]
      .sort((a, b) => f.num(planned[b] || peak[b]) - f.num(planned[a] || peak[a]));
  const sum = (sizes) => Object.values(sizes).reduce((total, size) => total + f.num(size), 0);
  const budget = f.num((memory && memory.device_budget_bytes) || (job.plan && job.plan.vram_budget_bytes));
  const scale = Math.max(budget, sum(planned), sum(now), 1);
  const stack = (name, sizes) => h('div', {class: 'row'}, h('span', null, name),
      h('div', {class: 'stack', role: 'img', 'aria-label': `${name}: ${f.bytes(sum(sizes))}`},
          tags.map((tag, i) => h('span', {class: `c${1 + (i % TONES)}`, title: `${purpose(tag)} ${f.bytes(sizes[tag])}`, style: {width: `${(100 * f.num(sizes[tag])) / scale}%`}})),
          budget > 0 ? h('b', {class: 'budget', title: `budget ${f.bytes(budget)}`, style: {left: `${(100 * budget) / scale}%`}}) : null),
      h('span', {class: 'figure'}, f.bytes(sum(sizes))));
  return h('section', {class: 'panel', 'data-key': 'memory'},
      h('div', {class: 'panel-head'}, h('h2', null, 'VRAM'), budget > 0 ? h('span', {class: 'quiet'}, `budget ${f.bytes(budget)}`) : null),
      tags.length === 0 ? h('p', {class: 'empty'}, 'Neither plan nor measurement yet') : [
        h('div', {class: 'stacks'}, stack('planned', planned), memory ? stack(live.running ? 'now' : 'at the end', now) : null),
        h('table', {class: 'small'}, h('thead', null, h('tr', null, ['For', 'Planned', 'Now', 'Peak'].map((name, i) => h('th', {scope: 'col', class: i ? 'figure' : null}, name)))),
            h('tbody', null, tags.map((tag, i) => h('tr', {'data-key': tag}, h('td', null, h('i', {class: `key c${1 + (i % TONES)}`}), purpose(tag)),
                [planned, now, peak].map((sizes) => h('td', {class: 'figure'}, sizes[tag] === undefined ? '\u2013' : f.bytes(sizes[tag]))))))),
      ],
      memory ? h('p', {class: 'facts'}, h('span', null, `host memory ${f.bytes(memory.host_rss_bytes)}`), h('span', null, `pinned ${f.bytes(memory.host_pinned_bytes)}`),
          h('span', null, `weights ${f.bytes(memory.host_master_bytes)}`), f.num(memory.host_shared_bytes) ? h('span', null, `shared ${f.bytes(memory.host_shared_bytes)}`) : null) : null,
      memory && memory.pinning_fell_back ? h('p', {class: 'notice warning'}, 'Not all of it could be locked; what is not is copied through a locked buffer.') : null);
}

export function swapPanel(job, live) {
  const recent = live && live.swap && live.swap.recent;
  const asked = recent ? recent.hits + recent.late + recent.misses : 0;
  const meter = (name, text, share, tone, hint) => h('div', {class: 'row', title: hint}, h('span', null, name),
      h('div', {class: `stack ${tone}`}, h('span', {style: {width: `${100 * Math.min(1, Math.max(0, share || 0))}%`}})), h('span', {class: 'figure'}, text));
  let body = h('p', {class: 'empty'}, f.isTerminal(job.state) ? 'The worker has ended' : 'No worker has reported yet');
  if (recent && recent.steps > 0) {
    const busy = recent.h2d_busy_seconds / recent.step_seconds;
    body = [
      h('div', {class: 'stacks'},
          meter('link in use', f.percent(busy), busy, 'c1', 'share of the time that the link carried blocks'),
          meter('stalled', f.percent(recent.stall_seconds / recent.step_seconds), recent.stall_seconds / recent.step_seconds, 'bad', 'share of the time that compute waited for blocks'),
          meter('in time', asked ? f.percent(recent.hits / asked) : '\u2013', asked ? recent.hits / asked : 0, 'good', 'blocks that were there when they were needed')),
      h('dl', {class: 'facts-row'},
          fact('To the device', f.rate(recent.h2d_bytes / recent.step_seconds), 'over all of the time'),
          fact('While busy', f.rate(recent.h2d_busy_seconds > 0 ? recent.h2d_bytes / recent.h2d_busy_seconds : 0), 'what the link reaches'),
          fact('A step', f.bytes(recent.h2d_bytes / recent.steps)),
          fact('Late', f.count(recent.late)), fact('Missed', f.count(recent.misses)),
          fact('In flight', String(live.swap.blocks_in_flight))),
      h('p', {class: 'quiet'}, live.running ? `last ${f.count(recent.steps)} steps` : `last ${f.count(recent.steps)} steps of attempt ${live.attempt}, which has ended`),
    ];
  }
  return h('section', {class: 'panel', 'data-key': 'swap'}, h('div', {class: 'panel-head'}, h('h2', null, 'Swapping')), body);
}

// Each block of the model in its place: a row of cells.
export function planPanel(job, live, width) {
  const plan = job.plan;
  if (!plan || !f.num(plan.num_blocks)) {
    return h('section', {class: 'panel', 'data-key': 'plan'}, h('h2', null, 'Plan'), h('p', {class: 'empty'}, 'Not planned yet'));
  }
  const blocks = f.num(plan.num_blocks), streamed = new Set(plan.streamed_blocks || []), keeping = new Set(plan.keeping_blocks || []);
  // A plan that names no blocks still says how many.
  const isNamed = streamed.size > 0 || f.num(plan.blocks_to_swap) === 0;
  const columns = Math.min(blocks, Math.max(10, Math.floor(width / 16))), size = Math.min(22, width / columns), rows = Math.ceil(blocks / columns);
  const kind = (block) => (isNamed ? streamed.has(block) : block >= blocks - f.num(plan.blocks_to_swap)) ? 'away' : keeping.has(block) ? 'keeps' : 'here';
  const names = {away: 'streamed', keeps: 'resident, keeps its activations', here: 'resident'};
  const cells = [...Array(blocks).keys()].map((block) => svg('rect', {
    class: kind(block), x: (block % columns) * size + 1, y: Math.floor(block / columns) * 20 + 1, width: size - 2, height: 16, rx: 2,
  }, svg('title', null, `block ${block}: ${names[kind(block)]}`)));
  const swapped = isNamed ? streamed.size : f.num(plan.blocks_to_swap);
  const legend = (name, text) => h('span', null, h('i', {class: `key ${name}`}), text);
  const time = (text) => f.brief(f.seconds(text));
  return h('section', {class: 'panel', 'data-key': 'plan'},
      h('div', {class: 'panel-head'}, h('h2', null, 'Plan'), h('span', {class: 'quiet'}, [plan.mode, plan.granularity && `by ${plan.granularity}`, f.num(plan.ring_size) && `ring of ${plan.ring_size}`].filter(Boolean).join(', ').replaceAll('_', ' '))),
      svg('svg', {class: 'blocks', viewBox: `0 0 ${columns * size} ${rows * 20}`, width: columns * size, height: rows * 20, role: 'img', 'aria-label': `${blocks - swapped} blocks resident, ${swapped} streamed`}, cells),
      h('p', {class: 'facts'}, blocks - swapped > keeping.size ? legend('here', `${blocks - swapped - keeping.size} resident`) : null, keeping.size ? legend('keeps', `${keeping.size} resident, activations kept`) : null, legend('away', `${swapped} streamed`),
          live && live.running && live.swap ? h('span', null, `${live.swap.blocks_in_flight} in flight`) : null),
      h('dl', {class: 'facts-row'}, fact('VRAM', f.bytes(plan.device_bytes)), fact('Pinned', f.bytes(plan.pinned_bytes)), fact('Pageable', f.bytes(plan.pageable_bytes)),
          fact('Link a step', f.bytes(f.num(plan.h2d_bytes_per_step) + f.num(plan.d2h_bytes_per_step))), fact('Step', time(plan.step_time)), fact('Stall', time(plan.stall_time))),
      (plan.notes || []).map((note) => h('p', {class: 'quiet'}, note)),
      plan.text ? h('details', null, h('summary', null, 'As text'), h('pre', null, plan.text)) : null);
}

export function samplesPanel(job, samples) {
  const label = (sample) => (sample.step < 0 ? 'before and after' : sample.step === 0 ? 'before training' : `step ${f.count(sample.step)}`);
  return h('section', {class: 'panel wide', 'data-key': 'samples'}, h('div', {class: 'panel-head'}, h('h2', null, 'Samples'), samples && samples.length ? h('span', {class: 'quiet'}, f.count(samples.length)) : null),
      !samples ? h('p', {class: 'empty'}, 'Loading') :
      samples.length === 0 ? h('p', {class: 'empty'}, 'No pictures. Prompts of the job file (sampling.prompts) are painted before, after and on the way.') :
        h('div', {class: 'gallery'}, [...samples].reverse().map((sample) => {
          const url = `/api/v1/${job.name}/samples/${sample.name}?v=${sample.bytes}`;
          return h('figure', {'data-key': sample.name}, h('a', {href: url, target: '_blank', rel: 'noopener'}, h('img', {src: url, alt: `sample, ${label(sample)}`, loading: 'lazy'})), h('figcaption', null, label(sample)));
        })));
}
