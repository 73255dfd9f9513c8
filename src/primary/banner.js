// banner.js: what an operator wants to read first: where it listens, with which broker and limits,
// and who may come in.

import { networkInterfaces } from 'node:os';
import { describe } from '../config/config.js';

/**
 * @param {object} what
 * @param {import('../config/settings.js').Config} what.config
 * @param {number} what.port the public one, as chosen
 * @param {number} what.metricsPort as chosen
 * @returns {string[]} lines; the first says that it is ready
 */
export function banner({ config, port, metricsPort }) {
  const { broker, limits, access } = describe(config);
  const hosts = config.host === '' ? ['localhost', ...addresses()] : [bracketed(config.host)];
  const urls = hosts.map((host) => `ws://${host}:${port}`).join('  ');
  return [
    `fanfare is ready: ${config.workers} worker${config.workers === 1 ? '' : 's'}`,
    `  public      ${urls}  (paths / and /ws)`,
    `  operations  http://${bracketed(config.metricsHost)}:${metricsPort}/metrics, /livez, /readyz`,
    `  broker      ${broker}`,
    `  limits      ${limits}`,
    `  access      ${access}`,
  ];
}

/** The machine's IPv4 addresses but loopback; two are enough for a banner. @returns {string[]} */
function addresses() {
  const all = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
  return all
    .filter(({ family, internal }) => family === 'IPv4' && !internal)
    .map(({ address }) => address)
    .slice(0, 2);
}

/** @param {string} host */
function bracketed(host) {
  return host.includes(':') ? `[${host}]` : host;
}
