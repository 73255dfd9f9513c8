// centrifugo.js: the cost of the Centrifugo door beside the native one (doors.js), JSON and protobuf,
// and what Centrifugo's own server does with the same clients.
//
//   node loadtest/bench/centrifugo.js                     3 rounds, about 25 minutes
//   node loadtest/bench/centrifugo.js --rounds 1 --quick  to see that it works
//
// The two columns at the right have the door's JSON clients publish as well: to Fanfare, and to
// Centrifugo if its binary is in PATH (its settings: servers.js).

import { measureDoors } from './doors.js';
import { PROFILES } from './profiles.js';
import { isPresent } from './servers.js';

const LEAST_SHARE = 0.9;
const LEAST_TIMES = 5;
const MOST_KB = 0.3;
const { fanfare: NATIVE, centrifugo: JSON_CLIENT, 'centrifugo-protobuf': PROTOBUF } = PROFILES;
/** Native clients publish in the room of these members. */
const BY_NATIVES = Object.freeze({ before: NATIVE.before, after: NATIVE.after });
const ENV = Object.freeze({
  FANFARE_CENTRIFUGO: 'on',
  FANFARE_CENTRIFUGO_ALLOW: 'subscribe:*,publish:*',
});

/** @type {Readonly<Record<string, import('./doors.js').Column>>} */
const COLUMNS = Object.freeze({
  native: { title: 'native', env: ENV, profile: NATIVE },
  json: { title: 'JSON', env: ENV, profile: { ...JSON_CLIENT, ...BY_NATIVES } },
  protobuf: { title: 'protobuf', env: ENV, profile: { ...PROTOBUF, ...BY_NATIVES } },
  own: { title: 'JSON, publishing', env: ENV, profile: JSON_CLIENT, publishes: true },
  centrifugo: {
    ...{ title: 'Centrifugo, publishing', server: 'centrifugo', profile: JSON_CLIENT },
    publishes: true,
  },
});

await measureDoors({
  door: 'Centrifugo',
  native: NATIVE,
  options: `doors LIST | list of ${Object.keys(COLUMNS).join(' ')} | ${Object.keys(COLUMNS).join(',')} | which columns`,
  columnsOf: ({ doors }) =>
    Object.fromEntries(
      Object.entries(COLUMNS).filter(
        ([name, { server = 'fanfare' }]) => doors.includes(name) && isPresent(server),
      ),
    ),
  wanted: {
    deliveriesPerSecond: {
      text: `JSON, protobuf ≥ ${LEAST_SHARE} × native; ≥ ${LEAST_TIMES} × Centrifugo`,
      isGood: ({ native, json, protobuf, own, centrifugo }) =>
        Math.min(json, protobuf) >= LEAST_SHARE * native &&
        !(own < LEAST_TIMES * (centrifugo ?? 0)),
    },
    liveKbPerConnection: {
      text: `JSON, protobuf ≤ native + ${MOST_KB}`,
      isGood: ({ native, json, protobuf }) => Math.max(json, protobuf) <= native + MOST_KB,
    },
  },
});
