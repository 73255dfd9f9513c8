// failures.js: the failures of a run, their counts, and whose limit each of them is.
//
// From its connection count alone, a client without ports or descriptors looks like a server that
// takes no more connections. The error distinguishes them. Each failure counts under a key, and the
// table has a row for each known key.

import { HandshakeError } from '../../test/harness/ws-client.js';

/** @typedef {'client'|'server'|'between'} Side */

const MORE_PORTS =
  'more addresses with --source, a wider net.ipv4.ip_local_port_range, or more client machines';

/**
 * Key | whose limit | the limit in a few words | what happened | what to change. The first row that
 * fits counts.
 */
const TABLE = `
bind EADDRNOTAVAIL | client | source address | a source address does not belong to this machine | ip addr add ADDRESS/LENGTH dev INTERFACE, or another --source
EADDRNOTAVAIL | client | client ports | no source address of the client has a port left to reach this target | ${MORE_PORTS}
EADDRINUSE | client | client ports | no port is left to bind a source address to: other programs have them | ${MORE_PORTS}
EMFILE | client | file descriptors of a client process | a client process has reached its limit of open files | more --processes, or a higher hard limit: ulimit -Hn (permanent: nofile in /etc/security/limits.conf)
ENFILE | client | file descriptors of the client machine | the client machine has reached its limit of open files | sysctl -w fs.file-max=2097152
ENOMEM, ENOBUFS | client | memory of the client machine | the kernel of the client machine has no memory for another socket | fewer connections, more memory, or larger net.ipv4.tcp_mem
EHOSTUNREACH, ENETUNREACH, EACCES, EPERM | between | the route to the server | there is no route from a source address to the target, or a firewall forbids it | routes and firewall between the two; an address of 127.0.0.0/8 reaches only its own machine
ENOTFOUND, EAI_AGAIN | between | name of the server | the name of the target has no address | --target
ECONNREFUSED | server | the server does not listen | no process listens at the target: the server has not started, has ended, or listens on another address | PORT and HOST of the server, --target here; the log of the server, if it was there before
ETIMEDOUT | server | the server answers too late | no handshake in time: the accept queue is full (SYNs are dropped then), the server has no processor time left, or a device between them drops packets | on the server: net.core.somaxconn and net.ipv4.tcp_max_syn_backlog, more WORKERS; between: the size of the conntrack table; here: a slower --connect-rate, a longer --connect-timeout
ECONNRESET, EPIPE, closed during the handshake | server | the server hangs up | the server, or a proxy before it, accepted the connection and closed it without an answer: out of descriptors, or crashed | on the server: nofile (ulimit -n) × WORKERS must exceed the connections; its log
HTTP 429 | server | connections per address | this address has as many connections as the server permits, or opens them more often than it permits | on the server: FANFARE_LIMITS=off for a load test, or a higher FANFARE_MAX_CONNECTIONS_PER_IP and FANFARE_HANDSHAKES_RATE_PER_IP; here: more --source
HTTP 503 | server | the server is overloaded or full | the server did not reach the handshake in time, has no descriptors in reserve, is past the watermark of its event loop or memory, or drains | on the server: more WORKERS, a higher nofile (ulimit -n), FANFARE_HANDSHAKE_TIMEOUT_MS, FANFARE_LIMITS; \`fanfare_admissions_refused_total\` names the reason; here: a slower --connect-rate
HTTP 502, HTTP 504 | between | the proxy before the server | a proxy answered that it cannot reach its server | the proxy: its own ports towards the server (it is the client of the server), its connection limits, its log
HTTP * | server | the server refuses | the server answered the handshake with another status than 101 | the path in --target (401, 403: the server wants a token or an Origin; 404: no WebSocket there)
error RATE_LIMIT_EXCEEDED | server | messages a minute | the server limits the messages of a connection or an address | on the server: FANFARE_LIMITS=off for a load test, or a higher FANFARE_MESSAGES_RATE and …_PER_IP
error * | server | the server refuses a message | the server answered a message with an error | see the error; --profile, if the server has another protocol
closed 1006 | server | connections lost | an open connection ended without a close frame: a worker died, or a device between cut it | the log of the server; its memory; idle time-outs of the devices between
closed * | server | connections closed by the server | the server ended an open connection, for the reason of its close code (4003: this client read too slowly; 1012: the server drains) | the log of the server; for 4003 the processor time of the client: more client machines
no reply | server | replies | a message had no reply in time | a lower --rate or a longer --reply-timeout shows whether the server is slow or loses messages
not sent | server | the rate | as many messages waited for a reply as come due in --reply-timeout, so no more were sent | a lower --rate: the server does not hold this one
not delivered | server | deliveries | a broadcast did not reach an open connection | the slow-consumer counters of the server; its log
not understood | server | the protocol | a message arrived that is no reply, or a reply arrived twice | --profile: does it match the server?`;

/** @typedef {{side: Side, limit: string, means: string, fix: string}} Row */
/** @type {readonly (readonly [pattern: RegExp, row: Row])[]} */
const ROWS = TABLE.trim()
  .split('\n')
  .map((line) => {
    const [keys, side, limit, means, fix] = line.split(' | ');
    const pattern = new RegExp(`^(${keys.replaceAll(', ', '|').replaceAll('*', '.*')})$`);
    return [pattern, { side: /** @type {Side} */ (side), limit, means, fix }];
  });

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

/** @type {Row} */
const UNKNOWN = {
  side: 'between',
  limit: 'not known',
  means: 'an error of an unknown kind',
  fix: '',
};

/** @param {string} key @returns {Row} */
export function classify(key) {
  return ROWS.find(([pattern]) => pattern.test(key))?.[1] ?? UNKNOWN;
}

/**
 * One kind of failure in a run. `openThen`: connections that were open when it began
 * @typedef {Row & {key: string, count: number, firstSeconds: number, openThen: number}} Failure
 */

/** Counts failures by kind, and remembers when each kind began. */
export class Failures {
  constructor() {
    this.total = 0;
    /** @type {Map<string, Failure>} */
    this.byKey = new Map();
  }

  /** @param {string} key @param {number} count @param {{seconds: number, open: number}} now */
  add(key, count, { seconds, open }) {
    this.total += count;
    const known = this.byKey.get(key);
    if (known) {
      known.count += count;
      return;
    }
    this.byKey.set(key, { key, count, firstSeconds: seconds, openThen: open, ...classify(key) });
  }

  /** @returns {Failure[]} in the order in which they began */
  list() {
    return [...this.byKey.values()];
  }
}
