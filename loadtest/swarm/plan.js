// plan.js: how many connections this client machine can open, and which of its limits comes first.
// The swarm computes both before it opens any.
//
// A connection is four things: source address, source port, target address, target port, so there
// can be as many as ports × source addresses × targets. The ports are those of
// net.ipv4.ip_local_port_range, less ip_local_reserved_ports. With
// --source the swarm names address and port itself (ports.js has the reason); without, connect() chooses both, and there is one
// address. Past the last one, connect() fails with EADDRNOTAVAIL. A port in TIME_WAIT counts as
// taken: after a run whose client closed first, for 60 s.

import { readFileSync } from 'node:fs';
import { createServer, isIP } from 'node:net';
import { availableParallelism } from 'node:os';
import { count } from '../../test/harness/run.js';
import { usablePorts } from './ports.js';

/**
 * Sockets one process may hold: `ulimit -n` is often 20,000, and one event loop does not serve many
 * more.
 */
const PER_PROCESS = 19_000;
/** Descriptors of a process that are not connections. */
const SPARE_FILES = 64;
const MAX_PROCESSES = 64;
/** Below this many connections each, more processes are of no use. */
const WORTH_A_PROCESS = 5000;
/**
 * Measured with 50,000 connections in three processes: 45 MB a process and 6.2 kB a connection
 * resident; the kernel's sockets come beside it. Rounded up.
 */
const PROCESS_KB = 100_000;
const CONNECTION_KB = 16;
/** The server's side of a connection, if the server is on this machine, too. */
const SERVER_CONNECTION_KB = 16;
/** Of the memory that is left, so much may be planned with. */
const MEMORY_SHARE = 0.9;

/**
 * Limits of this machine, from the kernel. Null: it could not be read.
 * @typedef {object} Limits
 * @property {import('./ports.js').PortRange|null} portRange
 * @property {[number, number][]} reserved ranges of ports, both ends included
 * @property {LocalSocket[]} sockets
 * @property {number|null} filesPerProcess
 * @property {number|null} filesLeft of the whole machine
 * @property {number|null} memoryKb that can still be had
 */
/**
 * @typedef {{address: string, port: number, peer: string, isListening: boolean}} LocalSocket an
 *   IPv4 socket; `peer` address:port
 */

/**
 * A limit of this machine: how many connections it permits (Infinity if it could not be read), how
 * that is computed, why it is a limit, and how to raise it.
 * @typedef {{limit: string, permits: number, detail: string, why: string, fix: string}} PlanRow
 */
/**
 * @typedef {object} Plan
 * @property {number} asked connections
 * @property {number} most connections that this machine can open
 * @property {PlanRow} first
 * @property {PlanRow[]} rows
 * @property {number} processes
 * @property {number[]} ports for ports.js; empty if their range is not known
 * @property {boolean} fits
 */
/** @typedef {{address: string, port: number}} Place */

/**
 * @param {(path: string) => string} [read] the file's text, or '' if there is none
 * @returns {Limits}
 */
export function readLimits(read = readOrNothing) {
  const range = read('/proc/sys/net/ipv4/ip_local_port_range').trim().split(/\s+/).map(Number);
  const files = /^Max open files\s+\S+\s+(\S+)/m.exec(read('/proc/self/limits'));
  const [allocated, , most] = read('/proc/sys/fs/file-nr').trim().split(/\s+/).map(Number);
  return {
    portRange: range.length === 2 ? { low: range[0], high: range[1] } : null,
    reserved: rangesOf(read('/proc/sys/net/ipv4/ip_local_reserved_ports')),
    sockets: socketsOf(read('/proc/self/net/tcp')),
    // Node raises its soft limit to the hard one as it starts.
    filesPerProcess: files
      ? files[1] === 'unlimited'
        ? Number.POSITIVE_INFINITY
        : Number(files[1])
      : null,
    filesLeft: most > 0 ? most - allocated : null,
    memoryKb: memoryKbOf(read),
  };
}

