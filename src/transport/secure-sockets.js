// secure-sockets.js: TLS on the public port, from the ClientHello to the decrypted stream.
//
// A handshake costs 1 ms of CPU or more, so handshakes have a share of each turn. Node computes the
// server's answer in the tick after the TLS socket is created. So the next handshake begins one
// tick later, when the time is known, and the slot is the last one of a turn. Not bounded: if a
// client first offers a wrong key share, its second attempt does not wait in line.
//
// Sockets go to a `tls.Server` that does not listen, as Node's documentation allows. Versions and
// ciphers are Mozilla's intermediate configuration (ssl-config.mozilla.org).

import { constants } from 'node:crypto';
import { createServer } from 'node:tls';
import { FairQueue } from './fair-queue.js';

const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

/** @import { Certificate } from '../config/certificate.js' */
/** @import { Socket } from 'node:net' */
/** @import { TLSSocket } from 'node:tls' */

export class SecureSockets {
  /** Sockets whose ClientHello waits for its turn. @type {FairQueue<Socket>} */
  #line = new FairQueue();
  #slot;
  /** Sockets whose handshake is under way, by both addresses. @type {Map<string, Socket>} */
  #securing = new Map();

  /**
   * @param {object} parts @param {Certificate} parts.certificate
   * @param {(socket: Socket) => boolean} parts.onStart the socket's turn has come: puts the bytes
   *   of its ClientHello back into it; false if the socket is closed
   * @param {(socket: Socket, stream: TLSSocket) => void} parts.onSecure TLS is established
   * @param {Pick<import('../observability/counters.js').Counters, 'refused'|'tls'>} parts.counters
   * @param {import('../worker/turn.js').Turn} parts.turn
   */
  constructor({ certificate, onStart, onSecure, counters, turn }) {
    this.#slot = turn.slot('tls', () => this.#startNextHandshake());
    this.onStart = onStart;
    this.onSecure = onSecure;
    this.counters = counters;
    this.server = createServer(
      { ...contextOptions(certificate), ALPNProtocols: ['http/1.1'] },
      (stream) => this.#secured(stream),
    );
    this.server.on('tlsClientError', (error) => this.#failed(error));
    counters.tls.expiresMs = certificate.expiresMs;
  }

  /** Uses the certificate for new handshakes. @param {Certificate} certificate */
  replaceCertificate(certificate) {
    this.server.setSecureContext(contextOptions(certificate));
    this.counters.tls.expiresMs = certificate.expiresMs;
  }

  /** @param {Socket} socket with its ClientHello @param {string|null} address for the turns */
  push(socket, address) {
    this.#line.push(socket, address);
    this.#slot.wake();
  }

  /** @returns {boolean} true if the slot keeps its share for the next tick */
  #startNextHandshake() {
    const socket = this.#line.shift();
    if (socket === undefined) return false;
    if (this.onStart(socket)) this.#start(socket);
    process.nextTick(this.#goOn);
    return true;
  }

  #goOn = () => {
    if (!this.#slot.isSpent()) this.#startNextHandshake();
  };

  /** @param {Socket} socket */
  #start(socket) {
    const ends = endsOf(socket);
    this.#securing.set(ends, socket);
    socket.once('close', () => {
      if (this.#securing.get(ends) === socket) this.#securing.delete(ends);
    });
    this.server.emit('connection', socket);
  }

  /** @param {TLSSocket} stream */
  #secured(stream) {
    const ends = endsOf(stream);
    const socket = this.#securing.get(ends);
    if (socket === undefined) return void stream.destroy(); // the peer is gone
    this.#securing.delete(ends);
    this.counters.tls.handshakes[stream.isSessionReused() ? 'resumed' : 'full']++;
    this.onSecure(socket, stream);
  }

  /** @param {NodeJS.ErrnoException} error */
  #failed({ code }) {
    // ECONNRESET: the peer has left, or the server has closed the socket and counted it.
    if (code !== 'ECONNRESET') this.counters.refused.tls++;
  }
}

/** @param {Certificate} certificate */
function contextOptions({ cert, key, passphrase }) {
  return {
    cert,
    key,
    passphrase,
    minVersion: /** @type {const} */ ('TLSv1.2'),
    ciphers: CIPHERS,
    honorCipherOrder: false,
    // Or a client could cause one handshake after the other on a connection.
    secureOptions: constants.SSL_OP_NO_RENEGOTIATION,
  };
}

/** @param {Socket} socket @returns {string} unique among open sockets */
function endsOf({ remoteAddress, remotePort, localAddress }) {
  return `${remoteAddress} ${remotePort} ${localAddress}`;
}
