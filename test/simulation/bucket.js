// bucket.js: the bucket for large messages of simulated servers, as far as they ask for it: it stores
// objects. Clients know by the hash in a reference which message it is (test/checker/payloads.js).

import { createServer } from 'node:http';

/** @import { IncomingMessage, ServerResponse } from 'node:http' */

export class Bucket {
  /** @type {Map<string, Buffer>} */
  objects = new Map();
  server = createServer((request, response) => this.#receive(request, response));

  /** @param {IncomingMessage} request @param {ServerResponse} response */
  async #receive(request, response) {
    const { method, url = '' } = request;
    const parts = [];
    try {
      for await (const part of request) parts.push(part);
    } catch {
      return; // the server is gone: an object is stored whole or not at all
    }
    if (method === 'PUT') this.objects.set(url, Buffer.concat(parts));
    const object = this.objects.get(url);
    response.writeHead(object === undefined ? 404 : 200);
    response.end(method === 'GET' ? object : undefined);
  }
}
