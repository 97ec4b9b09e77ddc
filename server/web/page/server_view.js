// SPDX-License-Identifier: Apache-2.0
// The server itself: version, limits, where things are, how it is set.
import {changed, get} from '/api.js';
import {h} from '/dom.js';
import * as f from '/format.js';
import {problem} from '/jobs_view.js';

let server = null, config = null, error = null, configError = null;

async function load() {
  try {
    server = await get('server');
    error = null;
  } catch (failed) {
    error = failed;
  }
  try {
    config = await get('config');
    configError = null;
  } catch (failed) {
    configError = failed;
  }
  changed();
}

const pairs = (entries) => h('dl', {class: 'pairs'}, entries.map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));

function configuration() {
  if (!config) {
    return h('p', {class: 'quiet'}, configError ? `Not readable: ${configError.message}` : 'Loading');
  }
  const origin = (setting) => f.words(setting.origin, /^[A-Z]+_(?=[A-Z])/) || '\u2013';
  return h('table', {class: 'small', 'data-key': 'config'}, h('thead', null, h('tr', null, ['Setting', 'Value', 'From'].map((name) => h('th', {scope: 'col'}, name)))),
      h('tbody', null, config.settings.map((setting) => h('tr', {'data-key': setting.key || setting.name},
          h('td', null, h('code', null, setting.key || setting.name)), h('td', null, h('code', null, setting.value)), h('td', {class: 'quiet'}, origin(setting))))));
}

export const serverView = {
  title: () => 'Server',
  enter: load,
  render() {
    if (error && !server) return problem(error, 'The server');
    if (!server) return h('p', {class: 'empty'}, 'Loading');
    const limits = server.limits || {};
    return h('div', {class: 'grid'},
        h('section', {class: 'panel'}, h('h2', null, 'Server', h('span', {class: `badge ${server.accepting_jobs ? 'good' : 'warning'}`}, server.accepting_jobs ? 'Accepts jobs' : 'Accepts no jobs')),
            pairs([['Version', server.version], ['Revision', h('code', null, server.commit)],
              ['Running for', f.duration((Date.now() - f.millis(server.start_time)) / 1000)], ['Started', f.clock(server.start_time)],
              ['Architectures', (server.architectures || []).join(', ')], ['Features', (server.features || []).join(', ')],
              ['Metrics', h('a', {href: '/metrics'}, '/metrics')]])),
        h('div', {class: 'column'}, h('section', {class: 'panel'}, h('h2', null, 'Places'),
            pairs([['State', h('code', null, server.state_directory)], ['Models', h('code', null, server.models_root)],
              ['Datasets', h('code', null, server.datasets_root)], ['Outputs', h('code', null, server.outputs_root)]])),
        h('section', {class: 'panel'}, h('h2', null, 'Limits'),
            pairs([['Request', f.bytes(limits.max_message_bytes)], ['Job spec', f.bytes(limits.max_spec_bytes)],
              ['Unfinished jobs', f.count(limits.max_queued_jobs)], ['Streams', f.count(limits.max_watch_streams)], ['Labels of a job', f.count(limits.max_labels)]]))),
        h('section', {class: 'panel wide'}, h('h2', null, 'Settings'), configuration()));
  },
};
