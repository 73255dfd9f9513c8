// history.test.js: the contract of rooms with history for every broker (src/backend/broker.js). One
// file, because the start of every kind of Redis takes longer than many of its tests.

import { expecting } from './history-expecting.js';
import { publishing } from './history-publishing.js';
import { reading } from './history-reading.js';
import { RULES } from './history-rooms.js';
import { BACKENDS, suite } from './suite.js';

suite(
  BACKENDS,
  (it) => {
    publishing(it);
    expecting(it);
    reading(it);
  },
  {
    history: Object.entries({ ...RULES, '~1': RULES.kept }).map(([name, value]) => ({
      pattern: `${name}*`,
      value,
    })),
  },
);
