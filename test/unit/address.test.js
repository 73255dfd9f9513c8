import assert from 'node:assert/strict';
import { createServer, request as send } from 'node:http';
import { test } from 'node:test';
import {
  addressKey,
  createAddressResolver,
  createPeerResolver,
} from '../../src/admission/address.js';

/**
 * @param {string} trustProxy
 * @param {string} peer
 * @param {string} [forwarded] X-Forwarded-For, as Node joins several
 */
function resolve(trustProxy, peer, forwarded) {
  const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
  const request = { socket: { remoteAddress: peer }, headers };
  return createAddressResolver(trustProxy)(
    /** @type {import('node:http').IncomingMessage} */ (/** @type {unknown} */ (request)),
  );
}

test('without trusted proxies the header is ignored', () => {
  assert.equal(resolve('', '192.0.2.1', '6.6.6.6'), '192.0.2.1');
  assert.equal(resolve('0', '::ffff:192.0.2.1', '6.6.6.6, 192.0.2.9'), '192.0.2.1');
});

test('a peer that is not a trusted proxy is the client, whatever header it sends', () => {
  assert.equal(resolve('10.0.0.0/8', '192.0.2.1', '6.6.6.6'), '192.0.2.1');
  assert.equal(resolve('10.0.0.0/8', '192.0.2.1', '6.6.6.6, 10.0.0.1'), '192.0.2.1');
});

test('behind a proxy that appends (nginx, HAProxy with option forwardfor) the forged part is ignored', () => {
  assert.equal(resolve('127.0.0.1/32', '127.0.0.1', '6.6.6.6, 192.0.2.1'), '192.0.2.1');
  assert.equal(
    resolve('127.0.0.1/32', '::ffff:127.0.0.1', '127.0.0.1, 6.6.6.6, 192.0.2.1'),
    '192.0.2.1',
  );
  assert.equal(resolve('1', '127.0.0.1', '6.6.6.6, 192.0.2.1'), '192.0.2.1');
});

test('a chain of proxies is followed to the right-most address that is not a proxy', () => {
  assert.equal(
    resolve('10.0.0.0/8,127.0.0.1/32', '127.0.0.1', '6.6.6.6, 192.0.2.1, 10.1.1.1'),
    '192.0.2.1',
  );
  assert.equal(resolve('2', '127.0.0.1', '6.6.6.6, 192.0.2.1, 10.1.1.1'), '192.0.2.1');
  assert.equal(resolve('1', '127.0.0.1', '6.6.6.6, 192.0.2.1, 10.1.1.1'), '10.1.1.1');
});

test('if all hops are trusted, the left-most is the client', () => {
  assert.equal(resolve('10.0.0.0/8', '10.0.0.1', '10.0.0.3, 10.0.0.2'), '10.0.0.3');
  assert.equal(resolve('3', '10.0.0.1', '192.0.2.1'), '192.0.2.1');
});

test('the number of trusted hops is bounded, so a header full of them costs little', () => {
  const hops = Array.from({ length: 1500 }, (_, i) => `10.0.${i >> 8}.${i & 255}`).reverse();
  assert.equal(resolve('10.0.0.0/8', '10.1.0.0', hops.join(', ')), '10.0.0.31');
});

test('a proxy that sends no header is itself the client', () => {
  assert.equal(resolve('10.0.0.0/8', '10.0.0.1'), '10.0.0.1');
  assert.equal(resolve('1', '10.0.0.1', ''), '10.0.0.1');
});

test('if the header is malformed, the last hop that is an address is the client', () => {
  for (const nonsense of [
    'unknown',
    'a',
    'b',
    '1',
    '0x7f.1',
    '2130706433',
    '010.0.0.1',
    '1.2.3.4.5',
    '[::1',
    '::1::',
    '1.2.3.4:x',
    '_hidden',
    '\u0000',
    '-',
  ]) {
    assert.equal(resolve('127.0.0.1/32', '127.0.0.1', nonsense), '127.0.0.1', nonsense);
    assert.equal(
      resolve('127.0.0.1/32,10.0.0.0/8', '127.0.0.1', `6.6.6.6, ${nonsense}, 10.0.0.9`),
      '10.0.0.9',
      nonsense,
    );
    assert.equal(resolve('1', '127.0.0.1', nonsense), '127.0.0.1', nonsense);
    assert.equal(resolve('2', '127.0.0.1', `${nonsense}, 10.0.0.9`), '10.0.0.9', nonsense);
  }
});

