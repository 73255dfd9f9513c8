// rebalance.test.js: kill -9 of one of four workers under 4,000 clients in rooms with history, with
// the default rate of the rebalance.

import { checkBalance } from '../helpers/balance-run.js';
import { checkedTest } from '../helpers/checks.js';

const LIMIT_MS = 300_000;

checkedTest(
  'after the crash of a worker, 4,000 clients are spread evenly within five minutes',
  (checks) =>
    checkBalance(checks, { count: 4000, ratePercent: 1, settleMs: 20_000, withinMs: LIMIT_MS }),
  LIMIT_MS + 60_000,
);
