// machine.js: processor time, memory and limits of processes and of the machine, read from the kernel.
//
// Linux only (/proc). Times are seconds, memory kilobytes.

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

const TICKS_PER_SECOND = 100;
const PAGE_KB = 4;
/** Sockets of one process: the usual hard limit of files is 20,000, and some are for other things. */
export const MAX_SOCKETS = 19_000;

/** @param {string} path */
function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // a process that ended meanwhile, or a kernel without the file
  }
}

/** The processes and all their descendants. @param {readonly number[]} roots @returns {number[]} */
export function processTree(roots) {
  /** @type {Map<number, number[]>} */
  const children = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = read(`/proc/${name}/stat`);
    if (stat === '') continue;
    const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const tree = new Set(roots);
  for (const pid of tree) for (const child of children.get(pid) ?? []) tree.add(child);
  return [...tree];
}

/**
 * User and system time of all their threads. /proc/PID/stat has it in ticks of 10 ms only.
 * @param {readonly number[]} pids
 * @returns {number} seconds
 */
export function cpuSecondsOf(pids) {
  let ns = 0;
  for (const pid of pids)
    for (const thread of threadsOf(pid))
      ns += Number(read(`/proc/${pid}/task/${thread}/schedstat`).split(' ')[0]);
  return ns / 1e9;
}

/** @param {number} pid */
function threadsOf(pid) {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return []; // it ended meanwhile
  }
}

/**
 * Proportional set size: memory that only these processes hold, plus their part of what is shared.
 * @param {readonly number[]} pids
 * @returns {number} kilobytes
 */
