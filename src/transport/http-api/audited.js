// audited.js: the routes of all HTTP APIs that an operator may have to account for.

/** @import { ApiName } from '../../observability/audit-log.js' */
/** @import { Call, RouteName } from './call.js' */

/** Routes that change something, other than by publishing. @type {ReadonlySet<RouteName>} */
export const ACTIONS = new Set(
  /** @type {const} */ ([
    'broadcast',
    'delete_history',
    'disconnect',
    'join',
    'leave',
    'revoke',
    'pusher_terminate',
    'centrifugo_disconnect',
    'centrifugo_history_remove',
    'centrifugo_refresh',
    'centrifugo_subscribe',
    'centrifugo_unsubscribe',
  ]),
);

/**
 * Carries out a request, or one command of a batch, and logs it if it is an action.
 * @template T @param {Call<any>} call @param {RouteName} route
 * @param {() => Promise<T>} run @param {() => object} [subjectOf] called after `run`
 * @returns {Promise<T>} rejects as `run` does
 */
export async function audited(call, route, run, subjectOf = () => call.subject) {
  if (!ACTIONS.has(route)) return run();
  const [, door = 'http', action = route] = /^(pusher|centrifugo)_(.*)/.exec(route) ?? [];
  /** @param {string|number} outcome */
  const log = (outcome) =>
    call.meters.audit.acted({
      api: /** @type {ApiName} */ (door),
      key: call.key.name,
      app: call.key.app?.id,
      action,
      subject: subjectOf(),
      address: call.address,
      outcome,
    });
  try {
    const result = await run();
    log('done');
    return result;
  } catch (error) {
    log(/** @type {{code?: string|number}} */ (error).code ?? 'INTERNAL_ERROR');
    throw error;
  }
}
