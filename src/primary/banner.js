// banner.js: the text that a server prints when it is ready: its addresses, broker, limits and
// access rules.

import { networkInterfaces } from 'node:os';
import { describeConfig } from '../config/config.js';
import { consoleAccess } from '../config/console.js';
import { describeHooks } from '../config/hooks.js';

/** @import { Config } from '../config/settings.js' */

/**
 * @typedef {object} BannerLine
 * @property {string} text @property {boolean} isWarning perhaps not intended
 */

/**
 * @param {object} parts @param {Config} parts.config
 * @param {number} parts.port of the public port in use @param {number} parts.metricsPort in use
 * @param {boolean} parts.isBrokerUp
 * @param {boolean} parts.hasHello the user can run `npm run hello`
 * @returns {BannerLine[]} the first is the title
 */
export function banner({ config, port, metricsPort, isBrokerUp, hasHello }) {
  const { broker, limits, rates, access, api, pusher, centrifugo, webhooks } =
    describeConfig(config);
  const scheme = config.tls === null ? 'ws' : 'wss';
  const hosts = config.host === '' ? ['localhost', ...lanAddresses()] : [bracketed(config.host)];
  const urls = hosts.map((host) => `${scheme}://${host}:${port}`);
  const title = `fanfare is ready: ${config.workers} worker${config.workers === 1 ? '' : 's'}`;
  const away = ' is unreachable: publishes are refused until it returns';
  const line = (/** @type {string} */ text, isWarning = false) => ({ text, isWarning });
  return [
    line(isBrokerUp ? title : `${title}, degraded`, !isBrokerUp),
    line(`  public      ${urls.join('  ')}  (paths / and /ws)`),
    line(
      `  operations  http://${bracketed(config.metricsHost)}:${metricsPort}/metrics, /livez, /readyz`,
    ),
    line(`  console     ${consoleText(config, metricsPort)}`),
    line(`  broker      ${broker}${isBrokerUp ? '' : away}`, !isBrokerUp),
    line(`  limits      ${limits}`),
    line(`  rates       ${rates}`),
    line(`  access      ${access}`, isOpen(config)),
    line(`  http api    ${api}`),
    ...(pusher === '' ? [] : [line(`  pusher      ${pusher}`)]),
    ...(centrifugo === '' ? [] : [line(`  centrifugo  ${centrifugo}`)]),
    ...(config.hooks === null ? [] : [line(`  hooks       ${describeHooks(config.hooks)}`)]),
    ...(webhooks === '' ? [] : [line(`  webhooks    ${webhooks}`)]),
    // The hello script has no token, and knows only the default address.
    ...(hasHello && config.tokens === null
      ? [line(`  try         npm run hello${urls[0] === DEFAULT_URL ? '' : ` -- ${urls[0]}`}`)]
      : []),
  ];
}

const DEFAULT_URL = 'ws://localhost:3000';

/** @param {Config} config @returns {boolean} may everyone do everything? */
export function isOpen({ tokens, hooks }) {
  return tokens === null && hooks === null;
}

/** @param {Config} config @param {number} port */
function consoleText(config, port) {
  const { access, why } = consoleAccess(config);
  if (access === 'off') return `off: ${why}`;
  const demand = access === 'key' ? 'needs an API key with the right console' : 'no key needed';
  return `http://${bracketed(config.metricsHost)}:${port}/  (${demand})`;
}

/** Up to two IPv4 addresses of the machine, without loopback. @returns {string[]} */
function lanAddresses() {
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
