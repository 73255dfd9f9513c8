// trust-proxy.js: which hops of a request are trusted to name the client in X-Forwarded-For: a
// parser of TRUST_PROXY for the check at start (config.js) and for requests (admission/address.js).

import { isIP } from 'node:net';

import proxyAddr from 'proxy-addr';

/** A larger hop count is a typing error. */
const MAX_HOPS = 32;
const NAMES = ['loopback', 'linklocal', 'uniquelocal'];

/**
 * @typedef {(address: string, hop: number) => boolean} Trust hop 0 is the peer of the socket, 1 the
 *   right-most entry
 */

/**
 * @param {string} text a hop count as in Express, or CIDRs, addresses and proxy-addr's names,
 *   separated by commas
 * @returns {Trust|null} null if no hop is trusted
 * @throws {TypeError} with the fault, without the name of the setting
 */
export function compileTrustProxy(text) {
  if (text === '' || text === '0') return null;
  if (/^\d+$/.test(text)) {
    const hops = Number(text);
    if (hops > MAX_HOPS) throw new TypeError(`the hop count ${hops} is above ${MAX_HOPS}`);
    return (_address, hop) => hop < hops;
  }
  const networks = text
    .split(',')
    .map((entry) => entry.trim())
    .filter((entry) => entry !== '');
  if (networks.length === 0) throw new TypeError('the list is empty');
  for (const network of networks) {
    // proxy-addr accepts surprising forms: "10/8" as 0.0.0.0/8, "010.0.0.1" as 8.0.0.1.
    if (!NAMES.includes(network) && isIP(network.split('/', 1)[0]) === 0)
      throw new TypeError(`"${network}" is neither a hop count nor a CIDR`);
  }
  const trust = proxyAddr.compile(networks);
  // A client can write anything into the header. Only plain addresses are compared.
  return (address, hop) => isIP(address) !== 0 && trust(address, hop);
}
