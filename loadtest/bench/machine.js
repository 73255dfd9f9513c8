// machine.js: what the kernel says about processes and the machine: processor time, memory, limits.
//
// Linux only (/proc). Times are seconds, memory kilobytes. Processor time of a process tree is
// utime + stime of its processes, in ticks of 10 ms: measure for seconds, not for milliseconds.

import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';

const TICKS_PER_SECOND = 100;

/** @param {string} path */
function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return ''; // a process that ended meanwhile, or a kernel without the file
  }
}

/**
 * The processes and all their descendants.
 * @param {readonly number[]} roots
 * @returns {number[]}
 */
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
 * @param {readonly number[]} pids
 * @returns {number} seconds of processor time
 */
export function cpuSecondsOf(pids) {
  let ticks = 0;
  for (const pid of pids) {
    const stat = read(`/proc/${pid}/stat`);
    if (stat === '') continue;
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks / TICKS_PER_SECOND;
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
export function maxBacklog() {
  return Number(read('/proc/sys/net/core/somaxconn'));
}

/**
 * @param {string} command
 * @param {string[]} args
 */
function firstLineOf(command, args) {
  try {
    return execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
      .split('\n')[0]
      .trim();
  } catch {
    return 'not installed';
  }
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
    commit: firstLineOf('git', ['rev-parse', '--short', 'HEAD']),
    ephemeralPorts: ephemeralPorts().count,
    maxBacklog: maxBacklog(),
    maxFiles: maxFiles().hard,
  };
}

/** Processes running or waiting to run right now, this one left out. */
export function runnable() {
  return Number(read('/proc/loadavg').split(' ')[3]?.split('/')[0] ?? 1) - 1;
}
