// bridge.js: a port without TLS in front of a server with TLS.

import { once } from 'node:events';
import { createServer } from 'node:net';
import { connect } from 'node:tls';

/**
 * @param {import('../../harness/server.js').Owner} t
 * @param {number} port of the server, on 127.0.0.1
 * @param {string} ca of its certificate, which is checked
 * @returns {Promise<number>} the port of the bridge
 */
export async function startBridge(t, port, ca) {
  /** @type {Set<import('node:net').Socket>} */
  const sockets = new Set();
  const bridge = createServer({ allowHalfOpen: true, noDelay: true }, (near) => {
    const tcp = { port, host: '127.0.0.1', localAddress: near.remoteAddress, allowHalfOpen: true };
    const far = connect({ ...tcp, ca });
    far.setNoDelay(true);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ]) {
      sockets.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        sockets.delete(one);
        other.destroySoon();
      });
      one.pipe(other);
    }
  });
  t.after(() => {
    bridge.close();
    for (const socket of sockets) socket.destroy();
  });
  bridge.listen(0, '127.0.0.1');
  await once(bridge, 'listening');
  return /** @type {import('node:net').AddressInfo} */ (bridge.address()).port;
}
