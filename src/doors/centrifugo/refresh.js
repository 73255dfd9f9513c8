// refresh.js: the commands refresh and sub_refresh: new tokens before the old ones end.
//
// A client has GRACE_S after the end. Then its connection is closed, or its subscription ended. If
// the new token has expired, too, the connection is closed with 3005 or 3006, as Centrifugo does.
// SDKs return after these codes and ask for another token. After an error they would stop for good.

import { VERSION } from '../../config/version.js';
import { clientOf } from './codec/client-id.js';
import { DISCONNECTS, invalidToken, UNSUBSCRIBED } from './codec/codes.js';
import { DoorError } from './codec/errors.js';
import { expiryOf } from './results.js';
import { whoOf } from './subscribe.js';

/** @import { Identity } from '../../auth/claims.js' */
/** @import { ReadClaims } from '../../auth/verifier.js' */
/** @import { Connection } from '../../hub/connection.js' */
/** @import { DoorServices } from '../contract.js' */
/** @import { CentrifugoClient, Handler } from './client.js' */
/** @import { CentrifugoConnections } from './connections.js' */
/** @import { CentrifugoSubscriptions } from './subscribe.js' */
/** @import { ChannelIdentity } from './codec/tokens.js' */

export class RefreshCommands {
  /**
   * @param {DoorServices} services @param {CentrifugoConnections} connections
   * @param {CentrifugoSubscriptions} subscriptions
   * @param {import('./server-subscriptions.js').ServerSubscriptions} serverSubscriptions
   * @param {ReadClaims} readClaims of connection tokens
   */
  constructor(services, connections, subscriptions, serverSubscriptions, readClaims) {
    this.services = services;
    this.connections = connections;
    this.subscriptions = subscriptions;
    this.serverSubscriptions = serverSubscriptions;
    this.readClaims = readClaims;
  }

  /** @type {Handler} */
  refresh = (connection, client, { id, request }) => {
    const { token = '' } = request;
    if (token === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    this.subscriptions.check(connection, token, this.readClaims, 'token', (checked, code, why) => {
      if (checked === null)
        return this.#refuseToken(connection, id, code, DISCONNECTS.EXPIRED, why);
      const identity = /** @type {ChannelIdentity} */ (checked);
      if (identity.user !== client.user || client.identity === null)
        return connection.close(DISCONNECTS.INVALID_TOKEN);
      this.#renew(connection, client, identity);
      client.send(connection, {
        id,
        refresh: {
          client: clientOf(connection.id),
          version: `fanfare ${VERSION}`,
          ...expiryOf(identity.endS),
        },
      });
      this.serverSubscriptions.renewSubscriptions(connection, client);
    });
  };

  /** @param {Connection} connection @param {CentrifugoClient} client @param {ChannelIdentity} identity */
  #renew(connection, client, identity) {
    const shown = /** @type {Identity} */ (client.identity);
    client.identify(identity, client.lease);
    this.services.operations.identities.renewIdentity(connection, identity);
    this.subscriptions.limit(connection, client, identity.endS);
    if (!identity.hasInfoOf(shown))
      this.services.operations.joins.showUser(connection, whoOf(connection, client));
  }

  /** @type {Handler} */
  subRefresh = (connection, client, { id, request }) => {
    const { channel = '', token = '' } = request;
    if (channel === '' || token === '') return connection.close(DISCONNECTS.BAD_REQUEST);
    if (!this.subscriptions.isIn(connection, channel)) throw new DoorError(103);
    this.subscriptions.verifyToken(connection, client, channel, token, (identity, code, why) => {
      if (identity === null)
        return this.#refuseToken(connection, id, code, DISCONNECTS.SUBSCRIPTION_EXPIRED, why);
      if (!this.subscriptions.isIn(connection, channel))
        return this.connections.refuse(connection, id, new DoorError(103));
      this.subscriptions.prolong(connection, client, channel, identity.endS);
      client.send(connection, { id, sub_refresh: expiryOf(identity.endS) });
    });
  };

  /**
   * @param {Connection} connection @param {number} id
   * @param {number} code of CentrifugoSubscriptions.check
   * @param {import('./codec/codes.js').DoorClose} expired the close for a token that has expired
   * @param {string} [why] if clients are told
   */
  #refuseToken(connection, id, code, expired, why) {
    if (code === 103) return connection.close(invalidToken(why));
    if (code !== 109) return this.connections.refuse(connection, id, new DoorError(code));
    this.services.counters.errors.TOKEN_EXPIRED++;
    this.services.counters.auth.closes.expired++;
    connection.close(expired);
  }

  /**
   * A subscription, or the connection (''), was to end now.
   * @param {Connection} connection @param {string} channel
   */
  expire = (connection, channel) => {
    const client = this.connections.clientOf(connection);
    if (client === undefined || !connection.isOpen) return;
    if (channel !== '')
      return this.subscriptions.end(connection, client, channel, UNSUBSCRIBED.EXPIRED);
    this.services.counters.auth.closes.expired++;
    connection.close(DISCONNECTS.EXPIRED);
  };
}
