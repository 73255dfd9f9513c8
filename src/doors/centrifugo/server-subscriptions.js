// server-subscriptions.js: the channels that a connection's token subscribes it to.

/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { Client } from './client.js' */
/** @import { Request, SubscribeResult } from './messages.js' */
/** @import { Subscriptions } from './subscribe.js' */

export class ServerSubscriptions {
  /** @param {DoorServices} services @param {Subscriptions} subscriptions */
  constructor(services, subscriptions) {
    this.services = services;
    this.subscriptions = subscriptions;
  }

  /**
   * @param {Connection} _connection @param {Client} _client @param {Request} _request
   * @param {(subs: Map<string, SubscribeResult>|null) => void} reply null: there are none
   */
  begin(_connection, _client, _request, reply) {
    reply(null);
  }
}
