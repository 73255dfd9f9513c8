// failures.js: what failed, how often, and whose limit that was.
//
// The lesson behind the table: a client that has run out of ports or descriptors looks, from its
// connection count alone, like a server that takes no more. The error tells them apart. Every
// failure is counted under a key; a key has a row here, or it is shown as it is and blamed on
// nobody.

import { HandshakeError } from '../lib/ws-client.js';

/** @typedef {'client'|'server'|'between'} Side */

/**
 * @typedef {object} Row
 * @property {RegExp} key
 * @property {Side} side
 * @property {string} limit a few words
 * @property {string} means what has happened
 * @property {string} fix the setting to change, and where
 */

/** The first row that fits. @type {readonly Row[]} */
const ROWS = Object.freeze([
  {
    key: /^bind EADDRNOTAVAIL$/,
    side: 'client',
    limit: 'source address',
    means: 'a source address does not belong to this machine',
    fix: 'ip addr add ADDRESS/LENGTH dev INTERFACE, or another --source',
  },
  {
    key: /^EADDRNOTAVAIL$/,
    side: 'client',
    limit: 'client ports',
    means: 'no source address of the client has a port left with which to reach this target',
    fix: 'more addresses with --source, a wider net.ipv4.ip_local_port_range, or more client machines',
  },
  {
    key: /^EADDRINUSE$/,
    side: 'client',
    limit: 'client ports',
    means: 'no port is left to bind a source address with: other programs have them',
    fix: 'more addresses with --source, a wider net.ipv4.ip_local_port_range, or more client machines',
  },
  {
    key: /^EMFILE$/,
    side: 'client',
    limit: 'file descriptors of a client process',
    means: 'a client process has as many files open as it may',
    fix: 'more --processes, or a higher hard limit: ulimit -Hn (lasting: nofile in /etc/security/limits.conf)',
  },
  {
    key: /^ENFILE$/,
    side: 'client',
    limit: 'file descriptors of the client machine',
    means: 'the client machine has as many files open as it may',
    fix: 'sysctl -w fs.file-max=2097152',
  },
  {
    key: /^(ENOMEM|ENOBUFS)$/,
    side: 'client',
    limit: 'memory of the client machine',
    means: 'the kernel of the client machine has no memory for another socket',
    fix: 'fewer connections, more memory, or larger net.ipv4.tcp_mem',
  },
  {
    key: /^(EHOSTUNREACH|ENETUNREACH|EACCES|EPERM)$/,
    side: 'between',
    limit: 'the way to the server',
    means: 'there is no way from a source address to the target, or a firewall forbids it',
    fix: 'routes and firewall between the two; an address of 127.0.0.0/8 reaches only its own machine',
  },
  {
    key: /^(ENOTFOUND|EAI_AGAIN)$/,
    side: 'between',
    limit: 'name of the server',
    means: "the target's name has no address",
    fix: '--target',
  },
  {
    key: /^ECONNREFUSED$/,
    side: 'server',
    limit: 'the server does not listen',
    means:
      'nothing listens at the target: it has not started, has ended, or listens on another address',
    fix: 'PORT and HOST of the server, --target here; the log of the server, if it was there before',
  },
  {
    key: /^ETIMEDOUT$/,
    side: 'server',
    limit: 'the server answers too late',
    means:
      'no handshake in time: the accept queue is full (SYNs are dropped then), the server has no processor time left, or something between them drops packets',
    fix: 'on the server: net.core.somaxconn and net.ipv4.tcp_max_syn_backlog, more WORKERS; between: the size of its conntrack table; here: a slower --connect-rate, a longer --connect-timeout',
  },
  {
    key: /^(ECONNRESET|EPIPE|closed during the handshake)$/,
    side: 'server',
    limit: 'the server hangs up',
    means:
      'the server, or a proxy before it, took the connection and ended it unanswered: out of descriptors, or crashed',
    fix: 'on the server: nofile (ulimit -n) × WORKERS must exceed the connections; its log',
  },
  {
    key: /^HTTP 429$/,
    side: 'server',
    limit: 'connections per address',
    means:
      'this address has as many connections as the server permits, or opens them more often than it permits',
    fix: 'on the server: FANFARE_LIMITS=off for a load test, or a higher FANFARE_MAX_CONNECTIONS_PER_IP and FANFARE_HANDSHAKES_PER_MINUTE_PER_IP; here: more --source',
  },
  {
    key: /^HTTP 503$/,
    side: 'server',
    limit: 'the server is overloaded or full',
    means:
      'the server did not come to the handshake in time, has no descriptors in reserve, is past the watermark of its event loop or memory, or drains',
    fix: 'on the server: more WORKERS, a higher nofile (ulimit -n), FANFARE_HANDSHAKE_TIMEOUT_MS, FANFARE_OVERLOAD_MODE; `fanfare_admissions_refused_total` says which; here: a slower --connect-rate',
  },
  {
    key: /^HTTP 50[24]$/,
    side: 'between',
    limit: 'the proxy before the server',
    means: 'a proxy answered that it can not reach its server',
    fix: "the proxy: its own ports towards the server (it is the server's client), its connection limits, its log",
  },
  {
    key: /^HTTP (\d+)$/,
    side: 'server',
    limit: 'the server refuses',
    means: 'the server answered the handshake with another status than 101',
    fix: 'the path in --target (401, 403: the server wants a token or an Origin; 404: no WebSocket there)',
  },
  {
    key: /^error RATE_LIMIT_EXCEEDED$/,
    side: 'server',
    limit: 'messages a minute',
    means: 'the server limits how often a connection or an address may send',
    fix: 'on the server: FANFARE_LIMITS=off for a load test, or a higher FANFARE_MESSAGES_PER_MINUTE and …_PER_IP',
  },
  {
    key: /^error /,
    side: 'server',
    limit: 'the server refuses a message',
    means: 'the server answered a message with an error',
    fix: 'the error says it; --profile, if the server speaks otherwise',
  },
  {
    key: /^closed 1006$/,
    side: 'server',
    limit: 'connections lost',
    means:
      'an open connection ended without a close frame: a worker died, or something between cut it',
    fix: 'the log of the server; memory there; idle time-outs of what stands between',
  },
  {
    key: /^closed \d+$/,
    side: 'server',
    limit: 'connections closed by the server',
    means:
      'the server ended an open connection; its close code says why (4003: this client read too slowly; 1012: it drains)',
    fix: "the log of the server; for 4003 the client's own processor time: more client machines",
  },
  {
    key: /^no reply$/,
    side: 'server',
    limit: 'replies',
    means: 'a message had no reply in time',
    fix: 'a lower --rate or a longer --reply-timeout shows whether the server is slow or loses messages',
  },
  {
    key: /^not sent$/,
    side: 'server',
    limit: 'the rate',
    means:
      'as many messages waited for a reply as come due in --reply-timeout, so no more were sent',
    fix: 'a lower --rate: the server does not hold this one',
  },
  {
    key: /^not delivered$/,
    side: 'server',
    limit: 'deliveries',
    means: 'a broadcast did not reach a connection that was open',
    fix: "the server's slow-consumer counters; its log",
  },
  {
    key: /^not understood$/,
    side: 'server',
    limit: 'the protocol',
    means: 'a message came that answers nothing, or the same one again',
    fix: '--profile: does the server speak it?',
  },
]);

