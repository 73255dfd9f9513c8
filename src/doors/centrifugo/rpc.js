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
    const { hookGate, replies } = this.services.operations;
    if (!hookGate.hooks.has('onRpc')) throw new DoorError(108);
    const { method = '', data } = request;
    const args = [method, dataOf(client, request)];
    hookGate.askAbout('onRpc', connection, args, data?.length ?? 0, ({ refusal, answer }) => {
      if (refusal === null) client.send(connection, { id, rpc: { data: answer.payload } });
      else replies.error(connection, refusal.code, id, refusal.message);
    });
  };

  /** @type {Handler} */
  send = (connection, client, { request }) => {
    const { hookGate, replies } = this.services.operations;
    if (!hookGate.hooks.has('onSend')) return connection.close(DISCONNECTS.NOT_AVAILABLE);
    const bytes = request.data?.length ?? 0;
    hookGate.askAbout('onSend', connection, [dataOf(client, request)], bytes, ({ refusal }) => {
      if (refusal?.code === 'DENIED') connection.close(DISCONNECTS.PERMISSION_DENIED);
      else if (refusal !== null) replies.count(refusal);
    });
  };
}

/** @param {CentrifugoClient} client @param {Request} request @returns {unknown} @throws {DoorError} */
function dataOf({ codec }, { data }) {
  if (data === undefined || data.length === 0) return undefined;
  if (codec.isBinary && !isPayload(data)) throw new DoorError(107, 'data is not JSON');
  return JSON.parse(data.toString());
}
