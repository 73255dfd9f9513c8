// index.js: creates what clients may do, for all doors of a worker.

import { EarlyJoins } from './early-joins.js';
import { HookGate, NO_HOOKS } from './hook-gate.js';
import { Identities } from './identities.js';
import { JoinReads } from './join-reads.js';
import { Joins } from './joins.js';
import { Lane } from './lane.js';
import { Reads } from './reads.js';
import { Replies } from './replies.js';
import { RosterJoins } from './roster-joins.js';
import { WatchLists } from './watch-lists.js';

/** @import { Connection } from '../hub/connection.js' */

/**
 * @typedef {object} JoiningParts
 * @property {import('../config/settings.js').Config} config
 * @property {import('../hub/hub.js').Hub} hub
 * @property {{readonly state: string}} broker
 * @property {import('./publisher.js').Publisher} publisher
 * @property {(import('./hook-gate.js').HookCalls & import('./hook-gate.js').EarlyHookCalls)|null}
 *   [hooks] null: none
 * @property {(connection: Connection, nowMs: number, bytes: number) => number} admitMessage 0 if
 *   the message passes; above 0: seconds to wait; −1: close with 4005
 * @property {() => string} [overRateText] names the limit that refused the last message
 * @property {(connection: Connection, bytes: number) => boolean} takeFreeRead takes bytes that are
 *   read for free from the address's allowance; false: it is used up. 0 only asks
 * @property {(connection: Connection, bytes: number) => void} charge counts the bytes of a reply
 *   against the connection's rate
 * @property {import('../observability/counters.js').Counters} counters
 * @property {import('../worker/turn.js').Line<() => void>} presenceLine sends answers about users
 * @property {{error(fields: object, text: string): void}} log
 */
/** @typedef {Omit<import('./identities.js').IdentityParts, 'lane'|'waiting'> & JoiningParts} OperationParts */

/**
 * What clients may do.
 * @typedef {object} Operations
 * @property {Identities} identities @property {import('./publisher.js').Publisher} publisher
 * @property {OperationParts['admitMessage']} admitMessage
 * @property {Joins} joins @property {EarlyJoins} earlyJoins @property {Lane} lane @property {Replies} replies
 * @property {HookGate} hookGate
 * @property {Reads} reads @property {WatchLists} watchLists
 * @property {(nowMs: number) => void} sweep call it once a second
 */

/** @param {OperationParts} parts @returns {Operations} */
export function createOperations(parts) {
  const { config, hub, publisher, charge, counters } = parts;
  const hooks = parts.hooks ?? NO_HOOKS;
  const { log, overRateText, presenceLine, admitMessage } = parts;
  const replies = new Replies({ counters, log, overRateText });
  const lane = new Lane({ maxSteps: config.hookCallsPerConnection, replies, counters });
  const hookGate = new HookGate({ hooks, hub, lane, counters });
  publisher.askBy(hookGate);
  const rosters = new RosterJoins(parts);
  const joins = new Joins({
    ...{ config, hub, replies, lane, rosters, counters },
    gate: hookGate,
    // A guest must not appear under a user's name.
    isNameFree: config.tokens === null && !hooks.has('onConnect'),
    reads: new JoinReads(parts),
  });
  const reads = new Reads({ replies, joins, charge, counters, presenceLine });
  const identities = new Identities({ ...parts, lane, waiting: joins.waiting });
  const watchLists = new WatchLists(rosters);
  const earlyJoins = new EarlyJoins({ config, joins, lane, replies });
  return {
    ...{
      identities,
      joins,
      earlyJoins,
      publisher,
      lane,
      replies,
      hookGate,
      reads,
      watchLists,
      admitMessage,
    },
    sweep(nowMs) {
      joins.waiting.sweep(nowMs);
      rosters.sweep(nowMs);
    },
  };
}
