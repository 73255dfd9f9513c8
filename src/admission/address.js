// address.js: the client address of a request, for every limit by address.
//
// Usually it is the socket's peer. If TRUST_PROXY names the peer as a proxy, it is the right-most
// untrusted address in X-Forwarded-For: entries to its left may be forged.
//
// Limits count an IPv6 client by its /64, because a subscriber has 2^64 addresses there. IPv4
// addresses written as IPv6 count as IPv4: ::ffff:192.0.2.1, which a dual-stack listener sees, and
// those of a NAT64 (64:ff9b::/96, RFC 6052), whose /64 is the whole IPv4 Internet.

import { isIP } from 'node:net';

import proxyAddr from 'proxy-addr';

import { compileTrustProxy } from '../config/trust-proxy.js';

/**
 * Trusted proxies in a row, including the peer. A header of 16 KB has room for 2,000 entries, and
 * comparing all of them takes 14 ms.
 */
const MAX_TRUSTED_HOPS = 32;

/**
 * @param {string} trustProxy as TRUST_PROXY has it
 * @returns {(request: import('node:http').IncomingMessage) => string} the client's address as
 *   limits count it: an IPv4 address, or an IPv6 /64; empty if the peer has already disconnected
 * @throws {TypeError} TRUST_PROXY is not valid
 */
export function createAddressResolver(trustProxy) {
  const trust = compileTrustProxy(trustProxy);
  // Usually no proxy is trusted, and the header is not read.
  if (trust === null) return (request) => addressKey(request.socket.remoteAddress ?? '');
  /** @param {string} entry @param {number} hop */
  const trustEntry = (entry, hop) => hop < MAX_TRUSTED_HOPS && trust(bareAddress(entry), hop);

  return (request) => {
    const peer = request.socket.remoteAddress ?? '';
    if (peer === '' || request.headers['x-forwarded-for'] === undefined) return addressKey(peer);
    // The peer, then the header's entries from the right, up to the first untrusted one.
    const hops = proxyAddr.all(request, trustEntry);
    // The last entry may be no address ("unknown", a host name, nonsense). Its sender must not get
    // a bucket for each spelling, so the last hop with an address counts.
    for (let i = hops.length - 1; i > 0; i--) {
      const address = bareAddress(hops[i]);
      if (isIP(address) !== 0) return addressKey(address);
    }
    return addressKey(peer);
  };
}

/**
 * @param {string} trustProxy as TRUST_PROXY has it
 * @returns {(socket: import('node:net').Socket) => string|null} the peer's address, as limits count
 *   it; null if the peer is a trusted proxy
 */
export function createPeerResolver(trustProxy) {
  const trust = compileTrustProxy(trustProxy);
  return ({ remoteAddress = '' }) => (trust?.(remoteAddress, 0) ? null : addressKey(remoteAddress));
}

/** The address as limits count it: `192.0.2.1`, `2001:db8:0:1::/64`, or as given. @param {string} address */
export function addressKey(address) {
  if (!address.includes(':')) return address;
  // A dual-stack listener reports IPv4 peers in this form. (Not `::ffff:1%2.3.4`: a client can
  // spell its zone in any number of ways.)
  if (address.startsWith('::ffff:') && isIP(address.slice(7)) === 4) return address.slice(7);
  const groups = ipv6Groups(address);
  if (groups === null) return address;
  const [a, b, c, d, e, f, g, h] = groups;
  const isMapped = (a | b | c | d | e) === 0 && f === 0xffff;
  const isTranslated = a === 0x64 && b === 0xff9b && (c | d | e | f) === 0;
  if (isMapped || isTranslated) return `${g >> 8}.${g & 255}.${h >> 8}.${h & 255}`;
  return `${a.toString(16)}:${b.toString(16)}:${c.toString(16)}:${d.toString(16)}::/64`;
}

/** @param {string} entry of X-Forwarded-For @returns {string} without port and brackets */
function bareAddress(entry) {
  if (entry.startsWith('[')) {
    const end = entry.indexOf(']');
    return end > 0 && /^(?::\d{1,5})?$/.test(entry.slice(end + 1)) ? entry.slice(1, end) : entry;
  }
  const colon = entry.indexOf(':');
  // A port follows a single colon. An IPv6 address has at least two.
  if (colon > 0 && entry.indexOf(':', colon + 1) === -1 && /^\d{1,5}$/.test(entry.slice(colon + 1)))
    return entry.slice(0, colon);
  return entry;
}

/** @param {string} address @returns {number[]|null} eight numbers of 16 bits */
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
