// door-swarm.js: members of any door, and native publishers in the same room.
//
// Clients of other protocols cannot publish at the rate of a benchmark, or it costs them more. So the
// publishers are native clients for every door that is measured beside the native one.

import { Swarm } from './swarm.js';

const PUBLISHERS = 4;
const PUBLISHER_GROUP = 3;

export class DoorSwarm extends Swarm {
  #native;

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
    await super.aim({ ...target, profile: this.#native });
    await this.open({ count: PUBLISHERS * this.size, group: PUBLISHER_GROUP });
    await super.aim(target);
  }

  /** @override @param {Parameters<Swarm['run']>[0]} options */
  run(options) {
    return super.run({ ...options, from: PUBLISHER_GROUP, publishers: PUBLISHERS });
  }
}
