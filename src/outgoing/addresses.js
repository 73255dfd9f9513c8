// addresses.js: which addresses a backend may have, of webhooks or of hooks.
//
// Each connection resolves the name once, checks all its addresses, and connects to one of these.
// So a name that changes after the check gains nothing. Some addresses are never allowed, such as a
// cloud's metadata service. Private ones are allowed by default, because back ends have them
// (FANFARE_WEBHOOKS_PUBLIC_ONLY). Hooks over http: may go to private ones only, because they carry
// cookies and tokens.

import { lookup as dnsLookup } from 'node:dns';
import { BlockList, isIP } from 'node:net';

/**
 * Metadata services of clouds, which give credentials of the machine to whoever asks. Most are
 * link-local (169.254.169.254). These are not: Alibaba's, Azure's and Oracle's, then AWS's with its
 * neighbours, Google's, Oracle's and Scaleway's.
 */
const METADATA_V4 = ['100.100.100.200/32', '168.63.129.16/32', '192.0.0.192/32'];
const METADATA_V6 = [
  ...['fd00:ec2::/32', 'fd20:ce::254/128', 'fd00:c1::a9fe:a9fe/128', 'fd00:42::42/128'],
];
/** Never: this network, link-local, multicast, reserved and broadcast. */
const NEVER_V4 = ['0.0.0.0/8', '169.254.0.0/16', '224.0.0.0/4', '240.0.0.0/4', ...METADATA_V4];
/**
 * The same, and prefixes that hide an IPv4 address at an unknown place: local NAT64 (RFC 8215) and
 * Teredo.
 */
const NEVER_V6 = [
  ...['::/128', 'fe80::/10', 'fec0::/10', 'ff00::/8', ...METADATA_V6],
  ...['64:ff9b:1::/48', '2001::/32'],
];
const PRIVATE_V4 = [
  '127.0.0.0/8',
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  '100.64.0.0/10',
  '192.0.0.0/24',
  '198.18.0.0/15',
];
const PRIVATE_V6 = ['::1/128', 'fc00::/7'];
/**
 * IPv6 prefixes before an IPv4 address: IPv4-compatible, IPv4-translated (RFC 2765), NAT64 (RFC
 * 6052), 6to4. BlockList itself reads the IPv4-mapped ones, ::ffff:0:0/96.
 */
const EMBEDDINGS = Object.freeze([
  { bits: 96, embed: (/** @type {string} */ hex) => `::${hex}` },
  { bits: 96, embed: (/** @type {string} */ hex) => `::ffff:0:${hex}` },
  { bits: 96, embed: (/** @type {string} */ hex) => `64:ff9b::${hex}` },
  { bits: 16, embed: (/** @type {string} */ hex) => `2002:${hex}::` },
]);

/** @typedef {(host: string, options: {all: true}, callback: (error: Error|null, found: {address: string, family: number}[]) => void) => void} Resolve */

export class RefusedAddress extends Error {}

export class AddressGuard {
  /** @param {{publicOnly: boolean, privateOnly?: boolean, resolve?: Resolve}} options */
  constructor({ publicOnly, privateOnly = false, resolve = dnsLookup }) {
    this.resolve = resolve;
    this.refused = listOf(
      [NEVER_V4, publicOnly ? PRIVATE_V4 : []],
      [NEVER_V6, publicOnly ? PRIVATE_V6 : []],
    );
    this.required = privateOnly ? listOf([PRIVATE_V4], [PRIVATE_V6]) : null;
    /** The `lookup` option of http.request: passes on only addresses that it has checked. */
    this.lookup = this.#lookup.bind(this);
  }

  /** @param {string} address */
  allows(address) {
    const family = isIP(address) === 4 ? 'ipv4' : 'ipv6';
    if (isIP(address) === 0 || this.refused.check(address, family)) return false;
    return this.required === null || this.required.check(address, family);
  }

  /**
   * Checks an address in a URL, which `lookup` never sees. True for names.
   * @param {string} hostname of a parsed URL, which has numeric forms (`0x7f.1`) in usual notation
   */
  allowsHost(hostname) {
    const address = hostname.replace(/^\[(.*)\]$/, '$1');
    return isIP(address) === 0 || this.allows(address);
  }

  /**
   * @param {string} host @param {{all?: boolean}} options
   * @param {(...args: any[]) => void} callback as for dns.lookup
   */
  #lookup(host, { all }, callback) {
    this.resolve(host, { all: true }, (error, found) => {
      if (error) return callback(error);
      const refused = found.find(({ address }) => !this.allows(address));
      if (refused !== undefined || found.length === 0)
        return callback(
          new RefusedAddress(`${host} has the address ${refused?.address}, which is not allowed`),
        );
      if (all) callback(null, found);
      else callback(null, found[0].address, found[0].family);
    });
  }
}

/** @param {readonly (readonly string[])[]} v4 ranges @param {readonly (readonly string[])[]} v6 */
function listOf(v4, v6) {
  const list = new BlockList();
  for (const range of v4.flat()) addV4(list, range);
  for (const range of v6.flat()) {
    const [net, bits] = range.split('/');
    list.addSubnet(net, Number(bits), 'ipv6');
  }
  return list;
}

/** @param {BlockList} list @param {string} range */
function addV4(list, range) {
  const [net, text] = range.split('/');
  const bits = Number(text);
  list.addSubnet(net, bits, 'ipv4');
  const bytes = net.split('.').map((byte) => Number(byte).toString(16).padStart(2, '0'));
  const hex = `${bytes[0]}${bytes[1]}:${bytes[2]}${bytes[3]}`;
  for (const { bits: front, embed } of EMBEDDINGS) {
    // ::/104 would include ::1, for which the setting decides.
    if (net === '0.0.0.0' && front === 96 && embed('') === '::') continue;
    list.addSubnet(embed(hex), front + bits, 'ipv6');
  }
}
