// address.js: whose request is this? The one answer for HTTP, SSE and upgrades, and for every limit
// by address.
//
// It is the socket's peer, or, where TRUST_PROXY names the peer as a proxy, the right-most address
// in X-Forwarded-For that no trusted proxy has. Everything left of that one is what the client
// itself wrote, and is not looked at.
//
// Limits count an IPv6 client by its /64: a subscriber has a whole one, 2^64 addresses, so that a
// limit by single addresses would be none. IPv4 written as IPv6 (::ffff:192.0.2.1, which a
// dual-stack listener sees) is IPv4. So is an address that a NAT64 made (64:ff9b::/96, RFC 6052):
// the /64 of those is the whole IPv4 Internet.

import { isIP } from 'node:net';

import proxyAddr from 'proxy-addr';

import { compileTrustProxy } from '../config/trust-proxy.js';

/**
 * Hops that may be trusted proxies, the peer included. A header of 16 KB has room for 2,000 entries
 * that look like one, and the comparison of all of them takes 14 ms.
 */
const MAX_TRUSTED_HOPS = 32;

/**
 * @param {string} trustProxy as TRUST_PROXY has it
 * @returns {(request: import('node:http').IncomingMessage) => string} the client's address as
 *   limits count it: an IPv4 address, or an IPv6 /64; empty where the peer is gone already
 * @throws {TypeError} TRUST_PROXY is not valid
 */
export function createAddressResolver(trustProxy) {
  const trust = compileTrustProxy(trustProxy);
  // The usual server: no header is read, let alone parsed.
  if (trust === null) return (request) => addressKey(request.socket.remoteAddress ?? '');
  /**
   * @param {string} entry
   * @param {number} hop
   */
  const trustEntry = (entry, hop) => hop < MAX_TRUSTED_HOPS && trust(bareAddress(entry), hop);

  return (request) => {
    const peer = request.socket.remoteAddress ?? '';
    if (peer === '' || request.headers['x-forwarded-for'] === undefined) return addressKey(peer);
    // The peer, then the header's entries from the right, up to and with the first that is not
    // trusted.
    const hops = proxyAddr.all(request, trustEntry);
    // That one may be no address ("unknown", a host name, nonsense a proxy let pass). Whoever sends
    // it must not get a bucket of its own for each spelling: it counts as the last hop that is one,
    // at the latest the peer.
    for (let i = hops.length - 1; i > 0; i--) {
      const address = bareAddress(hops[i]);
      if (isIP(address) !== 0) return addressKey(address);
    }
    return addressKey(peer);
  };
}

/**
 * @param {string} trustProxy as TRUST_PROXY has it
 * @returns {(socket: import('node:net').Socket) => string|null} the address of the socket's peer as
 *   limits count it; null if the peer is a trusted proxy, which speaks for many clients
 */
export function createPeerResolver(trustProxy) {
  const trust = compileTrustProxy(trustProxy);
  return ({ remoteAddress = '' }) => (trust?.(remoteAddress, 0) ? null : addressKey(remoteAddress));
}

/**
 * @param {string} address
 * @returns {string} what limits count it as: `192.0.2.1`, or `2001:db8:0:1::/64`; anything else as
 *   it is
 */
export function addressKey(address) {
  if (!address.includes(':')) return address;
  // What a dual-stack listener says for each IPv4 peer.
  // (Not `::ffff:1%2.3.4`, whose zone anybody may spell in as many ways as there are.)
  if (address.startsWith('::ffff:') && isIP(address.slice(7)) === 4) return address.slice(7);
  const groups = ipv6Groups(address);
  if (groups === null) return address;
  const [a, b, c, d, e, f, g, h] = groups;
  const isMapped = (a | b | c | d | e) === 0 && f === 0xffff;
  const isTranslated = a === 0x64 && b === 0xff9b && (c | d | e | f) === 0;
  if (isMapped || isTranslated) return `${g >> 8}.${g & 255}.${h >> 8}.${h & 255}`;
  return `${a.toString(16)}:${b.toString(16)}:${c.toString(16)}:${d.toString(16)}::/64`;
}

/**
 * @param {string} entry of X-Forwarded-For
 * @returns {string} without the port that some proxies add, and without brackets
 */
function bareAddress(entry) {
  if (entry.startsWith('[')) {
    const end = entry.indexOf(']');
    return end > 0 && /^(?::\d{1,5})?$/.test(entry.slice(end + 1)) ? entry.slice(1, end) : entry;
  }
  const colon = entry.indexOf(':');
  // One colon is a port's; an IPv6 address has two at least.
  if (colon > 0 && entry.indexOf(':', colon + 1) === -1 && /^\d{1,5}$/.test(entry.slice(colon + 1)))
    return entry.slice(0, colon);
  return entry;
}

/**
 * @param {string} address
 * @returns {number[]|null} eight numbers of 16 bits
 */
function ipv6Groups(address) {
  const zone = address.indexOf('%');
  let text = zone === -1 ? address : address.slice(0, zone);
  if (isIP(text) !== 6) return null;
  if (text.includes('.')) {
    const colon = text.lastIndexOf(':');
    const [w, x, y, z] = text
      .slice(colon + 1)
      .split('.')
      .map(Number);
    text = `${text.slice(0, colon)}:${((w << 8) | x).toString(16)}:${((y << 8) | z).toString(16)}`;
  }
  const [left, right] = text.split('::', 2);
  const head = hexGroups(left);
  const tail = right === undefined ? [] : hexGroups(right);
  return [...head, ...new Array(8 - head.length - tail.length).fill(0), ...tail];
}

/** @param {string} text */
function hexGroups(text) {
  return text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16));
}