test('ports that proxies write are not part of the address', () => {
  assert.equal(resolve('1', '127.0.0.1', '192.0.2.1:51234'), '192.0.2.1');
  assert.equal(resolve('1', '127.0.0.1', '[2001:db8::1]:51234'), '2001:db8:0:0::/64');
  assert.equal(resolve('1', '127.0.0.1', '[2001:db8::1]'), '2001:db8:0:0::/64');
  assert.equal(
    resolve('127.0.0.0/8,10.0.0.0/8', '127.0.0.1', '192.0.2.1:1, 10.0.0.1:443'),
    '192.0.2.1',
  );
});

test('an IPv4 address written as IPv6 is one address', () => {
  for (const address of [
    '::ffff:192.0.2.1',
    '::ffff:c000:201',
    '0:0:0:0:0:ffff:192.0.2.1',
    '::FFFF:192.0.2.1',
  ])
    assert.equal(addressKey(address), '192.0.2.1', address);
  assert.equal(resolve('10.0.0.0/8', '::ffff:10.0.0.1', '::ffff:192.0.2.1'), '192.0.2.1');
});

test('a zone does not change the address, wherever it stands', () => {
  const keys = new Set(
    ['::ffff:1%2.3.4', '::ffff:1%a.b', '::ffff:1%c', '::ffff:1'].map(addressKey),
  );
  assert.deepEqual([...keys], ['0:0:0:0::/64']);
});

test('an IPv6 client is counted by its /64, however it is written', () => {
  for (const address of [
    '2001:db8:0:7::1',
    '2001:db8:0:7:ffff:ffff:ffff:ffff',
    '2001:0DB8:0000:0007::',
    '2001:db8::7:0:0:1.2.3.4',
  ]) {
    assert.equal(addressKey(address), '2001:db8:0:7::/64', address);
  }
  assert.notEqual(addressKey('2001:db8:0:8::1'), addressKey('2001:db8:0:7::1'));
  assert.equal(addressKey('::1'), '0:0:0:0::/64');
  assert.equal(addressKey('fe80::1%eth0'), 'fe80:0:0:0::/64');
});

test('a disconnected peer has no address', () => {
  const request = /** @type {import('node:http').IncomingMessage} */ (
    /** @type {unknown} */ ({ socket: {}, headers: { 'x-forwarded-for': '6.6.6.6' } })
  );
  assert.equal(createAddressResolver('1')(request), '');
  assert.equal(createAddressResolver('')(request), '');
});

test('several headers are read as one list, over real sockets', { timeout: 5000 }, async (t) => {
  const resolver = createAddressResolver('127.0.0.1/32');
  const server = createServer((request, response) => response.end(resolver(request)));
  t.after(() => server.close());
  await new Promise((done) => server.listen(0, '127.0.0.1', () => done(undefined)));
  const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
  const body = await new Promise((done, fail) => {
    const headers = { 'X-Forwarded-For': ['6.6.6.6', '192.0.2.1'] };
    send({ port, host: '127.0.0.1', headers, agent: false }, (response) =>
      response.setEncoding('utf8').on('data', done),
    )
      .on('error', fail)
      .end();
  });
  assert.equal(body, '192.0.2.1');
});

test('a NAT64 IPv6 address counts as the IPv4 address in it', () => {
  assert.equal(addressKey('64:ff9b::1.2.3.4'), '1.2.3.4');
  assert.equal(addressKey('64:ff9b::506:708'), '5.6.7.8');
  assert.equal(addressKey('0064:FF9B:0:0:0:0:1.2.3.4'), '1.2.3.4');
  assert.equal(
    addressKey('64:ff9b:1::1.2.3.4'),
    '64:ff9b:1:0::/64',
    'a network of some operator, not the well-known one',
  );
  assert.equal(addressKey('64:ff9b::1:1.2.3.4'), '64:ff9b:0:0::/64');
});

test('the peer of a socket has an address, unless it is a trusted proxy', () => {
  const peer = (/** @type {string} */ trustProxy, /** @type {string|undefined} */ remoteAddress) =>
    createPeerResolver(trustProxy)(/** @type {import('node:net').Socket} */ ({ remoteAddress }));
  assert.equal(peer('', '::ffff:192.0.2.1'), '192.0.2.1');
  assert.equal(peer('10.0.0.0/8', '192.0.2.1'), '192.0.2.1');
  assert.equal(peer('10.0.0.0/8', '::ffff:10.0.0.1'), null);
  assert.equal(peer('1', '192.0.2.1'), null);
  assert.equal(peer('', undefined), '');
});
