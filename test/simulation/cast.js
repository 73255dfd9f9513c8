// cast.js: the clients of a script, by kind: those of test/checker, and plain ones that send what the
// script says.

import { RecoveringClient } from '../checker/client.js';
import { Person, Visitor } from '../checker/people.js';
import { Publisher } from '../checker/publisher.js';
import { PusherClient } from '../checker/pusher-client.js';
import { StateClient, stateRecorder } from '../checker/state-clients.js';
import { PlainClient, tokenFor } from './plain-client.js';

/** Messages of a publisher without a reply at a time. */
const WINDOW = 32;

/** @import { Stage } from './stage.js' */
/**
 * @typedef {object} Part of a client, as a script has it
 * @property {string} who its name in the script @property {string} as a kind
 * @property {number} [server] that it connects to first @property {string[]} [rooms]
 * @property {string} [user] @property {Record<string, any>} [claims] of its token
 * @property {string} [door] of a plain client: `native`, `pusher` or `centrifugo`
 */

/**
 * Creates a client, and lets the end of the run know of it: there everybody's lists, maps and markers
 * are compared.
 * @type {Readonly<Record<string, (stage: Stage, part: Part, id: number) => any>>}
 */
export const KINDS = Object.freeze({
  listener: (stage, part, id) =>
    added(stage.workload.clients, new RecoveringClient(of(stage, part, id))),
  visitor: (stage, part, id) =>
    added(stage.population.visitors, new Visitor({ ...of(stage, part, id), last: 30 })),
  person: (stage, part, id) => added(stage.population.people, new Person(of(stage, part, id))),
  state: (stage, part, id) =>
    added(stage.population.states.clients, new StateClient(of(stage, part, id))),
  pusher: (stage, part, id) =>
    added(
      part.user ? stage.population.members : stage.population.pushers,
      new PusherClient({ ...of(stage, part, id), app: stage.plan.app }),
    ),
  publisher: ({ urls, recorder, workload }, _, id) =>
    added(workload.publishers, new Publisher({ id: `p${id}`, urls, window: WINDOW, recorder })),
  setter: ({ urls, recorder, population }, _, id) =>
    added(
      population.states.publishers,
      new Publisher({
        id: `k${id}`,
        urls,
        window: WINDOW,
        recorder: /** @type {any} */ (stateRecorder(recorder)),
      }),
    ),
  plain: ({ urls, note, others }, { server = 0, user, claims, door }, id) =>
    added(
      others,
      new PlainClient({
        ...{ id, url: urls[server], note, door },
        ...((user ?? claims) && { claims: { ...(user && { sub: user }), ...claims } }),
      }),
    ),
});

/** @param {Stage} stage @param {Part} part @param {number} id */
function of({ urls, recorder, random }, { rooms = [], user, claims }, id) {
  const token = user === undefined ? undefined : tokenFor({ sub: user, ...claims });
  return { id, urls, rooms, recorder, random, user, token };
}

/** @template T @param {any[]} list @param {T} client @returns {T} */
function added(list, client) {
  list.push(client);
  return client;
}
