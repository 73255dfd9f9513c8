// appender.js: a producer of a log: it publishes at the position where it has seen the room, as
// docs/guarantees.md says, and learns from CONFLICT where the room is.

import { Publisher } from './publisher.js';

/** After this many refusals in a row it waits until it is asked again. */
const MAX_TRIES = 4;

export class Appender extends Publisher {
  /** @param {Omit<ConstructorParameters<typeof Publisher>[0], 'window'> & {room: string}} parts */
  constructor({ room, ...parts }) {
    super({ ...parts, window: 1 });
    this.room = room;
    /** @type {import('./record.js').Expected} */
    this.position = { offset: 0 };
  }

  /** @param {number} [tries] how often others may come first */
  append(tries = MAX_TRIES) {
    const { position } = this;
    this.publish(this.room, {
      expect: position,
      settled: (outcome, { epoch = '', offset = 0, position: named }) => {
        // Of one of unknown outcome the next CONFLICT tells.
        if (outcome === 'ok') this.position = { epoch, offset };
        else if (named !== undefined) {
          this.position = named;
          if (tries > 1) this.append(tries - 1);
        }
      },
    });
  }
}
