// rpc.js: the commands rpc and send, which the hooks onRpc and onSend answer.

import { isPayload } from '../../protocol/decode.js';
import { DISCONNECTS } from './codec/codes.js';
import { DoorError } from './codec/errors.js';

/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient, Handler } from './client.js' */
/** @import { Request } from './codec/messages.js' */

export class RpcCommands {
  /** @param {DoorServices} services */
  constructor(services) {
    this.services = services;
  }

  /** @type {Handler} */
  rpc = (connection, client, { id, request }) => {
    const { operations } = this.services;
    const hooks = operations.hookGate?.hooks;
    if (!hooks?.has('onRpc')) throw new DoorError(108);
    const { method = '' } = request;
    const data = this.#dataOf(client, request);
    if (operations.lane.isFull) return operations.lane.refuse(connection, id);
    const verdict = hooks.callFor('onRpc', connection, [method, data]);
    const bytes = request.data?.length ?? 0;
    operations.lane.after(connection, 'message', bytes, verdict, ({ refusal, answer }) => {
      if (refusal === null) client.send(connection, { id, rpc: { data: answer.payload } });
      else operations.replies.error(connection, refusal.code, id, refusal.message);
    });
  };

  /** @type {Handler} */
  send = (connection, client, { request }) => {
    const { operations } = this.services;
    const hooks = operations.hookGate?.hooks;
    if (!hooks?.has('onSend')) return connection.close(DISCONNECTS.NOT_AVAILABLE);
    const data = this.#dataOf(client, request);
    if (operations.lane.isFull) return operations.lane.refuse(connection, undefined);
    const verdict = hooks.callFor('onSend', connection, [data]);
    const bytes = request.data?.length ?? 0;
    operations.lane.after(connection, 'message', bytes, verdict, ({ refusal }) => {
      if (refusal?.code === 'DENIED') connection.close(DISCONNECTS.PERMISSION_DENIED);
    });
  };

  /** @param {CentrifugoClient} client @param {Request} request @returns {unknown} @throws {DoorError} */
  #dataOf({ codec }, { data }) {
    if (data === undefined || data.length === 0) return undefined;
    if (codec.isBinary && !isPayload(data)) throw new DoorError(107, 'data is not JSON');
    return JSON.parse(data.toString());
  }
}
