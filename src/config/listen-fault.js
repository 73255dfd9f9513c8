// listen-fault.js: why the server cannot listen on one of its ports or at its relay's socket, and
// which setting to change.

import { dirname } from 'node:path';

/**
 * @param {NodeJS.ErrnoException} error of a start
 * @param {{name: 'PORT'|'METRICS_PORT', port: number, host: string}} wanted
 * @returns {string} empty if neither the port nor the temporary folder is the reason
 */
export function listenFault({ code = '', syscall = '', path = '' }, { name, port, host }) {
  // The relay's socket could not get a folder.
  if (syscall === 'mkdtemp')
    return `cannot write to the temporary folder ${dirname(path)} (${code}): set TMPDIR to another one`;
  if (!['bind', 'listen', 'getaddrinfo'].includes(syscall)) return '';
  const address = `${host === '' ? `port ${port}` : `${host}:${port}`} (${name})`;
  switch (code) {
    case 'EADDRINUSE':
      return `${address} is in use${port === 9090 ? ', which is also the default port of Prometheus' : ''}: set another port${example(name, port)}`;
    case 'EACCES':
      return `${address} is not permitted (${code}): set a port above 1023, or see docs/deployment.md, TLS on the public port`;
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
      return `${host} (${name === 'PORT' ? 'HOST' : 'METRICS_HOST'}) is no address of this machine (${code})`;
    default:
      return '';
  }
}

/** @param {string} name @param {number} port in use */
function example(name, port) {
  return name === 'PORT' ? '' : `, METRICS_PORT=${port === 9464 ? 9465 : 9464} for example`;
}
