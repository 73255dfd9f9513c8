// direct-write.test.js: a transport loses its socket's descriptor before the kernel can give it to
// another socket.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, Socket } from 'node:net';
import { test } from 'node:test';
import { TRANSPORT } from '../../src/transport/accepted-socket.js';
import { directWriteFault, lendDescriptor } from '../../src/transport/fast/direct-write.js';
import { isOff } from '../helpers/hidden/fields.js';

const skip = isOff('direct_write') ? 'the field is hidden' : false;

/** @typedef {import('node:net').Socket & {[TRANSPORT]?: {descriptor: number}}} Served */
/** @type {[how: string, close: (socket: Served, peer: import('node:net').Socket) => unknown][]} */
const CLOSES = [
  ['the server destroys it', (socket) => socket.destroy()],
  ['the server resets it', (socket) => socket.resetAndDestroy()],
  ['the server ends it, then the client', (socket, peer) => socket.end(() => peer.end())],
  ['the client resets it', (_socket, peer) => peer.resetAndDestroy()],
  ['the client ends it, then the server', (_socket, peer) => peer.end()],
];

for (const [how, close] of CLOSES)
  test(`if ${how}, the descriptor goes before the handle is closed`, { skip }, async (t) => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => server.close());
    const { port } = /** @type {import('node:net').AddressInfo} */ (server.address());
    const peer = connect(port, '127.0.0.1').on('error', () => {});
    /** @type {[Served]} */
    const [socket] = /** @type {any} */ (await once(server, 'connection'));
    socket.on('error', () => {}).resume();
    peer.resume();
    const descriptor = lendDescriptor(socket);
    assert.ok(descriptor > 0);
    const transport = (socket[TRANSPORT] = { descriptor });
    const handle = /** @type {any} */ (socket)._handle;
    /** @type {number[]} */
    const seen = [];
    for (const name of ['close', 'reset']) {
      const own = handle[name];
      handle[name] = (/** @type {any[]} */ ...given) => {
        seen.push(transport.descriptor);
        return own.apply(handle, given);
      };
    }
    close(socket, peer);
    await new Promise((resolve) => socket.once('close', resolve));
    assert.ok(seen.length > 0 && seen.every((one) => one === -1), `seen: ${seen}`);
    peer.destroy();
  });

test('the guard finds a Node that does not call the method of the socket', { skip }, (t) => {
  assert.equal(directWriteFault(), '');
  const { prototype } = /** @type {any} */ (Socket);
  const { destroy } = prototype;
  t.after(() => {
    prototype.destroy = destroy;
  });
  prototype.destroy = function () {
    delete this._destroy;
    return destroy.call(this);
  };
  assert.equal(directWriteFault(), 'destroy() does not call _destroy() first');
});
