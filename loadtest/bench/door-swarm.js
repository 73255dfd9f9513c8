// door-swarm.js: members of any door, and native publishers in the same room.
//
// Clients of other protocols cannot publish at the rate of a benchmark, or it costs them more. So the
// publishers are native clients for every door that is measured beside the native one.

import { openAll } from './step.js';
import { Swarm } from './swarm.js';

const PUBLISHERS = 4;
const PUBLISHER_GROUP = 3;

export class DoorSwarm extends Swarm {
  #native;
  /** @type {import('./servers.js').Target|null} */
  #target = null;
  #hasPublishers = false;

  /**
   * @param {ConstructorParameters<typeof Swarm>[0]} options
   * @param {import('./profiles.js').Profile} native of the publishers
   */
  constructor(options, native) {
    super(options);
    this.#native = native;
  }

  /** @override @param {import('./servers.js').Target} target */
  async aim(target) {
    this.#target = target;
    await super.aim(target);
  }

  /**
   * Opens the publishers before the first members.
   * @override @param {Parameters<Swarm['open']>[0]} options
   */
  async open(options) {
    if (!this.#hasPublishers && this.#target !== null) {
      this.#hasPublishers = true;
      await super.aim({ ...this.#target, profile: this.#native });
      await openAll(this, { count: PUBLISHERS * this.size, group: PUBLISHER_GROUP });
      await super.aim(this.#target);
    }
    return super.open(options);
  }

  /**
   * The server may have closed publishers, too: they come back with the next members.
   * @override @param {Parameters<Swarm['hangUp']>[0]} [options]
   */
  async hangUp(options) {
    await super.hangUp(options);
    await super.hangUp({ group: PUBLISHER_GROUP });
    this.#hasPublishers = false;
  }

  /** @override @param {Parameters<Swarm['run']>[0]} options */
  run(options) {
    return super.run({ ...options, from: PUBLISHER_GROUP, publishers: PUBLISHERS });
  }
}
