// servers.js: the route that looks at the servers themselves. Its right is that of the console.

/** @import { Call, Services } from './call.js' */

export class ServerRoutes {
  /** @param {Pick<Services, 'fleet'>} services */
  constructor({ fleet }) {
    this.fleet = fleet;
  }

  /** `GET servers` @param {Call} call */
  list = async (call) => {
    call.readQuery([]);
    const { workers, isPartial } = await this.fleet.workers();
    /** @type {Map<string, {server: string, version: string, workers: object[]}>} */
    const servers = new Map();
    workers.sort((one, other) => one.server.localeCompare(other.server) || one.slot - other.slot);
    for (const { server, version, slot, lagMs, uptimeS, ...worker } of workers) {
      const { pid, state, connections, rooms, memoryBytes } = worker;
      const found = servers.get(server) ?? { server, version, workers: [] };
      servers.set(server, found);
      found.workers.push({
        worker: slot,
        pid,
        state,
        connections,
        rooms,
        loopLagMs: lagMs,
        memoryBytes,
        uptimeSeconds: uptimeS,
      });
    }
    return { servers: [...servers.values()], partial: isPartial };
  };
}
