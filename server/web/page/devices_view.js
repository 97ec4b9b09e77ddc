// SPDX-License-Identifier: Apache-2.0
// Devices: their memory, health, bus, and who holds them.
import {changed, get} from '/api.js';
import {h} from '/dom.js';
import * as f from '/format.js';
import {problem} from '/jobs_view.js';

let devices = null, error = null, sensors = {}, live = new Map();

// Sensors are metrics, where the driver has them: {gpu: {name: value}}.
function readSensors(text) {
  const found = {};
  for (const line of text.split('\n')) {
    const match = /^blockswap_gpu_(temperature_celsius|power_watts|utilization_ratio)\{([^}]*)\} (\S+)$/.exec(line);
    const gpu = match && /gpu="([^"]*)"/.exec(match[2]);
    if (gpu) (found[gpu[1]] = found[gpu[1]] || {})[match[1]] = Number(match[3]);
  }
  return found;
}

async function load() {
  try {
    devices = (await get('devices')).devices;
    error = null;
    live = new Map();
    await Promise.all(devices.filter((device) => device.job).map(async (device) => {
      try {
        live.set(device.name, (await get(`${device.job}/live`)).live);
      } catch (gone) {
        live.delete(device.name);
      }
    }));
    const metrics = await fetch('/metrics', {cache: 'no-store'});
    sensors = metrics.ok ? readSensors(await metrics.text()) : {};
  } catch (problemOfList) {
    if (problemOfList.status !== undefined) error = problemOfList;
  }
  changed();
}

const UNLIMITED = 2 ** 60;

const HEALTH = {HEALTHY: ['Healthy', 'good'], DRAINED: ['Drained', 'warning'], UNHEALTHY: ['Unhealthy', 'bad']};

function memoryBar(device) {
  const total = f.num(device.total_bytes), free = f.num(device.free_bytes);
  const figures = live.get(device.name);
  const memory = figures && figures.memory;
  const ours = memory ? Object.values(memory.device_allocated_bytes).reduce((sum, size) => sum + size, 0) : 0;
  const used = Math.max(total - free, ours);
  const width = (size) => ({width: `${total > 0 ? Math.min(100, (100 * size) / total) : 0}%`});
  return [
    h('div', {class: 'stack', role: 'img', 'aria-label': `${f.bytes(used)} of ${f.bytes(total)} used`},
        h('span', {class: 'c1', style: width(ours)}), h('span', {class: 'c0', style: width(used - ours)})),
    h('p', {class: 'facts'}, h('span', null, h('strong', null, f.bytes(used)), ` of ${f.bytes(total)} used`),
        memory ? h('span', null, h('i', {class: 'key c1'}), `blockswap ${f.bytes(ours)}`) : null, h('span', null, `${f.bytes(Math.max(0, total - used))} free`)),
  ];
}

function card(device) {
  const [label, tone] = HEALTH[String(device.health).replace('HEALTH_', '')] || ['Unknown', 'off'];
  const id = f.idOf(device.name), bus = device.link || {}, sensor = sensors[id] || {};
  const swap = (live.get(device.name) || {}).swap;
  const fact = (name, value) => [h('dt', null, name), h('dd', null, value)];
  return h('section', {class: 'panel', 'data-key': device.name},
      h('h2', null, id, h('span', {class: `badge ${tone}`}, label)),
      h('p', {class: 'quiet'}, device.description || '\u2013'),
      device.health_reason ? h('p', {class: 'notice warning'}, device.health_reason) : null,
      device.link_warning ? h('p', {class: 'notice warning'}, device.link_warning) : null,
      memoryBar(device),
      h('dl', {class: 'pairs'},
          fact('Job', device.job ? h('a', {href: `#/${device.job}`}, f.idOf(device.job)) : 'none'),
          device.kind === 'KIND_HOST' ? null : fact('Temperature', sensor.temperature_celsius === undefined ? 'not measured' : `${sensor.temperature_celsius} \u00b0C`),
          sensor.power_watts === undefined ? null : fact('Power', `${Math.round(sensor.power_watts)} W`),
          sensor.utilization_ratio === undefined ? null : fact('Busy', f.percent(sensor.utilization_ratio)),
          swap && swap.recent.step_seconds > 0 ? fact('Swapping', f.rate(swap.recent.h2d_bytes / swap.recent.step_seconds)) : null,
          fact('To the device', f.rate(bus.h2d_bytes_per_second)), fact('From the device', f.rate(bus.d2h_bytes_per_second)),
          f.num(bus.generation) ? fact('Bus', `PCIe ${bus.generation} x${bus.width}`) : null,
          fact('Lockable memory', f.num(device.lockable_bytes) > UNLIMITED ? 'no limit' : f.bytes(device.lockable_bytes)),
          device.uuid ? fact('UUID', h('code', null, device.uuid)) : null));
}

export const devicesView = {
  title: () => 'Devices',
  enter: load,
  tick: load,
  render() {
    if (error && !devices) return problem(error, 'The devices');
    if (!devices) return h('p', {class: 'empty'}, 'Loading');
    if (devices.length === 0) return h('div', {class: 'empty'}, h('p', {class: 'title'}, 'No device'), h('p', null, 'The server has found no GPU and offers no host device.'));
    return h('div', {class: 'grid'}, devices.map(card));
  },
};
