// banner.js: the text that a server prints when it is ready: its addresses, broker, limits and
// access rules.

import { networkInterfaces } from 'node:os';
import { describe } from '../config/config.js';
import { consoleAccess } from '../config/console.js';

/**
 * @param {object} parts
 * @param {import('../config/settings.js').Config} parts.config
 * @param {number} parts.port of the public port in use
 * @param {number} parts.metricsPort in use
 * @returns {string[]} lines; the first is the title
 */
export function banner({ config, port, metricsPort }) {
  const { broker, limits, access, api } = describe(config);
  const hosts = config.host === '' ? ['localhost', ...addresses()] : [bracketed(config.host)];
  const urls = hosts
    .map((host) => `${config.tls === null ? 'ws' : 'wss'}://${host}:${port}`)
    .join('  ');
  return [
    `fanfare is ready: ${config.workers} worker${config.workers === 1 ? '' : 's'}`,
    `  public      ${urls}  (paths / and /ws)`,
    `  operations  http://${bracketed(config.metricsHost)}:${metricsPort}/metrics, /livez, /readyz`,
    `  console     ${consoleText(config, metricsPort)}`,
    `  broker      ${broker}`,
    `  limits      ${limits}`,
    `  access      ${access}`,
    `  http api    ${api}`,
    ...(config.hooks === null ? [] : [`  hooks       ${config.hooks.path}`]),
  ];
}

/**
 * @param {import('../config/settings.js').Config} config
 * @param {number} port
 */
function consoleText(config, port) {
  const { access, why } = consoleAccess(config);
  if (access === 'off') return `off: ${why}`;
  const demand = access === 'key' ? 'needs an API key with the right console' : 'no key needed';
  return `http://${bracketed(config.metricsHost)}:${port}/  (${demand})`;
}

/** Up to two IPv4 addresses of the machine, without loopback. @returns {string[]} */
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
