// SPDX-License-Identifier: Apache-2.0
// Which view is shown, what keys do, and what is said about the connection.
import {changed, connect, loadJobs, onChange, onJobEvent, start, world} from '/api.js';
import {followPointer} from '/chart.js';
import {devicesView} from '/devices_view.js';
import {h, show} from '/dom.js';
import {duration} from '/format.js';
import {jobView} from '/job_view.js';
import {jobsView} from '/jobs_view.js';
import {queueView} from '/queue_view.js';
import {serverView} from '/server_view.js';

const VIEWS = {jobs: jobsView, queue: queueView, devices: devicesView, server: serverView};
const TICK_MS = 2000;

const main = document.getElementById('view');
const help = document.getElementById('help');
let current = jobsView, currentJob = '';

function route() {
  const [first = 'jobs', name = '', part = ''] = location.hash.replace(/^#\/?/, '').split('/');
  const before = current, jobBefore = currentJob;
  currentJob = first === 'jobs' && name ? `jobs/${name}` : '';
  current = currentJob ? jobView : VIEWS[first] || jobsView;
  for (const link of document.querySelectorAll('#nav a')) {
    const isHere = VIEWS[link.dataset.view] === (currentJob ? jobsView : current);
    if (isHere) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (current.enter) current.enter(currentJob, part);
  if (before !== current || jobBefore !== currentJob) {
    main.replaceChildren();
    scrollTo(0, 0);
  }
  draw();
}

function drawLink() {
  const age = duration(Math.max(1, Math.round((Date.now() - world.lastWord) / 1000)));
  const texts = {connecting: 'Connecting', live: 'Live', stale: `Data ${age} old`, lost: 'Disconnected'};
  const link = document.getElementById('link');
  if (link.textContent !== texts[world.link]) link.textContent = texts[world.link];
  link.className = `link ${world.link}`;
  const banner = document.getElementById('banner');
  banner.hidden = world.link !== 'lost' && world.link !== 'stale';
  document.body.classList.toggle('is-old', !banner.hidden);
  if (banner.hidden) return;
  const wait = Math.max(0, Math.ceil((world.retryAt - Date.now()) / 1000));
  const text = world.link === 'stale' ? `The server is silent. What is shown is ${age} old.` :
    `No connection to the server. What is shown is ${age} old. ${wait > 0 ? `Trying again in ${wait} s.` : 'Trying again.'}`;
  show(banner, h('span', null, text), h('button', {type: 'button', 'data-action': 'reconnect'}, 'Try now'));
}

function draw() {
  drawLink();
  document.title = `${current.title()} \u00b7 blockswap`;
  show(main, current.render());
}

function act(target) {
  const name = target.dataset.action;
  if (name === 'reconnect') return connect();
  if (name === 'retry') {
    loadJobs();
    return route();
  }
  if (current.action) current.action(name, target);
  draw();
}

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-action]');
  if (button) return act(button);
  const row = event.target.closest('[data-href]');
  // Links work by themselves; who selects text does not want to leave.
  if (row && !event.target.closest('a') && String(getSelection()) === '') location.hash = row.dataset.href;
});
document.addEventListener('input', (event) => {
  if (current.input) current.input(event.target);
  draw();
});
document.getElementById('help-button').addEventListener('click', () => help.showModal());

function moveRow(by) {
  const rows = [...document.querySelectorAll('.row-link')];
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))];
  next.focus();
  next.scrollIntoView({block: 'nearest'});
}

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const isTyping = event.target.matches('input[type=search], select');
  const key = event.key;
  if (key === 'Escape') {
    if (isTyping) event.target.blur();
    else if (currentJob) location.hash = '#/jobs';
    return;
  }
  if (isTyping) return;
  const view = Object.keys(VIEWS)[Number(key) - 1];
  const tab = currentJob && jobView.tabs.find(([, , letter]) => letter === key);
  if (view) location.hash = `#/${view}`;
  else if (tab) location.hash = `#/${currentJob}${tab[0] ? `/${tab[0]}` : ''}`;
  else if (key === 'j') moveRow(1);
  else if (key === 'k') moveRow(-1);
  else if (key === '?') help.showModal();
  else if (key === '/') {
    const search = document.querySelector('input[type=search]');
    if (!search) return;
    search.focus();
  } else return;
  event.preventDefault();
});

onChange(draw);
onJobEvent((name, event) => {
  if (current.event) current.event(name, event);
});
let isFramed = false;
followPointer(main, () => {
  if (isFramed) return;
  isFramed = true;
  requestAnimationFrame(() => {
    isFramed = false;
    draw();
  });
});
addEventListener('hashchange', route);
addEventListener('resize', changed);
let ticks = 0;
setInterval(() => {
  ticks += 1;
  if (!document.hidden && world.link === 'live' && current.tick) current.tick(ticks);
}, TICK_MS);
route();
start();
