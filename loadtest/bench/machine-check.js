// machine-check.js: can this machine hold that many connections? What is missing is said before the
// start, not found after.

import { availableKb, ephemeralPorts, maxBacklog, maxFiles } from './machine.js';
import { MAX_SOCKETS } from './swarm.js';

/**
 * Kilobytes a connection takes in the kernel, both its ends, and in server and client: measured,
 * rounded up.
 */
const KB_PER_CONNECTION = 40;

/**
 * @param {object} wanted
 * @param {number} wanted.connections
 * @param {number} wanted.workers processes with connections in the server
 * @param {number} wanted.processes of the client
 * @param {number} wanted.sources source addresses
 * @returns {{ problems: string[], lines: string[] }} problems keep the run from being possible
 */
export function checkMachine({ connections, workers, processes, sources }) {
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
  if (connections * KB_PER_CONNECTION > memoryKb) {
    problems.push(
      `about ${Math.ceil((connections * KB_PER_CONNECTION) / 1e6)} GB of memory are needed, ${(memoryKb / 1e6).toFixed(1)} GB are available`,
    );
  }
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
      `memory available: ${(memoryKb / 1e6).toFixed(1)} GB`,
    ],
  };
}