/**
 * @param {unknown} error of a connection that did not open
 * @returns {string} its key
 */
export function failureKey(error) {
  if (error instanceof HandshakeError)
    return error.status === 0 ? error.message : `HTTP ${error.status}`;
  const { code, syscall, message } = /** @type {NodeJS.ErrnoException} */ (error);
  // connect: no port; bind: no such address. Only this code has two meanings.
  if (code === 'EADDRNOTAVAIL' && syscall === 'bind') return 'bind EADDRNOTAVAIL';
  return code ?? message;
}

/**
 * @param {string} key
 * @returns {Omit<Row, 'key'>}
 */
export function classify(key) {
  return (
    ROWS.find((row) => row.key.test(key)) ?? {
      side: 'between',
      limit: 'not known',
      means: 'an error of no known kind',
      fix: '',
    }
  );
}

/**
 * One kind of failure in a run.
 * @typedef {object} Failure
 * @property {string} key
 * @property {number} count
 * @property {number} firstSeconds after the start
 * @property {number} openThen connections that were open at that moment
 * @property {Side} side
 * @property {string} limit
 * @property {string} means
 * @property {string} fix
 */

/** Counts failures by kind, and remembers when each kind began. */
export class Failures {
  constructor() {
    this.total = 0;
    /** @type {Map<string, Failure>} */
    this.byKey = new Map();
  }

  /**
   * @param {string} key
   * @param {number} count
   * @param {{seconds: number, open: number}} now
   */
  add(key, count, { seconds, open }) {
    this.total += count;
    const known = this.byKey.get(key);
    if (known) {
      known.count += count;
      return;
    }
    const { side, limit, means, fix } = classify(key);
    this.byKey.set(key, {
      key,
      count,
      firstSeconds: seconds,
      openThen: open,
      side,
      limit,
      means,
      fix,
    });
  }

  /** @returns {Failure[]} in the order in which they began */
  list() {
    return [...this.byKey.values()];
  }
}