export function pssKbOf(pids) {
  let kb = 0;
  for (const pid of pids)
    kb += Number(/^Pss:\s+(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0);
  return kb;
}

/**
 * Times of the whole machine since boot: busy without interrupts, in soft interrupts, stolen by the
 * hypervisor.
 */
export function machineSeconds() {
  const [user, nice, system, , , irq, softirq, steal] = read('/proc/stat')
    .split('\n')[0]
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return {
    busy: (user + nice + system + irq + softirq) / TICKS_PER_SECOND,
    softirq: softirq / TICKS_PER_SECOND,
    stolen: steal / TICKS_PER_SECOND,
  };
}

/** Memory that could still be had, in kilobytes. */
export function availableKb() {
  return Number(/^MemAvailable:\s+(\d+)/m.exec(read('/proc/meminfo'))?.[1] ?? 0);
}

/**
 * Memory that the kernel has for its objects and for the bytes in TCP sockets, in kilobytes. A
 * connection over loopback has both of its ends in it.
 */
export function kernelKb() {
  const slabKb = Number(/^Slab:\s+(\d+)/m.exec(read('/proc/meminfo'))?.[1] ?? 0);
  const pages = Number(/^TCP:.* mem (\d+)/m.exec(read('/proc/net/sockstat'))?.[1] ?? 0);
  return slabKb + pages * PAGE_KB;
}

/** Files a process may open here, now or after raising its soft limit: sockets are files. */
export function maxFiles() {
  const [, soft, hard] = /^Max open files\s+(\S+)\s+(\S+)/m.exec(read('/proc/self/limits')) ?? [];
  const number = (/** @type {string | undefined} */ text) =>
    text === 'unlimited' ? 1e9 : Number(text ?? 1024);
  return { soft: number(soft), hard: number(hard) };
}

/** Ephemeral ports for one pair of source and destination address. */
export function ephemeralPorts() {
  const [low, high] = read('/proc/sys/net/ipv4/ip_local_port_range')
    .trim()
    .split(/\s+/)
    .map(Number);
  return { low, high, count: high - low + 1 };
}

/** Longest queue of connections that wait to be accepted. */
function maxBacklog() {
  return Number(read('/proc/sys/net/core/somaxconn'));
}

/** Buckets of the kernel's table of TCP sockets. The file has a negative number if networks share it. */
function socketBuckets() {
  return Math.abs(Number(read('/proc/sys/net/ipv4/tcp_ehash_entries')));
}

/** Open files of the whole machine, and how many it may have. */
function machineFiles() {
  const [open, , most] = read('/proc/sys/fs/file-nr').trim().split(/\s+/).map(Number);
  return { open: open ?? 0, most: most ?? Number.POSITIVE_INFINITY };
}

/** Connections that the kernel's packet filter tracks here; without a filter it tracks none. */
function trackedConnections() {
  const path = '/proc/sys/net/netfilter/nf_conntrack_';
  const [count, most] = [read(`${path}count`), read(`${path}max`)].map(Number);
  return { count, most: most || Number.POSITIVE_INFINITY };
}

/** Measured and rounded up: in the kernel (both ends), in the server and in the client. */
const KB_PER_CONNECTION = 40;
/** A process of the server without connections: 29 MB on Node 20, 38 MB on Node 26. */
const KB_PER_WORKER = 40_000;

/**
 * Compares the limits of this machine with the needs of a run.
 * @param {object} wanted
 * @param {number} wanted.connections
 * @param {number} wanted.workers processes with connections in the server
 * @param {number} wanted.processes of the client
 * @param {number} wanted.sources source addresses
 * @param {number} [wanted.kbPerConnection] memory of one on this machine
 * @param {number} [wanted.servers] running at a time
 * @returns {{ problems: string[], lines: string[] }} problems keep the run from being possible
 */
export function checkMachine({
  connections,
  workers,
  processes,
  sources,
  kbPerConnection = KB_PER_CONNECTION,
  servers = 1,
}) {
  const files = maxFiles().hard;
  const ports = ephemeralPorts();
  const backlog = maxBacklog();
  const memoryKb = availableKb();
  const problems = [];
  const perProcess = Math.min(MAX_SOCKETS, files - 500);
  if (connections / processes > perProcess) {
    problems.push(
      `${processes} client processes hold ${processes * perProcess} sockets at most (ulimit -Hn is ${files}): more --processes`,
    );
  }
  if (connections / workers > perProcess) {
    problems.push(
      `${workers} workers hold ${workers * perProcess} sockets at most (ulimit -Hn is ${files}): more --workers`,
    );
  }
  if (connections / Math.max(1, sources) > ports.count * 0.95) {
    problems.push(
      `${sources} source addresses have ${sources * ports.count} ports (net.ipv4.ip_local_port_range ${ports.low} ${ports.high}): more --sources, up to 250`,
    );
  }
  const neededKb = connections * kbPerConnection + servers * workers * KB_PER_WORKER;
  if (neededKb > memoryKb) {
    problems.push(
      `about ${Math.ceil(neededKb / 1e6)} GB of memory are needed, ${(memoryKb / 1e6).toFixed(1)} GB are available`,
    );
  }
  const { open, most } = machineFiles();
  if (open + 2 * connections > most)
    problems.push(
      `fs.file-max is ${most}, and ${open} files are open: each connection takes two on this machine`,
    );
  const tracked = trackedConnections();
  if (tracked.count > 0 && tracked.count + connections > tracked.most)
    problems.push(
      `net.netfilter.nf_conntrack_max is ${tracked.most}, and ${tracked.count} connections are tracked: raise it, or do not track loopback`,
    );
  if (backlog < 1024)
    problems.push(
      `net.core.somaxconn is ${backlog}: set it to 4096, or connections are refused while many arrive at once`,
    );
  return {
    problems,
    lines: [
      `files per process: ${files}; connections per worker ${Math.ceil(connections / workers)}, per client process ${Math.ceil(connections / processes)}`,
      `net.ipv4.ip_local_port_range: ${ports.low}–${ports.high} for each of ${sources} source addresses; connections per address ${Math.ceil(connections / Math.max(1, sources))}`,
      `net.core.somaxconn: ${backlog}`,
      `net.ipv4.tcp_ehash_entries: ${socketBuckets()}`,
      `fs.file-max: ${most}; tracked connections: ${tracked.count} of ${tracked.most}`,
      `memory available: ${(memoryKb / 1e6).toFixed(1)} GB, needed at most: ${(neededKb / 1e6).toFixed(1)} GB`,
    ],
  };
}

/**
 * Prints the limits of this machine, and ends the process if it cannot hold the run.
 * @param {Parameters<typeof checkMachine>[0]} wanted
 * @returns {string[]} the limits
 */
export function demandMachine(wanted) {
  const { problems, lines } = checkMachine(wanted);
  for (const line of lines) console.log(line);
  for (const problem of problems)
    console.error(`missing for ${wanted.connections.toLocaleString('en')} connections: ${problem}`);
  if (problems.length > 0) process.exit(1);
  return lines;
}

/** @param {string} command @param {string[]} args */
function firstLineOf(command, args) {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
      .split('\n')[0]
      .trim();
  } catch {
    return 'not installed';
  }
}

/** @param {string} [folder] of a checkout */
export function commitOf(folder = '.') {
  return firstLineOf('git', ['-C', folder, 'rev-parse', '--short', 'HEAD']);
}

/** The machine and the versions, for the head of a report. */
export function describeMachine() {
  return {
    processor: `${cpus()[0]?.model.trim() ?? 'unknown'} × ${cpus().length}`,
    memoryGb: Math.round(totalmem() / 1e8) / 10,
    kernel: read('/proc/sys/kernel/osrelease').trim(),
    node: process.version,
    redis: /v=(\S+)/.exec(firstLineOf('redis-server', ['--version']))?.[1] ?? 'not installed',
    compiler: firstLineOf('cc', ['--version']),
    commit: commitOf(),
    ephemeralPorts: ephemeralPorts().count,
    maxBacklog: maxBacklog(),
    maxFiles: maxFiles().hard,
  };
}