/**
 * @param {Limits} limits
 * @param {object} wanted
 * @param {number} wanted.connections
 * @param {string[]} wanted.sources
 * @param {Place[]} wanted.targets
 * @param {number} wanted.processes 0: as many as are needed
 * @returns {Plan}
 */
export function plan(limits, { connections, sources, targets, processes }) {
  const perProcess = Math.max(
    1,
    Math.min(PER_PROCESS, (limits.filesPerProcess ?? PER_PROCESS) - SPARE_FILES),
  );
  const useful = Math.min(availableParallelism(), Math.ceil(connections / WORTH_A_PROCESS));
  const needed = Math.max(1, useful, Math.ceil(connections / perProcess));
  const planned = processes > 0 ? processes : Math.min(MAX_PROCESSES, needed);
  const ports = limits.portRange === null ? [] : usablePorts(limits.portRange, limits.reserved);
  const isLocal = targets.every(({ address }) => isLoopback(address));
  const rows = [
    portsRow(limits, ports, connections, sources, targets),
    filesRow(limits, connections, processes, perProcess),
    machineFilesRow(limits, connections, isLocal),
    memoryRow(limits, planned, isLocal),
  ];
  const first = rows.reduce((least, row) => (row.permits < least.permits ? row : least));
  return {
    asked: connections,
    most: first.permits,
    first,
    rows,
    processes: planned,
    ports,
    fits: first.permits >= connections,
  };
}

/**
 * @param {Limits} limits
 * @param {number[]} ports
 * @param {number} connections
 * @param {string[]} sources
 * @param {Place[]} targets
 * @returns {PlanRow}
 */
function portsRow({ portRange, sockets }, ports, connections, sources, targets) {
  const limit = 'client ports';
  if (portRange === null) return unread(limit, 'net.ipv4.ip_local_port_range');
  const { low, high } = portRange;
  const reserved = high - low + 1 - ports.length;
  const taken = takenPorts(sockets, new Set(ports), sources, targets);
  const factors = [
    `${count(ports.length)} ports (net.ipv4.ip_local_port_range = ${low} ${high}${reserved > 0 ? `, less ${count(reserved)} in ip_local_reserved_ports` : ''})`,
    sources.length === 1 || (sources.length === 0 && targets.length === 1)
      ? '1 source address'
      : '',
    sources.length > 1 ? `${count(sources.length)} source addresses` : '',
    targets.length > 1 ? `${count(targets.length)} targets` : '',
  ];
  return {
    limit,
    permits: ports.length * Math.max(1, sources.length) * targets.length - taken,
    why: 'each connection to a target takes a port of a source address for itself; the kernel gives no other',
    detail: `${factors.filter(Boolean).join(' × ')}${taken > 0 ? `, less ${count(taken)} that are taken now` : ''}`,
    fix: portsFix({
      connections,
      usable: ports.length * targets.length,
      taken,
      isWide: low <= 1024 && high === 65_535,
      sources,
      targets,
    }),
  };
}

/**
 * Ways from a source to a target that are in use: by a connection, or by a program that listens on
 * the port.
 * @param {LocalSocket[]} sockets
 * @param {Set<number>} ports
 * @param {string[]} sources
 * @param {Place[]} targets
 */
function takenPorts(sockets, ports, sources, targets) {
  const inRange = sockets.filter(({ port }) => ports.has(port));
  let taken = 0;
  for (const target of targets) {
    const peer = `${target.address}:${target.port}`;
    for (const source of sources.length > 0 ? sources : [null]) {
      const those = inRange.filter(
        (socket) =>
          (socket.peer === peer && (source === null || socket.address === source)) ||
          (socket.isListening &&
            (source === null || socket.address === source || socket.address === '0.0.0.0')),
      );
      taken += new Set(those.map(({ port }) => port)).size;
    }
  }
  return taken;
}

/**
 * @param
 *   {{connections: number, usable: number, taken: number, isWide: boolean, sources: string[], targets: {address: string}[]}}
 *   facts
 */
