// backend.js: the commands rpc and send, which only a backend could serve.

import { DISCONNECTS } from './codes.js';
import { DoorError } from './errors.js';

/** @import { DoorServices } from '../contract.js' */
/** @import { Handler } from './client.js' */
/** @import { Connections } from './connections.js' */

export class BackendCommands {
  /** @param {DoorServices} services @param {Connections} connections */
  constructor(services, connections) {
    this.services = services;
    this.connections = connections;
  }

  /** @type {Handler} */
  rpc = () => {
    throw new DoorError(108);
  };

  /** @type {Handler} */
  send = (connection) => connection.close(DISCONNECTS.NOT_AVAILABLE);
}
