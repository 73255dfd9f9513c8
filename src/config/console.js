// console.js: decides about access to the console of the operations port.
//   open   without a key: the port listens on a loopback address
//   key    with an API key that has the right `console`
//   off    not at all
//
// Many servers bind the operations port to all addresses for Prometheus, so there it needs a key.

const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|::1)$/i;

/** @typedef {'open'|'key'|'off'} Access */

/**
 * @param {Pick<import('./settings.js').Config, 'console'|'metricsHost'|'apiKeys'>} config
 * @returns {{access: Access, why: string}} `why`: the reason if it is off, for people
 */
export function consoleAccess({ console: mode, metricsHost, apiKeys }) {
  if (mode === 'off') return { access: 'off', why: 'FANFARE_CONSOLE is off' };
  const isLoopback = LOOPBACK.test(metricsHost);
  if (isLoopback && mode !== 'key') return { access: 'open', why: '' };
  if (apiKeys.some(({ rights }) => rights.includes('console'))) return { access: 'key', why: '' };
  const needed = isLoopback ? '' : ` and METRICS_HOST ${metricsHost} is not a loopback address`;
  return { access: 'off', why: `no API key has the right "console"${needed}` };
}