function portsFix({ connections, usable, taken, isWide, sources, targets }) {
  const needed = Math.ceil(connections / Math.max(1, usable));
  const ways = [];
  if (needed <= sources.length)
    ways.push('wait until the ports that are taken are free (in TIME_WAIT: 60 s)');
  else if (!targets.every(({ address }) => isLoopback(address)))
    ways.push(
      `${needed} addresses by --source; where this machine has fewer: ip addr add ADDRESS/LENGTH dev INTERFACE`,
    );
  else if (needed < 254)
    ways.push(`--source 127.0.0.2-127.0.0.${needed + 1} (every address of 127.0.0.0/8 is there)`);
  else ways.push(`--source with ${needed} addresses of 127.0.0.0/8`);
  if (taken > 0 && needed > sources.length)
    ways.push('wait for the ports that are taken (in TIME_WAIT: 60 s)');
  if (!isWide)
    ways.push(
      'more ports an address: sysctl -w net.ipv4.ip_local_port_range="1024 65535" (first reserve the ports that servers here listen on: net.ipv4.ip_local_reserved_ports)',
    );
  ways.push('another client machine, or network namespaces (loadtest/netns.sh)');
  return ways.join('; or ');
}

/**
 * @param {Limits} limits
 * @param {number} connections
 * @param {number} given processes; 0: as many as are needed
 * @param {number} perProcess
 * @returns {PlanRow}
 */
function filesRow({ filesPerProcess }, connections, given, perProcess) {
  const processes = given || MAX_PROCESSES;
  const hard = filesPerProcess === null ? 'could not be read' : `is ${count(filesPerProcess)}`;
  const ways = [];
  if (given > 0) ways.push(`--processes ${Math.ceil(connections / perProcess)}, or leave it out`);
  if (perProcess < PER_PROCESS)
    ways.push(
      `a higher hard limit: ulimit -Hn 20000, as root (lasting: nofile in /etc/security/limits.conf)`,
    );
  return {
    limit: 'file descriptors of the client processes',
    permits: processes * perProcess,
    detail: `${given > 0 ? '' : 'up to '}${count(processes)} processes × ${count(perProcess)} (ulimit -Hn ${hard}; at most ${count(PER_PROCESS)} connections a process)`,
    why: 'each connection is an open file of its process',
    fix: ways.join('; or ') || 'another client machine',
  };
}

/**
 * @param {Limits} limits @param {number} connections @param {boolean} isLocal @returns {PlanRow}
 */
function machineFilesRow({ filesLeft }, connections, isLocal) {
  const limit = 'file descriptors of this machine';
  if (filesLeft === null) return unread(limit, 'fs.file-nr');
  const each = isLocal ? 2 : 1;
  return {
    limit,
    permits: Math.floor(filesLeft / each),
    detail: `${count(filesLeft)} left of fs.file-max${isLocal ? ', two for each connection as the server is here too' : ''}`,
    why: 'each connection is an open file',
    fix: `sysctl -w fs.file-max=${Math.max(2_097_152, connections * 4)}`,
  };
}

/** @param {Limits} limits @param {number} processes @param {boolean} isLocal @returns {PlanRow} */
function memoryRow({ memoryKb }, processes, isLocal) {
  const limit = 'memory';
  if (memoryKb === null) return unread(limit, 'MemAvailable');
  const each = CONNECTION_KB + (isLocal ? SERVER_CONNECTION_KB : 0);
  return {
    limit,
    permits: Math.max(0, Math.floor((memoryKb * MEMORY_SHARE - processes * PROCESS_KB) / each)),
    detail: `${count(memoryKb / 1024)} MiB available, ${processWords(processes)} of ${PROCESS_KB / 1000} MB, ${each} kB a connection${isLocal ? ' with its server' : ''}`,
    why: 'client processes and the kernel keep something for each connection',
    fix: 'fewer connections, more memory, or another client machine',
  };
}

/** @param {string} limit @param {string} what @returns {PlanRow} */
function unread(limit, what) {
  return {
    limit,
    permits: Number.POSITIVE_INFINITY,
    detail: `${what} could not be read`,
    why: '',
    fix: '',
  };
}

/**
 * @param {Plan} plan
 * @returns {string} the lines to print before the start
 */
