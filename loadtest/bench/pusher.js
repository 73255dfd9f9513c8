// pusher.js: the cost of the Pusher door beside the native one (doors.js).
//
//   node loadtest/bench/pusher.js                     3 rounds, about 12 minutes
//   node loadtest/bench/pusher.js --rounds 1 --quick  to see that it works
//   node loadtest/bench/pusher.js --other ../before   and the doors of another checkout
//
// Both doors belong to the same kind of server with a shared app.

import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { measureDoors } from './doors.js';
import { commitOf } from './machine.js';
import { PROFILES } from './profiles.js';

const KEY = 'bench';
const LEAST_SHARE = 0.9;
const MOST_KB = 0.3;
const APPS = join(tmpdir(), `fanfare-bench-apps-${process.pid}.json`);
const ENV = Object.freeze({ FANFARE_PUSHER_APPS: APPS });
/** The native room's messages have the form of events, so that both doors get the same ones. */
const EVENT = Object.freeze({
  before: '{"type":"message","room":"$ROOM","payload":{"event":"e","data":',
  after: '}}',
});
const NATIVE = Object.freeze({ ...PROFILES.fanfare, ...EVENT });
/** @type {import('./profiles.js').Profile} */
const PUSHER = {
  path: `/app/${KEY}?protocol=7&client=js&version=8.6.0`,
  join: [
    {
      wait: 'connection_established',
      send: '{"event":"pusher:subscribe","data":{"auth":"","channel":"$ROOM"}}',
    },
  ],
  ready: 'subscription_succeeded',
  ...EVENT,
  echo: null,
};

writeFileSync(APPS, JSON.stringify([{ id: '1', key: KEY, secret: KEY.repeat(8), shared: true }]));
process.once('exit', () => rmSync(APPS));
await measureDoors({
  door: 'Pusher',
  native: NATIVE,
  options: 'other FOLDER | | | another checkout to measure in turn',
  columnsOf({ other }) {
    const native = { title: 'native', profile: NATIVE, env: ENV };
    const pusher = { title: 'Pusher', profile: PUSHER, env: ENV };
    if (other === '') return { native, pusher };
    // Older ones may not speak the protocol.
    const hasPusher = existsSync(join(other, 'src/doors/pusher'));
    const there = { checkout: other, env: hasPusher ? ENV : {} };
    const commit = commitOf(other);
    return {
      ...{ native, 'native-other': { ...native, ...there, title: `native, ${commit}` }, pusher },
      ...(hasPusher && { 'pusher-other': { ...pusher, ...there, title: `Pusher, ${commit}` } }),
    };
  },
  wanted: {
    deliveriesPerSecond: {
      text: `Pusher ≥ ${LEAST_SHARE} × native`,
      isGood: ({ native, pusher }) => pusher >= LEAST_SHARE * native,
    },
    liveKbPerConnection: {
      text: `Pusher ≤ native + ${MOST_KB}`,
      isGood: ({ native, pusher }) => pusher <= native + MOST_KB,
    },
  },
});
