// centrifugo-protobuf.js: a client of Centrifugo's protocol in protobuf, whose messages protobufjs
// writes and reads. What it returns has the form of the JSON protocol.

import { CentrifugoClient } from './centrifugo.js';
import { root } from './centrifugo-schema.js';

const Command = root.lookupType('Command');
const Reply = root.lookupType('Reply');

export class ProtobufClient extends CentrifugoClient {
  /** @param {string} url */
  constructor(url) {
    super(url, undefined, ['centrifuge-protobuf']);
  }

  /** @override @param {Record<string, any>|string} command */
  send(command) {
    const values = typeof command === 'string' ? {} : withBytes(command);
    this.socket.send(Command.encodeDelimited(Command.fromObject(values)).finish());
  }

  /** @override @param {import('ws').RawData} data */
  read(data) {
    const bytes = /** @type {Buffer} */ (data);
    const options = { longs: Number, bytes: String };
    return Reply.toObject(Reply.decodeDelimited(bytes), options);
  }
}

/** Data of commands are bytes. @param {Record<string, any>} command */
function withBytes({ id, ...methods }) {
  const [[method, { data, ...request }]] = Object.entries(methods);
  const bytes = data === undefined ? {} : { data: Buffer.from(JSON.stringify(data)) };
  return { id, [method]: { ...request, ...bytes } };
}