export function planText({ asked, most, first, rows, processes, fits }) {
  if (fits)
    return `this client machine can open ${count(most)} connections (first limit: ${first.limit}); ${processWords(processes)}`;
  const width = Math.max(...rows.map(({ limit }) => limit.length));
  return [
    `${count(asked)} connections were asked for; this client machine can open at most ${count(most)}.`,
    '',
    ...rows.map((row) => {
      const permits = row.permits === Number.POSITIVE_INFINITY ? 'not known' : count(row.permits);
      return `  ${row.permits < asked ? '✗' : ' '} ${row.limit.padEnd(width)}  ${permits.padStart(10)}  = ${row.detail}`;
    }),
    '',
    ...rows
      .filter(({ permits }) => permits < asked)
      .map(({ limit, why, fix }) => `  ${limit}: ${why}.\n  to change: ${fix}.`),
  ].join('\n');
}

/** @param {number} number */
export function processWords(number) {
  return `${count(number)} client process${number === 1 ? '' : 'es'}`;
}

/**
 * Binds each address once.
 * @param {string[]} sources
 * @returns {Promise<string[]>} their faults, in words
 */
export async function sourceFaults(sources) {
  const faults = await Promise.all(
    sources.map(
      (source) =>
        new Promise((resolve) => {
          const server = createServer();
          server.once('error', (/** @type {NodeJS.ErrnoException} */ { code, message }) =>
            resolve(
              code === 'EADDRNOTAVAIL'
                ? `${source} is no address of this machine; add it: ip addr add ${source}/${isIP(source) === 6 ? 64 : 24} dev INTERFACE`
                : `${source}: ${message}`,
            ),
          );
          server.listen({ port: 0, host: source }, () => server.close(() => resolve('')));
        }),
    ),
  );
  return /** @type {string[]} */ (faults).filter(Boolean);
}

/** @param {string} address */
function isLoopback(address) {
  return address.startsWith('127.') || address === '::1';
}

/**
 * @param {string} text "8080,9090-9099"
 * @returns {[number, number][]}
 */
function rangesOf(text) {
  return text
    .trim()
    .split(',')
    .filter(Boolean)
    .map((part) => {
      const [low, high = low] = part.split('-').map(Number);
      return [low, high];
    });
}

/**
 * @param {string} text /proc/net/tcp
 * @returns {LocalSocket[]}
 */
function socketsOf(text) {
  return text
    .split('\n')
    .slice(1)
    .filter(Boolean)
    .map((line) => {
      const [, local, remote, state] = line.trim().split(/\s+/, 4);
      const [address, port] = local.split(':');
      const [peer, peerPort] = remote.split(':');
      return {
        address: dotted(address),
        port: Number.parseInt(port, 16),
        peer: `${dotted(peer)}:${Number.parseInt(peerPort, 16)}`,
        isListening: state === LISTEN,
      };
    });
}

/**
 * /proc/net/tcp writes an address as one number in the machine's order.
 * @param {string} hex 0100007F
 * @returns {string} 127.0.0.1
 */
function dotted(hex) {
  const bytes = hex.match(/../g)?.map((byte) => Number.parseInt(byte, 16)) ?? [];
  return (IS_LITTLE_ENDIAN ? bytes.reverse() : bytes).join('.');
}

/** Of /proc/net/tcp. */
const LISTEN = '0A';
const IS_LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/**
 * The memory of the machine, or of this container if that is less.
 * @param {(path: string) => string} read @returns {number|null}
 */
function memoryKbOf(read) {
  const available = Number(
    /^MemAvailable:\s+(\d+)/m.exec(read('/proc/meminfo'))?.[1] ?? Number.NaN,
  );
  const most = Number(read('/sys/fs/cgroup/memory.max') || Number.NaN);
  const current = Number(read('/sys/fs/cgroup/memory.current') || Number.NaN);
  const left = [available, (most - current) / 1024].filter((kb) => !Number.isNaN(kb));
  return left.length > 0 ? Math.min(...left) : null;
}

/** @param {string} path */
function readOrNothing(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // another system, or a kernel without the file
  }
}
