// plants-of-webhooks.js: faults that the checker must find in records of what webhooks report.

import { RECORDED } from './model.js';
import { accepted } from './story.js';

/** @type {readonly import('./story.js').Plant[]} */
export const PLANTS_OF_WEBHOOKS = [
  {
    fault: 'webhooks lack a message that was accepted in calm',
    expected: ['I28'],
    act: (model) => {
      model.wait();
      accepted(model, RECORDED, 3);
      model.wait();
    },
    edit: (events) => {
      const at = events.findLastIndex(
        (event) => event.type === 'recorded' && !event.value.startsWith('m'),
      );
      events.splice(at, 1);
    },
  },
  {
    fault: 'a message is in two events of webhooks',
    expected: ['I28'],
    act: (model) => model.record(accepted(model, RECORDED, 1)[0]),
  },
  {
    fault: 'a message that was refused is in webhooks',
    expected: ['I28'],
    act: (model) => model.record(model.publish('a', RECORDED, 'fail')),
  },
  {
    fault: 'a message that nobody published is in webhooks',
    expected: ['I28'],
    act: (model) => model.record({ value: `z:1:${RECORDED}` }),
  },
];
