// index.js: loads the configured doors, except the native one.

/** @import { Config } from '../config/settings.js' */
/** @import { CreateDoor } from './contract.js' */

/** @typedef {{isWanted: (config: Config) => boolean, load: () => Promise<CreateDoor>}} DoorKind */

/** @type {readonly DoorKind[]} */
const KINDS = Object.freeze([
  {
    isWanted: ({ pusher }) => pusher !== null,
    load: async () => (await import('./pusher/index.js')).createDoor,
  },
  {
    isWanted: ({ centrifugo }) => centrifugo !== null,
    load: async () => (await import('./centrifugo/index.js')).createDoor,
  },
]);

/** @param {Config} config @param {readonly DoorKind[]} [kinds] @returns {Promise<CreateDoor[]>} */
export function loadDoors(config, kinds = KINDS) {
  return Promise.all(kinds.filter((kind) => kind.isWanted(config)).map((kind) => kind.load()));
}
