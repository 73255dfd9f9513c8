// users.js: closes the connections of a signed-in user.

import { sessionUserOf } from '../../../protocol/app-names.js';
import { badRequest } from './answers.js';

/** @import { AppCall, RouteServices } from './app-call.js' */

/** The SDKs have the same bound. */
const MAX_USER_LENGTH = 200;

export class UserRoutes {
  /** @param {Pick<RouteServices, 'fleet'>} services */
  constructor({ fleet }) {
    this.fleet = fleet;
  }

  /** `POST users/:user/terminate_connections` @param {AppCall} call */
  terminate = async (call) => {
    const { user } = call.params;
    if (user === '' || user.length > MAX_USER_LENGTH)
      throw badRequest(`The id of a user is 1 to ${MAX_USER_LENGTH} characters.`);
    // The door of each connection translates the close code: 4009 for Pusher clients.
    await this.fleet.disconnect({ user: sessionUserOf(call.app, user) });
    return {};
  };
}
